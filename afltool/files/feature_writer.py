"""Writes feature files: rows appended, committed, and continued after a kill."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptFileError, InvalidDataError
from ..math.gram import check_float32, encode
from ..progress import log
from ..values.arrays import canonical_json
from . import schema
from .arrays import (
    checked_dataset,
    damage_as_error,
    get_attribute,
    own_objects_only,
    put_array,
    put_attribute,
    writing,
)
from .features import Labels, features_digest
from .hdf5 import Header, put_header


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
