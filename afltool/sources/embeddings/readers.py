"""Embeddings that NumPy, safetensors or afltool wrote, and labels in a file of their own."""

from __future__ import annotations

import io
import os
import re
import zipfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from ... import inputs
from ...errors import InvalidDataError, UsageError
from ...files.features import open_features
from ...math.gram import real
from ...values.arrays import Array
from ...values.names import WHOLE
from . import MOST_FILE_ROWS, Embeddings, Keys, check_label_bytes, readable, slices

MOST_COLUMNS = 512 << 20  # bytes of an x in Fortran's order inside a .npz, which is read whole
LONGEST = 1000  # characters of a label
MOST_NAMES = 1_000_000  # different labels in a text


# ---------------------------------------------------------------- NumPy's files


@dataclass(frozen=True)
class _Header:
    """What an array says of itself: ``size`` bytes of numbers, from byte ``start`` on."""

    shape: tuple[int, ...]
    order: Literal["C", "F"]
    dtype: np.dtype[Any]
    start: int

    @property
    def size(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def whole(self, file: IO[bytes]) -> Array:
        data = np.frombuffer(file.read(), self.dtype)
        return data.reshape(self.shape, order=self.order)

    def rows(self, file: IO[bytes]) -> Iterator[Array]:
        """The rows of an array in C's order in blocks, from where the file is."""
        row = self.size // self.shape[0]
        for part in slices(self.shape[0], row):
            data = file.read((part.stop - part.start) * row)
            yield np.frombuffer(data, self.dtype).reshape(-1, *self.shape[1:])


def _header(file: IO[bytes], name: str, held: int) -> _Header:
    """The header of an array in ``held`` bytes; the file is left at the numbers."""
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"{name} is an array of .npy version {version}")
    shape, fortran, dtype = readers[version](file)
    if dtype.hasobject:
        raise ValueError(f"{name} is an array of Python objects, which would have to be executed")
    if any(side < 0 for side in shape):
        raise ValueError(f"{name} claims the shape {shape}")
    header = _Header(shape, "F" if fortran else "C", dtype, file.tell())
    if header.start + header.size != held:
        raise ValueError(
            f"{name} claims the shape {shape}, {header.size:,} bytes; "
            f"it has {held - header.start:,}"
        )
    return header


