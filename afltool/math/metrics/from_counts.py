"""Figures from counts of scored rows: exact ones, and bounds where only bins of scores are known.

A figure of bins lies between the values that it takes for the most favorable and the least
favorable scores within them, whatever the scores are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...values.arrays import F64, I64, Array
from ...values.ridge_spec import PARTS
from .figures import Tally, f1_scores, nan_mean, sensitivities, shares, specificities

Z = 1.959963984540054  # of a 95 % interval


@dataclass(frozen=True)
class Range:
    """A figure that lies between ``least`` and ``most``; NaN where the rows do not determine it."""

    least: float
    most: float

    @property
    def value(self) -> float:
        """The middle, no more than `error` away."""
        return (self.least + self.most) / 2

    @property
    def error(self) -> float:
        return (self.most - self.least) / 2


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share (JASA 22, 1927); (NaN, NaN) without rows.

    (p + z²/2n ± z √(p (1 − p)/n + z²/4n²)) / (1 + z²/n), p = hits / n, z = 1.96.

    >>> [round(end, 4) for end in wilson(9, 10)]
    [0.5958, 0.9821]
    """
    if n <= 0:
        return float("nan"), float("nan")
    share, z2 = hits / n, Z * Z / n
    middle = (share + z2 / 2) / (1 + z2)
    half = Z / (1 + z2) * float(np.sqrt(share * (1 - share) / n + z2 / (4 * n)))
    return max(0.0, middle - half), min(1.0, middle + half)


def exact(of: Tally) -> dict[str, float]:
    """Figures that the confusion matrix determines, by name; those of classes are means."""
    return {
        "accuracy": float(of.right.sum() / of.own.sum()),
        "balanced-accuracy": nan_mean(sensitivities(of)),
        "macro-precision": nan_mean(shares(of.right, of.predicted)),
        "macro-specificity": nan_mean(specificities(of)),
        "f1": nan_mean(f1_scores(of)),
    }


def areas(scores: I64) -> list[Range]:
    """AUC of each class against the rest: pairs of rows within a bin may be in either order."""
    return [area(others, own) for others, own in scores]


def area(others: Array, own: Array) -> Range:
    """AUC from the weights of rows at rising scores, or in bins; the middle counts equal scores
    half (Mann and Whitney's U)."""
    pairs = float(own.sum()) * float(others.sum())
    sure, open_ = float((own * (np.cumsum(others) - others)).sum()), float((own * others).sum())
    return Range(sure / pairs, (sure + open_) / pairs) if pairs else _NONE


def average_precisions(scores: I64) -> list[Range]:
    """Average precision of each class: with t rows of the class and f others above a bin with p and
    m, the precision at its j-th row of the class is at least (t + j) / (t + j + f + m), and at most
    (t + p) / (t + p + f). Σ_j 1 / (a + j) ≤ log((a + p) / a)."""
    ranges = []
    for others, own in scores[:, :, ::-1].astype(np.float64):
        t, f, used = np.cumsum(own) - own, np.cumsum(others) - others, own > 0
        t, f, p, m = (a[used] for a in (t, f, own, others))
        total, worst = own.sum(), np.maximum(f + m, 0.5)
        low = p - np.where(f + m > 0, worst * np.log1p(p / (t + worst)), 0.0)
        high = p * (t + p) / (t + p + f)
        ranges.append(Range(low.sum() / total, high.sum() / total) if total else _NONE)
    return ranges


def reliability(confidence: I64, edges: F64) -> dict[str, Array]:
    """By `PARTS` equal bins of confidence in (0, 1]: weight, right rows, and least and most sum of
    confidences, which are clipped to 0 … 1."""
    inside = np.clip(edges, 0, 1)
    at = np.clip(np.ceil(np.round(inside[1:] * PARTS, 9)) - 1, 0, PARTS - 1).astype(int)
    low, high, rows = inside[:-1], inside[1:], confidence.sum(axis=0)
    of = {"weight": rows, "right": confidence[1], "least": rows * low, "most": rows * high}
    return {name: np.bincount(at, values, PARTS) for name, values in of.items()}


def ece(confidence: I64, edges: F64) -> Range:
    """Expected calibration error: Σ |right rows − sum of confidences| over bins / rows."""
    bins, n = reliability(confidence, edges), float(confidence.sum())
    low, high = bins["least"] - bins["right"], bins["most"] - bins["right"]
    nearest = np.maximum(0, np.maximum(low, -high)).sum()
    farthest = np.maximum(np.abs(low), np.abs(high)).sum()
    return Range(nearest / n, farthest / n) if n else _NONE


def mean(ranges: list[Range]) -> Range:
    """The mean of those that are determined."""
    known = [one for one in ranges if one.least == one.least] or [_NONE]
    least, most = (sum(getattr(one, end) for one in known) for end in ("least", "most"))
    return Range(least / len(known), most / len(known))


_NONE = Range(float("nan"), float("nan"))
