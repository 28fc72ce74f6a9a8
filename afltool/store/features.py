"""Feature files: rows appended, resumed after a kill, and read in blocks of bounded size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ..digest import Digest, canonical_json
from ..errors import CorruptFileError, InvalidDataError
from ..linalg.fixedpoint import FixedPoint, Rows, check_finite, encode
from . import schema
from .hdf5 import (
    Header,
    checked_dataset,
    damage_as_error,
    get_array,
    need_space,
    partial_path,
    put_array,
    put_header,
    reading,
    writing,
)

BLOCK_BYTES = 32 << 20  # of float64 rows: a block and its copies stay in the tens of megabytes


class FeatureWriter:
    """Appends rows to a partial feature file; made by `writing_features`."""

    def __init__(self, path: Path, file: h5py.File, dim: int, dtype: str, bits: int | None):
        self.path, self.bits, self.dim = path, bits, dim
        self._file, self._kind = file, schema.FEATURE_TYPES[dtype]
        if schema.FEATURES not in file:
            self._create()
        self._data = file[schema.FEATURES]
        self.rows = int(file.attrs.get(schema.ROWS_DONE, 0))
        self._data.resize(self.rows, axis=0)  # rows after the last commit were not counted

    def _create(self) -> None:
        fill = -(2**15) if self._kind == "<i2" else np.nan
        self._file.create_dataset(
            schema.FEATURES,
            shape=(0, self.dim),
            maxshape=(None, self.dim),
            chunks=(schema.CHUNK_ROWS, self.dim),
            dtype=self._kind,
            fillvalue=fill,
            fletcher32=True,
        )
        self._file.attrs[schema.ROWS_DONE] = 0

    def append(self, x: NDArray[np.floating]) -> None:
        """Add rows (n, d) of real features; see `encode` for what is refused."""
        if self.bits is None:
            check_finite(x, self.rows)
            values: NDArray[Any] = x.astype(np.float32)
        else:
            values = encode(x, self.bits, self.rows)
        self.append_values(values)

    def append_values(self, values: NDArray[Any]) -> None:
        """Add rows that are already in the file's own type."""
        self._data.resize(self.rows + len(values), axis=0)
        self._data[self.rows :] = values
        self.rows += len(values)

    def commit(self, state: Any = None) -> None:
        """Make the rows so far survive a kill. The count follows the rows, in a second flush."""
        self._file.flush()
        self._file.attrs[schema.ROWS_DONE] = self.rows
        self._file.attrs[schema.RESUME_STATE] = canonical_json(state)
        self._file.flush()

    def finish(self, labels: NDArray[Any], row_ids: NDArray[Any], header: Header) -> str:
        """Write labels, row ids and the header; returns the digest."""
        if not self.rows:
            raise InvalidDataError(f"{self.path}: there are no rows to write")
        put_array(self._file, schema.LABELS, labels.astype("<i8"))
        put_array(self._file, schema.ROW_IDS, row_ids)
        for name in (schema.ROWS_DONE, schema.RESUME_STATE):
            self._file.attrs.pop(name, None)
        digest = features_digest(self._data, labels, row_ids)
        put_header(self._file, "features", {**header, "digest": digest})
        return digest


@contextmanager
def writing_features(
    path: Path, dim: int, dtype: str, bits: int | None, resume_key: str = "", expect_rows: int = 0
) -> Iterator[tuple[FeatureWriter, Any]]:
    """A `FeatureWriter`, and the state of its last commit (None when it starts afresh).

    A partial file with the same ``resume_key`` is continued after every committed row has been
    read back; one of another key, or a damaged one, is written anew.
    """
    state = _resumable(path, resume_key) if resume_key else None
    if state is None:
        partial = partial_path(path)
        if resume_key and partial.is_file() and _unlocked(partial):
            partial.unlink()
    if path.parent.is_dir():
        size = np.dtype(schema.FEATURE_TYPES[dtype]).itemsize
        need_space(path.parent, expect_rows * (dim * size + 40), str(path))
    with writing(path, resume=bool(resume_key)) as file:
        file.attrs["resume_key"] = resume_key
        yield FeatureWriter(path, file, dim, dtype, bits), state
        file.attrs.pop("resume_key", None)


