"""adapted: histograms of `scale` → the first round of a session with --scale standard.

Server (who opens the sum): knows the extremes of single patients from the round of scaling.

Shows: what a session opens of raw features. In bins, in extremes or in counts the largest value of
a single patient would stand alone. And a site of 12 rows must not take part in a session with
--min-rows 100, by its round of scaling either.
Must hold: sums and sums of squares of all rows, and class counts, are all that is opened; nothing
of it is a function of single rows; the session's least number of rows is kept before anything of a
site leaves.
"""

from base import SITES, Trial, np, outcome, premise, run

from afltool.federation.rows import PART
from afltool.heads.scaling import squares

MOST = 24  # 2^24


def tables(at, data):
    at.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, x in data.items():
        found[name] = at / f"{name}.npz"
        np.savez(found[name], x=x, y=np.array(["a", "b"])[np.arange(len(x)) % 2])
    return found


def main(at):
    rng = np.random.default_rng(2)
    data = {name: np.exp(rng.normal(size=(60, 8))) * 10.0 ** np.arange(-2, 6) for name in SITES}
    rows = tables(at / "rows", data)
    trial = Trial(at, rows, scale=MOST, min_rows=50, max_rows=60)
    premise(trial.play(), "the session ends")
    total, every = trial.server.total(1), np.concatenate(list(data.values()))
    sums = total.arrays
    print("opened of raw features:", {k: a.shape for k, a in sums.items()}, total.class_counts)
    unit = 2.0 ** (PART - MOST)
    every = every.astype(np.float32).astype(np.float64)  # as a table is read
    q = np.rint(every * unit).astype(np.int64)
    whole = squares(sums) == [int(v) for v in (q.astype(object) ** 2).sum(0)]
    premise(whole and np.array_equal(sums["sums"], q.sum(0)), "they are sums over all rows")
    extra = sorted(set(sums) - {"sums", "squares", "counts"})
    extra += ["a count"] * (set(sums["counts"].tolist()) != {len(every)})  # tells what is missing
    extremes = {float(v) for v in np.concatenate([every.max(0), every.min(0)])}
    whole = np.array(squares(sums), float) / unit**2  # their limbs are parts of these numbers
    numbers = np.concatenate([sums["sums"] / unit, whole, sums["counts"]])
    alone = [v for v in extremes if np.isclose(numbers, v, rtol=0.03).any()]
    later = trial.server.total(2).arrays
    names = sorted(later)
    print("extremes among the numbers, to 3 %:", alone, "; the next round opens", names)

    few = tables(at / "few", {**data, "north": data["north"][:12]})
    second = Trial(at / "second", few, scale=MOST, min_rows=50, max_rows=60, new_keys=at / "keys")
    ends = {}
    second.serve()
    for _ in range(3):
        for name in SITES:
            ends[name] = outcome(lambda n=name: second.join(n))
        second.serve()
    sent = sorted(p.name for p in second.place.glob("*-north"))
    print("north, with 12 rows:", ends["north"], "and has sent", sent)
    ignored = any("sums" in name for name in sent)
    beyond = tables(at / "beyond", {**data, "north": data["north"] * 1e9})
    third = Trial(at / "third", beyond, scale=MOST, min_rows=50, max_rows=60, new_keys=at / "keys")
    third.serve()
    for _ in range(3):
        for name in SITES:
            ends[name] = outcome(lambda n=name: third.join(n))
        third.serve()
    premise(
        ends["north"][0] == "stops", f"rows beyond the agreed range are refused: {ends['north']}"
    )
    clipped = third.path("sums", 1, "north").exists()
    if extra or alone or ignored or clipped or names != ["cross", "gram"]:
        return True, f"opened: {extra}, {alone}; --min-rows ignored: {ignored}; clipped: {clipped}"
    return False, "no extremes are opened, but sums over all rows; --min-rows is kept"


if __name__ == "__main__":
    run(main)
