"""A site's rows, as a session takes them: from a feature file, or from any table in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidDataError, MismatchError
from ..files.features import open_features
from ..files.heads import rows_of
from ..files.partitions import ClientRows
from ..heads.base import Block
from ..math.gram import FixedPoint, check_labels, encode, real
from ..values.arrays import I64, Array
from ..values.text import difference
from .agreement import Agreement
from .noise import clip_rows
from .scaling import Scaling

Raw = tuple[Array, I64]  # rows (n, d) as a site has them, and their labels (n,)


@dataclass(frozen=True)
class SiteRows:
    """``train`` and ``test`` give blocks of raw rows (n, d) with their labels (n,), in the classes'
    order of the agreement, as often as they are called.

    int16 in a session's number format, or real numbers where the session scales. In rows of
    ``test`` a label is class + classes · group, if groups were agreed on.
    """

    train: Callable[[], Iterable[Raw]]
    test: Callable[[], Iterable[Raw]] = tuple

    @classmethod
    def of_arrays(cls, X: Array, y: I64, *test: Array) -> SiteRows:
        """Rows in memory, then those of the test and their labels, if there are any."""
        return cls(lambda: [(X, y)], lambda: [(test[0], test[1])] if test else ())

    @classmethod
    def of_files(
        cls, agreed: Agreement, train: Path, test: Path | None = None, by: str = ""
    ) -> SiteRows:
        """Feature files; refused unless their features and classes are those of the session.

        ``by``: TABLE:COLUMN, which has the group of each test row, if groups were agreed on.
        """
        for path in filter(None, (train, test)):
            _check_file(agreed, path)
        return cls(
            partial(_blocks, agreed, train), partial(_blocks, agreed, test, by) if test else tuple
        )

    def blocks(
        self, agreed: Agreement, test: bool, scale: Scaling | None, radius: int | None
    ) -> Iterator[Block]:
        """The rows as heads take them: scaled, or clipped to a norm if there is noise."""
        bits, dim, first = agreed.space["fraction_bits"], agreed.space["dim"], 0
        for X, y in self.test() if test else self.train():
            _check_block(X, dim, scale is not None)
            if scale is not None:
                X = encode(scale.scaled(np.asarray(X, np.float64), "refuse", first), bits, first)
            values = np.asarray(X, np.int16)
            yield FixedPoint(values if radius is None else clip_rows(values, radius), bits), y
            first += len(y)
        if not first:
            yield FixedPoint(np.empty((0, dim), np.int16), bits), np.empty(0, np.int64)

    def check_cells(self, agreed: Agreement) -> None:
        """Refuse test rows of few of a class or of a group: counts of them tell of single rows."""
        o: Mapping[str, Any] = agreed.evaluation or {"groups": [], "min_cell": 0}
        classes, groups = agreed.classes, o["groups"] or [""]
        cells = np.zeros((len(groups), len(classes)), np.int64)
        for _, y in self.test():
            check_labels(y, cells.size)
            np.add.at(cells.reshape(-1), y, 1)
        counts = {f"class {c!r}": n for c, n in zip(classes, cells.sum(0).tolist(), strict=True)}
        counts |= {
            f"group {g!r}": n for g, n in zip(groups, cells.sum(1).tolist(), strict=True) if g
        }
        if few := [f"{n} test rows of the {k}" for k, n in counts.items() if 0 < n < o["min_cell"]]:
            raise InvalidDataError(f"{few[0]} at a site; agreed: {o['min_cell']}, or none")


def _check_block(X: Array, dim: int, scaled: bool) -> None:
    if X.ndim != 2 or X.shape[1] != dim or not (scaled or X.dtype == np.int16):
        kind = "numbers" if scaled else "int16"
        raise MismatchError(f"rows of a site are {X.shape}, {X.dtype}; agreed: {dim} of {kind}")


def _check_file(agreed: Agreement, path: Path) -> None:
    """Refuse other features or classes; of what a session scales the numbers may be others."""
    units = ("dtype", "fraction_bits") if agreed.scale is not None else ()
    ours, theirs = (
        {"classes": list(one.classes), **{k: v for k, v in one.space.items() if k not in units}}
        for one in (agreed, rows_of(path))
    )
    if where := difference(ours, theirs, "agreed", f"in {path}"):
        raise MismatchError(f"the rows of {path} are not those of the session: {where}")


def _blocks(agreed: Agreement, path: Path, by: str = "") -> Iterator[Raw]:
    with open_features(path) as rows:
        clients = ClientRows.of_silo(rows, "site")
        if by and agreed.evaluation:
            clients = clients.grouped(agreed.evaluation["groups"], by)
        for at, values in rows.stored_blocks():
            y = clients.dealt.effective_labels[at : at + len(values)]
            yield values if agreed.scale is None else real(rows.wrap(values)), y
