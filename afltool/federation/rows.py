"""A site's rows, as a session takes them, and the round that scales them.

A session that scales first sums raw features, exactly: x stands as q = round(x 2^u), |q| ≤ 2^31,
with the agreed range |x| ≤ 2^m, u = 31 − m. Sent are numbers of rows, Σq and Σq²: no extremes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from ..errors import InvalidDataError, MismatchError
from ..files.features import open_features
from ..files.hdf5 import Header, check_unchanged, read_header
from ..files.heads import get_row_facts
from ..files.partitions import ClientRows
from ..heads.base import Block
from ..heads.scaling import ScalingHead
from ..math.gram import FixedPoint, check_labels, encode, real
from ..values.arrays import I64, Array
from ..values.statistics import ArraySpec
from ..values.text import difference
from .agreement import Agreement
from .noise import clip_rows

PART = 31  # bits of |q|
Raw = tuple[Array, I64]  # rows (n, d) as a site has them, and their labels (n,)


@dataclass(frozen=True, eq=False)
class Scaling(ScalingHead):
    """x → (x − ``centre``) / ``spread``, each (d,), where no row lacks a value."""

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        specs = super().array_specs(bits)
        return {k: replace(one, per_row=min(one.per_row, 1 << PART)) for k, one in specs.items()}


@dataclass(frozen=True)
class SiteRows:
    """Each call gives blocks of raw rows (n, d), int16 or real where a session scales, and labels.

    Labels (n,) are places of agreed classes; of ``test`` class + classes · group, if agreed on.
    """

    train: Callable[[], Iterable[Raw]]
    test: Callable[[], Iterable[Raw]] = tuple

    @classmethod
    def of_files(
        cls, agreed: Agreement, train: Path, test: Path | None = None, by: str = ""
    ) -> SiteRows:
        """Feature files; refused unless their features, classes and cells are as agreed.

        ``by``: TABLE:COLUMN, which has the group of each test row, if groups were agreed on.
        """
        seen = _check_file(agreed, train)
        tested = partial(_blocks, agreed, test, _check_file(agreed, test), by) if test else tuple
        made = cls(partial(_blocks, agreed, train, seen), tested)
        made.check_cells(agreed)  # at once, and not after the head is solved
        return made

    def raw(self, reach: int) -> Iterator[Block]:
        """The rows before they are scaled; refused beyond ±2^``reach``."""
        first = 0
        for X, y in self.train():
            for row, column in np.argwhere(~(np.abs(X) <= 2.0**reach))[:1]:
                raise InvalidDataError(
                    f"row {first + row}, feature {column} is {X[row, column]:.6g}: expected a "
                    f"number within ±{2**reach}, as agreed"
                )
            yield X, y
            first += len(y)

    def blocks(
        self, agreed: Agreement, test: bool, scale: Scaling | None, radius: int | None
    ) -> Iterator[Block]:
        """The rows as heads take them: scaled, or clipped to a norm if there is noise."""
        bits, dim, first = agreed.space["fraction_bits"], agreed.space["dim"], 0
        for X, y in self.test() if test else self.train():
            if scale is not None:
                X = encode(scale.transform(np.asarray(X, np.float64), "refuse", first), bits, first)
            values = X.astype(np.int16, casting="safe", copy=False)
            yield FixedPoint(values if radius is None else clip_rows(values, radius), bits), y
            first += len(y)
        if not first:
            yield FixedPoint(np.empty((0, dim), np.int16), bits), np.empty(0, np.int64)

    def check_scale(self, agreed: Agreement, scale: Scaling) -> None:
        """Refuse a scale that rounds a column of these rows away.

        Few rows that are not 0 would stand alone in its sums. Σ|deviation| of what rounding takes
        off a column has to be at most half of its own, unless nothing is left.
        """
        dim, steps = agreed.space["dim"], 2.0 ** agreed.space["fraction_bits"]
        moves, low, high = np.zeros((2, dim)), np.full(dim, np.inf), np.full(dim, -np.inf)
        for X, _ in self.train():
            if len(X):
                z = scale.transform(np.asarray(X, np.float64), "refuse") * steps
                q = np.rint(z)
                moves += [np.abs(a - a.mean(0)).sum(0) for a in (z, z - q)]
                low, high = np.minimum(low, q.min(0)), np.maximum(high, q.max(0))
        for column in np.flatnonzero((high > low) & (moves[1] > moves[0] / 2))[:1]:
            spread = scale.state_dict()["spread"][column]
            raise MismatchError(
                f"feature {column} of this site is rounded away by the scale of all sites, "
                f"{spread:.4g}: few rows would stand alone in its sums. Agree on a smaller "
                "--max-value, or leave it out"
            )

    def check_cells(self, agreed: Agreement) -> None:
        """Refuse test rows of few of a class or of a group: counts of them tell of single rows."""
        if (o := agreed.evaluation) is None:
            return
        cells = np.zeros((len(o.groups) or 1, len(agreed.classes)), np.int64)
        for _, y in self.test():
            check_labels(y, cells.size)
            np.add.at(cells.reshape(-1), y, 1)
        names = agreed.classes
        counts = {f"class {name!r}": n for name, n in zip(names, cells.sum(0), strict=True)}
        counts |= {f"group {name!r}": n for name, n in zip(o.groups, cells.sum(1), strict=False)}
        for name, n in counts.items():
            if 0 < n < o.min_cell:
                text = f"{n} test rows of the {name} at a site"
                raise InvalidDataError(f"{text}; agreed: {o.min_cell}, or none")


def _check_file(agreed: Agreement, path: Path) -> Header:
    """Refuse other features or classes; returns what tells whether another file takes its place."""
    units = ("dtype", "fraction_bits") if agreed.scale is not None else ()
    ours, theirs = (
        {"classes": list(one.classes), **{k: v for k, v in one.space.items() if k not in units}}
        for one in (agreed, get_row_facts(path))
    )
    if where := difference(ours, theirs, "agreed", f"in {path}"):
        raise MismatchError(f"the rows of {path} are not those of the session: {where}")
    return read_header(path, "features")


def _blocks(agreed: Agreement, path: Path, seen: Header, by: str = "") -> Iterator[Raw]:
    with open_features(path) as rows:
        check_unchanged(path, rows.header, seen)
        clients = ClientRows.from_single_client(rows, "site")
        if by and agreed.evaluation:
            clients = clients.grouped(agreed.evaluation.groups, by)
        for at, values in rows.iter_stored():
            y = clients.dealt.effective_labels[at : at + len(values)]
            yield values if agreed.scale is None else real(rows.wrap(values)), y
