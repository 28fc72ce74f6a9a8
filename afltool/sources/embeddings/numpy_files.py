"""Embeddings that NumPy wrote: .npz with x and y, and .npy."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from ...errors import UsageError
from ...values.arrays import Array
from .base import Embeddings, Keys, check_label_bytes, readable, slices

MOST_COLUMNS = 512 << 20  # bytes of an x in Fortran's order inside a .npz, which is read whole


@dataclass(frozen=True)
class _Header:
    """What an array says of itself: ``size`` bytes of numbers, from byte ``start`` on."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    start: int

    @property
    def size(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def array(self, data: bytes) -> Array:
        order: Literal["C", "F"] = "F" if self.fortran else "C"
        return np.frombuffer(data, self.dtype).reshape(self.shape, order=order)


def open_npy(path: Path, keys: Keys) -> Embeddings:
    """The array of a .npy file as features."""
    if keys != Keys():
        raise UsageError(f"{path} holds one array without a name: leave --x, --y and --row-ids out")
    header = _checked_header(path)

    def blocks() -> Iterator[Array]:
        if header.fortran:
            x = map_npy(path)
            yield from (np.asarray(x[part]) for part in slices(len(x), x.nbytes // len(x)))
            return
        with path.open("rb") as file:  # pages of a mapped file would count as memory
            file.seek(header.start)
            yield from _rows(file, header)

    return Embeddings(header.shape, header.dtype, blocks)


def map_npy(path: Path) -> Array:
    """The array of a .npy file, mapped into memory."""
    with readable(path):
        header = _checked_header(path)
        order: Literal["C", "F"] = "F" if header.fortran else "C"
        if header.size == 0:
            return np.empty(header.shape, header.dtype)
        return np.memmap(path, header.dtype, "r", header.start, header.shape, order)


def _checked_header(path: Path) -> _Header:
    with path.open("rb") as file:
        header = _header(file, path.stem)
    _check_size(path.stem, header, os.path.getsize(path))
    return header


def _rows(file: IO[bytes], header: _Header) -> Iterator[Array]:
    """The rows of an array in C's order in blocks, from where the file is."""
    row = header.size // header.shape[0]
    for part in slices(header.shape[0], row):
        data = file.read((part.stop - part.start) * row)
        yield np.frombuffer(data, header.dtype).reshape(-1, *header.shape[1:])


def open_npz(path: Path, keys: Keys) -> Embeddings:
    """The arrays of features, labels and perhaps row_ids of a .npz file; features in blocks."""
    with zipfile.ZipFile(path) as archive:
        names = [n.removesuffix(".npy") for n in archive.namelist() if n.endswith(".npy")]
        key, labels = keys.found(path, names)
        with archive.open(f"{key}.npy") as file:
            header = _header(file, key)
        _check_size(key, header, archive.getinfo(f"{key}.npy").file_size)
        y, row_ids = (
            None if name is None else _member(path, archive, name)
            for name in (labels, keys.ids(path, names))
        )
    columns = header.fortran and len(header.shape) == 2
    if columns and header.size > MOST_COLUMNS:
        raise ValueError(
            f"{key} has {header.size / 1e6:,.0f} MB in Fortran order, whose rows are not "
            f"contiguous; save numpy.ascontiguousarray({key})"
        )

    def blocks() -> Iterator[Array]:
        with zipfile.ZipFile(path) as archive, archive.open(f"{key}.npy") as file:
            header = _header(file, key)
            if columns:
                yield header.array(file.read(header.size))
            else:
                yield from _rows(file, header)
            file.read(1)  # the end: the archive's checksum is compared

    return Embeddings(header.shape, header.dtype, blocks, y, row_ids)


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> Array:
    with archive.open(f"{name}.npy") as file:
        header = _header(file, name)
        _check_size(name, header, archive.getinfo(f"{name}.npy").file_size)
        check_label_bytes(path, name, header.size)
        return header.array(file.read())


def _header(file: IO[bytes], name: str) -> _Header:
    """The header of an array; the file is left at the numbers."""
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
    return _Header(shape, fortran, dtype, file.tell())


def _check_size(name: str, header: _Header, held: int) -> None:
    if header.start + header.size != held:
        raise ValueError(
            f"{name} claims the shape {header.shape}, {header.size:,} bytes; it has "
            f"{held - header.start:,}"
        )
