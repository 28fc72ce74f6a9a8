"""The server's side of a deep analytic network: the sums of a round → W_t, or Ω_t."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ... import memory
from ...math import ridge as rr
from ...math.blas import unpack
from ...math.gram import product
from ...math.ridge_choice import Choice
from ...math.sandwich import LowRank, bytes_needed, low_rank, reconstructing
from ...values.arrays import F64
from ...values.names import CROSS, GRAM
from ...values.parsed import Fixed
from ...values.statistics import Statistics
from ..least_squares import Problem, chosen_ridge, held_out, solve
from ..rounding import checked
from .learned import HELD_OUT, TRAINED, Learned, kept_of, kept_with_block, same_clients
from .network import ENERGY, RECONSTRUCTION
from .options import BLOCK, DeepAFLOptions

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
