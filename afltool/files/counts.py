"""Files of counts, which `evaluate --counts` writes, and what they say of heads.

The figures are those that `evaluate` would have found, with how sure they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidDataError, UsageError
from ..heads import make_options
from ..heads.evaluation import GROUPS, PAIRS, EvaluationOptions, of_head, shapes_of
from ..inputs import is_hdf5
from ..math.metrics import counting
from ..math.metrics import from_counts as fc
from ..math.metrics.counting import Metrics
from ..math.metrics.figures import Tally, drawn, f1_scores, mcnemar_of, nulls, shares
from ..values.arrays import F64, I64
from ..values.names import COUNTS
from ..values.statistics import Statistics
from ..values.text import difference
from .arrays import damaged
from .hdf5 import read_header
from .statistics import load_statistics


@dataclass(frozen=True)
class HeadCounts:
    """What is counted of one head; n rows, C classes, B bins. docs/format.md has the arrays.

    ``edges`` float64 (B + 1,): bin b has scores in (edges[b], edges[b + 1]], the first and the last
    bin also what lies beyond. ``scores`` int64 (C, 2, B): of each class the scores of other rows
    and of its own ones. ``confidence`` int64 (2, B): highest scores of wrong rows and of right
    ones. ``probabilities``: whether scores are probabilities. ``groups`` int64 (G, C, C): a
    confusion matrix for each group, of −1 where it is held back. Of 1,000 classes or more
    ``confusion`` is None, and ``groups`` int64 (G, 3, C): rows of each class that are predicted
    right, that are its own, and that are predicted as it, as ``tally`` has them of all rows.
    """

    name: str
    digest: str
    probabilities: bool
    edges: F64
    tally: Tally
    confusion: I64 | None
    ranks: I64
    scores: I64
    confidence: I64
    groups: I64 | None = None

    @property
    def right(self) -> int:
        """How many rows are predicted right."""
        return int(self.tally.right.sum())

    @property
    def tallies(self) -> list[Tally]:
        """That of each group."""
        groups = () if self.groups is None else self.groups
        return [Tally(*one) if self.confusion is None else Tally.of(one) for one in groups]

    @property
    def at_ends(self) -> float:
        """The share of the rows that have the score of their own class in a bin at an end."""
        own = self.scores[:, 1]
        return float(own[:, [0, -1]].sum() / max(own.sum(), 1))


@dataclass(frozen=True)
class Counts:
    """A file of counts. ``pairs`` int64 (P, 2, 2), of heads (0, 1), (0, 2), …, (1, 2), …: rows by
    whether the first head and the second one are right. ``groups``: the names of the groups."""

    path: Path
    statistics: Statistics
    heads: tuple[HeadCounts, ...]
    groups: tuple[str, ...] = ()
    min_group: int = 1
    pairs: I64 | None = None

    @property
    def classes(self) -> tuple[str, ...]:
        return self.statistics.context.classes

    @property
    def rows(self) -> int:
        return self.statistics.rows


def holds_counts(path: Path) -> bool:
    """Whether a file is one of counts, by its header."""
    header = read_header(path) if path.is_file() and is_hdf5(path) else {}
    return header.get("kind") == "statistics" and header["phase"] == COUNTS


def read_counts(path: Path) -> Counts:
    """The counts in a file as arrays, checked: its digest, and whether any rows can have them.

    Raises:
        UsageError: a file of other statistics.
        others: as `load_statistics`.
    """
    s = load_statistics(path)
    if s.phase != COUNTS or s.context.noise:
        raise UsageError(
            f"{path} has no counts (or with noise, as 0.3 made them), its phase is {s.phase!r}: "
            "write some with afltool evaluate HEAD FEATURES --counts -o DIR"
        )
    options = make_options(s.context.head["name"], s.context.head["options"])
    assert isinstance(options, EvaluationOptions)
    many = of_head(counting.TALLIES, 0) in s.arrays  # older files have matrices of any size
    wanted = shapes_of(options, len(s.context.classes), many)
    shapes = {name: a.shape for name, a in s.arrays.items()}
    if where := difference(wanted, shapes, "expected", f"in {path}"):
        raise damaged(path, f"its arrays are not those of its heads: {where}")
    heads = tuple(_of_head(s, options, number) for number in range(len(options.described)))
    return Counts(path, s, heads, options.groups, options.min_group, s.arrays.get(PAIRS))


def _of_head(s: Statistics, options: EvaluationOptions, number: int) -> HeadCounts:
    entry, bins = options.described[number], options.bins[number]
    named = (counting.TOP, counting.SCORES, counting.CONFIDENCE)
    ranks, scores, confidence = (s.arrays[of_head(name, number)] for name in named)
    many = of_head(counting.TALLIES, number) in s.arrays
    table = s.arrays[of_head(counting.TALLIES if many else counting.CONFUSION, number)]
    groups = s.arrays.get(of_head(GROUPS, number))
    if groups is not None:
        own = groups[:, 1] if many else groups.sum(axis=2)
        groups = _held_back(groups, own.sum(axis=1), options.min_group)
    about = (entry["name"], entry["digest"], entry["probabilities"], np.array(bins.edges))
    tally = Tally(*table) if many else Tally.of(table)
    return HeadCounts(*about, tally, None if many else table, ranks, scores, confidence, groups)


def _held_back(groups: I64, sizes: I64, least: int) -> I64:
    """What is counted of groups of these sizes, −1 in those of few rows, and in the next smallest
    ones until two are held back that have ``least`` rows: all rows less the groups that are shown
    would tell one."""
    order = np.argsort(sizes, kind="stable")[(sizes == 0).sum() :]
    hidden = int((sizes[order] < least).sum())
    while hidden and (hidden < 2 or sizes[order[:hidden]].sum() < least) and hidden < len(order):
        hidden += 1
    held = np.isin(np.arange(len(sizes)), order[:hidden])
    return np.where(held[:, None, None], np.int64(-1), groups)


Figure = dict[str, Any]
EXACT, BOUND = "exact", "bound"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
OF_GROUPS = ("accuracy", "balanced-accuracy", "f1")


def evaluations(counts: Counts) -> list[dict[str, Any]]:
    """For each head what `evaluate` writes, from counts alone.

    A figure of ``metrics`` is ``exact``, or a ``bound``: it lies between ``least`` and ``most``,
    and ``value`` is the middle. ``low`` and ``high`` are the ends of Wilson's 95 % interval, of
    figures that are shares of rows. ``classes`` has figures of each class, ``quantiles`` those of
    the highest score, ``at_ends`` the share of rows with the score of their own class in a bin at
    an end, ``others`` McNemar's test with each other head of the round.
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
            **_of(counts, number),
        }
        for number, head in enumerate(counts.heads)
    ]


def _of(counts: Counts, number: int) -> dict[str, Any]:
    head, names = counts.heads[number], counts.classes
    tops = np.cumsum(head.ranks)[: len(names) - 1].tolist()
    areas, precisions = fc.areas(head.scores), fc.average_precisions(head.scores)
    sizes = np.array([one.value for one in areas])
    told = drawn(sizes)
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
