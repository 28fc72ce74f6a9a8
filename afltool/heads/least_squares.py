"""Ridge regression from the gram and cross of a total, for every head that solves one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import memory
from ..errors import InvalidDataError, NumericalError, UsageError
from ..math import ridge as rr
from ..math.ridge import Moments
from ..math.ridge_choice import Choice, SpectralSystem, choose, choose_each, tried
from ..values.arrays import F64, Array
from ..values.names import CROSS, GRAM
from ..values.parsed import Auto, Fixed, OneRidge, PerSlice
from ..values.statistics import Statistics
from .options import LeastSquaresOptions

_SHUT = 1e4  # times the largest eigenvalue: such a ridge shuts a slice out


class Problem:
    """One least-squares problem in float64, centred when there is an intercept.

    ``standardise``: the problem of the features divided by their standard deviations s. The sums
    determine s: diag(G)/N are the second moments, and the columns of H add up to Σx. A ridge λ then
    acts on feature j as λ s_j². ``ridges`` (d,): further factors, one for each feature, so that
    λ = 1 gives each feature its own ridge. ``drawn``: of random features, the number
    format of their products.
    """

    def __init__(
        self, G: F64, H: F64, rows: int, class_counts: Array, intercept: bool,
        standardise: bool = False, ridges: F64 | None = None, drawn: str = "",
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
        if ridges is not None:
            root = np.sqrt(ridges)
            self.spread = root if self.spread is None else self.spread * root
        if self.spread is not None:
            self.G = self.G / self.spread[:, None]
            self.G /= self.spread
            self.H = self.H / self.spread[:, None]

    @classmethod
    def of(
        cls, total: Statistics, intercept: bool = False, standardise: bool = False,
        ridges: F64 | None = None, drawn: str = "",
    ) -> Problem:  # fmt: skip
        """The problem in the `GRAM` and `CROSS` of a total, which has rows."""
        bits = fraction_bits(total)
        G = rr.gram_matrix(total.arrays[GRAM], bits)
        H = rr.cross_matrix(total.arrays[CROSS], bits)
        made = cls(G, H, total.rows, total.class_counts, intercept, standardise, ridges, drawn)
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
    wanted = options.ridge
    given = bool(wanted.ridges) if isinstance(wanted, PerSlice) else isinstance(wanted, Fixed)
    squares = 2 if given and validation is None else 5
    memory.need(8 * squares * side * side, f"a linear system of {side} unknowns")
    ridges, by_slice = None, dict[str, Any]()
    if isinstance(wanted, PerSlice):
        by_slice = {"ridge_by": f"times {wanted}"}
        if not wanted.ridges:
            wanted, by_slice = best_of_slices(options, total, validation)
        ridges, wanted = of_slices(dict(wanted.ridges), total.context.space), Fixed(1.0)
    problem = Problem.of(total, options.intercept, options.standardise, ridges, drawn)
    kept = sum(g * n for g, n in total.gammas.items()) if options.keep_gamma else 0.0
    choice = chosen_ridge(wanted, problem, validation)
    W, facts = solve(problem, choice, kept, options.min_norm)
    check(problem, replace(choice, ridge=choice.ridge + kept), W, options.min_norm)
    report = {**facts, **choice.report(), "rows": total.rows}
    report["training_mse"] = problem.squared_error(W) / total.rows
    if options.standardise:
        report["standardised"] = True
    report |= by_slice  # where there are several, its "ridge" is 1
    if kept:
        report["kept_gamma"] = kept
    return problem.with_intercept(W), report


def best_of_slices(
    options: LeastSquaresOptions, total: Statistics, validation: Statistics | None
) -> tuple[PerSlice, dict[str, Any]]:
    """The ridge of each slice, from the best common one on, and what the report says."""
    slices = several_slices(total.context.space, str(options.ridge))
    problem = Problem.of(total, options.intercept, options.standardise)
    common = chosen_ridge(Auto(), problem, validation)
    grid = rr.auto_grid(problem.system.spectral)
    choices = choose_each(
        problem.G, problem.H, problem.target, problem.rows, widths=[dim for _, dim in slices],
        start=common.ridge, ends=(grid[0], _SHUT * grid[-1]), outside=problem.outside,
        held=None if validation is None else held_out(validation, problem),
    )  # fmt: skip
    best = PerSlice.of(zip((name for name, _ in slices), choices.ridges, strict=True))
    return best, {
        "ridge_by": f"times {best} by {common.by}",
        "ridges_tried": choices.tried,
        "error_of_one_ridge": choices.common,
        "error_of_slice_ridges": choices.error,
    }


def chosen_ridge(ridge: OneRidge, problem: Problem, validation: Statistics | None = None) -> Choice:
    """The given ridge, or the best of several by cross-validation or by held-out clients.

    A given ridge without ``validation`` costs nothing; every other case costs an
    eigendecomposition.
    """
    values = tried(ridge)
    if values is not None:
        problem.check_moments(min(values))
    if isinstance(ridge, Fixed) and validation is None:
        return Choice(ridge.value)
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


def slices_of(space: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Name and number of columns of each slice, in the order of the columns."""
    return [(str(one["name"]), int(one["dim"])) for one in space.get("slices", ())]


def of_slices(named: Mapping[str, float], space: Mapping[str, Any]) -> NDArray[np.float64]:
    """The ridge of each feature (d,) from that of its slice; all slices must be named."""
    slices = slices_of(space)
    wanted = {name for name, _ in slices}
    if wanted != named.keys():
        wrong = [f"no slice {n!r}" for n in named if n not in wanted]
        wrong += [f"no ridge of {n!r}" for n, _ in slices if n not in named]
        raise UsageError(
            f"--ridge names {len(named)} slices, and the features have {_told(slices)}: there is "
            f"{wrong[0]}; name each slice once, or give one ridge for all"
        )
    return np.concatenate([np.full(dim, named[name]) for name, dim in slices])


def several_slices(space: Mapping[str, Any], asked: str) -> list[tuple[str, int]]:
    """`slices_of` features that have two or more: with fewer there is one ridge to choose."""
    slices = slices_of(space)
    if len(slices) < 2:
        raise UsageError(
            f"--ridge {asked} chooses a ridge of each slice, and the features have "
            f"{_told(slices)}: use --ridge auto, or features of several nodes (extract --node A "
            "--node B, --node stages)"
        )
    return slices


def _told(slices: list[tuple[str, int]]) -> str:
    return ", ".join(f"{name!r} ({dim} columns)" for name, dim in slices) or "no slices"
