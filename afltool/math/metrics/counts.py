"""Scores and labels → accuracies; counts add up over blocks of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...values.arrays import F64, I64
from .figures import sensitivities


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

    def per_class(self) -> F64:
        """For each class the share of its rows that are predicted right, (C,); NaN without rows."""
        return sensitivities(self.confusion)

    def __add__(self, other: Metrics) -> Metrics:
        return Metrics(self.confusion + other.confusion, self.top5_hits + other.top5_hits)

    def as_dict(self, classes: tuple[str, ...]) -> dict[str, Any]:
        """JSON: fractions, counts, per-class accuracy by name (null without rows)."""
        shares = self.per_class()
        return {
            "top1": self.top1,
            "top5": self.top5,
            "n": self.n,
            "per_class": {
                name: None if np.isnan(share) else float(share)
                for name, share in zip(classes, shares, strict=True)
            },
            "confusion": self.confusion.tolist(),
        }


def score_metrics(scores: F64, y: I64) -> Metrics:
    """Metrics of one block: scores (n, C) against labels (n,).

    >>> score_metrics(np.array([[0.9, 0.1], [0.8, 0.2]]), np.array([0, 1])).top1
    0.5
    """
    n, classes = scores.shape
    confusion = np.bincount(y * classes + scores.argmax(axis=1), minlength=classes**2)
    own = scores[np.arange(n), y]
    # Equal scores rank in class order, as in argmax: only earlier equal scores rank higher.
    ahead = (scores > own[:, None]).sum(axis=1)
    earlier = np.arange(classes) < y[:, None]
    ahead += ((scores == own[:, None]) & earlier).sum(axis=1)
    return Metrics(confusion.reshape(classes, classes).astype(np.int64), int((ahead < 5).sum()))
