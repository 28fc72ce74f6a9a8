"""The server's side of a deep analytic network: one total → W_t, or Ω_t."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import memory
from ..errors import InvalidDataError
from ..linalg import ridge as rr
from ..linalg.gram import product
from ..linalg.sandwich import bytes_needed, low_rank, reconstructing
from ..linalg.triangle import unpack
from ..statistics import Statistics
from .least_squares import CROSS, GRAM, Choice, Problem, held_out, solve

if TYPE_CHECKING:
    from .deepafl import DeepAFLHead

F64 = NDArray[np.float64]
RECONSTRUCTION, ENERGY = "reconstruction", "energy"  # arrays of (88)


def solve_weights(
    head: DeepAFLHead, total: Statistics, validation: Statistics | None
) -> tuple[DeepAFLHead, dict[str, Any]]:
    """W_t = (G + λI)⁻¹ H (13), and the decoder Q_t = (G + λI)⁻¹ ΦᵀΦ_0 of (88)."""
    o = head.options
    side = len(total.arrays[CROSS])
    memory.need(8 * 5 * side * side, f"the weights of {side} features")
    problem = Problem.of(total)
    assert o.ridge is not None
    several = None if isinstance(o.ridge, float) else validation
    choice = Choice.make(o.ridge, problem, several)
    facts: dict[str, Any] = {"features": side}
    if choice.ridge > 0 and choice.spectral is None:
        # Positive definite by the ridge: no look at the spectrum, which costs more than this.
        W = rr.cholesky_solve(problem.G, problem.H, choice.ridge)
    else:
        W, facts = solve(problem, choice, min_norm=o.min_norm)
    risk = problem.squared_error(W)
    facts |= {**choice.report(), "training_mse": risk / total.rows}
    if validation is not None:
        facts["validation_mse"] = held_out(validation, problem)(W)
    penalty = o.block_gamma * sum(float((b.Z**2).sum()) for b in head.blocks)
    facts["objective"] = risk + choice.ridge * float((W**2).sum()) + penalty
    after = copy(head)
    after.weights = (*head.weights, W)
    if o.reconstruction:
        Q, facts["reconstruction_mse"] = _decoder(problem, choice, total)
        after.decoders = (*head.decoders, Q)
    return after, facts


def _decoder(problem: Problem, choice: Choice, total: Statistics) -> tuple[F64, float]:
    """Q = argmin ‖Φ_0 − ΦQ‖² + λ‖Q‖² (minimum norm for λ = 0), and what it leaves a row."""
    G, H = problem.G, total.arrays[RECONSTRUCTION]
    r = choice.ridge
    Q = rr.cholesky_solve(G, H, r) if r > 0 else rr.Spectral.of(G, H).weights(0.0)
    left = rr.squared_error(Q, G, H, float(total.arrays[ENERGY][0]))
    return Q, max(left, 0.0) / total.rows


def solve_block(head: DeepAFLHead, total: Statistics) -> tuple[DeepAFLHead, dict[str, Any]]:
    """Ω_{t+1} from Π and Υ, (16)–(18), or with the reconstruction of Φ_0, (88)."""
    if total.rows == 0:
        raise InvalidDataError("the total has 0 rows: there is nothing to solve")
    o = head.options
    W, Upsilon = head.weights[-1], total.arrays[CROSS]
    side, dense = len(Upsilon), len(W) if o.reconstruction else 0
    needed = 8 * side * side + bytes_needed(side, dense)
    memory.need(needed, f"a layer of {side} hidden features")
    Pi = unpack(total.arrays[GRAM], np.float64)
    if o.reconstruction:
        lost = total.arrays[RECONSTRUCTION], head.decoders[-1]
        omega = reconstructing(Pi, (Upsilon, W), lost, o.reconstruction, o.block_gamma)
    else:
        omega = low_rank(Pi, Upsilon, W, o.block_gamma)
    after = copy(head)
    after.blocks = (*head.blocks, omega)
    M = omega.times(W)  # F Ω W = F M
    gain = 2.0 * float((M * Upsilon).sum()) - float((M * product(Pi, M)).sum())
    return after, {"training_mse_gain": gain / total.rows}
