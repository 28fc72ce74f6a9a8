"""Reads a file of counts: what `evaluate --counts` writes, and sums of such files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..heads import make_options
from ..heads.evaluation import GROUPS, PAIRS, EvaluationOptions, of_head, shapes_of
from ..inputs import is_hdf5
from ..math.metrics import counting
from ..math.metrics.figures import Tally
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
