"""Feature files, read in blocks of bounded size; rows appended, committed, resumed after a kill."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from .. import parallel, progress
from ..errors import CorruptFileError, InvalidDataError, MismatchError, UsageError, naming
from ..math.gram import FixedPoint, Rows, check_float32, encode, real
from ..math.rounding import Rounding
from ..partitions import rows_digest
from ..progress import log
from ..values.arrays import F64, Digest, canonical_json
from ..values.text import COLUMNS, difference
from . import hdf5, schema
from .schema import provenance

Parts = Iterable[tuple[int, Any]]  # the number of the first row, and rows
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
    header: hdf5.Header
    given_labels: Labels | None  # None of a file without labels
    row_ids: NDArray[np.bytes_]
    data: h5py.Dataset | NDArray[Any]  # the rows, in the file, or in memory, see `load`

    @property
    def labels(self) -> Labels:
        """The label of each row, int64 (n,); `UsageError` where the file has none."""
        if self.given_labels is None:
            raise UsageError(f"{self.path} has no labels (made with --unlabeled); expected some")
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

    def derived_header(
        self,
        made_by: Mapping[str, Any],
        was: Mapping[str, Any],
        space: Mapping[str, Any] | None = None,
        **source: Any,
    ) -> hdf5.Header:
        """The header of a file that is made of these rows; ``was``: the provenance before it.

        ``space``: another one than theirs; ``source``: what was done to the rows.
        """
        known = {name: self.header[name] for name in ("space", "classes")}
        known |= {} if space is None else {"space": space}
        origin = {"source": {**self.header["source"], **source}}
        return {"recipe": made_by, "provenance": provenance(**was), **known, **origin}

    def rows(self, start: int, stop: int) -> Rows:
        """Rows start … stop−1 as heads take them."""
        return self.wrap(self.read_stored(start, stop))

    def read_stored(self, start: int, stop: int) -> NDArray[Any]:
        """Rows start … stop−1 as they are stored, (rows, d) int16 or float32."""
        with hdf5.damage_as_error(self.path):
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
        """All rows in order, as (first row, block); see `iter_stored`."""
        return ((start, self.wrap(values)) for start, values in self.iter_stored())

    def iter_stored(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """All rows in order as they are stored, as (first row, block).

        A pass over a file compares its digest at the end and raises `CorruptFileError` if it is
        another: what was computed from the blocks counts only when the end is reached.
        """
        step = self.block_rows()
        starts = range(0, len(self), step)
        parts = (self.read_stored(start, start + step) for start in starts)
        if isinstance(self.data, np.ndarray):
            yield from zip(starts, parts, strict=True)
            return
        digest = Digest()
        passing = digest.passing("features", self.data.shape, self.data.dtype.str, parts)
        yield from zip(starts, passing, strict=True)
        hdf5.check_digest(
            self.path, self.header, _with_rows(digest, self.given_labels, self.row_ids)
        )

    def load(self) -> Features:
        """The same with all rows in memory, read once and checked; nobody can write into them."""
        whole = np.empty(self.data.shape, self.data.dtype)
        for start, values in self.iter_stored():
            whole[start : start + len(values)] = values
            progress.stop_point()
        whole.setflags(write=False)
        return replace(self, data=whole)


def verify_features(path: Path) -> None:
    """Read every byte of a feature file and compare its digest."""
    with open_features(path) as features:
        for _ in features.iter_stored():
            pass


def check_alike(train: Path, test: Path) -> None:
    """Refuse with `MismatchError` test features of another space, or of other classes."""
    ours, theirs = (
        meaning(hdf5.read_header(one, "features")) | {"features": ""} for one in (train, test)
    )
    if where := difference(ours, theirs, f"in {train}", f"in {test}"):
        advice = "extract both with the same backbone, options and --classes FILE"
        raise MismatchError(f"the test features {test} do not fit {train}: {where}; {advice}")


@contextmanager
def open_features(path: Path | str) -> Iterator[Features]:
    """A feature file, open for reading: ``with afltool.open_features("train.h5") as rows``.

    It has ``labels``, ``row_ids``, ``classes``, ``blocks()``, ``to_numpy()``. Labels and ids are
    read now, features as they are asked for.
    """
    path = Path(path)
    with hdf5.reading(path, "features") as (file, header):
        with hdf5.damage_as_error(path):
            data = hdf5.check_dataset(path, file, schema.FEATURES)
            labels = hdf5.get_array(path, file, schema.LABELS) if schema.LABELS in file else None
            features = Features(
                path, header, labels, hdf5.get_array(path, file, schema.ROW_IDS), data
            )
        _check_shapes(features)
        yield features


def _check_shapes(features: Features) -> None:
    path, data, labels = features.path, features.data, features.given_labels
    space, n, classes = features.header["space"], len(features), len(features.classes)
    kind, counted = schema.FEATURE_TYPES[space["dtype"]], n if labels is None else len(labels)
    if (data.shape, data.dtype.str, counted) != ((n, space["dim"]), kind, n):
        found = f"features {data.shape} {data.dtype.str}, {counted} labels and {n} row ids"
        raise hdf5.damage_message(
            path, f"{found} do not fit together, nor {kind} of {space['dim']} features"
        )
    if labels is None and classes:
        raise hdf5.damage_message(path, f"it has {classes} classes and no /labels")
    if labels is not None and len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        found = f"labels run from {labels.min()} to {labels.max()}"
        raise hdf5.damage_message(path, f"{found}, with {classes} classes")


# ---------------------------------------------------------------- writing


class FeatureWriter:
    """Appends rows to a partial feature file; made by `writing_features`.

    ``rows`` are in the file so far, ``state`` is that of the last commit: None at the start.
    """

    def __init__(self, path: Path, file: h5py.File, space: Mapping[str, Any]):
        self.path, self.bits, self._file = path, space["fraction_bits"], file
        if schema.FEATURES not in file:
            dim, kind = space["dim"], schema.FEATURE_TYPES[space["dtype"]]
            how = {"chunks": (schema.CHUNK_ROWS, dim), "dtype": kind, "fletcher32": True}
            how["fillvalue"] = -(2**15) if kind == "<i2" else np.nan
            file.create_dataset(schema.FEATURES, (0, dim), maxshape=(None, dim), **how)
        self._data = file[schema.FEATURES]
        self.rows, self.state = _progress(file)
        self._data.resize(self.rows, axis=0)  # rows after the last commit were not counted

    def append(self, x: NDArray[np.generic]) -> None:
        """Add rows (n, d) of real features; see `stored_as` for what is refused."""
        self.append_values(stored_as(np.asarray(x, np.float64), self.bits, self.rows))

    def append_values(self, values: NDArray[Any]) -> None:
        """Add rows that are already in the file's own type."""
        self._data.resize(self.rows + len(values), axis=0)
        self._data[self.rows :] = values
        self.rows += len(values)

    def commit(self, state: Any) -> None:
        """Make the rows so far survive a kill. The count follows the rows, in a second flush."""
        self._file.flush()
        hdf5.put_attribute(self._file, schema.PROGRESS, canonical_json([self.rows, state]))
        self._file.flush()

    def finish(self, labels: Labels | None, row_ids: NDArray[Any], header: hdf5.Header) -> str:
        """Write labels, if there are any, row ids and the header; returns the digest.

        A shard may be without rows.
        """
        if not self.rows and not header["source"].get("shard"):
            raise InvalidDataError(f"{self.path}: there are no rows to write")
        assert {len(row_ids), len(row_ids if labels is None else labels)} == {self.rows}
        if labels is not None:
            hdf5.put_array(self._file, schema.LABELS, labels.astype("<i8"))
        hdf5.put_array(self._file, schema.ROW_IDS, row_ids)
        digest = features_digest(self._data, labels, row_ids)
        hdf5.put_header(self._file, "features", {**header, "digest": digest})
        return digest


