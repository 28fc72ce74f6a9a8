"""Writes feature files: rows appended, committed, and continued after a kill; or a whole stream."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from .. import parallel, progress
from ..errors import CorruptFileError, InvalidDataError, naming
from ..math.gram import FixedPoint, check_float32, encode, real
from ..math.rounding import Rounding
from ..progress import log
from ..values.arrays import F64, canonical_json
from ..values.text import COLUMNS
from . import schema
from .features import Labels, features_digest
from .hdf5 import (
    Header,
    checked_dataset,
    damage_as_error,
    get_attribute,
    own_objects_only,
    put_array,
    put_attribute,
    put_header,
    writing,
)

Parts = Iterable[tuple[int, Any]]  # the number of the first row, and rows


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
        """Add rows (n, d) of real features; see `encode` for what is refused."""
        wide, bits, at = np.asarray(x, dtype=np.float64), self.bits, self.rows
        self.append_values(as_float32(wide, at) if bits is None else encode(wide, bits, at))

    def append_values(self, values: NDArray[Any]) -> None:
        """Add rows that are already in the file's own type."""
        self._data.resize(self.rows + len(values), axis=0)
        self._data[self.rows :] = values
        self.rows += len(values)

    def commit(self, state: Any) -> None:
        """Make the rows so far survive a kill. The count follows the rows, in a second flush."""
        self._file.flush()
        put_attribute(self._file, schema.PROGRESS, canonical_json([self.rows, state]))
        self._file.flush()

    def finish(self, labels: Labels | None, row_ids: NDArray[Any], header: Header) -> str:
        """Write labels, if there are any, row ids and the header; returns the digest.

        A shard may be without rows.
        """
        if not self.rows and not header["source"].get("shard"):
            raise InvalidDataError(f"{self.path}: there are no rows to write")
        assert {len(row_ids), len(row_ids if labels is None else labels)} == {self.rows}
        if labels is not None:
            put_array(self._file, schema.LABELS, labels.astype("<i8"))
        put_array(self._file, schema.ROW_IDS, row_ids)
        digest = features_digest(self._data, labels, row_ids)
        put_header(self._file, "features", {**header, "digest": digest})
        return digest


def as_float32(x: NDArray[np.floating], first_row: int = 0) -> NDArray[np.float32]:
    """Real features as float32; refuses a value that is, or becomes, infinite or NaN."""
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
    with writing(path, "features", go_on) as file:
        if resume_key:
            put_attribute(file, schema.RESUME_KEY, resume_key)
        yield FeatureWriter(path, file, space)
        for name in (schema.RESUME_KEY, schema.PROGRESS):
            file.attrs.pop(name, None)


def _progress(file: h5py.File) -> tuple[int, Any]:
    """Rows and state of the last commit."""
    rows, state = json.loads(str(get_attribute(file, schema.PROGRESS) or "[0, null]"))
    return int(rows), state


def _resumable(path: Path, resume_key: str) -> bool:
    """Whether a partial file was begun for the same features and holds all that it counts."""
    if path.stat().st_size == 0:
        return False
    try:
        with damage_as_error(path), h5py.File(path, "r", locking=False) as file:
            own_objects_only(path, file)
            begun = get_attribute(file, schema.RESUME_KEY)
            if begun == resume_key:
                rows, data = _progress(file)[0], checked_dataset(path, file, schema.FEATURES)
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
    header: Header
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


def rounded(
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
            if bits is None:
                single = as_float32(x, part[0])
                found.add(x, single)
                return single
            fixed = encode(x, bits, part[0])
        found.add(x, real(FixedPoint(fixed, bits)))
        return fixed

    yield from parallel.each(stored, parts(), lambda part: size * len(part[1]))
    if not allowed:
        with naming(path):
            found.check(columns)
    if found.shares.any():
        level = logging.WARNING if found.thin.any() else logging.INFO
        log.log(level, "%s: rounding takes most from %s", what, found.said(columns))
