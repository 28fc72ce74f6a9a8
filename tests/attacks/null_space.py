"""new: weights of features that no row has.

Malicious server: a head with a back door, where the sums say nothing.

Shows: one feature is 0 in all rows of all sites, as that of a unit that never fires. The server
gives out the solution with 10^6 as the weight of this feature for one class: the equations of the
sums hold as before, and whoever sets that feature later has its class.
Must hold: members refuse such a head, as any that is not the solution.
"""

from base import FOUR, Trial, clusters, features, np, of_sites, outcome, premise, run

from afltool.federation.compute import pack_arrays


def main(at):
    rows, taken = of_sites(at / "rows", FOUR), []
    for i, name in enumerate(FOUR):
        x, y = clusters(40 + i, seed=i)
        x[:, 2] = 0
        rows[name] = features(at / "dead", name, x, y, ["c0", "c1", "c2"])
    for size, ridge in ((1e6, 1.0), (1.0, 1.0), (1e-3, 1e-3)):
        trial = Trial(at / f"{size}-{ridge}", rows, options={"ridge": ridge}, threshold=3)
        trial.turn()
        trial.server.close(0)
        for _ in range(3):
            for name in FOUR:
                trial.join(name)
            trial.server.close(1)
        before = trial.server.head(1)
        head = trial.server.solve(1, trial.server.total(1))
        W = np.array(head.state_dict()["weights"])
        premise(not W[2].any(), "the honest head gives this feature no weight")
        W[2, 1] = size
        bad = head.restore(head.phase(), {**head.state_dict(), "weights": W})
        trial.post("office", "head", 2, pack_arrays(before, bad))
        ends = {n: outcome(lambda n=n, t=trial: t.join(n)) for n in FOUR}
        print(f"a weight of {size} with ridge {ridge}: {ends['north']}"[:200])
        if any(kind != "stops" for kind, _ in ends.values()):
            taken.append(f"{size} with ridge {ridge}")
    if taken:
        return True, f"members take a weight that no row bounds: {taken}"
    return False, "a weight of a feature that no row has is refused"


if __name__ == "__main__":
    run(main)
