"""Feature files, read in blocks of bounded size; `feature_writer` writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from numpy.typing import NDArray

from .. import progress
from ..errors import MismatchError, UsageError
from ..math.gram import FixedPoint, Rows, real
from ..partitions import rows_digest
from ..values.arrays import F64, Digest
from ..values.text import COLUMNS, difference
from . import schema
from .hdf5 import (
    Header,
    check_digest,
    checked_dataset,
    damage_as_error,
    damaged,
    get_array,
    read_header,
    reading,
)
from .schema import provenance

if TYPE_CHECKING:
    from pandas import DataFrame

Labels = NDArray[np.int64]
BLOCK_BYTES = 32 << 20  # of float64 rows: a block and its copies stay in the tens of megabytes


def features_digest(data: Any, labels: Labels | None, row_ids: NDArray[Any]) -> str:
    """Digest of a feature file's meaning; ``data`` is anything that slices into rows."""
    step, digest = schema.CHUNK_ROWS * 16, Digest()
    blocks = (data[start : start + step] for start in range(0, data.shape[0], step))
    for _ in digest.passing("features", data.shape, data.dtype.str, blocks):
        pass
    return _with_rows(digest, labels, row_ids)


def _with_rows(digest: Digest, labels: Labels | None, row_ids: NDArray[Any]) -> str:
    if labels is not None:
        digest.array("labels", labels, "<i8")
    return digest.lines("row_ids", row_ids).hex()


def meaning(header: Mapping[str, Any]) -> dict[str, Any]:
    """What tells features from others, as recipes hold it among their inputs.

    The digest covers the stored numbers, the labels and the row ids, but neither what a number
    stands for (the space) nor what a label stands for (the classes).
    """
    return {"features": header["digest"], "space": header["space"], "classes": header["classes"]}


