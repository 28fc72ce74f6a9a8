"""Ridge regression from the gram and cross of a total, for every head that solves one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from .. import memory
from ..errors import InvalidDataError, NumericalError
from ..math import ridge as rr
from ..math.ridge import Moments
from ..math.ridge_choice import Choice, SpectralSystem, choose, tried
from ..values.arrays import F64, Array
from ..values.names import CROSS, GRAM
from ..values.parsed import Ridge, parse_ridge
from ..values.statistics import Statistics
from .options import LeastSquaresOptions


class Problem:
    """One least-squares problem in float64, centred when there is an intercept.

    ``standardise``: the problem of the features divided by their standard deviations s. The sums
    determine s: diag(G)/N are the second moments, and the columns of H add up to Σx. A ridge λ then
    acts on feature j as λ s_j². ``drawn``: of random features, the number format of their products.
    """

    def __init__(
        self, G: F64, H: F64, rows: int, class_counts: Array, intercept: bool,
        standardise: bool = False, drawn: str = "",
    ):  # fmt: skip
        d = len(G) - intercept
        self.moments: Moments | None = Moments.of(np.diag(G)[:d].copy(), H[:d], class_counts)
        self.counts = class_counts
        self.rows, self.means, self.drawn = rows, None, drawn
        self.spread: F64 | None = None
        sums = H.sum(axis=1)
        self.target = float(rows)  # ‖Y‖² of one-hot labels
        self.outside = 0.0  # parameters that are not in G
        self.G, self.H = G, H
        if intercept:
            self.G, self.H, mean_x, mean_y = rr.centred(G, H, rows)
            self.means = (mean_x, mean_y)
            self.target -= float((class_counts.astype(float) ** 2).sum()) / rows
            self.outside = 1.0
        if standardise:
            means = 0.0 if intercept else sums / rows
            self.spread = rr.spreads(np.diag(self.G) / rows, means)
            self.G = self.G / self.spread[:, None]
            self.G /= self.spread
            self.H = self.H / self.spread[:, None]

    @classmethod
    def of(
        cls, total: Statistics, intercept: bool = False, standardise: bool = False, drawn: str = ""
    ) -> Problem:
        """The problem in the `GRAM` and `CROSS` of a total, which has rows."""
        bits = fraction_bits(total)
        G = rr.gram_matrix(total.arrays[GRAM], bits)
        H = rr.cross_matrix(total.arrays[CROSS], bits)
        made = cls(G, H, total.rows, total.class_counts, intercept, standardise, drawn)
        if total.context.noise:  # added on purpose: these are no longer the sums of any rows
            made.moments = None
        return made

    def check_moments(self, ridge: float) -> None:
        """Refuse with `NumericalError` features that lie too far from zero for this ridge.

        What is below the least eigenvalue that counts is left to `ridge.conditioning`, and random
        features to `rounding.checked`.
        """
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
        raw = np.sqrt(self.G.diagonal() if self.moments is None else self.moments.raw)
        return np.asarray(raw if self.spread is None or self.moments is None else raw / self.spread)

    def largest_score(self, W: F64) -> float:
        """A bound from below: of any class the mean of its own rows, or the root mean square."""
        own = (self.H * W).sum(axis=0) / np.maximum(self.counts, 1)
        if self.means is not None:
            own = own + self.means[1]
        mean_square = (W * (self.G @ W)).sum(axis=0).max() / self.rows
        return float(max(own.max(), np.sqrt(max(mean_square, 0.0)), np.finfo(float).tiny))

    def squared_error(self, W: F64) -> float:
        """‖Y − XW‖² over the rows of the total."""
        return max(rr.squared_error(W, self.G, self.H, self.target), 0.0)

    def with_intercept(self, W: F64) -> F64:
        """W for the original features; the last row is the intercept ȳ − x̄ᵀW, if there is one."""
        if self.spread is not None:
            W = W / self.spread[:, None]
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


def fit(
    total: Statistics,
    options: LeastSquaresOptions,
    validation: Statistics | None,
    drawn: str = "",
    check: Callable[[Problem, Choice, F64, bool], object] = lambda *_: None,
) -> tuple[F64, dict[str, Any]]:
    """Weights (d, C) of (G + λI) W = H, the intercept last if there is one, and the report.

    ``drawn``: see `Problem`. ``check`` refuses a solution: see `rounding.checked`.

    Raises `NumericalError` when G does not determine W or there is too little memory.
    """
    side = len(total.arrays[CROSS])
    # The system and a copy of it; eigenvectors and LAPACK's workspace (2d²) when λ is chosen.
    squares = 2 if isinstance(parse_ridge(options.ridge), float) and validation is None else 5
    memory.need(8 * squares * side * side, f"a linear system of {side} unknowns")
    problem = Problem.of(total, options.intercept, options.standardise, drawn)
    kept = sum(g * n for g, n in total.gammas.items()) if options.keep_gamma else 0.0
    choice = chosen_ridge(parse_ridge(options.ridge), problem, validation)
    W, facts = solve(problem, choice, kept, options.min_norm)
    check(problem, replace(choice, ridge=choice.ridge + kept), W, options.min_norm)
    report = {**facts, **choice.report(), "rows": total.rows}
    report["training_mse"] = problem.squared_error(W) / total.rows
    if options.standardise:
        report["standardised"] = True
    if kept:
        report["kept_gamma"] = kept
    return problem.with_intercept(W), report


def chosen_ridge(ridge: Ridge, problem: Problem, validation: Statistics | None = None) -> Choice:
    """The given ridge, or the best of several by cross-validation or by held-out clients.

    A given ridge without ``validation`` costs nothing; every other case costs an
    eigendecomposition.
    """
    values = tried(ridge)
    if values is not None:
        problem.check_moments(min(values))
    if isinstance(ridge, float) and validation is None:
        return Choice(ridge)
    if values is None and not problem.G.any():
        value = "0" if problem.means is None else "the same number"
        raise NumericalError(
            f"every {'random ' * bool(problem.drawn)}feature is {value} in all {problem.rows} "
            "rows, so that no ridge can be chosen: look at the features; afltool scale scales them"
        )
    if values is None:
        problem.check_moments(float(rr.auto_grid(problem.system.spectral)[0]))
    held = None if validation is None else held_out(validation, problem)
    return choose(problem.system, values, held)


def held_out(validation: Statistics, problem: Problem) -> Callable[[F64], float]:
    """The held-out clients' squared error a row as a function of the problem's weights W."""
    if validation.rows == 0:
        raise InvalidDataError("the held-out clients have 0 rows: nothing to validate on")
    theirs = Problem.of(validation)
    return lambda W: theirs.squared_error(problem.with_intercept(W)) / theirs.rows


def solve(
    problem: Problem, choice: Choice, kept: float = 0.0, min_norm: bool = False
) -> tuple[F64, dict[str, Any]]:
    """Weights (d, C) of (G + λI) W = H, with rank, condition number and degrees of freedom.

    ``kept``: clients' γ that stay in. Raises `NumericalError` when the system does not determine
    W, unless ``min_norm``.
    """
    ridge, W = choice.ridge + kept, None
    wide = len(problem.G) >= rr.WIDE and not choice.path
    if judged := rr.solve_and_judge(problem.G, problem.H, ridge) if wide else None:
        W, condition, degrees = judged
    else:
        s = problem.system.spectral.s if choice.path else rr.eigenvalues(problem.G)
        condition, degrees = rr.conditioning(s), rr.degrees_of_freedom(s, ridge)
    if ridge == 0 and not condition.full and not min_norm:
        raise rr.not_determined(condition, problem.rows)
    facts = {
        "rank": condition.rank,
        "features": condition.dim,
        "condition": condition.condition if condition.full else None,
        "condition_with_ridge": condition.with_ridge(ridge),
        "degrees_of_freedom": degrees,
        "minimum_norm": ridge == 0 and not condition.full,
    }
    if facts["minimum_norm"]:
        return problem.system.spectral.weights(0.0), facts
    return (rr.cholesky_solve(problem.G, problem.H, ridge) if W is None else W), facts
