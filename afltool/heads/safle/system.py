"""The normal equations of SAFLe, (ΦᵀΦ + P) W = ΦᵀY, from counts; a hybrid has [x, Φ] for Φ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import InvalidDataError, NumericalError
from ...math import ridge as rr
from ...math.counts import fill_lower, quadratic
from ...math.ridge import Moments
from ...math.ridge_choice import FactoredSystem, choose, tried
from ...values.arrays import F64
from ...values.ridge import Fixed, OneRidge
from ...values.statistics import Statistics
from ..least_squares import fraction_bits

MIN_NORM_SIDE = 4096  # an eigendecomposition of this side takes about a minute on two cores
START = 0.1  # of the mean diagonal N/V, where the search for a ridge starts


class CountedSystem:
    """A total of codes as a least-squares problem in float64; raw features, if any, come first."""

    def __init__(self, total: Statistics) -> None:
        self.arrays, self.rows, self.counts = total.arrays, total.rows, total.class_counts
        self.clean = not total.context.noise
        if self.rows == 0:
            raise InvalidDataError("the held-out clients have 0 rows: nothing to validate on")
        groups, self.size, classes = self.arrays["labels"].shape
        self.raw = len(self.arrays["cross"]) if "cross" in self.arrays else 0
        self.side = self.raw + groups * self.size
        self.bits = fraction_bits(total) if self.raw else None
        codes = self.arrays["labels"].reshape(-1, classes).astype(np.float64)
        self.H: F64 = codes
        if self.raw:
            cross = rr.cross_matrix(self.arrays["cross"], self.bits)
            self.H = np.vstack([cross, codes])

    def solve(
        self, ridge: OneRidge, linear_ridge: float, held: Callable[[F64], float] | None
    ) -> tuple[F64, dict[str, Any]]:
        """Weights (raw + D, C) and facts for the report; ridge 0 means the minimum norm."""
        if self.raw and self.clean:  # the codes of a group add up to a constant
            squares = np.diag(rr.gram_matrix(self.arrays["gram"], self.bits))
            moments = Moments.of(squares, self.H[: self.raw], self.counts)
            moments.check(linear_ridge, constant=True)
        if ridge == Fixed(0.0):
            return self._minimum_norm(linear_ridge, held)
        system = FactoredSystem(
            self.matrix, self.H, float(self.rows), self.rows,
            lambda value: self._penalty(value, linear_ridge), START * self.rows / self.size,
        )  # fmt: skip
        choice = choose(system, tried(ridge), held)
        report = {key: value for key, value in choice.point.items() if value is not None}
        report |= {"features": self.side, **self._of_raw(linear_ridge), **choice.report()}
        return choice.weights(), report

    def _of_raw(self, linear_ridge: float) -> dict[str, float]:
        return {"linear_ridge": linear_ridge} if self.raw else {}

    def matrix(self) -> F64:
        """A new (side, side), C-ordered; only its lower triangle is filled."""
        A = np.zeros((self.side, self.side))
        d = self.raw
        if d:
            A[:d, :d] = rr.gram_matrix(self.arrays["gram"], self.bits)
            A[d:, :d] = self._sums()
        fill_lower(self.arrays["labels"], self.arrays["pairs"], A[d:, d:])
        return A

    def mean_squared_error(self, W: F64) -> float:
        """‖Y − Φ⁺W‖² / N of any weights on these rows, from the counts alone."""
        x, w = W[: self.raw], W[self.raw :]
        square = quadratic(self.arrays["labels"], self.arrays["pairs"], w)
        if self.raw:
            G = rr.gram_matrix(self.arrays["gram"], self.bits)
            square += float((x * (G @ x)).sum()) + 2.0 * float((w * (self._sums() @ x)).sum())
        return float(self.rows - 2.0 * (W * self.H).sum() + square) / self.rows

    def _sums(self) -> F64:
        """Φᵀx (D, d). The sum of code 0 is that of all rows minus those of the other codes."""
        others = self.arrays["sums"]
        every = self.arrays["cross"].sum(axis=1)
        first = (every - others.sum(axis=1))[:, None]
        return rr.cross_matrix(np.concatenate([first, others], axis=1), self.bits).reshape(
            -1, self.raw
        )

    def _penalty(self, ridge: float, linear_ridge: float) -> F64:
        penalty = np.full(self.side, ridge)
        penalty[: self.raw] = linear_ridge
        return penalty

    def _minimum_norm(
        self, linear_ridge: float, held: Callable[[F64], float] | None
    ) -> tuple[F64, dict[str, Any]]:
        """The limit λ → 0, by an eigendecomposition that shows the rank.

        A hybrid's ridge on its raw features determines their part, so the minimum norm is that of
        the codes.
        """
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
            "degrees_of_freedom": float(found.rank), **self._of_raw(linear_ridge),
        }  # fmt: skip
        W = spectral.weights(0.0)
        errors = {"training_mse": self.mean_squared_error(W)}
        errors |= {} if held is None else {"validation_mse": held(W)}
        return W, {**report, **errors}
