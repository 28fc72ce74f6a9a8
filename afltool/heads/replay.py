"""One round for the variant (89): a server that replays all rounds from one upload.

There F_t = σ(Φ_0 B_t) depends on nothing learned, so a client computes Z = [Φ_0, F_0, …, F_{T−1}]
at once and sends S = ZᵀZ and ZᵀY. With Φ_t = Z A_t, A_t = [I; Ω_1; …; Ω_t; 0], every sum of the
layer-wise procedure is a block expression in those two:

    G_t = A_tᵀ S A_t    H_t = A_tᵀ ZᵀY    Π_t = S[F_t, F_t]    Υ_t = (ZᵀY)[F_t] − S[F_t, :] A_t W_t

The upload has (d_Φ + T d_F)²/2 numbers, so this is for narrow layers.
"""

from __future__ import annotations

import time
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .. import memory
from ..linalg.ridge import cholesky_solve
from ..linalg.sandwich import Factors
from ..linalg.triangle import pack, unpack
from ..statistics import Statistics
from ._deepafl_solve import ENERGY, RECONSTRUCTION
from .base import note_round
from .least_squares import CROSS, GRAM, Problem

if TYPE_CHECKING:
    from .deepafl import DeepAFLHead

F64 = NDArray[np.float64]


class Replay:
    """G_t, H_t and S A_t, carried from layer to layer; all float64."""

    def __init__(self, total: Statistics, head: DeepAFLHead) -> None:
        self.total, self.decoded = total, bool(head.options.reconstruction)
        self.width, self.hidden = head.options.widths
        self.S: F64 = unpack(total.arrays[GRAM], np.float64)
        self.C: F64 = np.asarray(total.arrays[CROSS], dtype=np.float64)
        self.P: F64 = self.S[:, : self.width].copy()  # S A_t
        self.G: F64 = self.S[: self.width, : self.width].copy()
        self.H: F64 = self.C[: self.width].copy()

    def at(self, t: int) -> slice:
        """Columns of F_t in Z."""
        start = self.width + t * self.hidden
        return slice(start, start + self.hidden)

    def of_weights(self, phase: str) -> Statistics:
        """What the clients' sums of a phase weights-t would be."""
        arrays = {GRAM: pack(self.G), CROSS: self.H}
        if self.decoded:
            first = slice(0, self.width)
            arrays[RECONSTRUCTION] = self.P[first].T.copy()
            arrays[ENERGY] = np.array([np.trace(self.S[first, first])])
        return replace(self.total, phase=phase, arrays=arrays)

    def of_block(self, phase: str, t: int, head: DeepAFLHead) -> Statistics:
        """What they would be for Ω_{t+1}, given W_t (d_Φ, C) and perhaps Q_t."""
        F = self.at(t)
        arrays = {GRAM: pack(self.S[F, F]), CROSS: self.C[F] - self.P[F] @ head.weights[-1]}
        if self.decoded:
            arrays[RECONSTRUCTION] = self.S[F, : self.width] - self.P[F] @ head.decoders[-1]
        return replace(self.total, phase=phase, arrays=arrays)

    def advance(self, t: int, omega: Factors) -> None:
        """Φ_t → Φ_{t+1} = Φ_t + F_t Ω."""
        F, Z = self.at(t), omega.Z
        U = np.eye(self.width) if omega.U is None else omega.U
        mixed = (self.P[F].T @ Z) @ U.T
        self.G = self.G + mixed + mixed.T + U @ (Z.T @ self.S[F, F] @ Z) @ U.T
        self.H = self.H + U @ (Z.T @ self.C[F])
        self.P += (self.S[:, F] @ Z) @ U.T


def replayed(
    head: DeepAFLHead, total: Statistics, validation: Statistics | None = None
) -> DeepAFLHead:
    """The head after the one round of --single-round: every round that ``total`` stands for.

    ``validation``, the held-out clients' joint sum, is replayed beside it.
    """
    begun = time.perf_counter()
    side = len(total.arrays[CROSS])
    memory.need(8 * 4 * side * side, f"replaying {head.options.depth} layers")
    start, layered = copy(head), copy(head)
    layered.options, layered.report = replace(head.options, single_round=False), {}
    layered = _all_rounds(layered, total, validation)
    after = copy(layered)
    after.options = head.options
    note_round(start, after, total, time.perf_counter() - begun)
    upload, rounds = after.report["phases"].pop(), layered.report["phases"]
    sent = {"upload_bytes": 0, "download_bytes": 0}  # nothing travels in a replayed round
    after.report = {**layered.report, "phases": [upload, *({**one, **sent} for one in rounds)]}
    ridge = rounds[-1]["ridge"]
    if ridge > 0:
        after.report["direct_ridge_mse"] = direct_mse(total, ridge)
    return after


def _all_rounds(head: DeepAFLHead, total: Statistics, validation: Statistics | None) -> DeepAFLHead:
    state = Replay(total, head)
    held = None if validation is None else Replay(validation, head)
    while (phase := head.phase()) is not None:
        t = len(head.blocks)
        if phase.startswith("weights"):
            seen = None if held is None else held.of_weights(phase)
            head = head.absorb(state.of_weights(phase), seen)
            continue
        head = head.absorb(state.of_block(phase, t, head))
        for one in (state, held):
            if one is not None:
                one.advance(t, head.blocks[-1])
    return head


def direct_mse(total: Statistics, ridge: float) -> float:
    """Training error of a plain ridge on Z, which the same upload allows and must be beaten."""
    problem = Problem.of(total)
    return problem.squared_error(cholesky_solve(problem.G, problem.H, ridge)) / total.rows