def _unlocked(partial: Path) -> bool:
    import fcntl

    with partial.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


def _resumable(path: Path, resume_key: str) -> Any:
    """State of the last commit of a partial file that can be continued, else None."""
    partial = partial_path(path)
    if not partial.is_file() or partial.stat().st_size == 0:
        return None
    try:
        with damage_as_error(partial), h5py.File(partial, "r", locking=False) as file:
            if file.attrs.get("resume_key") != resume_key:
                return None
            rows = int(file.attrs[schema.ROWS_DONE])
            state = json.loads(file.attrs[schema.RESUME_STATE])
            data = checked_dataset(partial, file, schema.FEATURES)
            for start in range(0, rows, schema.CHUNK_ROWS):
                _check_written(partial, data[start : min(start + schema.CHUNK_ROWS, rows)])
            return state
    except CorruptFileError:
        return None


def _check_written(path: Path, values: NDArray[Any]) -> None:
    """Committed rows never hold the fill value; a chunk that was lost reads as nothing else."""
    lost = np.isnan(values) if values.dtype.kind == "f" else values == -(2**15)
    if lost.any():
        raise CorruptFileError(f"{path} is damaged: it has rows that were never written")


def features_digest(data: Any, labels: NDArray[Any], row_ids: NDArray[Any]) -> str:
    """Digest of a feature file's meaning; ``data`` is anything that slices into rows."""
    step = schema.CHUNK_ROWS * 16
    blocks = (data[start : start + step] for start in range(0, data.shape[0], step))
    digest = Digest().blocks("features", data.shape, data.dtype.str, blocks)
    digest.array("labels", labels, "<i8")
    return digest.text("row_ids", b"\n".join(row_ids.tolist()).decode()).hex()


@dataclass
class Features:
    """A finished feature file, open for reading; made by `open_features`."""

    path: Path
    header: Header
    labels: NDArray[np.int64]
    row_ids: NDArray[np.bytes_]
    data: h5py.Dataset

    @property
    def dim(self) -> int:
        return int(self.data.shape[1])

    def __len__(self) -> int:
        return int(self.data.shape[0])

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.header["classes"])

    @property
    def bits(self) -> int | None:
        bits: int | None = self.header["space"]["fraction_bits"]
        return bits

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
        """All rows in order, as (first row, block)."""
        step = self.block_rows()
        for start in range(0, len(self), step):
            yield start, self.rows(start, min(start + step, len(self)))

    def compute_digest(self) -> str:
        """The digest from the data themselves: one pass over the file."""
        with damage_as_error(self.path):
            return features_digest(self.data, self.labels, self.row_ids)


@contextmanager
def open_features(path: Path) -> Iterator[Features]:
    """Open a finished feature file; labels and row ids are read, features as they are asked for."""
    with reading(path, "features") as (file, header):
        with damage_as_error(path):
            data = checked_dataset(path, file, schema.FEATURES)
            labels = get_array(path, file, schema.LABELS)
            row_ids = get_array(path, file, schema.ROW_IDS)
            dim = header["space"]["dim"]
        if not (data.ndim == 2 and data.shape[0] == len(labels) == len(row_ids)):
            raise CorruptFileError(
                f"{path} is damaged: {data.shape} features, {len(labels)} labels and "
                f"{len(row_ids)} row ids do not fit together"
            )
        if data.shape[1] != dim:
            raise CorruptFileError(
                f"{path} is damaged: {data.shape[1]} features a row, {dim} in its header"
            )
        yield Features(path, header, labels, row_ids, data)
