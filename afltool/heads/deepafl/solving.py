"""The server's side of a deep analytic network: the sums of a round → W_t, or Ω_t.

In the variant (89) with one round the server computes every round from one sum: F_t = σ(Φ_0 B_t)
depends on nothing learned, so a client computes Z = [Φ_0, F_0, …, F_{T−1}] at once and sends
S = ZᵀZ and ZᵀY. With Φ_t = Z A_t, A_t = [I; Ω_1; …; Ω_t; 0], every sum of the layer-wise procedure
is a block expression in those two:

    G_t = A_tᵀ S A_t    H_t = A_tᵀ ZᵀY    Π_t = S[F_t, F_t]    Υ_t = (ZᵀY)[F_t] − S[F_t, :] A_t W_t

The clients send (d_Φ + T d_F)²/2 numbers, so this is for narrow layers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ... import memory
from ...math import ridge as rr
from ...math.blas import pack, unpack
from ...math.gram import product
from ...math.ridge import cholesky_solve
from ...math.ridge_choice import Choice
from ...math.sandwich import LowRank, bytes_needed, low_rank, reconstructing
from ...values.arrays import F64
from ...values.names import CROSS, GRAM, Phase
from ...values.parsed import Fixed
from ...values.statistics import Statistics
from ..least_squares import Problem, chosen_ridge, held_out, solve
from ..rounding import checked
from .learned import HELD_OUT, TRAINED, Learned, kept_of, kept_with_block, same_clients
from .network import ENERGY, RECONSTRUCTION
from .options import BLOCK, WEIGHTS, DeepAFLOptions

Facts = dict[str, Any]


def advance(
    o: DeepAFLOptions, known: Learned, total: Statistics, validation: Statistics | None
) -> tuple[Learned, Facts]:
    """One round further, and its figures for the report; `chosen` may still end the network here.

    Raises `MismatchError` where --incremental is given other clients, `NumericalError` when the
    numbers do not determine an answer.
    """
    if o.incremental:
        same_clients(known.kept, total, validation)
    if total.phase.kind == BLOCK:
        return _with_block(o, known, total, validation)
    whole, seen = _completed(o, known, total, validation)
    W, Q, facts, found = solve_weights(o, known, whole, seen)
    after = known.with_weights(W, Q, facts.get("validation_mse"))
    if found is not None:
        after = replace(after, rounding=np.array([known.moved, found]))
    if o.incremental:
        after = replace(after, kept=kept_of(whole, seen))
    return after, facts


def _completed(
    o: DeepAFLOptions, known: Learned, total: Statistics, validation: Statistics | None
) -> tuple[Statistics, Statistics | None]:
    """The sums ΦᵀΦ and ΦᵀY: as given, or computed from the thin sums that were given."""
    if not (o.incremental and known.blocks):
        return total, validation
    omega = known.blocks[-1]
    whole = known.kept[TRAINED].completed(total, omega, o.compute)
    if validation is None:
        return whole, None
    return whole, known.kept[HELD_OUT].completed(validation, omega, o.compute)


def solve_weights(
    o: DeepAFLOptions, known: Learned, total: Statistics, validation: Statistics | None
) -> tuple[F64, F64 | None, Facts, float | None]:
    """W_t = (G + λI)⁻¹ H (13), and the decoder Q_t = (G + λI)⁻¹ ΦᵀΦ_0 of (88)."""
    side = len(total.arrays[CROSS])
    memory.need(8 * 5 * side * side, f"the weights of {side} features")
    problem = Problem.of(total, drawn=o.compute)
    choice = chosen_ridge(o.lam, problem, None if isinstance(o.lam, Fixed) else validation)
    facts: Facts = {"features": side}
    if choice.ridge > 0 and not choice.path:
        # The ridge makes it positive definite, so the spectrum, which would cost more, is not
        # needed.
        W = rr.cholesky_solve(problem.G, problem.H, choice.ridge)
    else:
        W, facts = solve(problem, choice, min_norm=o.min_norm)
    found = checked(problem, choice, W, o.min_norm, known.moved)
    risk = problem.squared_error(W)
    facts |= {**choice.report(), "training_mse": risk / total.rows}
    if validation is not None:
        facts["validation_mse"] = held_out(validation, problem)(W)
    penalty = o.block_gamma * sum(float((b.Z**2).sum()) for b in known.blocks)
    facts["objective"] = risk + choice.ridge * float((W**2).sum()) + penalty
    Q = None
    if o.reconstruction:
        Q, facts["reconstruction_mse"] = _decoder(problem, choice, total)
    return W, Q, facts, found


def _decoder(problem: Problem, choice: Choice, total: Statistics) -> tuple[F64, float]:
    """Q = argmin ‖Φ_0 − ΦQ‖² + λ‖Q‖² (minimum norm for λ = 0), and its squared error a row."""
    G, H = problem.G, total.arrays[RECONSTRUCTION]
    r = choice.ridge
    Q = rr.cholesky_solve(G, H, r) if r > 0 else rr.Spectral.of(G, H).weights(0.0)
    left = rr.squared_error(Q, G, H, float(total.arrays[ENERGY][0]))
    return Q, max(left, 0.0) / total.rows


def _with_block(
    o: DeepAFLOptions, known: Learned, total: Statistics, validation: Statistics | None
) -> tuple[Learned, Facts]:
    """Ω_{t+1} from Π and Υ, (16)–(18), or with the reconstruction of Φ_0, (88)."""
    W, Upsilon = known.weights[-1], total.arrays[CROSS]
    side, dense = len(Upsilon), len(W) if o.reconstruction else 0
    needed = 8 * side * side + bytes_needed(side, dense)
    memory.need(needed, f"a layer of {side} hidden features")
    Pi = unpack(total.arrays[GRAM], np.float64)
    if o.reconstruction:
        lost = total.arrays[RECONSTRUCTION], known.decoders[-1]
        omega = reconstructing(Pi, (Upsilon, W), lost, o.reconstruction, o.block_gamma)
    else:
        omega = low_rank(Pi, Upsilon, W, o.block_gamma)
    kept = kept_with_block(known.kept, total, validation)
    after = replace(known, blocks=(*known.blocks, omega), kept=kept)
    if len(known.rounding) and not o.no_skip:  # else Φ is replaced, by one of rank C
        after = replace(after, rounding=_rounded(known, omega, Pi, total.rows))
    if o.no_skip:  # FΩ replaces Φ, so there is no gain to report
        return after, {}
    M = omega.times(W)  # F Ω W = F M
    gain = 2.0 * float((M * Upsilon).sum()) - float((M * product(Pi, M)).sum())
    return after, {"training_mse_gain": gain / total.rows}


def _rounded(known: Learned, omega: LowRank, Pi: F64, rows: int) -> F64:
    """`Learned.rounding` once Φ has a layer more: F Z moves as U does, with W = U diag(s) Qᵀ."""
    before, moved = known.rounding
    U, s, _ = np.linalg.svd(known.weights[-1], full_matrices=False)
    Z = omega.Z if omega.U is not None else product(omega.Z, U)
    squares = np.maximum((Z * product(Pi, Z)).sum(axis=0), 0.0) / rows
    share = np.divide(np.sqrt(squares), s, out=np.zeros_like(s), where=s > 0).max(initial=0.0)
    return np.array([np.hypot(before, moved * share / np.sqrt(len(U))), 0.0])


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
