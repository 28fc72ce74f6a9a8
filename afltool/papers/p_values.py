"""P-values below a table: every row against the first one, on the same test rows.

All seeds of a study test the same rows, so rows must not be counted once for each seed. Heads that
are the same are one measurement, whatever the seed; for others the seeds are clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MismatchError, UsageError
from ..math.metrics.intervals import SAMPLES, mcnemar, paired_bootstrap
from ..stages.evaluate import right_rows
from .cells import SEEDS
from .crosstab import Crosstab, Entry, Record
from .records import source_of
from .results import Results

Right = NDArray[np.bool_]
Key = tuple[Any, ...]
Pair = tuple[Record, Record]


@dataclass
class Heads:
    """Head and test features of each measurement, by `Record.source`; each is read once."""

    places: Mapping[Key, tuple[Path, Path]]
    _known: dict[Key, tuple[Right, NDArray[np.bytes_]]] = field(default_factory=dict)

    def right(self, records: Sequence[Record]) -> list[Right]:
        """Which test rows each head predicts right, in the order of the row ids.

        Raises `MismatchError` where the heads were not tested on the same rows.
        """
        first = records[0].source
        for source in (record.source for record in records):
            if source not in self._known:
                right, ids = right_rows(*self.places[source])
                order = np.argsort(ids, kind="stable")
                self._known[source] = right[order], ids[order]
            if not np.array_equal(self._known[source][1], self._known[first][1]):
                raise MismatchError(
                    f"{self.places[first][1]} and {self.places[source][1]} have different rows, by "
                    "their row ids; --test mcnemar compares heads on the same rows: choose with "
                    "--where"
                )
        return [self._known[record.source][0] for record in records]


def heads_of(results: Results) -> Heads:
    """The heads of the cells that are done."""
    heads: dict[Key, tuple[Path, Path]] = {}
    for cell, summary in results.done:
        paths = cell.solved(results.folder, summary), cell.test_rows(results.folder)
        heads[source_of(summary)] = paths
    return Heads(heads)


def tests(made: Crosstab, name: str, heads: Heads) -> list[str]:
    """The p-value of every row against the first one, column by column, in words."""
    rows = [row for row in made.rows if row[0] != "published"]
    if len(rows) < 2:
        raise UsageError("--test compares every row with the first; the table has one row")
    first, lines = rows[0], []
    for column in made.columns:
        if column[0] != "top1":
            raise UsageError("--test compares top1")
        for row in rows[1:]:
            pairs = pairs_of(*(made.entry(key, column) for key in (first, row)))
            words, p = _paired_t(pairs) if name == "t" else _mcnemar(heads, pairs)
            shown = f"not defined ({p})" if isinstance(p, str) else f"{p:.3g}"
            lines.append(
                f"{words}, {made.heading(column)}: {row[1]} against {first[1]}: p = {shown}"
            )
    return lines


def pairs_of(a: Entry, b: Entry) -> list[Pair]:
    """Records of equal seeds, each pair of measurements once, however many seeds have it.

    Seeds are equal where those that both methods have, and that vary, are equal.
    """
    ours, theirs = ([one for one in entry.records if one.figures] for entry in (a, b))
    both = [*ours, *theirs]
    shared = [name for name in SEEDS if all(name in one.axes for one in both)]
    names = [name for name in shared if len({str(one.axes[name]) for one in both}) > 1]
    pairs: dict[Key, Pair] = {}
    for one in ours:
        for other in theirs:
            if _seeds(one, names) == _seeds(other, names):
                same = (one.source, other.source) if one.source and other.source else len(pairs)
                pairs.setdefault((same,), (one, other))
    return list(pairs.values())


def _seeds(record: Record, names: Sequence[str]) -> Key:
    """The values of these seeds; of a table beside, which may have another name, its seed."""
    if not names:
        return (str(record.axes.get("partition_seed", record.axes.get("seed"))),)
    return tuple(str(record.axes[name]) for name in names)


_NO_PAIR = "no results of equal seeds"


def _paired_t(pairs: list[Pair]) -> tuple[str, float | str]:
    """Student's t of the differences of equal seeds."""
    from scipy.stats import ttest_rel

    words = "paired t over seeds"
    x, y = ([pair[i].figures["top1"] for pair in pairs] for i in (0, 1))
    if len(pairs) < 2:
        return words, "it needs two different results" if pairs else _NO_PAIR
    if len({u - v for u, v in zip(x, y, strict=True)}) == 1:
        return words, "the difference has no deviation"
    return words, float(ttest_rel(x, y).pvalue)


def _mcnemar(heads: Heads, pairs: list[Pair]) -> tuple[str, float | str]:
    """McNemar's exact test of two heads; of several seeds a bootstrap of rows and seeds."""
    words = "McNemar"
    if not pairs:
        return words, _NO_PAIR
    if any(one.source not in heads.places for pair in pairs for one in pair):
        return words, "there is no head file for each result"
    right = heads.right([one for pair in pairs for one in pair])
    both = {
        (a.tobytes(), b.tobytes()): (a, b) for a, b in zip(right[::2], right[1::2], strict=True)
    }
    if len(both) == 1:
        first, second = next(iter(both.values()))
        return words, float(mcnemar(first, second)["p_value"])
    differences = np.stack([a.astype(np.int8) - b.astype(np.int8) for a, b in both.values()])
    seeds, rows = differences.shape
    words = f"paired bootstrap of {rows:,} rows and {seeds} seeds, {SAMPLES:,} samples"
    return words, paired_bootstrap(differences)
