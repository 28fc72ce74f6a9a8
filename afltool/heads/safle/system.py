"""The normal equations of SAFLe, (ΦᵀΦ + P) W = ΦᵀY, from counts; a hybrid has [x, Φ] for Φ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from ... import memory
from ...errors import NumericalError
from ...math import ridge as rr
from ...math.blas import Cholesky
from ...math.counts import fill_lower, quadratic
from ...math.ridge import Moments
from ...math.ridge_choice import FactoredSystem, choose, listed_ridges
from ...values.arrays import F64
from ...values.ridge_spec import Ridge
from ...values.statistics import Statistics
from ..problem import fraction_bits
from .options import LINEAR_RIDGE

START = 0.1  # of the mean diagonal N/V, where the search for a ridge starts


class CountedSystem:
    """A total of codes as a least-squares problem in float64; raw features, if any, come first."""

    def __init__(self, total: Statistics) -> None:
        self.arrays, self.rows, self.counts = total.arrays, total.rows, total.class_counts
        self.clean = not total.context.noise
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
        self, ridge: Ridge, held: Callable[[F64], float] | None
    ) -> tuple[F64, dict[str, Any]]:
        """Weights (raw + D, C) and facts for the report; ridge 0 means the minimum norm."""
        if self.raw and self.clean:  # the codes of a group add up to a constant
            squares = np.diag(rr.gram_matrix(self.arrays["gram"], self.bits))
            moments = Moments.of(squares, self.H[: self.raw], self.counts)
            moments.check(LINEAR_RIDGE, constant=True)
        if ridge == 0.0:
            W, rank = (
                self._solve_by_cholesky()
            )  # the limit λ → 0; a hybrid's raw features have their ridge
            report: dict[str, Any] = {
                "ridge": 0.0, "ridge_by": "given", "rank": rank, "minimum_norm": rank < self.side,
                "features": self.side, "condition": None, "degrees_of_freedom": float(rank),
            }  # fmt: skip
            error = {} if held is None else {"validation_mse": held(W)}
            return W, {**report, "training_mse": self.mean_squared_error(W), **error}
        system = FactoredSystem(
            self.matrix, self.H, float(self.rows), self.rows,
            self._penalty, START * self.rows / self.size,
        )  # fmt: skip
        choice = choose(system, listed_ridges(ridge), held)
        report = {key: value for key, value in choice.point.items() if value is not None}
        return choice.weights(), {"features": self.side, **report, **choice.report()}

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

    def _penalty(self, ridge: float) -> F64:
        penalty = np.full(self.side, ridge)
        penalty[: self.raw] = LINEAR_RIDGE
        return penalty

    def _solve_by_cholesky(self) -> tuple[F64, int]:
        """Weights and rank by a Cholesky factor, D³/3, without codes never seen, each later table's
        most frequent code and, by their pivots, columns that depend on earlier ones. The null space
        is then known, and is taken out of the weights."""
        if not self.clean:
            raise NumericalError(
                "--ridge 0 needs exact counts: give a --ridge > 0, or --ridge auto"
            )
        rows = self.arrays["labels"].sum(axis=2)
        known = rows == 0
        known[np.arange(1, len(rows)), rows[1:].argmax(axis=1)] = True
        dropped = self.raw + np.flatnonzero(known)
        A = self.matrix()
        A.flat[:: self.side + 1] += self._penalty(0.0)
        floor = self.side * np.finfo(float).eps * float(A.diagonal().max())
        A.flat[dropped * (self.side + 1)] = np.inf
        factor = Cholesky(A, floor)
        W = self._centered(factor.solve(self.H))
        dependent = np.setdiff1d(factor.left_out, dropped)
        if len(dependent):
            what = f"the least norm where {len(dependent)} of {self.side} columns depend on others"
            memory.require_memory(24 * self.side * len(dependent), what, "give a --ridge > 0")
            Z = self._centered(factor.null_space(dependent))
            Q = scipy.linalg.qr(Z, mode="economic", overwrite_a=True, check_finite=False)[0]
            W -= Q @ (Q.T @ W)
        return W, self.side - len(dropped) - len(dependent)

    def _centered(self, W: F64) -> F64:
        """Add t_j = (μ − S_j)/n_j to the n_j seen codes of table j: Σ_j t_j = 0, the least norm."""
        seen = self.arrays["labels"].sum(axis=2) > 0
        n = seen.sum(axis=1)[:, None]
        S = W[self.raw :].reshape(*seen.shape, -1).sum(axis=1)
        t = ((S / n).sum(axis=0) / (1 / n).sum() - S) / n  # μ = Σ(S_j/n_j) / Σ(1/n_j)
        W[self.raw :] += (seen[:, :, None] * t[:, None]).reshape(-1, W.shape[1])
        return W
