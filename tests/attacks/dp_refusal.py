"""adapted: limits of the session → the session with limits is refused; rows of all kinds are sent.

Anybody who sees whether a site sends: tells neighboring data apart in spite of (ε, δ).

Shows: sessions with noise of ε = 1, δ = 1e-5. Neighbors differ by one row, added or removed. With
--min-rows 50 a site of 50 rows would send, its neighbor of 49 refuse: P = 1 against P = 0, and no ε
allows that. So would a refusal because of a long row, of a class without rows, of no rows, or of
rows that were in another session.
Must hold: once a session with noise is agreed on, no refusal depends on the rows, and what is sent
has the same lengths; a session with such limits is refused when it is made.
"""

from base import SITES, SiteRows, Trial, clusters, np, of_sites, outcome, premise, run

EPSILON, DELTA = 1.0, 1e-5
NOISE = {"epsilon": EPSILON, "delta": DELTA, "clip": 4.0, "colluding": 0}


def seen(at, rows, x, y):
    """What everybody sees of north: whether it sends, and lengths."""
    trial = Trial(at, rows, noise=NOISE)
    trial.serve()
    trial.member("north", rows=SiteRows(lambda x=x, y=y: [(x, y)]))
    ends = {}
    for _ in range(4):
        ends |= {n: outcome(lambda n=n: trial.join(n)) for n in SITES}
        trial.serve()
    sizes = {p.name: p.stat().st_size for p in trial.place.glob("*-north")}
    return sizes, ends["north"]


def main(at):
    rows, broken = of_sites(at / "rows", n=50, d=5), []
    for limit in ({"min_rows": 50}, {"min_rows": 1, "max_rows": 60}, {"max_rows": 60},
                  {"protection": "signed", "min_rows": 50}):  # fmt: skip
        kind, said = outcome(lambda o=limit: Trial(at / "no", rows, noise=NOISE, **o))
        print(f"noise with {limit}: {kind}: {said if kind == 'stops' else ''}"[:150])
        if kind != "stops":
            broken.append(f"{limit}")
    x, y = clusters(51, 5, seed=1)
    x = np.rint(x * 512).astype(np.int16)
    long = x[:51].copy()
    long[50] = 32767
    cases = {"51 rows": (x, y), "50 rows": (x[:50], y[:50]), "one row": (x[:1], y[:1]),
             "no rows": (x[:0], y[:0]), "one class": (x, np.zeros_like(y)),
             "a row of the largest norm": (long, y), "the same row": (np.repeat(x[:1], 51, 0), y),
             "rows of zeros": (np.zeros_like(x), y)}  # fmt: skip
    found = {}
    for n, (what, (a, b)) in enumerate(cases.items()):
        found[what], said = seen(at / str(n), rows, a, b)
        print(f"{what}: north sends {sorted(found[what])}: {said}"[:160])
    usual = found["51 rows"]
    premise("001-sums-north" in usual, "a site of usual rows sends")
    broken += [what for what, sizes in found.items() if sizes != usual]
    if broken:
        return True, f"what is seen depends on the rows: {'; '.join(broken)}, at ε = {EPSILON}"
    return False, "what is seen of a site does not depend on its rows"


if __name__ == "__main__":
    run(main)
