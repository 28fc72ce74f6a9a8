"""Files of embeddings, read row by row: .npz, .npy, .parquet, .safetensors. Not a stage itself.

Features are read in blocks, so memory does not grow with their number; labels and row ids are read
whole. Nothing in such a file is executed: arrays are read with pickling switched off.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import AflError, CorruptFileError, InputError, InvalidDataError, UsageError

Array = NDArray[Any]

BLOCK_BYTES = 8 << 20  # of the file's own type
WHAT = "x (n, d) and y (n,), and optionally row_ids (n,)"
# What the readers raise when the bytes of a file are not what its name says.
_UNREADABLE = (ValueError, OSError, EOFError, MemoryError, NotImplementedError, TypeError,
               zipfile.BadZipFile, zlib.error, struct.error)  # fmt: skip


@dataclass(frozen=True)
class Embeddings:
    """What is in a file: ``blocks()`` gives ``x`` (n, d) in consecutive blocks of rows."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: Callable[[], Iterator[Array]]
    labels: Array | None = None
    row_ids: Array | None = None

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0


def open_embeddings(path: Path) -> Embeddings:
    """The embeddings in ``path``, whatever its format; features are not read yet.

    Raises:
        UsageError: another suffix, or a package that is missing.
        InputError, CorruptFileError, InvalidDataError: missing, unreadable, or without x.
    """
    readers = {
        ".npz": _open_npz,
        ".npy": _open_npy,
        ".parquet": _open_parquet,
        ".safetensors": _open_safetensors,
    }
    if path.suffix not in readers:
        raise UsageError(
            f"{path}: embeddings come as .npz, .parquet or .safetensors (with x and y), or as .npy "
            "with --labels"
        )
    with readable(path):
        found = readers[path.suffix](path)
    return Embeddings(
        found.shape, found.dtype, _guarded(path, found.blocks), found.labels, found.row_ids
    )


def _guarded(path: Path, blocks: Callable[[], Iterator[Array]]) -> Callable[[], Iterator[Array]]:
    """The same blocks; what fails under way is said with the path."""

    def run() -> Iterator[Array]:
        rows = blocks()
        while True:
            with readable(path):
                block = next(rows, None)
            if block is None:
                return
            yield block

    return run


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """A file that is there, and what its reader says when it cannot read it."""
    if not path.is_file():
        raise InputError(f"there is no file {path}: check the path")
    try:
        yield
    except AflError:
        raise
    except _UNREADABLE as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise CorruptFileError(
            f"{path} cannot be read as {path.suffix}: {text}; make or fetch it again"
        ) from None


