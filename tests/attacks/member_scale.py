"""new: a member that chooses the scale, and so to what the rows of the others are rounded.

Malicious member, with an honest server: its rows are in the agreed range, and it breaks no rule.

Shows: with --scale standard a member has rows in which one column is near ± the agreed largest
value. They outweigh all others in its mean and deviation, so that scaled and rounded it is 0 in all
rows of the others but in the one that lies furthest out. The gram's line of that column, less the
member's own part, is this one patient, number by number; the cross says the class.
Must hold: a site refuses a scale under which a column of its rows is rounded away.
"""

from base import SITES, Trial, np, outcome, premise, run, triangle

BITS, OLDEST, WIDTH = 9, 104.0, 97.0  # fraction bits; one patient's age; years that a step covers


def main(at):
    rng = np.random.default_rng(3)

    def people(n, oldest):
        x, y = rng.normal(size=(n, 6)), rng.integers(0, 3, n)
        x[:, 0] = [oldest, *rng.integers(20, 90, n - 1)]
        return x, y

    data = {"north": people(300, OLDEST), "south": people(280, 89.0), "west": people(800, 55.0)}
    far = WIDTH * 2**BITS * np.sqrt(1380 / 800)
    data["west"][0][:, 0] = 55 + np.where(np.arange(800) % 2, far, -far)
    rows = {}
    for name, (x, y) in data.items():
        rows[name] = at / f"{name}.npz"
        np.savez(rows[name], x=x, y=np.array(["a", "b", "c"])[y])
    trial, ends = Trial(at, rows, scale=16), {}
    for _ in range(12):
        for name in ("office", *SITES):
            kind, said = outcome(trial.serve if name == "office" else lambda n=name: trial.join(n))
            premise(kind != "crash", said)
            if kind == "stops":
                ends[name] = said
    west = trial.member("west")
    print({name: said[:200] for name, said in ends.items()}, "scale:", west.scale.spread[0])
    if not (trial.site("west") / "total-2.h5").exists():
        sent = sorted(p.name for p in trial.place.glob("002-sums-*"))
        premise("north" in ends and "002-sums-north" not in sent, f"north has refused: {sent}")
        return False, "a scale that rounds a site's rows away is refused, and none of them leaves"
    total, own, scale = west.total(2).arrays, west.gather(2).arrays, west.scale
    line = triangle(total["gram"] - own["gram"])[0]
    truth = np.rint((np.float32(data["north"][0][0]) - scale.centre) / scale.spread * 2**BITS)
    print("read:", line, (total["cross"] - own["cross"])[0], "the patient:", truth)
    exact = np.array_equal(line, truth * truth[0])
    premise(exact, "the line is that of one patient")
    return True, "the features and the class of one patient of another site are read"


if __name__ == "__main__":
    run(main)
