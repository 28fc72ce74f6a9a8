"""Scored rows as counts: integers that add up over blocks, sites and rounds.

Where counts leave a site, scores are in fixed point, round(s · 2^32). So the last bits of a score,
which depend on the library and on the block that a row is in, change no count, unless a score lies
within them of the middle between two fixed-point numbers and of an edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...values.arrays import F64, I64
from ...values.bins import ONE, Bins
from .figures import nulls, sensitivities

AT_ONCE = 2**16  # scores that are counted together, in the same memory, within a cache
RANKS = 10  # how many places of the own class are counted: top-1 to top-10
CONFUSION, TOP, SCORES, CONFIDENCE = "confusion", "ranks", "scores", "confidence"
Counted = dict[str, I64]


@dataclass(frozen=True)
class Metrics:
    """Counts over scored rows: ``confusion`` int64 (C, C), rows are true classes, columns the
    predicted ones; ``top5_hits`` rows whose class is among the five highest scores."""

    confusion: I64
    top5_hits: int

    @property
    def n(self) -> int:
        return int(self.confusion.sum())

    @property
    def top1(self) -> float:
        """Share of rows whose own class has the highest score (the first of equal scores)."""
        return float(np.trace(self.confusion) / self.n)

    @property
    def top5(self) -> float:
        """Share of rows whose class is among the five highest (1 with five classes or fewer)."""
        return self.top5_hits / self.n

    def __add__(self, other: Metrics) -> Metrics:
        return Metrics(self.confusion + other.confusion, self.top5_hits + other.top5_hits)

    def as_dict(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """JSON: fractions, counts, per-class accuracy by name (null without rows)."""
        return {
            "top1": self.top1,
            "top5": self.top5,
            "n": self.n,
            "per_class": dict(zip(classes, nulls(sensitivities(self.confusion)), strict=True)),
            "confusion": self.confusion.tolist(),
        }


def score_metrics(scores: F64, y: I64) -> Metrics:
    """Metrics of one block: scores (n, C) against labels (n,).

    >>> score_metrics(np.array([[0.9, 0.1], [0.8, 0.2]]), np.array([0, 1])).top1
    0.5
    """
    confusion = np.zeros((scores.shape[1],) * 2, dtype=np.int64)
    predicted, places = _ranked(scores, y)
    confusion += _counts(y * len(confusion) + predicted, confusion)
    return Metrics(confusion, int((places < 5).sum()))


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
    (n, classes), B = S.shape, bins.count
    step = min(n, max(1, AT_ONCE // classes)) or 1
    memory = np.empty((step, classes)), np.empty((step, classes), dtype=np.int64)
    predicted, places, confidence = np.empty((3, n), dtype=np.int64)
    for start in range(0, n, step):
        part = slice(start, start + step)
        labels, rows = y[part], np.arange(len(y[part]))
        fixed, cells = (one[: len(rows)] for one in memory)
        _in_fixed_point(S[part], fixed)
        mine, places[part] = _ranked(fixed, labels)
        if P is not None:
            _in_fixed_point(P[part], fixed)
        _cells(fixed, bins, cells)
        predicted[part], confidence[part] = mine, cells[rows, mine] - mine * (2 * B)
        cells[rows, labels] += B
        np.add.at(into[SCORES].reshape(-1), cells.reshape(-1), 1)
    into[CONFUSION] += _counts(y * classes + predicted, into[CONFUSION])
    into[TOP] += np.bincount(places, minlength=classes)[: len(into[TOP])]
    into[CONFIDENCE] += _counts((predicted == y) * B + confidence, into[CONFIDENCE])
    return predicted


def _in_fixed_point(scores: F64, out: F64) -> None:
    np.multiply(scores, ONE, out=out)
    np.rint(out, out=out)


def _ranked(scores: F64, y: I64) -> tuple[I64, I64]:
    """The predicted class of each row and the place of its own class, from 0 on; both (n,).

    Equal scores rank in class order, as in argmax: only earlier equal scores rank higher.
    """
    predicted, places = scores.argmax(axis=1), np.zeros(len(y), dtype=np.int64)
    wrong = np.flatnonzero(predicted != y)
    others, own = scores[wrong], scores[wrong, y[wrong]][:, None]
    earlier = np.arange(scores.shape[1]) < y[wrong, None]
    places[wrong] = ((others > own) | ((others == own) & earlier)).sum(axis=1)
    return predicted, places


def _cells(fixed: F64, bins: Bins, out: I64) -> None:
    """The cell in (C, 2, B) of each fixed-point score, (n, C), as of no row's own class: bins are
    (a, b], and the outer ones also have what lies beyond."""
    fixed *= bins.per / ONE  # exact: a score has 45 bits at the most, `per` has 8
    np.ceil(fixed, out=fixed)
    np.clip(fixed, bins.first + 1, bins.first + bins.count, out=fixed)
    firsts = np.arange(fixed.shape[1]) * (2.0 * bins.count) - (bins.first + 1)
    np.add(fixed, firsts, out=out, casting="unsafe")


def _counts(cells: I64, like: I64) -> I64:
    """How often each cell of an array occurs among numbers of cells."""
    counts: I64 = np.bincount(cells, minlength=like.size).reshape(like.shape)
    return counts
