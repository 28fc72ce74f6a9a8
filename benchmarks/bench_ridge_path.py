"""A path of 25 ridges with cross-validation from one eigendecomposition, against 25 solves.

python benchmarks/bench_ridge_path.py [D,CLASSES …]        default: 512,100 1280,10 1280,100
"""

from __future__ import annotations

import sys

import numpy as np
from measure import alternately, machine

from afltool.math.ridge import Spectral, cholesky_solve
from afltool.math.ridge_choice import SpectralSystem, choose


def main(*sizes: str) -> None:
    print(machine())
    ridges = np.logspace(-3, 3, 25)
    for size in sizes or ("512,100", "1280,10", "1280,100"):
        d, classes = map(int, size.split(","))
        rng = np.random.default_rng(0)
        X = rng.normal(size=(2 * d, d))
        G, H = X.T @ X, rng.normal(size=(d, classes))

        def path(G: np.ndarray = G, H: np.ndarray = H, n: int = 2 * d) -> None:
            choose(SpectralSystem(Spectral.of(G, H), 1e6, n), ridges).weights()

        def solves(G: np.ndarray = G, H: np.ndarray = H) -> None:
            for r in ridges:
                cholesky_solve(G, H, float(r))

        one, many = alternately(path, solves, repeats=7)
        print(
            f"d = {d}, {classes} classes: path with GCV {one:.3f} s, 25 Cholesky solves (no GCV) "
            f"{many:.3f} s, ratio {many / one:.2f} (goal: at least 2)"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
