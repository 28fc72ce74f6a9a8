"""A site's rows, as a session takes them: from a feature file, or from any table in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ..errors import InvalidDataError, MismatchError
from ..files.features import open_features
from ..heads.base import Block
from ..math.gram import FixedPoint, check_labels, real
from ..values.arrays import I64, Array
from ..values.text import difference
from .agreement import Agreement
from .noise import clip_rows
from .scaling import Scaling

Raw = tuple[Array, I64]  # rows (n, d) as a site has them, and their labels (n,)


def no_rows() -> Iterable[Raw]:
    return ()


@dataclass(frozen=True)
class SiteRows:
    """``train`` and ``test`` give blocks of raw rows (n, d) with their labels (n,), in the classes'
    order of the agreement, as often as they are called.

    int16 in a session's number format, or real numbers where the session scales. In rows of
    ``test`` a label is class + classes · group, if groups were agreed on.
    """

    train: Callable[[], Iterable[Raw]]
    test: Callable[[], Iterable[Raw]] = no_rows

    @classmethod
    def of_arrays(cls, X: Array, y: I64, *test: Array) -> SiteRows:
        """Rows in memory, then those of the test and their labels, if there are any."""
        return cls(lambda: [(X, y)], lambda: [(test[0], test[1])] if test else [])

    @classmethod
    def of_files(cls, agreed: Agreement, train: Path, test: Path | None = None) -> SiteRows:
        """Feature files; refused unless their features and classes are those of the session."""
        for path in (train, test):
            if path is not None:
                _check_file(agreed, path)
        real = agreed.scale is not None
        return cls(partial(_blocks, train, real), partial(_blocks, test, real) if test else no_rows)

    def blocks(
        self, agreed: Agreement, test: bool, scale: Scaling | None, radius: int | None
    ) -> Iterator[Block]:
        """The rows as heads take them: scaled, or clipped to a norm if there is noise."""
        bits, dim, first = agreed.space["fraction_bits"], agreed.space["dim"], 0
        for X, y in self.test() if test else self.train():
            _check_block(X, dim, scale is not None)
            values = np.asarray(X if scale is None else scale.scaled(X, bits, first), np.int16)
            yield FixedPoint(values if radius is None else clip_rows(values, radius), bits), y
            first += len(y)
        if not first:
            yield FixedPoint(np.empty((0, dim), np.int16), bits), np.empty(0, np.int64)

    def check_cells(self, agreed: Agreement) -> None:
        """Refuse test rows of few of a class or of a group: counts of them tell of single rows."""
        o = agreed.evaluation or {}
        names = [f"class {c!r}" for c in agreed.classes] + [f"group {g!r}" for g in o["groups"]]
        counts = np.zeros(len(names), np.int64)
        for _, y in self.test():
            check_labels(y, len(agreed.classes) * max(1, len(o["groups"])))
            group, label = np.divmod(y, len(agreed.classes))
            np.add.at(counts, label, 1)
            if o["groups"]:
                np.add.at(counts, len(agreed.classes) + group, 1)
        for name, n in zip(names, counts.tolist(), strict=True):
            if 0 < n < o["min_cell"]:
                raise InvalidDataError(
                    f"{n} test rows of the {name} at a site; agreed: {o['min_cell']}, or none"
                )


def _check_block(X: Array, dim: int, scaled: bool) -> None:
    if X.ndim != 2 or X.shape[1] != dim or not (scaled or X.dtype == np.int16):
        kind = "numbers" if scaled else "int16"
        raise MismatchError(f"rows of a site are {X.shape}, {X.dtype}; agreed: {dim} of {kind}")


def _check_file(agreed: Agreement, path: Path) -> None:
    with open_features(path) as rows:
        ours = {"classes": list(agreed.classes), "space": dict(agreed.space)}
        if agreed.scale is not None:  # its own numbers, which the session scales
            ours["space"] = {**rows.header["space"], "dim": agreed.space["dim"]}
        if where := difference(ours, {k: rows.header[k] for k in ours}, "agreed", f"in {path}"):
            raise MismatchError(f"the rows of {path} are not those of the session: {where}")


def _blocks(path: Path, as_real: bool) -> Iterator[Raw]:
    with open_features(path) as rows:
        for at, values in rows.stored_blocks():
            y = rows.labels[at : at + len(values)]
            yield real(rows.wrap(values)) if as_real else values, y
