"""Scored rows as counts: integers that add up over blocks, sites and rounds.

What is put into bins is in fixed point, round(s · 2^32). So the last bits of a score, which depend
on the library and on the block that a row is in, change no count, unless two scores of a row are
equal up to them, or a score lies within them of the middle between two numbers and of an edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...values.arrays import F64, I64, Array
from ...values.ridge_spec import ONE, Bins
from .figures import MANY, Tally, nulls, places, predicted_classes, sensitivities
from .from_counts import wilson

AT_ONCE = 2**16  # scores that are counted together, within a cache
RANKS = 10  # how many places of the own class are counted: top-1 to top-10
CONFUSION, TOP, SCORES, CONFIDENCE = "confusion", "ranks", "scores", "confidence"
TALLIES = "tallies"  # in place of the confusion matrix of many classes
CELLS = ("true", "predicted", "rows")  # of such a matrix in JSON and CSV
TOPS = ("top1", "top5")
Counted = dict[str, I64]


@dataclass(frozen=True)
class Metrics:
    """Counts over scored rows: their ``tally``, and ``top5_hits`` rows whose class is among the
    five highest scores."""

    tally: Tally
    top5_hits: int

    @property
    def n(self) -> int:
        return int(self.tally.own.sum())

    @property
    def tops(self) -> dict[str, float]:
        """Shares of rows whose own class has the highest score, and one of the five highest, which
        is left out of five classes or fewer."""
        hits = (int(self.tally.right.sum()), self.top5_hits)[: 1 + (len(self.tally.own) > 5)]
        return {name: n / self.n for name, n in zip(TOPS, hits, strict=False)}

    def __add__(self, other: Metrics) -> Metrics:
        return Metrics(self.tally + other.tally, self.top5_hits + other.top5_hits)

    def as_dict(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """JSON: fractions, counts, per-class accuracy by name (null without rows)."""
        each = nulls(sensitivities(self.tally))
        return {**self.tops, "n": self.n, "per_class": dict(zip(classes, each, strict=True))}

    def intervals(self, classes: tuple[str, ...]) -> dict[str, list[float | None]]:
        """JSON: the ends of `wilson`'s 95 % interval of each class's accuracy (null without rows),
        for rows that are drawn independently: rows of one patient are not."""
        each = zip(self.tally.right.tolist(), self.tally.own.tolist(), strict=True)
        return {name: nulls(wilson(*one)) for name, one in zip(classes, each, strict=True)}


def score_metrics(S: F64, y: I64) -> tuple[Metrics, I64]:
    """Metrics of one block, scores S (n, C) against labels (n,), and the predicted classes."""
    predicted = predicted_classes(S)
    hits = int((places(S, y, predicted) < 5).sum())
    return Metrics(Tally.from_predictions(y, predicted, S.shape[1]), hits), predicted


def confusion_entry(y: I64, predicted: I64, classes: int) -> list[list[int]] | dict[str, list[int]]:
    """The confusion matrix for JSON, rows are true classes; of `MANY` classes the cells that are
    not 0: numbers of the ``true`` and the ``predicted`` class, and the ``rows``."""
    cells = y * classes + predicted
    if classes < MANY:
        return list(_counts(cells, np.empty((classes, classes))).tolist())
    used, rows = np.unique(cells, return_counts=True)
    columns = (*np.divmod(used, classes), rows)
    return {name: a.tolist() for name, a in zip(CELLS, columns, strict=True)}


def shapes(classes: int, bins: Bins, many: bool | None = None) -> dict[str, tuple[int, ...]]:
    """The arrays that `count` adds to, by name: ``confusion`` (C, C), own class by predicted
    one, or of ``many`` classes ``tallies`` (3, C), a `Tally`; ``ranks`` (min(C, 10),): rows by
    the place of their own class; ``scores`` (C, 2, B): for each class rows by the bin of its
    score, 1 of the class, 0 of others; ``confidence`` (2, B): rows by the bin of their highest
    score, 1 if right."""
    many = classes >= MANY if many is None else many
    return {
        **({TALLIES: (3, classes)} if many else {CONFUSION: (classes, classes)}),
        TOP: (min(classes, RANKS),),
        SCORES: (classes, 2, bins.count),
        CONFIDENCE: (2, bins.count),
    }


def count(into: Counted, S: F64, reported: F64, y: I64, bins: Bins) -> I64:
    """Add rows with scores S (n, C), of which the ``reported`` ones are put into bins, and labels y
    (n,); returns the predicted classes (n,)."""
    (n, classes), B = S.shape, bins.count
    step = max(1, AT_ONCE // classes)
    predicted = predicted_classes(S)
    at, confidence = places(S, y, predicted), np.empty(n, dtype=np.int64)
    for start in range(0, n, step):
        part = slice(start, start + step)
        cells, labels, mine = _cells(reported[part], bins), y[part], predicted[part]
        rows = np.arange(len(labels))
        confidence[part] = cells[rows, mine] - mine * (2 * B)
        cells[rows, labels] += B
        np.add.at(into[SCORES].reshape(-1), cells.reshape(-1), 1)
    add_rows(into[TALLIES if TALLIES in into else CONFUSION], y, predicted)
    into[TOP] += np.bincount(at, minlength=classes)[: len(into[TOP])]
    into[CONFIDENCE] += _counts((predicted == y) * B + confidence, into[CONFIDENCE])
    return predicted


def add_rows(table: I64, y: I64, predicted: I64, group: I64 | int = 0) -> None:
    """Add rows to a confusion matrix (C, C), or to the tally (3, C) of many classes; ``table`` has
    one, or one for each group."""
    lines, C = table.shape[-2:]
    cells = (group * C + y) * C + predicted
    if lines != C:
        first = group * (3 * C)
        right = (first + y)[y == predicted]
        cells = np.concatenate([right, first + C + y, first + 2 * C + predicted])
    table += _counts(cells, table)


def _cells(scores: F64, bins: Bins) -> I64:
    """The cell in (C, 2, B) of each score, (n, C), as of no row's own class: bins are (a, b], and
    the outer ones also have what lies beyond."""
    fixed = np.rint(scores * ONE) * (bins.per / ONE)  # exact: 45 bits at the most, `per` has 8
    edge = np.clip(np.ceil(fixed), bins.first + 1, bins.first + bins.count)
    firsts = np.arange(scores.shape[1]) * (2.0 * bins.count) - (bins.first + 1)
    return np.asarray((edge + firsts).astype(np.int64))


def _counts(cells: I64, like: Array) -> I64:
    """How often each cell of an array occurs among numbers of cells."""
    return np.bincount(cells, minlength=like.size).reshape(like.shape)
