"""A least-squares problem in a total, and whether rounding alone would change a head's scores.

Random features of raw rows saturate, or are combinations of each other, to many digits. With each
entry of G = ΦᵀΦ and H = ΦᵀY off by u √(G_ii G_jj), the scores of (G + λI) W = H move on average by

    u ‖Φ (G + λI)⁻¹ D g‖ √(‖DW‖² + N) / √N,    D = diag(G)^½, random signs g

Over raw iris, wine and breast cancer the score that moved most did so by 4 to 20 times that where
it came near what is allowed, by rounds of a penalized loss up to 9 times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial

import numpy as np
import scipy

from ..errors import InvalidDataError, NumericalError, RidgeNeededError
from ..math import ridge as rr
from ..math.ridge import Moments
from ..math.ridge_choice import Choice, SpectralSystem
from ..values.arrays import F64, Array
from ..values.names import CROSS, GRAM
from ..values.statistics import Statistics

FLOAT64 = ": make a head with --compute float64, and its sums"
ROUNDINGS, LATER = 40.0, 10.0  # by which the averages of this solve and of earlier layers count
ROUNDS = 8.5  # by which the start of a penalized loss counts
PROBES = 8
Divide = Callable[[F64], F64]
#: Number format of products → u, and the part of the largest score by which scores may be off.
TRUSTED = {"float32": (2.0**-24, 1e-4), "float64": (2.0**-53, 1e-9)}


class Problem:
    """One least-squares problem in float64, centered when there is an intercept.

    ``standardize``: of features divided by their standard deviations s, so that a ridge λ acts on
    feature j as λ s_j². ``drawn``: of random features, the number format of their products."""

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
        `ridge.conditioning` judges smaller ones, and `check_rounding` random features."""
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


@contextmanager
def named(compute: str) -> Iterator[None]:
    """Inside, an error of a system that float32 products have spoilt names float64."""
    try:
        yield
    except (NumericalError, RuntimeWarning, scipy.linalg.LinAlgError) as error:
        if compute != "float32" or getattr(error, "advice", " ") in ("", FLOAT64):
            raise
        why = f"sums of float32 products do not determine the head ({error})"
        raise NumericalError(why, advice=FLOAT64) from error


def checked(
    problem: Problem,
    choice: Choice,
    W: F64 | None = None,
    min_norm: bool = False,
    moved: float = 0.0,
    rows: str = "",
) -> float | None:
    """How far rounding moves the weights, in u; `NumericalError` where it would move the scores.
    ``W``: if solved already; ``moved``: of the features, in u; ``rows``: the format of features of
    a penalized loss, whose products are float64. None where nothing is rounded or it cannot be
    told: noise, and the minimum norm of float64."""
    if problem.drawn not in TRUSTED or problem.moments is None:
        return None
    if choice.ridge == 0 and min_norm and problem.drawn == "float64":
        return None
    compute, u = rows or problem.drawn, TRUSTED[problem.drawn][0]
    of_features, least = TRUSTED[compute]
    if compute == "float32" and len(choice.path) > 1:
        why = "rounding of float32 sums hides which ridge is best: give --ridge a number"
        raise NumericalError(why, advice=FLOAT64)
    divide = partial(rr.cholesky_solve, problem.G, ridge=choice.ridge)
    if choice.ridge == 0 or choice.path:
        divide = partial(_divided, problem, choice.ridge)
    rounded = of_features / u if rows else 0.0
    try:
        W = divide(problem.H) if W is None else W
        scores, weights = _moves(problem, W, choice.ridge, divide, moved, u, rounded)
        off = (ROUNDS if rows else 1.0) * u * scores / problem.largest_score(W)
    except RidgeNeededError:
        off, weights = 1.0, 0.0
    what = f"would change scores by about {off:.1g} of the largest, and {least:g} is allowed"
    if off > 1.0 or _spread_lost(problem, of_features * ROUNDINGS):
        what = "alone would decide the scores"
    elif off <= least:
        return weights
    wide = compute == "float64"
    larger = f", or give a larger {'--penalty' if rows else '--ridge'}"
    raise NumericalError(
        f"rounding of {compute} numbers {what}: the random features of these rows have too little "
        f"of their own{'; scale the rows first (afltool scale), leave out --standardize' * wide}",
        advice=larger if wide else FLOAT64,
    )


def _moves(
    problem: Problem, W: F64, ridge: float, divide: Divide, moved: float, u: float, rounded: float
) -> tuple[float, float]:
    """By how many u scores and weights move; ``rounded``: each feature, of its own size."""
    sizes, N = problem.sizes[:, None], problem.rows
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(len(sizes), PROBES))
    Z, F = np.hsplit(divide(np.hstack([sizes * signs, signs])), 2)
    of_rows, of_features = (max((B * (problem.G @ B)).sum(), 0.0) / PROBES for B in (Z, F))
    if u * ROUNDINGS * (1.0 + rounded / N**0.5) * np.linalg.norm(sizes * Z) > 0.5 * PROBES**0.5:
        return float("inf"), 0.0  # the system itself is as small as what it is off by
    left, squares = problem.squared_error(W), (W**2).sum(axis=0).max()
    own = ((sizes * W) ** 2).sum(axis=0).max()
    scores = ROUNDINGS * np.sqrt(of_rows * (own + N) / N)
    scores += ROUNDINGS * rounded * np.sqrt(own / N + left * of_rows / N**2)
    if problem.spread is not None:  # λ s_j² is rounded as the variance s_j² is
        scores *= 1.0 + ridge / N
    scores += LATER * moved * np.sqrt(squares + left * of_features / N)
    weights = (Z**2).sum() * (own + N) + moved**2 * (
        left * (F**2).sum() + PROBES * squares * of_features
    )
    return float(scores), float(np.sqrt(weights / PROBES))


def _spread_lost(problem: Problem, u: float) -> bool:
    """Whether a feature varies, and is divided by a standard deviation that is rounding alone."""
    m, least = problem.moments, max(u, len(problem.G) * np.finfo(float).eps)
    if problem.spread is None or m is None:
        return False
    return bool((m.varies & (m.centered <= least * m.raw)).any())


def _divided(problem: Problem, ridge: float, B: F64) -> F64:
    s = problem.system.spectral
    return s.Q @ (s.filters(ridge)[:, None] * (s.Q.T @ B))