def stored_as(x: NDArray[np.floating], bits: int | None, first_row: int = 0) -> NDArray[Any]:
    """Real features (n, d) as a file holds them, int16 of so many fraction bits, or float32 (None).

    Raises `InvalidDataError` for a value that is, or becomes, infinite or NaN; see `encode`.
    """
    if bits is not None:
        return encode(x, bits, first_row)
    check_float32(x, first_row)
    return x.astype(np.float32)


@contextmanager
def writing_features(
    path: Path, space: Mapping[str, Any], resume_key: str = ""
) -> Iterator[FeatureWriter]:
    """A `FeatureWriter` of rows in ``space``; its file takes its name when the block succeeds.

    A partial file with the same ``resume_key`` is continued, once every committed row could be
    read. One with another key, or a damaged one, is written from the start, with a warning.
    """
    go_on = partial(_resumable, resume_key=resume_key) if resume_key else None
    with hdf5.writing(path, "features", go_on) as file:
        if resume_key:
            hdf5.put_attribute(file, schema.RESUME_KEY, resume_key)
        yield FeatureWriter(path, file, space)
        for name in (schema.RESUME_KEY, schema.PROGRESS):
            file.attrs.pop(name, None)


def _progress(file: h5py.File) -> tuple[int, Any]:
    """Rows and state of the last commit."""
    rows, state = json.loads(str(hdf5.get_attribute(file, schema.PROGRESS) or "[0, null]"))
    return int(rows), state


