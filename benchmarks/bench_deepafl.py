"""Seconds per layer of DeepAFL against the floor and against the straightforward procedure.

    python benchmarks/bench_deepafl.py [ROWS [CLASSES [LAYERS]]]     50,000 × 1,280, 100 classes, 5

A layer is two rounds, block-t and weights-t, with Φ_t carried between them. The floor is one
product and two symmetric ones of N × 1024 × 1024 in float32, at the rates of this run. The
straightforward procedure is that of the paper's released script: batches of 256 rows in PyTorch,
F_t made in both rounds, W Rᵀ F (d_Φ × d_F) sent where Fᵀ R would do, full products, dense Ω, two
full eigendecompositions, an inverse, all in float32. Its lean form reads the paper's formulas with
F_t kept and all rows at once. All are taken in turn, layer by layer; least seconds count, because
everything else that this machine does only adds to them. With OPENBLAS_NUM_THREADS=1 and
OMP_NUM_THREADS=1 processor time is counted, which other work on the machine hardly changes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.linalg
import torch
from measure import machine
from scipy.linalg.blas import sgemm, ssyrk

from afltool.heads import make_head
from afltool.heads.base import Head
from afltool.heads.projections import activate, projection
from afltool.memory import Carried

WIDTH, DIM, BLOCK = 1024, 1280, 4096
LAMBDA, GAMMA = 1.0, 0.1
ALONE = os.environ.get("OPENBLAS_NUM_THREADS") == os.environ.get("OMP_NUM_THREADS") == "1"
CLOCK = time.process_time if ALONE else time.perf_counter
Array = np.ndarray


def cut(X: Array) -> list[Array]:
    return [X[i : i + BLOCK] for i in range(0, len(X), BLOCK)]


class Ours:
    """The head as local-stats and solve drive it, one block of rows after another."""

    def __init__(self, X: Array, y: Array, **more: Any) -> None:
        options = {"layers": 99, "width": WIDTH, "ridge": LAMBDA, **more}
        self.head: Head = make_head("deepafl", options).bind(DIM, int(y.max()) + 1)
        self.blocks = list(zip(cut(X), cut(y), strict=True))
        self.carried: Carried = Carried()
        self.round()

    def round(self) -> None:
        total, self.carried = self.head.gather(self.blocks, carried=self.carried)
        self.head, _ = self.head.absorb(total)

    def layer(self) -> None:
        self.round()
        self.round()

    def predicted(self) -> Array:
        phi = np.concatenate([one["phi"] for one in self.carried.blocks.values()])
        return (phi @ self.head.weights[-1].astype(phi.dtype)).argmax(1)


class Straightforward:
    """What the released script does in a layer, without its loading of single rows."""

    BATCH = 256

    def __init__(self, X: Array, y: Array) -> None:
        self.t = 0
        self.phi = torch.tanh(linear(0, DIM)(torch.from_numpy(X)))
        self.Y = torch.eye(int(y.max()) + 1)[torch.from_numpy(y)]
        self.W = self.weights(self.phi.T @ self.phi, self.phi.T @ self.Y)

    def weights(self, G: torch.Tensor, H: torch.Tensor) -> torch.Tensor:
        return torch.inverse(G + LAMBDA * torch.eye(WIDTH)) @ H

    def layer(self) -> None:
        self.t += 1
        B = linear(self.t, WIDTH)
        Pi, WRF = torch.zeros(WIDTH, WIDTH), torch.zeros(WIDTH, WIDTH)
        for phi, Y in self.batches():
            F = torch.nn.functional.gelu(B(phi))
            R = Y - phi @ self.W
            Pi += F.T @ F
            WRF += self.W @ R.T @ F
        omega = self.omega(Pi, WRF)
        G, H, after = torch.zeros(WIDTH, WIDTH), torch.zeros(WIDTH, self.Y.shape[1]), []
        for phi, Y in self.batches():
            following = phi + torch.nn.functional.gelu(B(phi)) @ omega
            G += following.T @ following
            H += following.T @ Y
            after.append(following)
        self.phi = torch.cat(after)
        self.W = self.weights(G, H)

    def predicted(self) -> Array:
        return (self.phi @ self.W).argmax(1).numpy()

    def omega(self, Pi: torch.Tensor, WRF: torch.Tensor) -> torch.Tensor:
        """(17), transposed: both eigendecompositions in full."""
        lam_w, U = torch.linalg.eigh(self.W @ self.W.T)
        lam_f, V = torch.linalg.eigh(Pi)
        inner = (U.T @ WRF @ V) / (GAMMA + torch.outer(lam_w, lam_f))
        return (U @ inner @ V.T).T

    def batches(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for i in range(0, len(self.phi), self.BATCH):
            yield self.phi[i : i + self.BATCH], self.Y[i : i + self.BATCH]


def linear(number: int, fan_in: int) -> torch.nn.Linear:
    """The same random numbers as ours, as a layer of PyTorch."""
    made = projection(0, number, fan_in, WIDTH)
    layer = torch.nn.Linear(fan_in, WIDTH)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(made.A.T))
        layer.bias.copy_(torch.from_numpy(made.a))
    return layer.requires_grad_(False)


class Lean:
    """Algorithm 1 as printed, on all rows at once, F_t kept, float32."""

    def __init__(self, X: Array, y: Array) -> None:
        A = projection(0, 0, DIM, WIDTH)
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
        F = activate("gelu", projection(0, self.t, WIDTH, WIDTH)(self.phi))
        R = self.Y - self.phi @ self.W
        Pi, Upsilon = F.T @ F.copy(), F.T @ R
        lam_f, V = scipy.linalg.eigh(Pi)
        lam_w, U = scipy.linalg.eigh(self.W @ self.W.T)
        inner = (V.T @ Upsilon) @ (self.W.T @ U) / (np.float32(GAMMA) + np.outer(lam_f, lam_w))
        self.phi = self.phi + F @ (V @ inner @ U.T)
        self.W = self.weights()


def floor(blocks: list[Array], B: Array) -> None:
    for X in blocks:
        sgemm(1.0, B.T, X.T)  # of the same library: see product() in math/gram.py
        ssyrk(1.0, X.T)
        ssyrk(1.0, X.T)


def seconds(work: Callable[[], None]) -> float:
    begun = CLOCK()
    work()
    return CLOCK() - begun


def main() -> None:
    given = sys.argv[1:]
    rows, classes, layers = (int(a) for a in [*given, *("50000", "100", "5")[len(given) :]])
    print(machine())
    if ALONE:
        torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, rows)
    X = rng.normal(size=(classes, DIM))[y] * 0.2 + rng.normal(size=(rows, DIM))
    X = X.astype(np.float32)
    B = projection(0, 1, WIDTH, WIDTH).A
    F = cut(rng.normal(size=(rows, WIDTH)).astype(np.float32))
    ours, theirs = Ours(X, y), Straightforward(X, y)
    kinds = {
        "floor": lambda: floor(F, B),
        "float32 products": ours.layer,
        "float32, --incremental": Ours(X, y, incremental=True).layer,
        "float64 throughout": Ours(X, y, compute="float64").layer,
        "straightforward": theirs.layer,
        "straightforward, lean": Lean(X, y).layer,
    }
    took: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(layers):
        for name, work in kinds.items():
            took[name].append(seconds(work))
    least = min(took["floor"])
    print(f"{rows} × {DIM} rows, {classes} classes, width {WIDTH}; seconds per layer", end=" ")
    print("(one thread, processor time)" if ALONE else "(all threads, wall clock)")
    for name, times in took.items():
        median = float(np.median(times))
        print(
            f"{name:23} {min(times):6.2f} (median {median:5.2f})  {min(times) / least:5.2f} × floor"
            f"  {min(times) / min(took['float32 products']):5.2f} × float32 products"
        )
    equal = (ours.predicted() == theirs.predicted()).mean()
    print(f"training predictions of ours and of the straightforward one agree: {equal:.3%}")


if __name__ == "__main__":
    main()
