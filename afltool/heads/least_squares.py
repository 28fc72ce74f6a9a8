"""Ridge solves of a total's gram and cross: shared by every head that ends in a linear system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import InvalidDataError, NumericalError
from ..linalg import ridge as rr
from ..statistics import Statistics
from .base import Array
from .options import check_path

GRAM, CROSS = "gram", "cross"  # the arrays of statistics that such heads gather


class Problem:
    """One least-squares problem in float64, centred when there is an intercept."""

    def __init__(self, G: rr.F64, H: rr.F64, rows: int, class_counts: Array, intercept: bool):
        self.rows, self.means = rows, None
        self.target = float(rows)  # ‖Y‖² of one-hot labels
        self.extra = 0.0
        self.G, self.H = G, H
        if intercept:
            self.G, self.H, mean_x, mean_y = rr.centred(G, H, rows)
            self.means = (mean_x, mean_y)
            self.target -= float((class_counts.astype(float) ** 2).sum()) / rows
            self.extra = 1.0

    @classmethod
    def of(cls, total: Statistics, intercept: bool = False) -> Problem:
        """The problem in a total's `GRAM` and `CROSS`; `InvalidDataError` when it has no rows."""
        if total.rows == 0:
            raise InvalidDataError(
                f"the total of {len(total.clients)} clients has 0 rows: there is nothing to solve"
            )
        bits = fraction_bits(total)
        G = rr.real_gram(total.arrays[GRAM], bits)
        H = rr.real_cross(total.arrays[CROSS], bits)
        return cls(G, H, total.rows, total.class_counts, intercept)

    def squared_error(self, W: rr.F64) -> float:
        """‖Y − XW‖² over the rows of the total."""
        return max(rr.squared_error(W, self.G, self.H, self.target), 0.0)

    def with_intercept(self, W: rr.F64) -> rr.F64:
        """W with the intercept ȳ − x̄ᵀW as its last row, where there is one."""
        if self.means is None:
            return W
        mean_x, mean_y = self.means
        return np.vstack([W, mean_y - mean_x @ W])


def fraction_bits(statistics: Statistics) -> int | None:
    """Fraction bits of integer statistics; None for real ones, which are in units of one."""
    if not statistics.exact:
        return None
    bits: int | None = statistics.context.space.get("fraction_bits")
    if bits is None:
        raise InvalidDataError("integer statistics without their number of fraction bits")
    return bits


class Choice:
    """A ridge and, where one was chosen from several, the path that it was chosen from."""

    def __init__(self, ridge: float, how: str, spectral: rr.Spectral | None, path: list[Any]):
        self.ridge, self.how, self.spectral, self.path = ridge, how, spectral, path

    @classmethod
    def make(
        cls,
        ridge: str | float,
        problem: Problem,
        validation: Statistics | None,
        intercept: bool = False,
    ) -> Choice:
        """The ridge given, or the best of a path by cross-validation or by held-out clients."""
        if isinstance(ridge, float) and validation is None:
            return cls(ridge, "given", None, [])
        spectral = rr.Spectral.of(problem.G, problem.H)
        ridges = rr.auto_grid(spectral) if ridge == "auto" else _ridges(ridge)
        held = None if validation is None else held_out(validation, problem)
        path = [_point(float(r), spectral, problem, held) for r in ridges]
        by = "gcv" if held is None else "validation_mse"
        usable = [point for point in path if point[by] is not None] or path[-1:]
        best = min(usable, key=lambda point: (point[by] or 0.0, -point["ridge"]))
        how = "held-out clients" if held else "generalised cross-validation"
        return cls(best["ridge"], how if len(path) > 1 else "given", spectral, path)

    def report(self) -> dict[str, Any]:
        """What the head's report says of it."""
        facts: dict[str, Any] = {"ridge": self.ridge, "ridge_by": self.how}
        if self.path:
            facts["ridge_path"] = self.path
        return facts


def _ridges(ridge: str | float) -> rr.F64:
    if isinstance(ridge, float):
        return np.array([ridge])
    low, high, count = check_path(ridge)
    return np.logspace(np.log10(low), np.log10(high), count)


def held_out(validation: Statistics, problem: Problem) -> Callable[[rr.F64], float]:
    """The held-out clients' squared error a row as a function of W: N − 2tr(WᵀH) + tr(WᵀGW)."""
    bits = fraction_bits(validation)
    G = rr.real_gram(validation.arrays[GRAM], bits)
    H = rr.real_cross(validation.arrays[CROSS], bits)
    rows = validation.rows
    if rows == 0:
        raise InvalidDataError("the held-out clients have 0 rows: nothing to validate on")
    return lambda W: rr.squared_error(problem.with_intercept(W), G, H, float(rows)) / rows


def _point(ridge: float, spectral: rr.Spectral, problem: Problem, held: Any) -> dict[str, Any]:
    """One row of the path."""
    gcv = spectral.gcv(ridge, problem.target, problem.rows, problem.extra)
    point = {
        "ridge": ridge,
        "gcv": gcv if np.isfinite(gcv) else None,  # as many parameters as rows: no estimate
        "training_mse": max(spectral.squared_error(ridge, problem.target), 0.0) / problem.rows,
        "degrees_of_freedom": spectral.degrees_of_freedom(ridge),
    }
    if held is not None:
        point["validation_mse"] = held(spectral.weights(ridge))
    return point


def solve(
    problem: Problem, choice: Choice, kept: float = 0.0, min_norm: bool = False
) -> tuple[rr.F64, dict[str, Any]]:
    """Weights (d, C) of (G + λI) W = H, with rank, condition number and degrees of freedom.

    ``kept``: clients' γ that stay in. Raises `NumericalError` when the system does not determine
    W, unless ``min_norm``.
    """
    ridge = choice.ridge + kept
    s = choice.spectral.s if choice.spectral else rr.eigenvalues(problem.G)
    found = rr.conditioning(s)
    if ridge == 0 and not found.full and not min_norm:
        raise NumericalError(rr.explain_rank(found, problem.rows, _REMEDY))
    positive = np.maximum(s, 0.0)
    alive = positive[-found.rank :] if ridge == 0 else positive
    facts = {
        "rank": found.rank,
        "features": found.dim,
        "condition": found.condition if found.full else None,
        "condition_with_ridge": float((found.largest + ridge) / (max(found.smallest, 0) + ridge))
        if ridge
        else None,
        "degrees_of_freedom": float((alive / (alive + ridge)).sum()),
        "minimum_norm": ridge == 0 and not found.full,
    }
    if facts["minimum_norm"]:
        spectral = choice.spectral or rr.Spectral.of(problem.G, problem.H)
        return spectral.weights(0.0), facts
    return rr.cholesky_solve(problem.G, problem.H, ridge), facts


_REMEDY = (
    "Give a ridge (--ridge 1, or --ridge auto to choose it by generalised cross-validation), "
    "or --min-norm for the minimum-norm solution"
)
