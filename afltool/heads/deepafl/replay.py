"""One round for the variant (89): the server computes every round of a network from one sum.

There F_t = σ(Φ_0 B_t) depends on nothing learned, so a client computes Z = [Φ_0, F_0, …, F_{T−1}]
at once and sends S = ZᵀZ and ZᵀY. With Φ_t = Z A_t, A_t = [I; Ω_1; …; Ω_t; 0], every sum of the
layer-wise procedure is a block expression in those two:

    G_t = A_tᵀ S A_t    H_t = A_tᵀ ZᵀY    Π_t = S[F_t, F_t]    Υ_t = (ZᵀY)[F_t] − S[F_t, :] A_t W_t

The clients send (d_Φ + T d_F)²/2 numbers, so this is for narrow layers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...cache import memory
from ...math.ridge import cholesky_solve
from ...math.sandwich import LowRank
from ...math.triangle import pack, unpack
from ...values.arrays import F64
from ...values.phases import Phase
from ...values.statistics import Statistics
from ..array_names import CROSS, GRAM
from ..least_squares import Problem
from .learned import Learned
from .options import BLOCK, WEIGHTS, DeepAFLOptions
from .solving import Facts, advance
from .sums import ENERGY, RECONSTRUCTION


class Replay:
    """G_t, H_t and S A_t, carried from layer to layer; all float64."""

    def __init__(self, total: Statistics, o: DeepAFLOptions) -> None:
        self.total, self.decoded = total, bool(o.reconstruction)
        self.width, self.hidden = o.widths
        self.S: F64 = unpack(total.arrays[GRAM], np.float64)
        self.C: F64 = np.asarray(total.arrays[CROSS], dtype=np.float64)
        self.P: F64 = self.S[:, : self.width].copy()  # S A_t
        self.G: F64 = self.S[: self.width, : self.width].copy()
        self.H: F64 = self.C[: self.width].copy()

    def at(self, t: int) -> slice:
        """Columns of F_t in Z."""
        start = self.width + t * self.hidden
        return slice(start, start + self.hidden)

    def of(self, phase: Phase, known: Learned) -> Statistics:
        """The sums that the clients would send in a phase, given W_t (d_Φ, C) and perhaps Q_t."""
        first = slice(0, self.width)
        if phase.kind == WEIGHTS:
            arrays = {GRAM: pack(self.G), CROSS: self.H}
            if self.decoded:
                arrays[RECONSTRUCTION] = self.P[first].T.copy()
                arrays[ENERGY] = np.array([np.trace(self.S[first, first])])
        else:
            F = self.at(len(known.blocks))
            arrays = {GRAM: pack(self.S[F, F]), CROSS: self.C[F] - self.P[F] @ known.weights[-1]}
            if self.decoded:
                arrays[RECONSTRUCTION] = self.S[F, first] - self.P[F] @ known.decoders[-1]
        return replace(self.total, phase=phase, arrays=arrays)

    def advance(self, t: int, omega: LowRank) -> None:
        """Φ_t → Φ_{t+1} = Φ_t + F_t Ω."""
        F, Z = self.at(t), omega.Z
        U = np.eye(self.width) if omega.U is None else omega.U
        mixed = (self.P[F].T @ Z) @ U.T
        self.G = self.G + mixed + mixed.T + U @ (Z.T @ self.S[F, F] @ Z) @ U.T
        self.H = self.H + U @ (Z.T @ self.C[F])
        self.P += (self.S[:, F] @ Z) @ U.T


def replayed(
    o: DeepAFLOptions, total: Statistics, validation: Statistics | None = None
) -> Iterator[tuple[Learned, Statistics, float, Facts]]:
    """Every round that can be computed from ``total``, in order, until the network ends.

    Yields for each round what is learned so far, the sums that the clients would have sent, the
    seconds of the solve and the facts for the report. ``validation``, the joint sum of the held-out
    clients, is replayed in the same way.
    """
    side = len(total.arrays[CROSS])
    memory.need(8 * 4 * side * side, f"replaying {o.depth} layers")
    o, known = replace(o, single_round=False), Learned()
    state = Replay(total, o)
    held = None if validation is None else Replay(validation, o)
    while (phase := known.phase(o)) is not None:
        if phase.kind == BLOCK and known.chosen(o) is not None:
            return  # --patience ends the network at the last W_t
        begun, t = time.perf_counter(), len(known.blocks)
        sums = state.of(phase, known)
        seen = None
        if held is not None and phase.kind == WEIGHTS:
            seen = held.of(phase, known)
        known, facts = advance(o, known, sums, seen)
        yield known, sums, time.perf_counter() - begun, facts
        if len(known.blocks) > t:
            for one in (state, held):
                if one is not None:
                    one.advance(t, known.blocks[-1])


def direct_mse(total: Statistics, ridge: float) -> float:
    """Training error of a plain ridge on Z, from the same sums; the network has to be better."""
    problem = Problem.of(total)
    return problem.squared_error(cholesky_solve(problem.G, problem.H, ridge)) / total.rows
