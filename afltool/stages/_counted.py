"""The figures of a total of counts, as `evaluate` would have found them, and how sure they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from math import isfinite
from typing import Any

import numpy as np

from ..errors import InvalidDataError, UsageError
from ..files.counts import Counts, HeadCounts
from ..heads.evaluation.head import of_head
from ..math.metrics import from_counts as fc
from ..math.metrics.counting import TOP
from ..math.metrics.counts import Metrics
from ..math.metrics.figures import f1_scores, sensitivities
from ..math.metrics.intervals import mcnemar_of
from ..values.arrays import I64

Figure = dict[str, Any]
EXACT, BOUND, NOISY = "exact", "bound", "noisy"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def evaluations(counts: Counts) -> list[dict[str, Any]]:
    """For each head what `evaluate` writes, from counts alone.

    A figure of ``metrics`` is ``exact``, or a ``bound``: it lies between ``least`` and ``most``,
    and ``value`` is the middle. ``low`` and ``high`` are the ends of Wilson's 95 % interval, of
    figures that are shares of rows. Of counts with noise of differential privacy there are shares
    of rows alone, with the standard deviation ``sd`` that the noise gives them. ``classes`` has
    figures of each class, ``quantiles`` those of the highest score, ``others`` McNemar's test with
    each other head of the round.
    """
    if counts.rows <= 0:
        raise InvalidDataError(
            f"{counts.path} counts {counts.rows} rows: there is nothing to evaluate"
        )
    if counts.noise:
        return [_noisy(counts, number) for number in range(len(counts.heads))]
    return [
        {**_of(counts, head), **_against(counts, number)}
        for number, head in enumerate(counts.heads)
    ]


def evaluation(counts: Counts, number: int) -> dict[str, Any]:
    """The evaluation of one head; `UsageError` where there are fewer."""
    found = evaluations(counts)
    if number >= len(found):
        raise UsageError(
            f"{counts.path} counts {len(found)} heads, from 0 on; found --number {number}"
        )
    return found[number]


def _of(counts: Counts, head: HeadCounts) -> dict[str, Any]:
    areas, precisions = fc.areas(head.scores), fc.average_precisions(head.scores)
    bins = fc.reliability(head.confidence, head.edges)
    named = list(zip(counts.classes, head.scores, areas, strict=True))
    found = {
        **Metrics(head.confusion, int(head.ranks[:5].sum())).as_dict(counts.classes),
        **_whose(counts, head),
        "metrics": dict(_metrics(head, areas, precisions)),
        "top": {str(k + 1): share for k, share in enumerate(_tops(head))},
        "classes": _classes(counts, head, areas, precisions),
        "quantiles": _quantiles(head),
        "reliability": _reliability(bins),
        "roc": {
            name: {**fc.roc(others, own), "auc": _finite(area.value)}
            for name, (others, own), area in named
        },
    }
    return {**found, "by": dict(_groups(counts, head))} if head.groups is not None else found


def _noisy(counts: Counts, number: int) -> dict[str, Any]:
    """Shares of rows from counts with noise: hits / rows, each with that of K clients.

    With noise of s in each of h cells of hits and C class counts, their ratio a over n rows has a
    standard deviation of about s √(h + a² C) / n.
    """
    head, n, C = counts.heads[number], counts.rows, len(counts.classes)
    s = counts.noise["sigma"][of_head(TOP, number)] * len(counts.statistics.clients) ** 0.5
    hits = {"accuracy": (head.right, C)}
    hits |= {f"top-{k}": (int(head.ranks[:k].sum()), k) for k in (3, 5) if k < C}
    figures = {
        name: {"value": h / n, "sd": s * (cells + (h / n) ** 2 * C) ** 0.5 / n, "is": NOISY}
        for name, (h, cells) in hits.items()
    }
    return {
        **_whose(counts, head),
        "top1": head.right / n,
        "n": n,
        "confusion": head.confusion.tolist(),
        "metrics": figures,
        "classes": {},
    }


def _whose(counts: Counts, head: HeadCounts) -> dict[str, Any]:
    return {
        "head": {"name": head.name, "digest": head.digest, "path": str(counts.path)},
        "total": {"path": str(counts.path), "digest": counts.statistics.digest()},
        "clients": len(counts.statistics.clients),
    }


def _metrics(
    head: HeadCounts, areas: list[fc.Range], precisions: list[fc.Range]
) -> Iterator[tuple[str, Figure]]:
    """Every figure of a head by name."""
    n = int(head.confusion.sum())
    for name, value in fc.exact(head.confusion).items():
        ends = fc.wilson(head.right, n) if name == "accuracy" else ()
        yield name, _exact(value, ends)
    for k in (3, 5):
        if k < len(head.confusion):
            hits = int(head.ranks[:k].sum())
            yield f"top-{k}", _exact(hits / n, fc.wilson(hits, n))
    yield "auc", {**_bound(fc.mean(areas)), "average": "macro"}
    yield "average-precision", {**_bound(fc.mean(precisions)), "average": "macro"}
    yield "ece", _bound(fc.ece(head.confidence, head.edges))
    yield "brier", _bound(fc.brier(head.scores, head.edges))


def _exact(value: float, ends: tuple[float, ...] = ()) -> Figure:
    interval = dict(zip(("low", "high"), map(_finite, ends), strict=False))
    return {"value": _finite(value), **interval, "is": EXACT}


def _bound(found: fc.Range) -> Figure:
    names = ("value", "least", "most", "error")
    return {**{name: _finite(getattr(found, name)) for name in names}, "is": BOUND}


def _tops(head: HeadCounts) -> Iterator[float]:
    return (float(hits / head.confusion.sum()) for hits in np.cumsum(head.ranks))


def _classes(
    counts: Counts, head: HeadCounts, areas: list[fc.Range], precisions: list[fc.Range]
) -> dict[str, dict[str, Any]]:
    """Rows and figures of each class by its name."""
    M = head.confusion
    rows, said, right = M.sum(axis=1), M.sum(axis=0), np.diag(M)
    recall, precision, f1 = (
        of(M.astype(float)) for of in (sensitivities, fc.precisions, f1_scores)
    )
    return {
        name: {
            "rows": int(rows[c]),
            "sensitivity": _exact(recall[c], fc.wilson(int(right[c]), int(rows[c]))),
            "precision": _exact(precision[c], fc.wilson(int(right[c]), int(said[c]))),
            "f1": _exact(f1[c]),
            "auc": _bound(areas[c]),
            "average-precision": _bound(precisions[c]),
        }
        for c, name in enumerate(counts.classes)
    }


def _quantiles(head: HeadCounts) -> dict[str, list[float | None]]:
    """By share the ends of the bin of the highest score; null: the bin has no end there."""
    rows: I64 = head.confidence.sum(axis=0)
    found = {str(share): fc.quantile(rows, head.edges, share) for share in QUANTILES}
    return {share: [_finite(one.least), _finite(one.most)] for share, one in found.items()}


def _reliability(bins: Mapping[str, Any]) -> dict[str, list[float | None]]:
    """As `evaluate --metrics ece` has it; a bin's confidence is the middle of what it may be."""
    weight = bins["weight"]
    shares = {
        "weight": weight,
        "confidence": (bins["least"] + bins["most"]) / 2 / np.maximum(weight, 1),
        "accuracy": bins["right"] / np.maximum(weight, 1),
    }
    known = {name: np.where(weight > 0, a, np.nan) for name, a in shares.items()}
    return {
        name: [
            0.0 if name == "weight" and not w else _finite(v)
            for v, w in zip(a, weight, strict=True)
        ]
        for name, a in known.items()
    }


def _groups(counts: Counts, head: HeadCounts) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows and figures of each group; none of one with too few rows to be shown."""
    assert head.groups is not None
    for name, confusion in zip(counts.groups, head.groups, strict=True):
        n = int(confusion.sum())
        few = 0 < n < counts.min_group
        found = fc.exact(confusion) if n and not few else dict[str, float]()
        names = ("accuracy", "balanced-accuracy", "f1")
        shown = {one: _finite(found.get(one, float("nan"))) for one in names}
        yield name, {"n": None if few else n, **shown}


def _against(counts: Counts, number: int) -> dict[str, Any]:
    """McNemar's test with each other head of the round."""
    if counts.pairs is None:
        return {}
    pairs = list(combinations(range(len(counts.heads)), 2))
    found = []
    for (first, second), table in zip(pairs, counts.pairs, strict=True):
        if number in (first, second):
            mine = table if number == first else table.T
            other = counts.heads[second if number == first else first]
            told = {"path": f"{other.name} {other.digest[:12]}", "digest": other.digest}
            found.append({**told, **mcnemar_of(int(mine[1, 0]), int(mine[0, 1]))})
    return {"others": found}


def _finite(value: float) -> float | None:
    return float(value) if isfinite(value) else None
