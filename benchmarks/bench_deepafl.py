"""Seconds per layer of DeepAFL against the floor and against the straightforward procedure.

    python benchmarks/bench_deepafl.py [ROWS] [CLASSES]      50,000 rows and 100 classes, d = 1,280

A layer is two rounds, block-t and weights-t, with Φ_t carried between them. The floor is one
product and two symmetric ones of N × 1024 × 1024 in float32, at the rates of this run. The
straightforward procedure follows the paper's formulas to the letter: full products, dense Ω, two
full eigendecompositions, float32. All are taken in turn, layer by layer; least seconds count,
because everything else that this machine does only adds to them. With OPENBLAS_NUM_THREADS=1 and
OMP_NUM_THREADS=1 processor time is counted, which other work on the machine hardly changes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import numpy as np
import scipy.linalg
from measure import machine
from scipy.linalg.blas import ssyrk

from afltool.heads import make_head
from afltool.heads.base import Carried, Head
from afltool.heads.random import activate, projection
from afltool.statistics import Sum

WIDTH, DIM, BLOCK, LAYERS = 1024, 1280, 4096, 5
LAMBDA, GAMMA = 1.0, 0.1
ALONE = os.environ.get("OPENBLAS_NUM_THREADS") == os.environ.get("OMP_NUM_THREADS") == "1"
CLOCK = time.process_time if ALONE else time.perf_counter
Array = np.ndarray


def cut(X: Array) -> list[Array]:
    return [X[i : i + BLOCK] for i in range(0, len(X), BLOCK)]


class Ours:
    """The head as local-stats and solve drive it, one block of rows after another."""

    def __init__(self, X: Array, y: Array, compute: str) -> None:
        options = {"layers": 99, "width": WIDTH, "compute": compute, "ridge": LAMBDA}
        self.head: Head = make_head("deepafl", options).bind(DIM, int(y.max()) + 1)
        self.blocks = list(zip(cut(X), cut(y), strict=True))
        self.carried: list[Carried | None] = [None] * len(self.blocks)
        self.round()

    def round(self) -> None:
        running: Sum | None = None
        for k, (X, y) in enumerate(self.blocks):
            one, self.carried[k] = self.head.gather(X, y, self.carried[k])
            running = Sum(one) if running is None else running.add(one)
        assert running is not None
        self.head = self.head.absorb(running.result())

    def layer(self) -> None:
        self.round()
        self.round()


class Straightforward:
    """Algorithm 1 as printed, on all rows at once, float32."""

    def __init__(self, X: Array, y: Array) -> None:
        A = projection("linear-uniform", 0, 0, DIM, WIDTH)
        self.phi = activate("tanh", A(X))
        self.Y = np.eye(int(y.max()) + 1, dtype=np.float32)[y]
        self.W = self.weights()
        self.t = 0

    def weights(self) -> Array:
        G = self.phi.T @ self.phi.copy()  # a copy, or NumPy takes the symmetric routine
        H = self.phi.T @ self.Y
        return scipy.linalg.solve(G + np.float32(LAMBDA) * np.eye(WIDTH, dtype=np.float32), H)

    def layer(self) -> None:
        self.t += 1
        F = activate("gelu", projection("linear-uniform", 0, self.t, WIDTH, WIDTH)(self.phi))
        R = self.Y - self.phi @ self.W
        Pi, Upsilon = F.T @ F.copy(), F.T @ R
        lam_f, V = scipy.linalg.eigh(Pi)
        lam_w, U = scipy.linalg.eigh(self.W @ self.W.T)
        inner = (V.T @ Upsilon) @ (self.W.T @ U) / (np.float32(GAMMA) + np.outer(lam_f, lam_w))
        self.phi = self.phi + F @ (V @ inner @ U.T)
        self.W = self.weights()


def floor(blocks: list[Array], B: Array) -> None:
    for X in blocks:
        X @ B
        ssyrk(1.0, X.T)
        ssyrk(1.0, X.T)


def seconds(work: Callable[[], None]) -> float:
    begun = CLOCK()
    work()
    return CLOCK() - begun


def main() -> None:
    rows, classes = (int(a) for a in [*sys.argv[1:], *("50000", "100")[len(sys.argv) - 1 :]])
    print(machine())
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, rows)
    X = rng.normal(size=(classes, DIM))[y] * 0.2 + rng.normal(size=(rows, DIM))
    X = X.astype(np.float32)
    B = projection("linear-uniform", 0, 1, WIDTH, WIDTH).A
    F = cut(rng.normal(size=(rows, WIDTH)).astype(np.float32))
    kinds = {
        "floor": lambda: floor(F, B),
        "float32 products": Ours(X, y, "float32").layer,
        "float64 throughout": Ours(X, y, "float64").layer,
        "straightforward": Straightforward(X, y).layer,
    }
    took: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(LAYERS):
        for name, work in kinds.items():
            took[name].append(seconds(work))
    least = min(took["floor"])
    print(f"{rows} × {DIM} rows, {classes} classes, width {WIDTH}; seconds per layer", end=" ")
    print("(one thread, processor time)" if ALONE else "(all threads, wall clock)")
    for name, times in took.items():
        median = float(np.median(times))
        print(
            f"{name:20} {min(times):6.2f} (median {median:5.2f})  {min(times) / least:5.2f} × floor"
        )


if __name__ == "__main__":
    main()