@dataclass
class Features:
    """A finished feature file, open for reading; made by `open_features`."""

    path: Path
    header: Header
    given_labels: Labels | None  # None of a file without labels
    row_ids: NDArray[np.bytes_]
    data: h5py.Dataset | NDArray[Any]  # the rows, in the file, or in memory, see `in_memory`

    @property
    def labels(self) -> Labels:
        """The label of each row, int64 (n,); `UsageError` where the file has none."""
        if self.given_labels is None:
            raise UsageError(f"{self.path} has no labels (made with --unlabelled); expected some")
        return self.given_labels

    def __len__(self) -> int:
        return len(self.row_ids)

    @property
    def dim(self) -> int:
        return int(self.data.shape[1])

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    @cached_property
    def by_id(self) -> NDArray[np.int64]:
        """Indices (n,) that sort the rows by the bytes of their ids, as a partition has them."""
        return np.argsort(self.row_ids, kind="stable")

    def rows_digest(self) -> str:
        """Which rows these are, as a partition says it; see `partitions.rows_digest`."""
        return rows_digest(self.row_ids[self.by_id], self.labels[self.by_id])

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.header["classes"])

    @property
    def bits(self) -> int | None:
        return self.header["space"]["fraction_bits"]  # type: ignore[no-any-return]

    @property
    def meaning(self) -> dict[str, Any]:
        return meaning(self.header)

    def to_numpy(self) -> F64:
        """All rows (n, d) as real numbers, float64."""
        return np.concatenate([np.zeros((0, self.dim)), *(real(X) for _, X in self.blocks())])

    def to_frame(self) -> DataFrame:
        """All rows as real numbers, indexed by row id, with a column ``label`` of class names."""
        from pandas import DataFrame, Index

        ids = Index([one.decode("utf-8", "replace") for one in self.row_ids], name="row_id")
        frame = DataFrame(self.to_numpy(), ids, self.header["space"].get(COLUMNS))
        if self.given_labels is not None:
            frame["label"] = np.array(self.classes, dtype=object)[self.given_labels]
        return frame

    def derived(
        self,
        made_by: Mapping[str, Any],
        was: Mapping[str, Any],
        space: Mapping[str, Any] | None = None,
        **source: Any,
    ) -> Header:
        """The header of a file that is made of these rows; ``was``: the provenance before it.

        ``space``: another one than theirs; ``source``: what was done to the rows.
        """
        known = {name: self.header[name] for name in ("space", "classes")}
        known |= {} if space is None else {"space": space}
        origin = {"source": {**self.header["source"], **source}}
        return {"recipe": made_by, "provenance": provenance(**was), **known, **origin}

    def rows(self, start: int, stop: int) -> Rows:
        """Rows start … stop−1 as heads take them."""
        return self.wrap(self.stored(start, stop))

    def stored(self, start: int, stop: int) -> NDArray[Any]:
        """Rows start … stop−1 as they are stored, (rows, d) int16 or float32."""
        with damage_as_error(self.path):
            values: NDArray[Any] = self.data[start:stop]
        return values

    def wrap(self, values: NDArray[Any]) -> Rows:
        """Stored values (n, d) as what heads take: fixed point or float32."""
        return values if self.bits is None else FixedPoint(values, self.bits)

    def block_rows(self) -> int:
        """Rows of a block: a multiple of the chunk, about 32 MB as float64."""
        chunk = schema.CHUNK_ROWS
        return max(chunk, BLOCK_BYTES // (8 * self.dim) // chunk * chunk)

    def blocks(self) -> Iterator[tuple[int, Rows]]:
        """All rows in order, as (first row, block); see `stored_blocks`."""
        return ((start, self.wrap(values)) for start, values in self.stored_blocks())

    def stored_blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """All rows in order as they are stored, as (first row, block).

        A pass over a file compares its digest at the end and raises `CorruptFileError` if it is
        another: what was computed from the blocks counts only when the end is reached.
        """
        step = self.block_rows()
        starts = range(0, len(self), step)
        parts = (self.stored(start, start + step) for start in starts)
        if isinstance(self.data, np.ndarray):
            yield from zip(starts, parts, strict=True)
            return
        digest = Digest()
        passing = digest.passing("features", self.data.shape, self.data.dtype.str, parts)
        yield from zip(starts, passing, strict=True)
        check_digest(self.path, self.header, _with_rows(digest, self.given_labels, self.row_ids))

    def in_memory(self) -> Features:
        """The same with all rows in memory, read once and checked; nobody can write into them."""
        whole = np.empty(self.data.shape, self.data.dtype)
        for start, values in self.stored_blocks():
            whole[start : start + len(values)] = values
            progress.stop_point()
        whole.setflags(write=False)
        return replace(self, data=whole)


def verify_features(path: Path) -> None:
    """Read every byte of a feature file and compare its digest."""
    with open_features(path, labelled=False) as features:
        for _ in features.stored_blocks():
            pass


def check_alike(train: Path, test: Path) -> None:
    """Refuse with `MismatchError` test features of another space, or of other classes."""
    ours, theirs = (
        meaning(read_header(one, "features")) | {"features": ""} for one in (train, test)
    )
    if where := difference(ours, theirs, f"in {train}", f"in {test}"):
        advice = "extract both with the same backbone, options and --classes FILE"
        raise MismatchError(f"the test features {test} do not fit {train}: {where}; {advice}")


@contextmanager
def open_features(path: Path, labelled: bool = True) -> Iterator[Features]:
    """Open a finished feature file; labels and row ids are read, features as they are asked for.

    One without labels is refused (`UsageError`) unless ``labelled`` is False.
    """
    with reading(path, "features") as (file, header):
        with damage_as_error(path):
            data = checked_dataset(path, file, schema.FEATURES)
            labels = get_array(path, file, schema.LABELS) if schema.LABELS in file else None
            features = Features(path, header, labels, get_array(path, file, schema.ROW_IDS), data)
        _check_shapes(features)
        if labelled:
            _ = features.labels
        yield features


def _check_shapes(features: Features) -> None:
    path, data, labels = features.path, features.data, features.given_labels
    space, n, classes = features.header["space"], len(features), len(features.classes)
    kind, counted = schema.FEATURE_TYPES[space["dtype"]], n if labels is None else len(labels)
    if (data.shape, data.dtype.str, counted) != ((n, space["dim"]), kind, n):
        found = f"features {data.shape} {data.dtype.str}, {counted} labels and {n} row ids"
        raise damaged(path, f"{found} do not fit together, nor {kind} of {space['dim']} features")
    if labels is None and classes:
        raise damaged(path, f"it has {classes} classes and no /labels")
    if labels is not None and len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        found = f"labels run from {labels.min()} to {labels.max()}"
        raise damaged(path, f"{found}, with {classes} classes")
