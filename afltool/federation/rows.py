"""A site's rows, as a session takes them: from a feature file, or from any table in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import InvalidDataError, MismatchError
from ..files.features import open_features
from ..heads.base import Block
from ..math.gram import FixedPoint
from ..values.arrays import I64, Array
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
    def of_arrays(cls, X: Array, y: Array, X_test: Array | None = None,
                  y_test: Array | None = None) -> SiteRows:  # fmt: skip
        train, test = (X, np.asarray(y, np.int64)), no_rows
        if X_test is not None and y_test is not None:
            scored = X_test, np.asarray(y_test, np.int64)
            return cls(lambda: [train], lambda: [scored])
        return cls(lambda: [train], test)

    @classmethod
    def of_files(cls, agreed: Agreement, train: Path, test: Path | None = None) -> SiteRows:
        """Feature files; refused unless their features and classes are those of the session."""
        for path in (train, test):
            if path is not None:
                _check_file(agreed, path)
        return cls(lambda: _blocks(train), no_rows if test is None else lambda: _blocks(test))

    def blocks(self, agreed: Agreement, test: bool, scale: Scaling | None,
               radius: int | None) -> Iterator[Block]:  # fmt: skip
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
            group, label = np.divmod(y, len(agreed.classes))
            np.add.at(counts, label, 1)
            if o["groups"]:
                np.add.at(counts, len(agreed.classes) + group, 1)
        for name, n in zip(names, counts.tolist(), strict=True):
            if 0 < n < o["min_cell"]:
                raise InvalidDataError(
                    f"this site has {n} test rows of the {name}; agreed: {o['min_cell']} at "
                    "least, or none"
                )


def _check_block(X: Array, dim: int, real: bool) -> None:
    if X.ndim != 2 or X.shape[1] != dim:
        raise MismatchError(f"rows of this site are {X.shape}; agreed: {dim} features")
    if not real and X.dtype != np.int16:
        raise MismatchError(f"rows of this site are {X.dtype}; agreed: int16")


def _check_file(agreed: Agreement, path: Path) -> None:
    with open_features(path) as rows:
        ours = {"classes": list(agreed.classes), "space": dict(agreed.space)}
        for what in ("classes", "space") if agreed.scale is None else ("classes",):
            if rows.header[what] != ours[what]:
                raise MismatchError(
                    f"{path}: its {what} differ from the session's: expected {ours[what]}, found "
                    f"{rows.header[what]}"
                )
        if rows.dim != agreed.space["dim"]:
            raise MismatchError(f"{path} has {rows.dim} features; agreed: {agreed.space['dim']}")


def _blocks(path: Path) -> Iterator[Raw]:
    with open_features(path) as rows:
        for start, values in rows.stored_blocks():
            scale = 1.0 if rows.bits is None else 2.0**-rows.bits
            yield (
                values if rows.bits is not None else values * scale,
                rows.labels[start : start + len(values)],
            )