def _slices(rows: int, row_bytes: int) -> Iterator[slice]:
    step = max(1, BLOCK_BYTES // max(1, row_bytes))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def _lacks(path: Path, names: list[str]) -> InvalidDataError:
    return InvalidDataError(f"{path} has the arrays {', '.join(names) or 'none'}; expected {WHAT}")


# --- NumPy ----------------------------------------------------------------------------------------


def _open_npy(path: Path) -> Embeddings:
    x = open_npy(path)

    def blocks() -> Iterator[Array]:
        for part in _slices(len(x), x.nbytes // len(x)):
            yield np.asarray(x[part])

    return Embeddings(x.shape, x.dtype, blocks)


def open_npy(path: Path) -> Array:
    """The array of a .npy file, mapped into memory."""
    with readable(path):
        found: Array = np.lib.format.open_memmap(path, mode="r")
    return found


def _open_npz(path: Path) -> Embeddings:
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        if not {"x", "y"} <= set(names):
            raise _lacks(path, names)
        y = _member(archive, "y")
        row_ids = _member(archive, "row_ids") if "row_ids" in names else None
        with archive.open("x.npy") as file:
            shape, fortran, dtype = _npy_header(file)
            claimed, held = prod(shape) * dtype.itemsize, archive.getinfo("x.npy").file_size
            if file.tell() + claimed != held:
                raise ValueError(f"x claims the shape {shape}, {claimed:,} bytes; it has {held:,}")

    def blocks() -> Iterator[Array]:
        with zipfile.ZipFile(path) as archive, archive.open("x.npy") as file:
            if fortran and len(shape) == 2:  # columns lie one after another: rows need all of them
                yield np.lib.format.read_array(file, allow_pickle=False)
                return
            _npy_header(file)
            for part in _slices(shape[0], claimed // shape[0]):
                size = (part.stop - part.start) * (claimed // shape[0])
                yield np.frombuffer(file.read(size), dtype).reshape(-1, *shape[1:])
            file.read(1)  # the end: the archive's checksum is compared

    return Embeddings(shape, dtype, blocks, y, row_ids)


def _member(archive: zipfile.ZipFile, name: str) -> Array:
    with archive.open(f"{name}.npy") as file:
        found: Array = np.lib.format.read_array(file, allow_pickle=False)
    return found


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether it is in Fortran's order, and type; the file is left at the numbers."""
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"x is an array of .npy version {version}")
    shape, fortran, dtype = readers[version](file)
    if dtype.hasobject:
        raise ValueError("x is an array of Python objects, which would have to be executed")
    return shape, fortran, dtype


# --- safetensors ----------------------------------------------------------------------------------


def _open_safetensors(path: Path) -> Embeddings:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise UsageError(f"{path} needs safetensors: pip install 'afltool[import]'") from error
    try:
        with safe_open(path, framework="numpy") as file:
            names = list(file.keys())
            if "x" not in names:
                raise _lacks(path, names)
            x = file.get_slice("x")
            shape, kind = tuple(x.get_shape()), x.get_dtype()
            if kind == "BF16":
                raise InvalidDataError(f"{path}: x is in bf16; save it as float32 or float16")
            dtype = x[:1].dtype if len(shape) == 2 and shape[0] else np.dtype("f4")
            y = file.get_tensor("y") if "y" in names else None
    except SafetensorError as error:
        raise ValueError(str(error)) from error

    def blocks() -> Iterator[Array]:
        with safe_open(path, framework="numpy") as file:
            rows = file.get_slice("x")
            for part in _slices(shape[0], shape[1] * dtype.itemsize):
                yield rows[part]

    return Embeddings(shape, dtype, blocks, y)


# --- parquet --------------------------------------------------------------------------------------

#: Columns that are not features.
_LABELS, _IDS = ("y", "label"), ("row_ids", "row_id")


def _open_parquet(path: Path) -> Embeddings:
    """Features are the column ``x`` of lists, or else every column of numbers, in their order."""
    try:
        import pyarrow
    except ImportError as error:
        raise UsageError(f"{path} needs pyarrow: pip install 'afltool[import]'") from error
    try:
        with _parquet_file(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            columns = _feature_columns(path, schema, pyarrow)
            y, row_ids = (_column(file, schema, names) for names in (_LABELS, _IDS))
            first = next(file.iter_batches(1, columns=columns), None)
    except pyarrow.ArrowException as error:
        raise ValueError(str(error)) from error
    width = 0 if first is None else _matrix(path, first, None).shape[1]

    def blocks() -> Iterator[Array]:
        with _parquet_file(path) as file:
            for batch in file.iter_batches(_batch_rows(width), columns=columns):
                yield _matrix(path, batch, width)

    return Embeddings((rows, width), np.dtype("f8"), blocks, y, row_ids)


def _parquet_file(path: Path) -> Any:
    from pyarrow import parquet

    return parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)


def _batch_rows(width: int) -> int:
    return max(1, BLOCK_BYTES // (8 * max(1, width)))


def _feature_columns(path: Path, schema: Any, pyarrow: Any) -> list[str]:
    if "x" in schema.names and pyarrow.types.is_nested(schema.field("x").type):
        return ["x"]
    numbers = [
        field.name
        for field in schema
        if (pyarrow.types.is_floating(field.type) or pyarrow.types.is_integer(field.type))
        and field.name not in (*_LABELS, *_IDS)
    ]
    if not numbers:
        raise InvalidDataError(
            f"{path} has the columns {', '.join(schema.names)}; expected a column x of lists, or "
            f"columns of numbers, and {' or '.join(_LABELS)}, and optionally {' or '.join(_IDS)}"
        )
    return numbers


def _column(file: Any, schema: Any, names: tuple[str, ...]) -> Array | None:
    name = next((name for name in names if name in schema.names), None)
    if name is None:
        return None
    column = file.read(columns=[name])[name]
    if column.null_count:
        raise InvalidDataError(f"{column.null_count} rows have no {name}")
    values: Array = column.to_numpy()
    return values if values.dtype.kind in "iuf" else values.astype(str)


def _matrix(path: Path, batch: Any, width: int | None) -> Array:
    """Rows of a record batch as (n, d) float64; empty cells become NaN, which is refused later."""
    if batch.schema.names != ["x"]:
        return np.column_stack([_numbers(column) for column in batch.columns])
    lists = batch.column(0)
    lengths = set(lists.value_lengths().to_pylist())
    if len(lengths) != 1 or None in lengths or (width is not None and lengths != {width}):
        raise InvalidDataError(
            f"{path}: expected lists of {width or 'equal'} numbers in x, found lengths "
            f"{', '.join(map(str, sorted(lengths, key=str)[:5]))}"
        )
    flat = _numbers(lists.flatten())
    return flat.reshape(len(lists), -1)


def _numbers(column: Any) -> Array:
    values: Array = column.to_numpy(zero_copy_only=False)
    return values.astype(np.float64)


# --- labels beside it -----------------------------------------------------------------------------


def read_labels(path: Path) -> Array:
    """Labels from a .npy file, or a text file with one a line (numbers if all are)."""
    if path.suffix == ".npy":
        return open_npy(path)
    with readable(path):
        lines = [line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()]
    whole = all(re.fullmatch("-?[0-9]+", line) for line in lines)
    return np.array([int(line) for line in lines]) if whole else np.array(lines)
