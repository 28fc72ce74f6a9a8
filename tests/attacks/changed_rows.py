"""new: two sums of the same members, between which one patient's row has changed.

Server, or any member: asks for the session once more, after a patient of one site has withdrawn, or
a label was corrected.

Shows: all four sites agree to a second session. North has in it one row less, one more, one copy of
a row less, one feature or one label corrected. The members are the same, so no site's sums become
known; but the difference of both totals is that of the one row, so its features are read exactly.
Further: north's file is exchanged for another one while its `join` goes on, between two rounds.
Must hold: north sends nothing more unless it says --again; the same rows may be summed again, in any
order, under other names of the classes, too; a file that was exchanged ends the process.
"""

from base import (
    FOUR,
    Ledger,
    Member,
    SiteRows,
    Trial,
    clusters,
    features,
    np,
    of_sites,
    os,
    outcome,
    premise,
    run,
    stored,
    triangle,
)

from afltool.federation.place import Place


def play(trial, kinds=("north",)):
    """How north's part ends, after all have done what they can."""
    for _ in range(30):
        said = {n: outcome(lambda n=n: trial.join(n)) for n in trial.names}
        said["office"] = outcome(trial.serve)
        if set(said.values()) == {("waits", "")}:
            break
    return said["north"]


def second(at, rows, place, changed, again=False):
    """A session once more, with other rows of north; north's end, and the session."""
    trial = Trial(at, rows, threshold=4, place=place)
    trial.serve()
    north = Member(Place(str(trial.place)), trial.site("north"), trial.agreed, trial.me("north"),
                   SiteRows(lambda c=changed: [tuple(c)]), Ledger(trial.state("north") / "ledger", again))  # fmt: skip
    trial.parties["north"] = north
    return play(trial), trial


def main(at):
    rows = of_sites(at / "rows", FOUR)
    x, y = stored(rows["north"])
    x, y = np.concatenate([x, x[:1]]), np.concatenate([y, y[:1]])  # a row that is there twice
    whole = features(at / "rows", "twice", x / 2.0**9, y, ["c0", "c1", "c2"])
    os.replace(whole, rows["north"])
    premise(np.array_equal(stored(rows["north"])[0], x), "the rows are those")
    first = Trial(at, rows, threshold=4, place="first")
    premise(first.play(), "the first session ends")
    corrected, relabelled = x.copy(), y.copy()
    corrected[5, 0] += 1
    relabelled[5] = (y[5] + 1) % 3
    cases = {
        "one row less": (np.delete(x, 5, 0), np.delete(y, 5)),
        "one copy less": (x[1:], y[1:]),
        "one row more": (np.concatenate([x, x[:1] + 1]), np.concatenate([y, y[:1]])),
        "one feature": (corrected, y),
        "one label": (x, relabelled),
    }
    broken = []
    for what, changed in cases.items():
        end, trial = second(at, rows, what.replace(" ", "-"), changed)
        sent = trial.path("sums", 1, "north").exists()
        print(f"{what}: {end}; sums are sent: {sent}")
        if end[0] != "stops" or sent:
            broken.append(what)
    end, trial = second(at, rows, "again", cases["one row less"], again=True)
    row = x[5].astype(np.int64)
    apart = triangle(first.total(1).arrays["gram"]) - triangle(trial.total(1).arrays["gram"])
    print("with --again the difference is the row's:", np.array_equal(apart, np.outer(row, row)))
    premise(end == ("waits", "") and np.array_equal(apart, np.outer(row, row)), "it is worth it")
    order = np.random.default_rng(0).permutation(len(y))
    end, _ = second(at, rows, "order", (x[order], y[order]), again=True)
    premise(end == ("waits", ""), f"the same rows are summed again: {end}")

    trial = Trial(at / "rounds", rows, head="softmax", threshold=4, options={"rounds": 4})
    while "north" not in trial.parties or trial.parties["north"].newest_round() < 3:
        trial.turn()
    other = features(at / "rows", "other", *clusters(41, seed=9), ["c0", "c1", "c2"])
    os.replace(other, rows["north"])
    end = play(trial)
    print("exchanged while it goes on:", end)
    if end[0] != "stops":
        broken.append("exchanged")
    if broken:
        return True, f"sums of rows that have changed are sent: {broken}"
    return False, f"{len(cases)} changes and an exchanged file: nothing is sent without --again"


if __name__ == "__main__":
    run(main)
