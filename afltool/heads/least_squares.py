"""Ridge regression from the gram and cross of a total, for every head that solves one; AFL's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from .. import memory
from ..errors import InvalidDataError, NumericalError
from ..math import ridge as rr
from ..math.gram import Products, Rows, row_product, together
from ..math.ridge import Moments
from ..math.ridge_choice import Choice, SpectralSystem, choose, tried
from ..values.arrays import F64, I64, Array
from ..values.names import CROSS, GRAM, PHASE, Phase
from ..values.ridge_spec import Ridge, parse_ridge
from ..values.statistics import ArraySpec, Statistics
from .base import RAW, Accumulator, FeatureMap, Found, Head, Shape, State, products, solved, state
from .options import LinearOptions


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
        return together(self._side)

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
        """(G + λI) W = H; raises `NumericalError` when G does not determine W."""
        W, report = fit(total, self.options, validation)
        return replace(self, weights=W), Found(head=report)

    def decision_function(self, X: Rows) -> F64:
        """X W (+ intercept), float64."""
        W = solved(self.weights)
        scores = row_product(X, W[:-1] if self.intercept else W)
        return scores + W[-1] if self.intercept else scores


class LinearHead(RidgeHead):
    """AFL's head: W = G⁻¹H from G = Σ XₖᵀXₖ and H = Σ XₖᵀYₖ, with an optional ridge and intercept
    (He et al., CVPR 2025, (13)–(16)). γ is not in the sums, as after the exact removal (16);
    ``keep_gamma`` shows (14), the result without the removal."""

    name = "linear"


class Problem:
    """One least-squares problem in float64, centered when there is an intercept; ``standardize``:
    of features divided by their standard deviations s, so that a ridge λ acts on feature j as
    λ s_j². ``drawn``: of random features, the number format of their products."""

    def __init__(
        self, G: F64, H: F64, rows: int, class_counts: Array, intercept: bool,
        standardize: bool = False, drawn: str = "",
    ):  # fmt: skip
        d = len(G) - intercept
        self.moments: Moments | None = Moments.of(np.diag(G)[:d].copy(), H[:d], class_counts)
        self.counts, self.rows, self.drawn = class_counts, rows, drawn
        self.means: tuple[F64, F64] | None = None
        self.spread: F64 | None = None
        self.target, self.outside = float(rows), 0.0  # ‖Y‖², and parameters that are not in G
        self.G, self.H, sums = G, H, H.sum(axis=1)
        if intercept:
            self.G, self.H, *self.means = rr.centered(G, H, rows)  # type: ignore[assignment]
            self.target -= float((class_counts.astype(float) ** 2).sum()) / rows
            self.outside = 1.0
        if standardize:
            means = 0.0 if intercept else sums / rows
            self.spread = rr.spreads(np.diag(self.G) / rows, means)
            self.G = self.G / self.spread[:, None]
            self.G /= self.spread
            self.H = self.H / self.spread[:, None]

    @classmethod
    def of(
        cls, total: Statistics, intercept: bool = False, standardize: bool = False, drawn: str = ""
    ) -> Problem:
        """The problem in the `GRAM` and `CROSS` of a total, which has rows."""
        made = cls(*system_of(total), total.rows, total.class_counts, intercept, standardize, drawn)
        if total.context.noise:  # added on purpose: these are no longer the sums of any rows
            made.moments = None
        return made

    def check_moments(self, ridge: float) -> None:
        """Refuse with `NumericalError` features too far from zero for this ridge.
        `ridge.conditioning` judges smaller ones, and `rounding.checked` random features."""
        least = len(self.G) * np.finfo(float).eps * float(np.diag(self.G).max(initial=0.0))
        own = max(ridge, least) * (1.0 if self.spread is None else self.spread**2)
        if self.moments is not None and not self.drawn:
            self.moments.check(own, constant=self.means is not None)

    @cached_property
    def system(self) -> SpectralSystem:
        """The problem's eigendecomposition, computed at the first use; about 9 d³ operations."""
        spectral = rr.Spectral.of(self.G, self.H)
        return SpectralSystem(spectral, self.target, self.rows, self.outside)

    @property
    def sizes(self) -> F64:
        """√Σx² of each feature (d,), as the system has them: what rounding of sums is a part of."""
        assert self.moments is not None
        return np.sqrt(self.moments.raw) / (1.0 if self.spread is None else self.spread)

    def largest_score(self, W: F64) -> float:
        """A bound from below: of any class the mean of its own rows, or the root mean square."""
        own = (self.H * W).sum(axis=0) / np.maximum(self.counts, 1)
        own = own if self.means is None else own + self.means[1]
        mean_square = (W * (self.G @ W)).sum(axis=0).max() / self.rows
        return float(max(own.max(), np.sqrt(max(mean_square, 0.0)), np.finfo(float).tiny))

    def squared_error(self, W: F64) -> float:
        """‖Y − XW‖² over the rows of the total."""
        return max(rr.squared_error(W, self.G, self.H, self.target), 0.0)

    def with_intercept(self, W: F64) -> F64:
        """W for the original features; the last row is the intercept ȳ − x̄ᵀW, if there is one."""
        W = W if self.spread is None else W / self.spread[:, None]
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


