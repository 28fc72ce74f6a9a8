"""The normal equations of the SAFLe head, (ΦᵀΦ + P) W = ΦᵀY, from counts; or of [x, Φ]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import InvalidDataError, NumericalError
from ..linalg import ridge as rr
from ..linalg.counts import fill_lower, quadratic
from ..linalg.ridge_search import Found, System, best_of, search, solve_at
from ..statistics import Statistics
from .options import check_path

MIN_NORM_SIDE = 4096  # an eigendecomposition of this side takes about a minute on two cores
START = 0.1  # of the mean diagonal N/V, where the search for a ridge starts


class CountedSystem:
    """A total of codes as a least-squares problem in float64; raw features, if any, come first."""

    def __init__(self, total: Statistics) -> None:
        self.arrays, self.rows = total.arrays, total.rows
        if self.rows == 0:
            raise InvalidDataError("the held-out clients have 0 rows: nothing to validate on")
        groups, self.size, classes = self.arrays["labels"].shape
        self.raw = len(self.arrays["cross"]) if "cross" in self.arrays else 0
        self.side = self.raw + groups * self.size
        self.bits: int | None = None
        if self.raw and np.issubdtype(self.arrays["gram"].dtype, np.integer):
            self.bits = total.context.space.get("fraction_bits")
        codes = self.arrays["labels"].reshape(-1, classes).astype(np.float64)
        self.H: rr.F64 = np.vstack([self._cross(), codes]) if self.raw else codes

    def solve(
        self, ridge: str | float, linear_ridge: float, held: Callable[[rr.F64], float] | None
    ) -> tuple[rr.F64, dict[str, Any]]:
        """Weights (raw + D, C) and what was found; ridge 0 asks for the minimum norm."""
        if ridge == 0:
            return self._minimum_norm(linear_ridge)
        system = System(
            self.matrix, self.H, float(self.rows), self.rows,
            lambda value: self._penalty(value, linear_ridge),
        )  # fmt: skip
        best, path = _choose(ridge, system, held, START * self.rows / self.size)
        report = {key: value for key, value in best.point.items() if value is not None}
        report |= {"features": self.side, "ridge_by": _how(path, held)}
        if len(path) > 1:
            report["ridge_path"] = path
        return best.W, report

    def matrix(self) -> rr.F64:
        """A new (side, side), C-ordered; only its lower triangle is filled."""
        A = np.zeros((self.side, self.side))
        d = self.raw
        if d:
            A[:d, :d] = rr.real_gram(self.arrays["gram"], self.bits)
            A[d:, :d] = self._sums()
        fill_lower(self.arrays["labels"], self.arrays["pairs"], A[d:, d:])
        return A

    def mean_squared_error(self, W: rr.F64) -> float:
        """‖Y − Φ⁺W‖² / N of any weights on these rows, from the counts alone."""
        x, w = W[: self.raw], W[self.raw :]
        square = quadratic(self.arrays["labels"], self.arrays["pairs"], w)
        if self.raw:
            G = rr.real_gram(self.arrays["gram"], self.bits)
            square += float((x * (G @ x)).sum()) + 2.0 * float((w * (self._sums() @ x)).sum())
        return float(self.rows - 2.0 * (W * self.H).sum() + square) / self.rows

    def _cross(self) -> rr.F64:
        return rr.real_cross(self.arrays["cross"], self.bits)

    def _sums(self) -> rr.F64:
        return rr.real_cross(self.arrays["sums"], self.bits).reshape(-1, self.raw)

    def _penalty(self, ridge: float, linear_ridge: float) -> rr.F64:
        penalty = np.full(self.side, ridge)
        penalty[: self.raw] = linear_ridge
        return penalty

    def _minimum_norm(self, linear_ridge: float) -> tuple[rr.F64, dict[str, Any]]:
        """The limit λ → 0 by an eigendecomposition that reveals the rank."""
        if self.side > MIN_NORM_SIDE:
            raise NumericalError(
                f"--ridge 0 means the minimum-norm solution, by an eigendecomposition for up to "
                f"{MIN_NORM_SIDE} columns; this head has {self.side} (counts of codes are always "
                "rank-deficient): give a --ridge > 0, or --ridge auto"
            )
        A = self.matrix()
        A.flat[:: self.side + 1] += self._penalty(0.0, linear_ridge)
        spectral = rr.Spectral.of(A, self.H)  # reads the lower triangle
        found = spectral.conditioning
        report = {
            "ridge": 0.0, "ridge_by": "given", "minimum_norm": not found.full,
            "rank": found.rank, "features": self.side, "condition": None,
            "degrees_of_freedom": float(found.rank),
        }  # fmt: skip
        W = spectral.weights(0.0)
        return W, {**report, "training_mse": self.mean_squared_error(W)}


def _choose(
    ridge: str | float, system: System, held: Callable[[rr.F64], float] | None, start: float
) -> tuple[Found, list[dict[str, Any]]]:
    measure = "gcv" if held is None else "validation_mse"

    def at(value: float) -> Found:
        return solve_at(system, value, held)

    if ridge == "auto":
        return search(at, start, measure)
    if isinstance(ridge, float):
        return best_of([at(ridge)], measure)
    low, high, count = check_path(ridge)
    return best_of((at(float(r)) for r in np.geomspace(low, high, count)), measure)


def _how(path: list[dict[str, Any]], held: object) -> str:
    if len(path) == 1:
        return "given"
    return "generalised cross-validation" if held is None else "held-out clients"
