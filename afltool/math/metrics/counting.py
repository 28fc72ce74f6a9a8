"""Scored rows as counts: integers that add up over blocks, sites and rounds.

Scores are in fixed point, round(s · 2^32), and the first class of equal scores ranks higher. So
the last bits of a score, which depend on the library and on the block that a row is in, change no
count, unless a score lies within them of the middle between two fixed-point numbers and of an edge.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...values.arrays import F64, I64
from ...values.bins import ONE, Bins

RANKS = 10  # how many places of the own class are counted: top-1 to top-10
AT_ONCE = 512  # rows whose scores stay in the cache while they are counted
CONFUSION, TOP, SCORES, CONFIDENCE = "confusion", "ranks", "scores", "confidence"
Counted = dict[str, I64]


def shapes(classes: int, bins: Bins) -> dict[str, tuple[int, ...]]:
    """The arrays that `count` adds to, by name.

    ``confusion`` (C, C): rows by own class and predicted one. ``ranks`` (min(C, 10),): rows by the
    place of their own class among the scores. ``scores`` (C, 2, B): for each class rows by the bin
    of its score; 1 has the rows of the class, 0 all others. ``confidence`` (2, B): rows by the bin
    of their highest score; 1 has those that are predicted right.
    """
    return {
        CONFUSION: (classes, classes),
        TOP: (min(classes, RANKS),),
        SCORES: (classes, 2, bins.count),
        CONFIDENCE: (2, bins.count),
    }


def count(into: Counted, S: F64, P: F64 | None, y: I64, bins: Bins) -> I64:
    """Add rows with scores S (n, C) and labels y (n,); returns the predicted classes (n,).

    ``P``: the probabilities (n, C) that are put into bins in place of the scores, if there are any.
    """
    n, classes = S.shape
    rows = np.arange(n)
    fixed = np.rint(S * ONE)
    predicted: I64 = fixed.argmax(axis=1)
    right = predicted == y
    into[CONFUSION] += _counts(y * classes + predicted, into[CONFUSION])
    places = _places(fixed, y, right)
    into[TOP] += _counts(places[places < len(into[TOP])], into[TOP])
    at = _bins(fixed if P is None else np.rint(P * ONE), bins)
    own, highest = at[rows, y], at[rows, predicted]
    into[CONFIDENCE] += _counts(right * bins.count + highest, into[CONFIDENCE])
    at += np.arange(classes) * bins.count
    every = np.bincount(at.ravel(), minlength=classes * bins.count).reshape(classes, -1)
    of_class = _counts(y * bins.count + own, every)
    into[SCORES][:, 0] += every - of_class
    into[SCORES][:, 1] += of_class
    return predicted


def _bins(fixed: F64, bins: Bins) -> I64:
    """The bin of each fixed-point score, (n, C): (a, b], and what lies beyond in the outer ones."""
    fixed *= bins.per / ONE  # exact: a score has 45 bits at the most, `per` has 8
    np.ceil(fixed, out=fixed)
    fixed -= bins.first + 1
    np.clip(fixed, 0, bins.count - 1, out=fixed)
    found: I64 = fixed.astype(np.int64)
    return found


def _places(fixed: F64, y: I64, right: np.ndarray) -> I64:
    """The place of each row's own class among its scores from 0 on, (n,)."""
    found = np.zeros(len(y), dtype=np.int64)
    wrong = np.flatnonzero(~right)
    scores, own = fixed[wrong], fixed[wrong, y[wrong]][:, None]
    earlier = np.arange(fixed.shape[1]) < y[wrong, None]
    found[wrong] = ((scores > own) | ((scores == own) & earlier)).sum(axis=1)
    return found


def _counts(cells: I64, like: I64) -> I64:
    """How often each cell of an array occurs among numbers of cells."""
    found: I64 = np.bincount(cells, minlength=like.size).reshape(like.shape)
    return found


def parts(n: int) -> Iterator[slice]:
    """Rows 0 … n−1, `AT_ONCE` at a time."""
    return (slice(start, start + AT_ONCE) for start in range(0, n, AT_ONCE))
