"""The figures of a total of counts, as `evaluate` would have found them, and how sure they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from ..errors import InvalidDataError
from ..math.metrics import from_counts as fc
from ..math.metrics.counting import Metrics
from ..math.metrics.figures import drawn, f1_scores, mcnemar_of, nulls, shares
from .counts import Counts, HeadCounts

Figure = dict[str, Any]
EXACT, BOUND = "exact", "bound"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
OF_GROUPS = ("accuracy", "balanced-accuracy", "f1")


def evaluations(counts: Counts, positive: Sequence[str] = ()) -> list[dict[str, Any]]:
    """For each head what `evaluate` writes, from counts alone.

    A figure of ``metrics`` is ``exact``, or a ``bound``: it lies between ``least`` and ``most``,
    and ``value`` is the middle. ``low`` and ``high`` are the ends of Wilson's 95 % interval, of
    figures that are shares of rows. ``classes`` has figures of each class, ``quantiles`` those of
    the highest score, ``at_ends`` the share of rows with the score of their own class in a bin at
    an end, ``others`` McNemar's test with each other head of the round. ``positive``: classes whose
    ROC curves are there in any case.
    """
    if counts.rows <= 0:
        raise InvalidDataError(
            f"{counts.path} counts {counts.rows} rows: there is nothing to evaluate"
        )
    return [
        {
            "head": {"name": head.name, "digest": head.digest, "path": str(counts.path)},
            "total": {"path": str(counts.path), "digest": counts.statistics.digest()},
            "clients": len(counts.statistics.clients),
            **_of(counts, number, positive),
        }
        for number, head in enumerate(counts.heads)
    ]


def _of(counts: Counts, number: int, positive: Sequence[str]) -> dict[str, Any]:
    head, names = counts.heads[number], counts.classes
    tops = np.cumsum(head.ranks)[: len(names) - 1].tolist()
    areas, precisions = fc.areas(head.scores), fc.average_precisions(head.scores)
    sizes = np.array([one.value for one in areas])
    told = drawn(sizes, [k for k, name in enumerate(names) if name in positive])
    rocs = zip(told, nulls(sizes[told]), strict=True)
    return {
        **Metrics(head.tally, int(head.ranks[:5].sum())).as_dict(names),
        **_matrix(head),
        "metrics": dict(_metrics(head, areas, precisions)),
        "top": {str(k): hits / counts.rows for k, hits in enumerate(tops, 1)},
        "classes": _classes(counts, head, areas, precisions),
        "quantiles": _quantiles(head),
        "at_ends": head.at_ends,
        **({"reliability": _reliability(head)} if head.probabilities else {}),
        "roc": {names[k]: {**fc.roc(*head.scores[k]), "auc": area} for k, area in rocs},
        **_groups(counts, head),
        **_against(counts, number),
    }


def _matrix(head: HeadCounts) -> dict[str, Any]:
    """The confusion matrix, where it was counted."""
    return {} if head.confusion is None else {"confusion": head.confusion.tolist()}


def _metrics(
    head: HeadCounts, areas: list[fc.Range], precisions: list[fc.Range]
) -> Iterator[tuple[str, Figure]]:
    """Every figure of a head by name."""
    n = int(head.tally.own.sum())
    for name, value in fc.exact(head.tally).items():
        yield name, _share(head.right, n) if name == "accuracy" else _exact(value)
    for k in (3, 5):
        if k < len(head.scores):
            yield f"top-{k}", _share(int(head.ranks[:k].sum()), n)
    yield "auc", {**_bound(fc.mean(areas)), "average": "macro"}
    yield "average-precision", {**_bound(fc.mean(precisions)), "average": "macro"}
    if head.probabilities:  # of other scores they would be no errors of probabilities
        yield "ece", _bound(fc.ece(head.confidence, head.edges))
        yield "brier", _bound(fc.brier(head.scores, head.edges))


def _exact(*values: float) -> Figure:
    """An exact figure, with the ends of its interval if it has one."""
    return {**dict(zip(("value", "low", "high"), nulls(values), strict=False)), "is": EXACT}


def _share(hits: int, n: int) -> Figure:
    return _exact(hits / n if n else float("nan"), *fc.wilson(hits, n))


def _bound(limits: fc.Range) -> Figure:
    names = ("value", "least", "most", "error")
    values = nulls(getattr(limits, name) for name in names)
    return {**dict(zip(names, values, strict=True)), "is": BOUND}


def _classes(
    counts: Counts, head: HeadCounts, areas: list[fc.Range], precisions: list[fc.Range]
) -> dict[str, dict[str, Any]]:
    """Rows and figures of each class by its name."""
    of, f1 = head.tally, f1_scores(head.tally)
    right, rows, predicted = (a.tolist() for a in (of.right, of.own, of.predicted))
    return {
        name: {
            "rows": rows[c],
            "sensitivity": _share(right[c], rows[c]),
            "precision": _share(right[c], predicted[c]),
            "f1": _exact(f1[c]),
            "auc": _bound(areas[c]),
            "average-precision": _bound(precisions[c]),
        }
        for c, name in enumerate(counts.classes)
    }


def _quantiles(head: HeadCounts) -> dict[str, list[float | None]]:
    """By share the ends of the bin of the highest score; null: the bin has no end there."""
    rows = head.confidence.sum(axis=0)
    by_share = {str(share): fc.quantile(rows, head.edges, share) for share in QUANTILES}
    return {share: nulls((one.least, one.most)) for share, one in by_share.items()}


def _reliability(head: HeadCounts) -> dict[str, list[float | None]]:
    """As `evaluate --metrics ece` has it; a bin's confidence is the middle of what it may be."""
    bins = fc.reliability(head.confidence, head.edges)
    of = {"confidence": (bins["least"] + bins["most"]) / 2, "accuracy": bins["right"]}
    columns = {name: nulls(shares(a, bins["weight"])) for name, a in of.items()}
    return {"weight": nulls(bins["weight"]), **columns}


def _groups(counts: Counts, head: HeadCounts) -> dict[str, Any]:
    """Rows and figures of each group; none of those that are held back."""
    if head.groups is None:
        return {}
    by_group = {}
    for name, tally in zip(counts.groups, head.tallies, strict=True):
        n = int(tally.own.sum())
        figures = fc.exact(tally) if n > 0 else {}
        values = nulls(figures.get(one, float("nan")) for one in OF_GROUPS)
        by_group[name] = {"n": None if n < 0 else n, **dict(zip(OF_GROUPS, values, strict=True))}
    return {"by": by_group}


def _against(counts: Counts, number: int) -> dict[str, Any]:
    """McNemar's test with each other head of the round."""
    if counts.pairs is None:
        return {}
    pairs = list(combinations(range(len(counts.heads)), 2))
    rows = []
    for pair, table in zip(pairs, counts.pairs, strict=True):
        if number in pair:
            mine = table if number == pair[0] else table.T
            other = counts.heads[sum(pair) - number]
            facts = {"path": f"{other.name} {other.digest[:12]}", "digest": other.digest}
            rows.append({**facts, **mcnemar_of(int(mine[1, 0]), int(mine[0, 1]))})
    return {"others": rows}
