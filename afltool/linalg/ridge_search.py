"""A ridge for systems too large for an eigendecomposition: one Cholesky factorisation a ridge.

(G + P) W = H with a diagonal penalty P, which may differ between blocks of features. The matrix is
built afresh for each ridge and factored in place, so one D × D matrix is in memory, ever. With
(G + P) W = H the squared error needs no G either: ‖Y − XW‖² = ‖Y‖² − tr(WᵀH) − tr(WᵀPW).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from ..errors import NumericalError
from . import accelerator

F64 = NDArray[np.float64]

EXACT_SIDE = 2048  # up to here degrees of freedom come from the whole inverse
PROBES = 32  # beyond, from so many random signs (Hutchinson 1990) of a fixed seed
STEP = 10**0.5
BLOCK = 1024  # columns that are factored together
MOST = 16  # factorisations of a search


@dataclass(frozen=True)
class System:
    """Normal equations whose matrix is made when it is needed.

    ``matrix()`` returns a new C-ordered (D, D) whose lower triangle counts, to be overwritten;
    ``H`` (D, C); ``target`` = ‖Y‖² and ``rows`` N for errors; ``penalty(ridge)`` the diagonal (D,).
    """

    matrix: Callable[[], F64]
    H: F64
    target: float
    rows: int
    penalty: Callable[[float], F64]


@dataclass(frozen=True)
class Found:
    """One ridge with its weights (D, C) and what is known of it."""

    W: F64
    point: dict[str, Any]

    def by(self, measure: str) -> float:
        value = self.point[measure]
        return float("inf") if value is None else float(value)


def solve_at(system: System, ridge: float, held: Callable[[F64], float] | None = None) -> Found:
    """Weights for one ridge by a Cholesky factorisation in place, D³/3, and its cross-validation.

    Degrees of freedom tr((G + P)⁻¹G) = D − tr((G + P)⁻¹P) give generalised cross-validation,
    N ‖Y − XW‖² / (N − df)² (Golub, Heath, Wahba 1979). Raises `NumericalError` when G + P is not
    positive definite to working precision.
    """
    penalty = system.penalty(ridge)
    factor = _factor(system.matrix(), penalty, ridge)
    W = factor.solve(system.H)
    error = system.target - float((W * system.H).sum() + (penalty[:, None] * W**2).sum())
    error, rows = max(error, 0.0), system.rows
    left = rows - (len(W) - _trace(factor, penalty))
    point: dict[str, Any] = {
        "ridge": ridge,
        "gcv": rows * error / left**2 if left > 1e-9 * rows else None,
        "training_mse": error / rows,
        "degrees_of_freedom": rows - left,
    }
    if factor.device != "cpu":  # another device, other last bits
        point["device"] = factor.device
    if held is not None:
        point["validation_mse"] = held(W)
    return Found(W, point)


def best_of(found: Iterable[Found], measure: str) -> tuple[Found, list[dict[str, Any]]]:
    """The least of a path by ``measure`` (of equals the larger ridge), and the whole path."""
    best, path = None, []
    for one in found:
        path.append(one.point)
        if best is None or one.by(measure) <= best.by(measure):
            best = one
    assert best is not None
    return best, path


def search(
    at: Callable[[float], Found], start: float, measure: str
) -> tuple[Found, list[dict[str, Any]]]:
    """Walk from ``start`` in factors of √10 to where ``measure`` is least: a few factorisations.

    Up while it improves, else down while it improves; `MOST` at the most.
    """
    best = at(start)
    path = [best.point]
    for factor in (STEP, 1.0 / STEP):
        while len(path) < MOST:
            following = at(best.point["ridge"] * factor)
            path.append(following.point)
            if following.by(measure) >= best.by(measure):
                break
            best = following
        if len(path) > 2:  # the first step up was an improvement: the way down is known
            break
    return best, sorted(path, key=lambda point: float(point["ridge"]))


class _Factor:
    """A = L Lᵀ in the memory of A; the same verbs as `accelerator.Factor`."""

    device = "cpu"

    def __init__(self, A: F64) -> None:
        cholesky_in_place(A)
        self._upper = A.T  # Lᵀ, Fortran-ordered

    def solve(self, B: F64) -> F64:
        found: F64 = linalg.cho_solve((self._upper, False), B, check_finite=False)
        return found

    def half(self, B: F64) -> F64:
        found: F64 = linalg.solve_triangular(self._upper, B, trans="T", check_finite=False)
        return found


Factor = _Factor | accelerator.Factor


def _factor(A: F64, penalty: F64, ridge: float) -> Factor:
    """A + P factored, on the GPU where there is one that it fits on; A may be overwritten."""
    A.flat[:: len(A) + 1] += penalty
    device = accelerator.gpu()
    try:
        if accelerator.fits(device, accelerator.factor_bytes(len(A)), "the factor"):
            return accelerator.Factor(A, str(device))
        return _Factor(A)
    except linalg.LinAlgError as error:
        raise NumericalError(
            f"the matrix of codes + {ridge:g}·I ({len(A)} × {len(A)}) is not positive definite to "
            f"working precision ({error}): use a larger --ridge, or --ridge auto"
        ) from None


def cholesky_in_place(A: F64) -> None:
    """The lower triangle of A (D, D) ← L with A = L Lᵀ; what is above stays as it is. D³/3.

    As ``scipy.linalg.cholesky(A, lower=True)`` up to rounding, block column by block column, with
    one of them, 8·D·`BLOCK` bytes, beside A. LAPACK's own dpotrf in OpenBLAS 0.3.30 crashes with
    two threads from a side of about 16,000 on (measured). Raises ``LinAlgError``.
    """
    side = len(A)
    for a in range(0, side, BLOCK):
        b = min(a + BLOCK, side)
        A[a:, a:b] -= A[a:, :a] @ A[a:b, :a].T
        corner = linalg.cholesky(A[a:b, a:b], lower=True, check_finite=False)
        A[a:b, a:b] = corner
        A[b:, a:b] = linalg.solve_triangular(corner, A[b:, a:b].T, lower=True, check_finite=False).T


def _trace(factor: Factor, penalty: F64) -> float:
    """tr((A + P)⁻¹P): exactly for small systems, else estimated with fixed random signs."""
    side = len(penalty)
    if side <= EXACT_SIDE:
        return float((np.diag(factor.solve(np.eye(side))) * penalty).sum())
    signs = np.random.RandomState(0).randint(0, 2, (side, PROBES)) * 2 - 1
    probes: F64 = np.sqrt(penalty)[:, None] * signs
    return float((factor.half(probes) ** 2).sum() / PROBES)
