"""AFL's dummy experiment (appendix D): how far is the aggregated head from the centralized one?

X ~ N(0, 1), 10,000 × 512, 10 classes of as many rows, dealt evenly to K clients; the deviation is
the sum of |W_central − W_aggregated| over all entries, averaged over runs. The paper's text says
neither the distribution nor that sum in so many words: App_Dummy.ipynb of its released code does.
Four ways of aggregating: the pairwise law as the paper prints it, signs corrected, without and with
the RI process (γ = 1); the same law by one solve a merge, as the package has it, with RI; and the
sum of statistics. Row "published" is the paper's table, from its text.

    python examples/dummy_experiment.py --runs 5        about 6 minutes on 2 cores
    python examples/dummy_experiment.py --runs 1 --clients 2 10 20
"""

from __future__ import annotations

import argparse
from functools import partial, reduce

import numpy as np
import scipy.linalg
from rich.console import Console
from rich.table import Table

from afltool.errors import NumericalError
from afltool.math.pairwise import Party, fold, party, remove_gamma
from afltool.math.ridge import cholesky_solve

PUBLISHED = {
    "without RI": [7.83e-14, 1.76e-12, 9.86e-1, 5.90, 5.93e4, 3.67e12],
    "with RI": [4.94e-14, 1.74e-12, 5.09e-10, 8.45e-10, 7.57e-10, 7.81e-10],
}
CLIENTS = [2, 10, 20, 50, 100, 200]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    args = parser.parse_args()
    found = {
        K: np.mean([deviations(seed, K, args.rows, args.features) for seed in range(args.runs)], 0)
        for K in args.clients
    }
    table = Table(title=f"sum of |W_central − W_aggregated|, mean of {args.runs} runs")
    table.add_column("K")
    for K in args.clients:
        table.add_column(str(K), justify="right")
    names = [
        "printed law without RI",
        "printed law with RI, γ = 1",
        "one solve a merge, with RI",
        "sum and one solve",
    ]
    for i, name in enumerate(names):
        table.add_row(name, *(f"{found[K][i]:.2e}" for K in args.clients))
    for name, values in PUBLISHED.items():
        known = dict(zip(CLIENTS, values, strict=True))
        cells = (f"{known[K]:.2e}" if K in known else "–" for K in args.clients)
        table.add_row(f"published, {name}", *cells, style="dim")
    Console().print(table)


def deviations(seed: int, K: int, rows: int, features: int) -> list[float]:
    """Deviation of the printed law without and with RI, of the package's, of the sum, in a run."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features))
    Y = np.eye(10)[rng.permutation(np.arange(rows) % 10)]
    central = scipy.linalg.lstsq(X, Y)[0]
    parts = zip(np.array_split(X, K), np.array_split(Y, K), strict=True)
    sums = [(x.T @ x, x.T @ y) for x, y in parts]
    without = reduce(merge_printed, (_unregularised(G, H) for G, H in sums)).W
    uploads = [party(G, H, 1.0) for G, H in sums]
    merged = [remove_gamma(way(uploads)) for way in (partial(reduce, merge_printed), fold)]
    total = sum(G for G, _ in sums), sum(H for _, H in sums)
    found = [without, *(cholesky_solve(G, H, 0.0) for G, H in (*merged, total))]
    return [float(np.abs(central - W).sum()) for W in found]


def merge_printed(u: Party, v: Party) -> Party:
    """The law as the paper prints it, signs corrected: W = 𝒲_u W_u + 𝒲_v W_v, by inverses.

    The package merges by one solve instead, which is the same and loses fewer digits.
    """
    R_u, R_v, R = np.linalg.inv(u.C), np.linalg.inv(v.C), np.linalg.inv(u.C + v.C)
    one = np.eye(len(R))
    A, B = R_u @ v.C, R_v @ u.C
    W = (one - A + A @ R @ v.C) @ u.W + (one - B + B @ R @ u.C) @ v.W
    return Party(u.C + v.C, W, u.gamma + v.gamma)


def _unregularised(G: np.ndarray, H: np.ndarray) -> Party:
    """A local solution with γ = 0 whatever the rank, as the paper's ablation has it."""
    try:
        return party(G, H, 0.0)
    except NumericalError:  # fewer rows than features: the inverse of rounding errors
        return Party(G, np.linalg.inv(G) @ H)


if __name__ == "__main__":
    main()
