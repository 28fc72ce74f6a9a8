"""adapted: local-stats --by --mask of a file → a session whose last round counts groups of test rows.

Reader of what is hidden (server, member or the place; here a member, who has the key K): recovers a
column of groups, row by row.

Shows: a round of evaluation with groups under masks. If anything that north sends held an unsalted
digest of the group of every row, whoever reads it would try all columns of 22 rows.
Must hold: what is sent says nothing that depends on rows, outside its masked numbers: nothing in it
is that of a guess, and nothing is the same at two members only because their groups are.
"""

from itertools import product

from base import SITES, SiteRows, Trial, clusters, compute, hashlib, np, of_sites, premise, run

from afltool.math.gram import FixedPoint

ROWS = 22


def main(at):
    rng = np.random.default_rng(3)
    sex = {name: rng.permutation(np.arange(ROWS) % 2) for name in SITES}
    sex["south"] = sex["north"]  # two members with the same column, and rows of their own
    trial = Trial(at, of_sites(at / "rows"), evaluation={"min_cell": 1, "groups": ["f", "m"]})
    bits = trial.agreed.space["fraction_bits"]
    for i, name in enumerate(SITES):
        x, y = clusters(ROWS, seed=10 + i)
        test = [(np.rint(x * 2**bits).astype(np.int16), y + 3 * sex[name])]
        train = SiteRows.of_files(trial.agreed, trial.rows[name]).train
        trial.member(name, rows=SiteRows(train, lambda test=test: test))
    premise(trial.play(), "the session ends")
    total = trial.server.total(2)
    premise(total.rows == 3 * ROWS, "the last round has counted the test rows")

    told, windows = {}, {}
    for name in SITES:
        data = b""
        for path in sorted(trial.place.glob(f"*-{name}")):
            number, kind, _ = path.name.split("-", 2)
            data += path.read_bytes() + trial.opened("north", kind, int(number), name)
        told[name] = data
        windows[name] = {data[i : i + 32] for i in range(len(data) - 31)}
        windows[name] |= {bytes.fromhex(w.decode()) for w in hexes(data)}
    print("bytes of north that its members can open:", len(told["north"]))

    tried, found = 0, None
    for n in (ROWS - 1, ROWS):  # the number of rows is under masks: it is guessed, too
        for start in (b"", f"groups <i8 {n}\n".encode()):
            begun = hashlib.sha256(start)
            words = (bytes(8), (1).to_bytes(8, "little"))
            halves = [b"".join(one) for one in product(words, repeat=n // 2)]
            rest = [b"".join(one) for one in product(words, repeat=n - n // 2)]
            for first in halves:
                begin = begun.copy()
                begin.update(first)
                for second in rest:
                    guess = begin.copy()
                    guess.update(second)
                    tried += 1
                    if guess.digest() in windows["north"]:
                        found = np.frombuffer(first + second, "<i8")
    right = 0 if found is None else int((found == sex["north"]).sum())
    print(f"{tried:,} columns tried: {right} of {ROWS} groups of north are right")
    alike = (windows["north"] & windows["south"]) - windows["west"]
    # Where three bytes beside what all members say are the same by chance, a run is no evidence
    # (one of eight trials has one such byte); of a digest 32 would be, of a count of groups 8.
    said = {w[:29] for w in windows["west"]} | {w[3:] for w in windows["west"]}
    alike = {w for w in alike if w[:29] not in said and w[3:] not in said}
    print(f"runs of 32 bytes that north and south share and west has not: {len(alike)}")
    task = trial.server.task(2)
    blocks = [(FixedPoint(b, bits), y) for b, y in trial.member("north").rows.test()]
    own = trial.server.layout(2).joined(compute.compute_statistics(trial.agreed, task, blocks))
    sent = np.frombuffer(trial.opened("north", "sums", 2, "north"), "<u8", own.size)
    same = int((own == sent).sum())
    print(f"of {own.size} counts {same} left as they are")
    if found is not None or alike or same > 2:
        return True, f"the groups of {right} of {ROWS} rows, {same} counts from what north has sent"
    return False, "nothing that is sent depends on the groups, but the numbers under masks"


def hexes(data):
    import re

    return re.findall(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", data)


if __name__ == "__main__":
    run(main)
