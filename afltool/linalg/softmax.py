"""Softmax regression: loss, gradient and a bound on its curvature, as sums over rows.

For fixed-point rows everything that is summed is an integer, so the sums do not depend on their
order: weights are rounded to integers such that the scores X̂V̂ are exact in float64, probabilities
and losses to multiples of 2^−24, and the gradient X̂ᵀ(P̂ − Ŷ) is an exact integer product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from ..errors import NumericalError
from .fixedpoint import EXACT_FLOAT64, LARGEST, FixedPoint, Rows

F64 = NDArray[np.float64]
BITS = 24  # of probabilities and losses: an error of 6e-8 each


def exact_weights(V: F64, largest_value: int = LARGEST) -> tuple[F64, int]:
    """V ≈ V̂ · 2^−s with V̂ integral (as float64) and the largest s that keeps X̂V̂ exact.

    ``largest_value``: of |x̂|. A score is a sum of d products, so d·|x̂|·|V̂| ≤ 2^53.
    """
    bound = EXACT_FLOAT64 // (len(V) * largest_value)
    largest = float(np.abs(V).max(initial=0.0))
    if not np.isfinite(largest):
        raise NumericalError("the weights are not finite: the iteration has diverged")
    s = int(np.floor(np.log2(bound / largest))) if largest else 0
    rounded: F64 = np.rint(V * 2.0**s)
    return rounded, s


def scores(X: Rows, V: F64) -> F64:
    """Φ V for Φ = [X, 1]: (n, C); exact products of rounded weights for fixed-point rows."""
    if not isinstance(X, FixedPoint):
        return np.asarray(np.asarray(X, np.float64) @ V[:-1] + V[-1], dtype=np.float64)
    # 2^bits stands for the constant feature, in the units of the others.
    rounded, s = exact_weights(V, max(LARGEST, 2**X.bits))
    exact = X.values.astype(np.float64) @ rounded[:-1] + rounded[-1] * 2.0**X.bits
    return np.asarray(exact * 2.0 ** -(s + X.bits), dtype=np.float64)


def probabilities(S: F64) -> tuple[F64, F64]:
    """softmax(S) row by row (n, C), and −log of it."""
    S = S - S.max(axis=1, keepdims=True)
    E = np.exp(S)
    Z = E.sum(axis=1, keepdims=True)
    return E / Z, np.log(Z) - S


def targets(y: NDArray[np.int64], classes: int, smoothing: float) -> F64:
    """One-hot labels (n, C), or (1 − ε) one-hot + ε/C."""
    Y = np.full((len(y), classes), smoothing / classes)
    Y[np.arange(len(y)), y] += 1.0 - smoothing
    return Y


def gradient_and_loss(
    X: Rows, y: NDArray[np.int64], V: F64, smoothing: float = 0.0
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Φᵀ(softmax(ΦV) − Y) (d+1, C) and the loss sum (1,), without the penalty.

    int64 in units of 2^−(bits + 24) and 2^−24 for fixed-point rows, else float64.
    """
    P, minus_log = probabilities(scores(X, V))
    Y = targets(y, V.shape[1], smoothing)
    R, loss = P - Y, (Y * minus_log).sum(axis=1)
    if not isinstance(X, FixedPoint):
        real = np.asarray(X, np.float64)
        return np.vstack([real.T @ R, R.sum(axis=0)]), np.array([loss.sum()])
    R = np.rint(R * 2.0**BITS)
    whole = np.rint(loss * 2.0**BITS).astype(np.int64).sum(dtype=np.int64)
    return _integer_product(X, R), np.array([whole])


def _integer_product(X: FixedPoint, R: F64) -> NDArray[np.int64]:
    """[X̂, 2^bits]ᵀ R̂ in blocks whose sums stay below 2^53."""
    out = np.zeros((X.dim + 1, R.shape[1]), dtype=np.int64)
    step = EXACT_FLOAT64 // (LARGEST << BITS)
    for start in range(0, len(X), step):
        block, part = X.values[start : start + step].astype(np.float64), R[start : start + step]
        out[:-1] += (block.T @ part).astype(np.int64)
        out[-1] += part.sum(axis=0).astype(np.int64) << X.bits
    return out


class Bound:
    """B = ½G + μN diag(1, …, 1, 0), factored once: B ⊗ I is above the Hessian everywhere.

    The Hessian of the loss sum is at most ½ (I − 11ᵀ/C) ⊗ ΦᵀΦ (Böhning, 1992); the penalty
    (μN/2)‖W‖², which leaves the intercept alone, adds its own curvature. B must contain it, or the
    iteration can diverge. ``G`` (d+1, d+1) is the gram with the constant feature last.
    """

    def __init__(self, G: F64, penalty: F64) -> None:
        self.penalty = penalty
        B = 0.5 * G
        B.flat[:: len(B) + 1] += penalty
        try:
            self._factor = linalg.cho_factor(B, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            raise NumericalError(
                f"½ gram + penalty ({len(G)} × {len(G)}) is not positive definite to working "
                "precision: use a larger --penalty"
            ) from None

    def step(self, V: F64, gradient: F64) -> F64:
        """V − B⁻¹(gradient): never increases the penalised loss (majorise–minimise)."""
        W: F64 = V - linalg.cho_solve(self._factor, gradient, check_finite=False)
        return W


def penalty_of(mu: float, rows: int, features: int) -> F64:
    """Diagonal of the penalty's curvature, (features + 1,): μN, and 0 for the intercept."""
    diagonal = np.full(features + 1, mu * rows)
    diagonal[-1] = 0.0
    return diagonal
