"""One round for the variant (89): a server that replays all rounds from one upload.

There F_t = σ(Φ_0 B_t) depends on nothing learned, so a client computes Z = [Φ_0, F_0, …, F_{T−1}]
at once and sends S = ZᵀZ and ZᵀY. With Φ_t = Z A_t, A_t = [I; Ω_1; …; Ω_t; 0], every sum of the
layer-wise procedure is a block expression in those two:

    G_t = A_tᵀ S A_t    H_t = A_tᵀ ZᵀY    Π_t = S[F_t, F_t]    Υ_t = (ZᵀY)[F_t] − S[F_t, :] A_t W_t

The upload has (d_Φ + T d_F)²/2 numbers, so this is for narrow layers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..linalg.ridge import cholesky_solve
from ..linalg.sandwich import Factors
from ..linalg.triangle import pack, unpack
from ..statistics import Statistics
from .least_squares import CROSS, GRAM, Problem

if TYPE_CHECKING:
    from .deepafl import DeepAFLHead

F64 = NDArray[np.float64]


class Replay:
    """G_t, H_t and S A_t, carried from layer to layer; all float64."""

    def __init__(self, total: Statistics, width: int, hidden: int) -> None:
        self.total, self.width, self.hidden = total, width, hidden
        self.S: F64 = unpack(total.arrays[GRAM], np.float64)
        self.C: F64 = np.asarray(total.arrays[CROSS], dtype=np.float64)
        self.P: F64 = self.S[:, :width].copy()  # S A_t
        self.G: F64 = self.S[:width, :width].copy()
        self.H: F64 = self.C[:width].copy()

    def at(self, t: int) -> slice:
        """Columns of F_t in Z."""
        start = self.width + t * self.hidden
        return slice(start, start + self.hidden)

    def of_weights(self, phase: str) -> Statistics:
        """What the clients' sums of a phase weights-t would be."""
        return replace(self.total, phase=phase, arrays={GRAM: pack(self.G), CROSS: self.H})

    def of_block(self, phase: str, t: int, W: F64) -> Statistics:
        """What they would be for Ω_{t+1}, given W_t (d_Φ, C)."""
        F = self.at(t)
        arrays = {GRAM: pack(self.S[F, F]), CROSS: self.C[F] - self.P[F] @ W}
        return replace(self.total, phase=phase, arrays=arrays)

    def advance(self, t: int, omega: Factors) -> None:
        """Φ_t → Φ_{t+1} = Φ_t + F_t Ω."""
        F, Z, U = self.at(t), omega.Z, omega.U
        mixed = (self.P[F].T @ Z) @ U.T
        self.G = self.G + mixed + mixed.T + U @ (Z.T @ self.S[F, F] @ Z) @ U.T
        self.H = self.H + U @ (Z.T @ self.C[F])
        self.P += (self.S[:, F] @ Z) @ U.T


def replay(head: DeepAFLHead, total: Statistics) -> DeepAFLHead:
    """The layer-wise head that has absorbed every round that ``total`` stands for."""
    o = head.options
    state = Replay(total, *o.widths)
    for t in range(o.depth + 1):
        head = head.absorb(state.of_weights(f"weights-{t}"))
        if t < o.depth:
            head = head.absorb(state.of_block(f"block-{t + 1}", t, head.weights[-1]))
            state.advance(t, head.blocks[-1])
    return head


def direct_mse(total: Statistics, ridge: float) -> float:
    """Training error of a plain ridge on Z, which the same upload allows and must be beaten."""
    problem = Problem.of(total)
    return problem.squared_error(cholesky_solve(problem.G, problem.H, ridge)) / total.rows
