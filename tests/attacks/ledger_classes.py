"""adapted: rounds by hand with rosters → sessions; also other names of classes, and finer features.

Server (or whoever gets two sums): a member sums the same rows twice without knowing.

Shows: a second session without cleo has a class of no rows in front of the list, other names of the
classes, or the members have new keys: it must not pass for one of other rows, for the difference of
the two sums is the gram of cleo, who is in one of them.
Must hold: each is refused before sums leave until the member says --again: rows are known by their
numbers, and the record outlives a key.
"""

from base import (
    Trial,
    clusters,
    compute,
    features,
    np,
    outcome,
    premise,
    run,
    shutil,
)  # fmt: skip

NAMES = ("anna", "bert", "cleo", "dora")
STAY = ("anna", "bert", "dora")
CLASSES = ["c0", "c1", "c2"]


def attempt(at, what, rows, new_keys=None, again=False):
    """A second session of those who stay: what they say, and the gram of cleo, if it is known."""
    trial = Trial(at, rows, names=STAY, place=what.replace(" ", "-"), new_keys=new_keys)
    ends = {}
    for _ in range(8):
        trial.serve()
        for name in STAY:
            ends[name] = outcome(lambda n=name: trial.join(n, again=again))
    sent = [n for n in STAY if trial.path("sums", 1, n).exists()]
    total = trial.total(1)
    print(f"{what}: {ends['anna'][0]}: {ends['anna'][1][:230]}; sums of {sent}")
    return total


def main(at):
    data = {name: clusters(30 + i, 5, seed=i) for i, name in enumerate(NAMES)}
    first = {n: features(at / "a", n, *data[n], CLASSES) for n in NAMES}
    one = Trial(at, first, place="first")
    premise(one.play(), "the first session ends")
    G = one.server.total(1).arrays["gram"]
    other = {n: features(at / "other", n, *clusters(30, 5, seed=40 + i), CLASSES)
             for i, n in enumerate(STAY)}  # fmt: skip
    keep = at / "states-before"
    shutil.copytree(at / "states", keep)
    premise(not isinstance(attempt(at, "other rows", other), str), "other rows are summed")

    front = {n: features(at / "b", n, data[n][0], data[n][1] + 1, ["aaa", *CLASSES]) for n in STAY}
    names = {n: features(at / "c", n, *data[n], ["benign", "other", "malign"]) for n in STAY}
    merged = {n: features(at / "d", n, data[n][0], np.minimum(data[n][1], 1), ["no", "yes"])
              for n in STAY}  # fmt: skip
    mixed = {n: features(at / "e", n, *(a[::-1] for a in data[n]), CLASSES) for n in STAY}
    fewer = {n: features(at / "f", n, *(a[:-3] for a in data[n]), CLASSES) for n in STAY}
    finer = {n: features(at / "g", n, *data[n], CLASSES, fraction_bits=10) for n in STAY}
    broken = []
    cases = {
        "the same file": first, "a class in front": front, "other names of classes": names,
        "classes merged": merged, "another order": mixed, "three rows less": fewer,
        "finer features": finer,
    }  # fmt: skip
    for what, rows in (*cases.items(), ("new keys", first)):
        shutil.rmtree(at / "states")
        shutil.copytree(keep, at / "states")
        total = attempt(at, what, rows, at / "new" if what == "new keys" else None)
        if isinstance(total, str):
            continue
        broken.append(what)
        gone = G - total.arrays["gram"]
        plain = compute.compute_statistics(
            one.agreed, compute.first_head(one.agreed),
            one.member("cleo").rows.blocks(one.agreed, False, None, None),
        )  # fmt: skip
        exact = np.array_equal(gone, plain.arrays["gram"])
        print(f"   {what}: summed without a word; total less total is the gram of cleo: {exact}")
    premise("the same file" not in broken, "the same files are refused a second time")
    if broken:
        return True, f"the same rows are summed again without --again: {'; '.join(broken)}"
    return False, "the ledger knows the rows whatever the class list and the key"


if __name__ == "__main__":
    run(main)
