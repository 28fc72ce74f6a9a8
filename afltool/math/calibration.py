"""Probabilities and sets of classes from counts of scores in bins; a score is its bin's middle.

``counts`` (2, B): rows by the bin of a score, [1] of those of its class, [0] of all others.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from ..errors import NumericalError
from ..values.arrays import F64, I64

STEPS = 100  # of Newton's method, which takes about ten
NEAR = 1e-12  # how close to 0 and 1 a probability comes before its logit is taken


def logit(p: F64) -> F64:
    """log p / (1 − p); p is kept `NEAR` away from 0 and 1."""
    inside = np.clip(p, NEAR, 1 - NEAR)
    logits: F64 = np.log(inside) - np.log1p(-inside)
    return logits


def platt(x: F64, counts: I64) -> tuple[float, float]:
    """a and b of p = 1 / (1 + exp(−(a x + b))), the most likely ones of rows at x (B,).

    Platt, "Probabilistic outputs for support vector machines", 1999: with n₁ and n₀ rows the
    targets are (n₁ + 1) / (n₁ + 2) and 1 / (n₀ + 2), so that neither is infinite. Newton's method
    with halved steps (Lin, Lin and Weng, 2007).
    """
    n = counts.sum(axis=1)
    targets = np.array([1 / (n[0] + 2), (n[1] + 1) / (n[1] + 2)])
    rows, hits = counts.sum(axis=0), targets @ counts
    X = np.column_stack([x, np.ones_like(x)])
    w = np.zeros(2)

    def loss(w: F64) -> float:
        return float(rows @ np.logaddexp(0, X @ w) - hits @ (X @ w))

    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(X @ w, -700, 700)))
        slope, bend = X.T @ (rows * p - hits), (X.T * (rows * p * (1 - p))) @ X
        step = np.linalg.lstsq(bend, slope, rcond=None)[0]
        while loss(w - step) > loss(w) and np.abs(step).max() > 0:
            step = step / 2
        w = w - step
        if np.abs(step).max() <= 1e-10 * max(1.0, np.abs(w).max()):
            return float(w[0]), float(w[1])
    raise NumericalError(f"Platt's map does not settle after {STEPS} steps; take another method")


def isotonic(x: F64, counts: I64) -> tuple[F64, F64]:
    """Knots and levels of a map that rises, linear between knots and level beyond them.

    Centred isotonic regression (Oron and Flournoy, 2017): each block that pooling adjacent
    violators finds has its share of the class at its mean x, so that no two scores between knots
    are equal. Shares stay 1/(n + 2) away from 0 and 1.
    """
    from scipy.optimize import isotonic_regression  # whose import takes long

    rows = counts.sum(axis=0)
    used = np.flatnonzero(rows)
    n, near = rows[used].astype(np.float64), 1 / (rows.sum() + 2)
    fitted = isotonic_regression(counts[1, used] / n, weights=n)
    starts = fitted.blocks[:-1]
    knots = np.add.reduceat(n * x[used], starts) / np.add.reduceat(n, starts)
    return knots, np.clip(fitted.x[starts], near, 1 - near)


def bin_to_keep(own: I64, coverage: float) -> int:
    """The first bin of split conformal sets: classes whose score is in it, or above, are in.

    ``own`` (B,): rows by the bin of their own class's score. Of n rows ⌈(n + 1) coverage⌉ must have
    theirs in it or above (Vovk et al., 2005); if n is too small all classes are in: 0.
    """
    wanted = ceil((int(own.sum()) + 1) * coverage - 1e-9)
    above = own[::-1].cumsum()[::-1]
    return max(int((above >= wanted).sum()) - 1, 0)


def accuracy_by_coverage(confidence: I64) -> tuple[F64, F64]:
    """Share of rows that are answered from each bin on, and of these the share that is right.

    ``confidence`` (2, B): rows by the bin of the highest score, [1] those that are right.
    """
    wrong, right = confidence[:, ::-1].cumsum(axis=1)
    rows = wrong + right
    first = np.flatnonzero(np.diff(rows, prepend=0))
    return rows[first] / rows[-1], right[first] / rows[first]
