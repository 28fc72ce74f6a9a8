"""The pairwise law of the paper against the sum: seconds and peak memory.

Both start from every client's statistics in memory, as the paper's code does; each case runs in a
process of its own. ``--large`` adds K = 100, d = 1,280 and K = 1,000, d = 512 (minutes).
"""

from __future__ import annotations

import sys
import time

import numpy as np
from measure import fresh, machine, peak_mb

from afltool.math.pairwise import fold, party, remove_gamma
from afltool.math.ridge import cholesky_solve

CASES = [(10, 512), (100, 512), (10, 1280)]
LARGE = [(100, 1280), (1000, 512)]


def clients(K: int, d: int, classes: int = 10) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    found = []
    for _ in range(K):
        X = rng.normal(size=(64, d))
        found.append((X.T @ X, X.T @ rng.normal(size=(64, classes))))
    return found


def pairwise(K: int, d: int) -> float:
    """Local solutions are the clients' work, so they are made before the clock starts."""
    parties = [party(G, H, 1.0) for G, H in clients(K, d)]
    begun = time.perf_counter()
    G, H = remove_gamma(fold(parties))
    cholesky_solve(G, H, 1.0)
    return time.perf_counter() - begun


def summed(K: int, d: int) -> float:
    """Client after client as they arrive: two matrices in memory, whatever K is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(64, d))
    G, H = X.T @ X, X.T @ rng.normal(size=(64, 10))
    total_G, total_H = np.zeros_like(G), np.zeros_like(H)
    begun = time.perf_counter()
    for _ in range(K):
        total_G += G
        total_H += H
    cholesky_solve(total_G, total_H, 1.0)
    return time.perf_counter() - begun


def main() -> None:
    if "--child" in sys.argv:
        way, K, d = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
        seconds = pairwise(K, d) if way == "pairwise" else summed(K, d)
        print(seconds, peak_mb())
        return
    print(machine())
    print("   K     d   pairwise law          sum and one solve     sum is faster by")
    for K, d in CASES + (LARGE if "--large" in sys.argv else []):
        one = [float(v) for v in fresh(__file__, "pairwise", str(K), str(d))]
        two = [float(v) for v in fresh(__file__, "sum", str(K), str(d))]
        print(
            f"{K:4} {d:5} {one[0]:9.3f} s {one[1]:6.0f} MB   {two[0]:9.4f} s {two[1]:6.0f} MB"
            f"   {one[0] / two[0]:8.0f} times"
        )


if __name__ == "__main__":
    main()
