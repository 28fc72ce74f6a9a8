"""new: the same members once more, and what has changed between both sums.

Member that follows the rules; a member, or the server, that proposes the second session.

Shows: a consortium sums again. In one case a site has a patient more: the difference of both grams
is this patient. In another a member has changed one number of its own a little, so that with --scale
standard a row of the others is rounded to another integer: the difference is this row. In a third
the groups of test rows begin at 65 years in place of 64: the counts tell of those who are 64.
Must hold: a site asks before anything leaves it (--again); where neither rows nor scale nor groups
may have changed, nobody is asked.
"""

from functools import partial

from base import SITES, Member, SiteRows, Trial, features, np, outcome, premise, run, triangle

CLASSES = ["a", "b", "c"]


def rows_of(seed, n):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 6)), rng.integers(0, 3, n)


def tables(at, data):
    at.mkdir(parents=True)
    for name, (x, y) in data.items():
        np.savez(at / f"{name}.npz", x=x, y=np.array(CLASSES)[y])
    return {name: at / f"{name}.npz" for name in data}


def files(at, data):
    return {name: features(at, name, x, y, CLASSES) for name, (x, y) in data.items()}


def aged(age):
    """Test rows of a site in two groups, those of ``age`` years and more being the second."""
    rng = np.random.default_rng(5)
    years, y = rng.permutation(np.arange(40, 90)), rng.integers(0, 3, 50)
    X = rng.integers(-500, 500, (50, 6)).astype(np.int16)
    return lambda: [(X, y + 3 * (years >= age))]


def sums_of_others(trial, join):
    """The last round's sums of the others, as west has them; None where a site stops."""
    said = {}
    for _ in range(14):
        for name in ("office", *SITES):
            kind, said[name] = outcome(trial.serve if name == "office" else partial(join, name))
            premise(kind != "crash", said[name])
    west = trial.member("west")
    if (last := west.newest_round() - 1) == 0:
        premise(not list(trial.place.glob("001-sums-north")), "nothing of north has left")
        print(f"{trial.place.name}: {said['north']}")
        return None
    return {k: a - west.gather(last).arrays[k] for k, a in west.total(last).arrays.items()}


def main(at):
    def more(data):
        x, y = data["north"]
        data["north"] = np.concatenate([x, [[1.0, 2, 3, 0.5, 1.5, 2.5]]]), np.append(y, 0)

    def shifted(data):
        data["west"][0][0, 0] += 0.0115

    def same(data):
        pass

    told, groups = [], {"evaluation": {"min_cell": 1, "groups": ["younger", "older"]}}
    for what, change, make, terms in (
        ("nothing", same, files, {}),
        ("a patient", more, files, {}),
        ("the scale", shifted, tables, {"scale": 16}),
        ("groups", same, files, groups),
    ):
        data = {name: rows_of(n, n) for name, n in zip(SITES, (300, 280, 100), strict=True)}
        here, found = at / what.replace(" ", "-"), []
        for k, age in (("one", 64), ("two", 65)):
            change(data) if found else None
            trial = Trial(here, make(here / k, data), place=k, **terms)

            def join(name, trial=trial, age=age):
                if trial.agreed.evaluation is None:
                    return trial.join(name)
                train = SiteRows.of_files(trial.agreed, trial.rows[name]).train
                return trial.member(name, kind=Member, rows=SiteRows(train, aged(age))).turn()

            found.append(sums_of_others(trial, join))
        premise(found[0] is not None, "the first session ends")
        if found[1] is None:
            premise(what != "nothing", "nobody asks where nothing has changed")
            continue
        name = "groups-0" if terms is groups else "gram"
        change = found[1][name] - found[0][name]
        print(what, triangle(change) if name == "gram" else change, sep="\n")
        premise(change.any() == (what != "nothing"), "the difference is of what has changed")
        if change.any():
            told.append(what)
    if told:
        return True, f"two sums of the same members tell of single rows: {', '.join(told)}"
    return False, "where rows, scale or groups may have changed sites are asked, else they are not"


if __name__ == "__main__":
    run(main)