def system_of(total: Statistics) -> tuple[F64, F64]:
    """G (d, d) and H (d, C) of a total in units of one, float64."""
    bits, arrays = fraction_bits(total), total.arrays
    return rr.gram_matrix(arrays[GRAM], bits), rr.cross_matrix(arrays[CROSS], bits)


def fit(
    total: Statistics,
    options: LinearOptions,
    validation: Statistics | None,
    drawn: str = "",
    check: Callable[[Problem, Choice, F64, bool], object] = lambda *_: None,
) -> tuple[F64, dict[str, Any]]:
    """Weights (d, C) of (G + λI) W = H, the intercept last if there is one, and the report; see
    `Problem` and `rounding.checked`. Raises `NumericalError` when G does not determine W."""
    side, ridge = len(total.arrays[CROSS]), parse_ridge(options.ridge)
    # The system and a copy of it; eigenvectors and LAPACK's workspace (2d²) when λ is chosen.
    squares = 2 if isinstance(ridge, float) and validation is None else 5
    memory.need(8 * squares * side * side, f"a linear system of {side} unknowns")
    problem = Problem.of(total, options.intercept, options.standardize, drawn)
    kept = sum(g * n for g, n in total.gammas.items()) if options.keep_gamma else 0.0
    choice = chosen_ridge(ridge, problem, validation)
    W, facts = solve(problem, choice, kept, options.min_norm)
    check(problem, replace(choice, ridge=choice.ridge + kept), W, options.min_norm)
    report = {**facts, **choice.report(), "rows": total.rows}
    report["training_mse"] = problem.squared_error(W) / total.rows
    report |= {"kept_gamma": kept} if kept else {}
    return problem.with_intercept(W), report


def chosen_ridge(ridge: Ridge, problem: Problem, validation: Statistics | None = None) -> Choice:
    """The given ridge, or the best of several by cross-validation or by held-out clients, which
    costs an eigendecomposition."""
    values = tried(ridge)
    if values is None and not problem.G.any():
        why = f"every feature has one value in all {problem.rows} rows"
        raise NumericalError(f"{why}, so that no ridge can be chosen: look at the features")
    least = rr.auto_grid(problem.system.spectral)[0] if values is None else min(values)
    problem.check_moments(float(least))
    if isinstance(ridge, float) and validation is None:
        return Choice(ridge)
    held = None if validation is None else held_out(validation, problem)
    return choose(problem.system, values, held)


def held_out(validation: Statistics, problem: Problem) -> Callable[[F64], float]:
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


HEAD = LinearHead
