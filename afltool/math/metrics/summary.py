"""The figures of an evaluation with intervals, for all rows and for each part of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...values.arrays import I64
from .figures import FIGURES, Scored, Weights, areas, reliability, roc
from .intervals import intervals, resampled


def summary(
    rows: Scored, names: Sequence[str], samples: int, seed: int, groups: I64 | None = None
) -> dict[str, dict[str, float | None]]:
    """Value and ends of the 95 % interval of each figure; None if the rows do not determine it.

    ``samples``: number of bootstrap samples, of rows or of whole groups; 0 gives no intervals.
    """
    figures = _of(rows, names)
    every = np.ones(len(rows.y))
    ends = intervals(figures, resampled(len(every), samples, seed, groups)) if samples else {}
    return {
        name: {
            "value": _finite(of(every)),
            **({"low": _finite(ends[name][0]), "high": _finite(ends[name][1])} if ends else {}),
        }
        for name, of in figures.items()
    }


def by_part(
    rows: Scored, names: Sequence[str], parts: Sequence[str]
) -> dict[str, dict[str, float | int | None]]:
    """Number of rows and figures for each value in ``parts``, which has one value per row."""
    column = np.array(parts, dtype=object)
    found = {}
    for part in sorted(set(parts)):
        w = (column == part).astype(float)
        figures = {name: _finite(of(w)) for name, of in _of(rows, names).items()}
        found[part] = {"n": int(w.sum()), **figures}
    return found


def curves(rows: Scored, names: Sequence[str], classes: Sequence[str]) -> dict[str, Any]:
    """The data of pictures: bins of confidence for ece, ROC curves of the classes for auc."""
    found: dict[str, Any] = {}
    if "ece" in names:
        bins = reliability(rows, np.ones(len(rows.y)))
        found["reliability"] = {name: [_finite(v) for v in bins[name]] for name in bins}
    if "auc" in names:
        found["roc"] = {
            name: {**roc(rows, k), "auc": _finite(area)}
            for k, (name, area) in enumerate(
                zip(classes, areas(rows, np.ones(len(rows.y))), strict=True)
            )
        }
    return found


def _of(rows: Scored, names: Sequence[str]) -> dict[str, Callable[[Weights], float]]:
    return {name: partial(FIGURES[name].of, rows) for name in names}


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