def _resumable(path: Path, resume_key: str) -> bool:
    """Whether a partial file was begun for the same features and holds all that it counts."""
    if path.stat().st_size == 0:
        return False
    try:
        with hdf5.damage_as_error(path), h5py.File(path, "r", locking=False) as file:
            hdf5.reject_external_links(path, file)
            begun = hdf5.get_attribute(file, schema.RESUME_KEY)
            if begun == resume_key:
                rows, data = _progress(file)[0], hdf5.check_dataset(path, file, schema.FEATURES)
                for start in range(0, rows, schema.CHUNK_ROWS):
                    data[start : start + schema.CHUNK_ROWS]
                return rows <= len(data)
            why = f"{path} was begun by {begun}, and this is {resume_key}"
    except CorruptFileError as error:
        why = str(error)
    log.warning("%s; it is written from the start", why)
    return False


# ---------------------------------------------------------------- a stream of rows


@dataclass(frozen=True)
class RowStream:
    """Rows that the writer of features pulls.

    ``header`` has what they are: space, classes, recipe, provenance, source. ``labels`` are None
    where there are none. ``blocks()`` gives the rows in order, in the type of the file; it may
    raise in the end what only all rows tell, and then no file is left.
    """

    what: str  # the stage
    header: hdf5.Header
    labels: Labels | None
    row_ids: NDArray[Any]
    blocks: Callable[[], Iterator[NDArray[Any]]]

    def write(self, path: Path) -> None:
        """Write the file."""
        with writing_features(path, self.header["space"]) as writer:
            with progress.task(self.what, len(self.row_ids), "rows") as task:
                for values in self.blocks():
                    writer.append_values(values)
                    task.advance(len(values))
                    progress.stop_point()
            writer.finish(self.labels, self.row_ids, self.header)


def round_rows(
    what: str,
    path: Path,
    space: Mapping[str, Any],
    parts: Callable[[], Parts],
    rows_of: Callable[[int, Any], F64],
    constant: Sequence[int] = (),
    allowed: bool = False,
) -> Iterator[NDArray[Any]]:
    """The rows of ``path``, ``parts()`` as ``rows_of`` makes them, in the number format of a space.

    It says what they lose. Rounding that makes a feature constant is refused unless it is
    ``allowed``, or it was known to be ``constant``.
    """
    columns, bits = space.get(COLUMNS), space["fraction_bits"]
    found = Rounding(space["dim"], constant)
    size = 40 * space["dim"]  # bytes of a row and what is made of it

    def stored(part: tuple[int, Any]) -> NDArray[Any]:
        with naming(path, columns=columns):
            x = rows_of(*part)
            values = stored_as(x, bits, part[0])
        found.add(x, values if bits is None else real(FixedPoint(values, bits)))
        return values

    yield from parallel.map_threads(stored, parts(), lambda part: size * len(part[1]))
    if not allowed:
        with naming(path):
            found.check(columns)
    if found.shares.any():
        level = logging.WARNING if found.thin.any() else logging.INFO
        log.log(level, "%s: rounding takes most from %s", what, found.describe(columns))