def open_npy(path: Path, keys: Keys) -> Embeddings:
    """The array of a .npy file as features."""
    if keys != Keys():
        raise UsageError(f"{path} holds one array without a name: leave --x, --y and --row-ids out")
    with path.open("rb") as file:
        header = _header(file, path.stem, os.path.getsize(path))

    def blocks() -> Iterator[Array]:
        if header.order == "F":
            x = np.memmap(path, header.dtype, "r", header.start, header.shape, "F")
            yield from (np.asarray(x[part]) for part in slices(len(x), x.nbytes // len(x)))
            return
        with path.open("rb") as file:  # pages of a mapped file would count as memory
            file.seek(header.start)
            yield from header.rows(file)

    return Embeddings(header.shape, header.dtype, blocks)


def open_npz(path: Path, keys: Keys) -> Embeddings:
    """The arrays of features, labels and perhaps row_ids of a .npz file; features in blocks."""

    @contextmanager
    def member(name: str) -> Iterator[tuple[IO[bytes], _Header]]:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            yield file, _header(file, name, archive.getinfo(f"{name}.npy").file_size)

    def column(name: str) -> Array:
        with member(name) as (file, header):
            check_label_bytes(path, name, header.size)
            return header.whole(file)

    with zipfile.ZipFile(path) as archive:
        names = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
    key = keys.features(path, names)
    with member(key) as (_, header):
        pass
    found = keys.columns(path, names, column, features=[key])
    columns = header.order == "F" and len(header.shape) == 2
    if columns and header.size > MOST_COLUMNS:
        raise ValueError(
            f"{key} has {header.size / 1e6:,.0f} MB in Fortran order, whose rows are not "
            f"contiguous; save numpy.ascontiguousarray({key})"
        )

    def blocks() -> Iterator[Array]:
        with member(key) as (file, header):
            yield from [header.whole(file)] if columns else header.rows(file)
            file.read(1)  # the end: the archive's checksum is compared

    return Embeddings(header.shape, header.dtype, blocks, **found)


# ---------------------------------------------------------------- other files


def open_safetensors(path: Path, keys: Keys) -> Embeddings:
    """The tensors of features (in blocks) and labels of a .safetensors file."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise UsageError(f"{path} needs safetensors: pip install 'afltool[import]'") from error

    def column(name: str) -> Any:
        check_label_bytes(path, name, 8 * prod(file.get_slice(name).get_shape()))
        return file.get_tensor(name)

    try:
        with safe_open(path, framework="numpy") as file:
            names = list(file.keys())
            key = keys.features(path, names)
            x = file.get_slice(key)
            shape = tuple(x.get_shape())
            if x.get_dtype() == "BF16":
                raise InvalidDataError(f"{path}: {key} is in bf16; save it as float32 or float16")
            dtype = x[:1].dtype if len(shape) == 2 and shape[0] else np.dtype("f4")
            found = keys.columns(path, names, column, features=[key])
    except SafetensorError as error:
        raise ValueError(str(error)) from error

    def blocks() -> Iterator[Array]:
        with safe_open(path, framework="numpy") as file:
            rows = file.get_slice(key)
            for part in slices(shape[0], shape[1] * dtype.itemsize):
                yield rows[part]

    return Embeddings(shape, dtype, blocks, **found)


def open_feature_file(path: Path, keys: Keys) -> Embeddings:
    """A feature file of ours: its rows as reals, in its own space and classes."""
    if keys != Keys():
        raise UsageError(f"{path} is a feature file: leave --x, --y and --row-ids out")
    with open_features(path, labelled=False) as rows:
        shape, labels, ids = (len(rows), rows.dim), rows.given_labels, rows.row_ids
        made = {key: rows.header[key] for key in ("space", "classes")}

    def blocks() -> Iterator[Array]:
        with open_features(path, labelled=False) as rows:
            yield from (real(X) for _, X in rows.blocks())

    return Embeddings(shape, np.dtype("f8"), blocks, labels, ids, made)


def read_labels(path: Path) -> Array:
    """Labels from a .npy file, or a text file: line i, from 0, is the label of row i.

    Lines are numbers if all are, written as Python writes them: ``01`` is a name.

    Raises `InputError`, `CorruptFileError`, `InvalidDataError`: missing, unreadable, too large, or
    with an empty line.
    """
    if path.suffix == ".npy":
        with readable(path), path.open("rb") as file:
            header = _header(file, path.stem, os.path.getsize(path))
            check_label_bytes(path, "labels", header.size)
            return header.whole(file)
    number, rows = _numbered(path)
    whole = all(re.fullmatch(WHOLE, label, re.ASCII) and len(label) < 19 for label in number)
    width = 8 if whole else 4 * max(map(len, number), default=0)
    check_label_bytes(path, "labels", len(rows) * width)
    values = np.array([int(label) for label in number] if whole else list(number))
    return values[np.frombuffer(rows, np.uint32)] if len(rows) else np.array([])


def _numbered(path: Path) -> tuple[dict[str, int], array[int]]:
    """Every label with a number, and the number of each row: four bytes a row."""
    number: dict[str, int] = {}
    rows = array("I")
    source = partial(io.TextIOWrapper, encoding="utf-8-sig", newline="\n")
    with readable(path), source(inputs.open_regular(path)) as file:
        while line := file.readline(LONGEST + 2):
            label = line.strip(inputs.AROUND)
            if not label:
                raise InvalidDataError(
                    f"{path}: line {len(rows) + 1} is empty; expected one label per line, line i "
                    "for row i. Fill it in, or leave that row out of the features and the labels"
                )
            if len(label) > LONGEST or len(rows) >= MOST_FILE_ROWS or len(number) > MOST_NAMES:
                raise InvalidDataError(
                    f"{path}: expected one label per line, of at most {LONGEST} characters, at "
                    f"most {MOST_FILE_ROWS:,} in all and {MOST_NAMES:,} different ones; found more "
                    f"in line {len(rows) + 1}: {label[:40]!r}"
                )
            rows.append(number.setdefault(label, len(number)))
    return number, rows
