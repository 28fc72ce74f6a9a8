"""Ridge regression from the gram and cross of a total, for every head that solves one.

The linear head is AFL's, with an intercept if asked; that of random features is on one wide layer,
[σ(XA), X]. Rahimi and Recht, "Random features for large-scale kernel machines", NIPS 2007. A deep
analytic network has to be better than they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from .. import memory
from ..errors import InvalidDataError, NumericalError
from ..math import ridge as rr
from ..math.gram import (
    FixedPoint,
    Products,
    Rows,
    product,
    real,
    real_cross,
    real_gram,
    row_product,
    rows_per_product,
)
from ..math.ridge_choice import Choice, choose, listed_ridges
from ..values.arrays import F64, I64, Array
from ..values.names import CROSS, GRAM, PHASE, Phase
from ..values.ridge_spec import Ridge, parse_ridge
from ..values.statistics import ArraySpec, Statistics
from .base import (
    RAW,
    Accumulator,
    Added,
    FeatureMap,
    Found,
    Head,
    Shape,
    State,
    products,
    require_solved,
    state,
)
from .options import FIXED, LinearOptions, RandomFeaturesOptions
from .problem import Problem, checked, named
from .projections import RandomFeatures


class Sums:
    """gram and cross of the rows of Φ, every block through one buffer."""

    def __init__(self, classes: int, intercept: bool = False, features: FeatureMap = RAW) -> None:
        self.exact, self._features, self._how = False, features, (classes, intercept)
        self._products: Products | None = None

    def add(self, X: Rows, y: I64, known: State | None) -> State:
        rows, _ = self._features.rows(X)
        self._products = self._products or Products.like(rows, *self._how)
        self.exact = self._products.bits is not None
        self._products.add(rows, y)
        return {}

    def taken(self) -> dict[str, Array]:
        assert self._products is not None
        return dict(zip((GRAM, CROSS), self._products.taken(), strict=True))


@dataclass(frozen=True, eq=False)
class LinearInFeatures(Head):
    """Scores are ΦW, the intercept last if there is one; the first sums are gram and cross of Φ."""

    weights: F64 | None = state()  # (D, C), once the head is solved

    @property
    def intercept(self) -> bool:
        """Whether Φ has a constant feature."""
        return True

    @property
    def _side(self) -> int:
        """D, with the constant feature."""
        return self.features.columns(self._bound()[0]) + self.intercept

    @property
    def at_once(self) -> int:  # type: ignore[override]  # it depends on the number of features
        return rows_per_product(self._side)

    def accumulator(self) -> Accumulator:
        return Sums(self._bound()[1], self.intercept, self.features)

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        return products(self._side, self._bound()[1], self.features.bits(bits) is not None)

    def affine(self) -> tuple[F64, F64] | None:
        W = self.weights
        if W is None or self.features is not RAW:
            return None
        return (W[:-1], W[-1]) if self.intercept else (W, np.zeros(W.shape[1]))

    def _state_shapes(self) -> Mapping[str, Shape]:
        return {} if self.weights is None else {"weights": (self._side, self._bound()[1])}


@dataclass(frozen=True, eq=False)
class RidgeHead(LinearInFeatures):
    """Least squares on one-hot labels."""

    options: LinearOptions

    @property
    def intercept(self) -> bool:
        return self.options.intercept

    def phase(self) -> Phase | None:
        return PHASE if self.weights is None else None

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """(G + λI) W = H, see `Problem` and `check_rounding`; raises `NumericalError` when G does
        not determine W."""
        o, drawn, side = self.options, self.features.compute, self._side
        ridge = parse_ridge(o.ridge)
        # The system and a copy of it; eigenvectors and LAPACK's workspace (2d²) when λ is chosen.
        squares = 2 if isinstance(ridge, float) and validation is None else 5
        memory.require_memory(8 * squares * side * side, f"a linear system of {side} unknowns")
        with named(drawn):
            problem = Problem.of(total, o.intercept, o.standardize, drawn)
            kept = sum(g * n for g, n in total.gammas.items()) if o.keep_gamma else 0.0
            choice = chosen_ridge(ridge, problem, validation)
            W, facts = solve(problem, choice, kept, o.min_norm)
            checked(problem, replace(choice, ridge=choice.ridge + kept), W, o.min_norm)
        report = {**facts, **choice.report(), "rows": total.rows}
        report["training_mse"] = problem.squared_error(W) / total.rows
        report |= {"kept_gamma": kept} if kept else {}
        return replace(self, weights=problem.with_intercept(W)), Found(head=report)

    def decision_function(self, X: Rows) -> F64:
        """X W (+ intercept), float64."""
        W = require_solved(self.weights)
        scores = row_product(X, W[:-1] if self.intercept else W)
        return scores + W[-1] if self.intercept else scores


class LinearHead(RidgeHead):
    """AFL's head: W = G⁻¹H from G = Σ XₖᵀXₖ and H = Σ XₖᵀYₖ, with an optional ridge and intercept
    (He et al., CVPR 2025, (13)–(16)). γ is not in the sums, as after the exact removal (16);
    ``keep_gamma`` shows (14), the result without the removal."""

    name = "linear"


@dataclass(frozen=True, eq=False)
class RandomFeaturesHead(RidgeHead):
    """Ridge regression on σ(XA + a), and on the features X too with ``with_linear``. The statistics
    are real numbers, or with ``compute`` fixed integers: σ is rounded as the features are."""

    name = "random-features"
    options: RandomFeaturesOptions

    @cached_property
    def features(self) -> FeatureMap:
        return RandomFeatures(self.options, FIXED)

    @property
    def at_once(self) -> int:  # type: ignore[override]  # sums of reals are of whole blocks
        return rows_per_product(self._side) if self.options.compute == FIXED else sys.maxsize

    def accumulator(self) -> Accumulator:
        """Integers, or float64 sums of products in the compute type."""
        return super().accumulator() if self.options.compute == FIXED else Added(self._part)

    def _part(self, X: Rows, y: I64, known: State | None) -> tuple[dict[str, Array], State]:
        phi = self.lift(X)
        return {GRAM: real_gram(phi), CROSS: real_cross(phi, y, self._bound()[1])}, {}

    def decision_function(self, X: Rows) -> F64:
        """[σ(XA), X] W (+ intercept), float64."""
        W, phi = require_solved(self.weights), self.lift(X)
        return np.asarray(product(phi, W.astype(phi.dtype)), dtype=np.float64)

    def lift(self, X: Rows) -> Array:
        """Φ = [σ(XA + a), X if asked, 1 if asked] (n, D), in the compute type; fixed: float64."""
        rows, _ = self.features.rows(X)
        phi = real(rows) if isinstance(rows, FixedPoint) else rows
        one = np.ones((len(phi), 1), phi.dtype)
        return np.hstack([phi, one]) if self.options.intercept else phi


def chosen_ridge(ridge: Ridge, problem: Problem, validation: Statistics | None = None) -> Choice:
    """The given ridge, or the best of several by cross-validation or by held-out clients, which
    costs an eigendecomposition."""
    values = listed_ridges(ridge)
    if values is None and not problem.G.any():
        why = f"every feature has one value in all {problem.rows} rows"
        raise NumericalError(f"{why}, so that no ridge can be chosen: look at the features")
    least = rr.auto_grid(problem.system.spectral)[0] if values is None else min(values)
    problem.check_moments(float(least))
    if isinstance(ridge, float) and validation is None:
        return Choice(ridge)
    held = None if validation is None else held_out_error(validation, problem)
    return choose(problem.system, values, held)


def held_out_error(validation: Statistics, problem: Problem) -> Callable[[F64], float]:
    """The held-out clients' squared error a row as a function of the problem's weights W."""
    theirs = Problem.of(with_rows(validation))
    return lambda W: theirs.squared_error(problem.with_intercept(W)) / theirs.rows


def with_rows(validation: Statistics) -> Statistics:
    """The sum over held-out clients; `InvalidDataError` where they have no rows."""
    if validation.rows == 0:
        raise InvalidDataError("the held-out clients have 0 rows: nothing to validate on")
    return validation


def solve(
    problem: Problem, choice: Choice, kept: float = 0.0, min_norm: bool = False
) -> tuple[F64, dict[str, Any]]:
    """Weights (d, C) of (G + λI) W = H, with rank, condition number and degrees of freedom; of wide
    systems with a ridge no rank and LAPACK's estimate. ``kept``: clients' γ that stay in. Raises
    `NumericalError` when the system does not determine W, unless ``min_norm``."""
    ridge, side = choice.ridge + kept, len(problem.G)
    wide = side >= rr.WIDE and not choice.path
    if found := rr.solve_wide(problem.G, problem.H, ridge) if wide else None:
        W, estimate, degrees = found
        facts: dict[str, Any] = {"features": side, "degrees_of_freedom": degrees}
        facts |= {"condition_with_ridge": estimate} if ridge else {"condition": estimate}
        return W, {**facts, "minimum_norm": False, **({} if ridge else {"rank": side})}
    s = problem.system.spectral.s if choice.path else rr.eigenvalues(problem.G)
    condition, degrees = rr.conditioning(s), rr.degrees_of_freedom(s, ridge)
    least_norm = ridge == 0 and not condition.full
    if least_norm and not min_norm:
        raise rr.not_determined(condition, problem.rows)
    facts = {
        "rank": condition.rank, "features": condition.dim,
        "condition": condition.condition if condition.full else None,
        "condition_with_ridge": condition.with_ridge(ridge),
        "degrees_of_freedom": degrees, "minimum_norm": least_norm,
    }  # fmt: skip
    if least_norm:
        return problem.system.spectral.weights(0.0), facts
    return rr.cholesky_solve(problem.G, problem.H, ridge), facts
