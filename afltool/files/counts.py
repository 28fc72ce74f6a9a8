"""Files of counts, which `evaluate --counts` writes, and what they say of heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidDataError, UsageError
from ..heads import make_options
from ..heads.evaluation import GROUPS, EvaluationOptions, head_array_name, round_shapes
from ..inputs import is_hdf5
from ..math.metrics import counting
from ..math.metrics import from_counts as fc
from ..math.metrics.counting import Metrics
from ..math.metrics.figures import Tally, f1_scores, nulls, shares
from ..values.arrays import F64, I64
from ..values.names import COUNTS
from ..values.statistics import Statistics
from ..values.text import difference
from .hdf5 import damage_message, read_header
from .statistics import load_statistics

Figure = dict[str, Any]
OF_GROUPS = ("accuracy", "balanced-accuracy", "f1")


@dataclass(frozen=True)
class HeadCounts:
    """What is counted of one head; C classes, B bins, G groups. docs/format.md has the arrays."""

    name: str
    digest: str
    probabilities: bool  # whether scores are such
    edges: F64  # (B + 1,): bin b has scores in (edges[b], edges[b + 1]]; outer ones have the rest
    tally: Tally
    confusion: I64 | None  # (C, C); None of 1,000 classes or more
    ranks: I64
    scores: I64  # (C, 2, B): of each class the scores of other rows and of its own ones
    confidence: I64  # (2, B): highest scores of wrong rows and of right ones
    groups: I64 | None = None  # (G, C, C), or (G, 3, C) tallies; −1 in those that are held back

    @property
    def right(self) -> int:
        """How many rows are predicted right."""
        return int(self.tally.right.sum())

    @property
    def at_ends(self) -> float:
        """The share of the rows that have the score of their own class in a bin at an end."""
        own = self.scores[:, 1]
        return float(own[:, [0, -1]].sum() / max(own.sum(), 1))


@dataclass(frozen=True)
class Counts:
    """A file of counts. ``groups``: the names of the groups."""

    path: Path
    statistics: Statistics
    heads: tuple[HeadCounts, ...]
    groups: tuple[str, ...] = ()

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


def read_counts(path: Path | str) -> Counts:
    """The counts that `counts` wrote, or a total of them, as arrays.

    They are checked: the digest, and whether any rows can have them. Raises `UsageError`: a file of
    other statistics; else as for any statistics.
    """
    s = load_statistics(path := Path(path))
    if s.phase != COUNTS or s.context.noise:
        found = f"{path} has no counts (or with noise), its phase is {s.phase!r}"
        raise UsageError(f"{found}: write some with afltool evaluate HEAD FEATURES --counts -o DIR")
    options = make_options(s.context.head["name"], s.context.head["options"])
    assert isinstance(options, EvaluationOptions)
    many = head_array_name(counting.TALLIES, 0) in s.arrays  # older files have matrices of any size
    wanted = round_shapes(options, len(s.context.classes), many)
    shapes = {name: a.shape for name, a in s.arrays.items()}
    if where := difference(wanted, shapes, "expected", f"in {path}"):
        raise damage_message(path, f"its arrays are not those of its heads: {where}")
    heads = tuple(_select_head(s, options, number) for number in range(len(options.described)))
    return Counts(path, s, heads, options.groups)


def _select_head(s: Statistics, options: EvaluationOptions, number: int) -> HeadCounts:
    def array(name: str) -> Any:
        return s.arrays.get(head_array_name(name, number))

    entry, edges = options.described[number], np.array(options.bins[number].edges)
    tallies, confusion, groups = map(array, (counting.TALLIES, counting.CONFUSION, GROUPS))
    if groups is not None:
        own = groups.sum(axis=2) if tallies is None else groups[:, 1]
        groups = _hold_back(groups, own.sum(axis=1), options.min_group)
    ranks, scores, confidence = map(array, ("ranks", "scores", "confidence"))
    tally = Tally.of(confusion) if tallies is None else Tally(*tallies)
    about = entry["name"], entry["digest"], entry["probabilities"], edges
    return HeadCounts(*about, tally, confusion, ranks, scores, confidence, groups)


def _hold_back(groups: I64, sizes: I64, least: int) -> I64:
    """What is counted of groups of these sizes, −1 in those of few rows, and in the next smallest
    ones until two are held back that have ``least`` rows: all rows less the groups that are shown
    would tell one."""
    order = np.argsort(sizes, kind="stable")[(sizes == 0).sum() :]
    hidden = int((sizes[order] < least).sum())
    while hidden and (hidden < 2 or sizes[order[:hidden]].sum() < least) and hidden < len(order):
        hidden += 1
    held = np.isin(np.arange(len(sizes)), order[:hidden])
    return np.where(held[:, None, None], np.int64(-1), groups)


def evaluations(counts: Counts) -> list[dict[str, Any]]:
    """For each head what `evaluate` writes, from counts alone.

    A figure of ``metrics`` is ``exact``, or a ``bound``: it lies between ``least`` and ``most``,
    and ``value`` is the middle. ``low`` and ``high`` are the ends of Wilson's 95 % interval, of
    figures that are shares of rows.
    """
    if counts.rows <= 0:
        raise InvalidDataError(f"{counts.path} counts no rows: there is nothing to evaluate")
    return [_select(counts, head) for head in counts.heads]


def _select(counts: Counts, head: HeadCounts) -> dict[str, Any]:
    names, path = counts.classes, str(counts.path)
    tops = np.cumsum(head.ranks)[: len(names) - 1].tolist()
    areas, precisions = fc.areas(head.scores), fc.average_precisions(head.scores)
    return {
        "head": {"name": head.name, "digest": head.digest, "path": path},
        "total": {"path": path, "digest": counts.statistics.digest()},
        "clients": len(counts.statistics.clients),
        **Metrics(head.tally, int(head.ranks[:5].sum())).as_dict(names),
        **({} if head.confusion is None else {"confusion": head.confusion.tolist()}),
        "metrics": dict(_metrics(head, areas, precisions)),
        "top": {str(k): hits / counts.rows for k, hits in enumerate(tops, 1)},
        "classes": _classes(names, head.tally, areas, precisions),
        "at_ends": head.at_ends,
        **({"reliability": _reliability(head)} if head.probabilities else {}),
        **_groups(counts, head),
    }


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
    yield "auc", {**_compute_bound(fc.mean(areas)), "average": "macro"}
    yield "average-precision", {**_compute_bound(fc.mean(precisions)), "average": "macro"}
    if head.probabilities:  # of other scores they would be no errors of probabilities
        yield "ece", _compute_bound(fc.ece(head.confidence, head.edges))


def _exact(*values: float) -> Figure:
    """An exact figure, with the ends of its interval if it has one."""
    return {**dict(zip(("value", "low", "high"), nulls(values), strict=False)), "is": "exact"}


def _share(hits: int, n: int) -> Figure:
    return _exact(hits / n if n else float("nan"), *fc.wilson(hits, n))


def _compute_bound(one: fc.Range) -> Figure:
    value, least, most, error = nulls((one.value, one.least, one.most, one.error))
    return {"value": value, "least": least, "most": most, "error": error, "is": "bound"}


def _classes(
    names: Sequence[str], of: Tally, areas: list[fc.Range], precisions: list[fc.Range]
) -> dict[str, dict[str, Any]]:
    """Rows and figures of each class by its name."""
    columns = (of.right.tolist(), of.own.tolist(), of.predicted.tolist(), f1_scores(of))
    return {
        name: {
            "rows": rows,
            "sensitivity": _share(right, rows),
            "precision": _share(right, predicted),
            "f1": _exact(f1),
            "auc": _compute_bound(area),
            "average-precision": _compute_bound(precision),
        }
        for name, right, rows, predicted, f1, area, precision in zip(
            names, *columns, areas, precisions, strict=True
        )
    }


def _reliability(head: HeadCounts) -> dict[str, list[float | None]]:
    """As `evaluate --metrics ece` has it; a bin's confidence is the middle of what it may be."""
    bins = fc.reliability(head.confidence, head.edges)
    of = {"confidence": (bins["least"] + bins["most"]) / 2, "accuracy": bins["right"]}
    columns = {name: nulls(shares(a, bins["weight"])) for name, a in of.items()}
    return {"weight": nulls(bins["weight"]), **columns}


def _groups(counts: Counts, head: HeadCounts) -> dict[str, Any]:
    """Rows and figures of each group; none of those that are held back."""
    by_group = {}
    for name, one in zip(counts.groups, () if head.groups is None else head.groups, strict=True):
        tally = Tally(*one) if head.confusion is None else Tally.of(one)
        n = int(tally.own.sum())
        figures = fc.exact(tally) if n > 0 else {}
        values = nulls(figures.get(figure, float("nan")) for figure in OF_GROUPS)
        by_group[name] = {"n": None if n < 0 else n, **dict(zip(OF_GROUPS, values, strict=True))}
    return {"by": by_group} if by_group else {}
