"""The normal equations of the SAFLe head, (ΦᵀΦ + P) W = ΦᵀY, from counts; or of [x, Φ]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import InvalidDataError, NumericalError
from ..linalg import ridge as rr
from ..linalg.counts import fill_lower, pair_count, quadratic
from ..linalg.ridge_search import Found, System, best_of, search, solve_at
from ..linalg.triangle import length
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
        self._check_shapes(groups, classes)
        self.side = self.raw + groups * self.size
        self.bits: int | None = None
        if self.raw and np.issubdtype(self.arrays["gram"].dtype, np.integer):
            self.bits = total.context.space.get("fraction_bits")
        codes = self.arrays["labels"].reshape(-1, classes).astype(np.float64)
        self.H: rr.F64 = np.vstack([self._cross(), codes]) if self.raw else codes

    def _check_shapes(self, groups: int, classes: int) -> None:
        """Refuse arrays of another layout, as files of an earlier format have them."""
        codes, d = self.size - 1, self.raw
        wanted: dict[str, tuple[int, ...]] = {"pairs": (pair_count(groups), codes, codes)}
        if d:
            wanted |= {"sums": (groups, codes, d), "cross": (d, classes), "gram": (length(d),)}
        for name, shape in wanted.items():
            found = self.arrays[name].shape if name in self.arrays else "none"
            if found != shape:
                raise InvalidDataError(
                    f"array {name!r} has the shape {found}; with {groups} codes of {self.size} "
                    f"values a row it is {shape}: gather the statistics again"
                )

    def solve(
        self, ridge: str | float, linear_ridge: float, held: Callable[[rr.F64], float] | None
    ) -> tuple[rr.F64, dict[str, Any]]:
        """Weights (raw + D, C) and what was found; ridge 0 asks for the minimum norm."""
        if ridge == 0:
            return self._minimum_norm(linear_ridge, held)
        system = System(
            self.matrix, self.H, float(self.rows), self.rows,
            lambda value: self._penalty(value, linear_ridge),
        )  # fmt: skip
        best, path = _choose(ridge, system, held, START * self.rows / self.size)
        report = {key: value for key, value in best.point.items() if value is not None}
        report |= {
            "features": self.side,
            "ridge_by": _how(path, held),
            **self._of_raw(linear_ridge),
        }
        if len(path) > 1:
            report["ridge_path"] = path
        return best.W, report

    def _of_raw(self, linear_ridge: float) -> dict[str, float]:
        return {"linear_ridge": linear_ridge} if self.raw else {}

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
        """Φᵀx (D, d): the rows with code 0 of a group are those that have none of its others."""
        others = self.arrays["sums"]
        every = self.arrays["cross"].sum(axis=1)
        first = (every - others.sum(axis=1))[:, None]
        return rr.real_cross(np.concatenate([first, others], axis=1), self.bits).reshape(
            -1, self.raw
        )

    def _penalty(self, ridge: float, linear_ridge: float) -> rr.F64:
        penalty = np.full(self.side, ridge)
        penalty[: self.raw] = linear_ridge
        return penalty

    def _minimum_norm(
        self, linear_ridge: float, held: Callable[[rr.F64], float] | None
    ) -> tuple[rr.F64, dict[str, Any]]:
        """The limit λ → 0 by an eigendecomposition that reveals the rank.

        With a ridge on the raw features of a hybrid no direction of theirs is undetermined, so the
        norm that is least is that of the codes.
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
