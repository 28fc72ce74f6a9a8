"""Whether the sums of random features tell a head's scores, or rounding alone would change them.

Random features of raw rows saturate, or are combinations of each other, to many digits. With each
entry of G = ΦᵀΦ and H = ΦᵀY off by u √(G_ii G_jj), the scores of (G + λI) W = H move on average by

    u ‖Φ (G + λI)⁻¹ D g‖ √(‖DW‖² + N) / √N,    D = diag(G)^½, random signs g

Over raw iris, wine and breast cancer the score that moved most did so by 4 to 20 times that where
it came near what is allowed, by rounds of a penalized loss up to 9 times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import scipy

from ..errors import NumericalError, RidgeNeededError
from ..math import ridge as rr
from ..math.ridge_choice import Choice
from ..values.arrays import F64
from .least_squares import Problem

FLOAT64 = ": make a head with --compute float64, and its sums"
ROUNDINGS, LATER = 40.0, 10.0  # by which the averages of this solve and of earlier layers count
ROUNDS = 8.5  # by which the start of a penalized loss counts
PROBES = 8
Divide = Callable[[F64], F64]
#: Number format of products → u, and the part of the largest score by which scores may be off.
TRUSTED = {"float32": (2.0**-24, 1e-4), "float64": (2.0**-53, 1e-9)}


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
