"""HDF5 files that are whole or not there, and arrays in them: checksummed, packed where it helps.

HDF5 checks three kinds of bytes: chunks under fletcher32, the superblock and object headers (from
libver 1.8 on). It does not check the index of chunks. The digest of each file covers that, and
every reader compares it. Nothing of variable length is written or read: the library follows such
pointers without a check and crashes.

Measured with h5py 3.16 and HDF5 2.0: a file that is killed while it is written keeps what was
flushed (libver below 1.10). The library does not survive a failed write, so it writes through
`_Disk`, which does not tell it.
"""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5g, h5p, h5s, h5t

from ..errors import AflError, CorruptFileError
from ..values.arrays import Array
from . import packing, schema
from .atomic import replacing
from .packing import Plain, checked, may_be_packed

# What h5py raises when the bytes of a file make no sense to the HDF5 library.
_DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, MemoryError)


# ---------------------------------------------------------------- files


@contextmanager
def writing(
    path: Path, kind: str, size: int = 0, go_on: Callable[[Path], bool] | None = None
) -> Iterator[h5py.File]:
    """An HDF5 file open for writing that takes its final name only if the block succeeds.

    The arguments are those of `replacing`.
    """
    with replacing(path, kind, size, go_on) as place:
        mode = "r+" if os.fstat(place).st_size else "w"
        disk = _Disk(place, "r+b", closefd=False)
        file = None
        try:
            with undisturbed():
                file = _File(disk, mode, libver=schema.LIBVER)
            yield file
            put_attribute(file, schema.COMPLETE, 1)
        finally:
            with undisturbed():
                if file is not None:
                    file.close()
            disk.check()  # before any other error: that one would only follow from it


class _Later:
    """A handler of Ctrl-C that only notes that it came."""

    def __init__(self) -> None:
        self.came: list[Any] = []

    def __call__(self, *signal_and_frame: Any) -> None:
        self.came.append(signal_and_frame)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block, which calls the HDF5 library to write.

    Raised in the middle of `_Disk.write` it would be a failed write to the library. A block inside
    another one has nothing left to do.
    """
    before, later = signal.getsignal(signal.SIGINT), _Later()
    main = threading.current_thread() is threading.main_thread()
    if isinstance(before, _Later) or not main or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, later)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if later.came:
            before(*later.came[0])


class _Disk(io.FileIO):
    """A file whose first failed write is kept for `check`; later ones are dropped.

    To the HDF5 library every write succeeds, and the file is left as a kill at the failed write
    would leave it. (Measured with HDF5 2.0: "No space left" in a flush makes the file impossible to
    close, prints a traceback at exit or ends in a segmentation fault.)
    """

    _failure: OSError | None = None

    def write(self, data: Any) -> int:
        left = memoryview(data)
        try:
            while left and not self._failure:
                left = left[super().write(left) :]
        except OSError as failure:
            self._failure = failure
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size) if not self._failure else 0
        except OSError as failure:
            self._failure = failure
            return 0

    def check(self) -> None:
        if self._failure:
            raise self._failure


class _File(h5py.File):  # type: ignore[misc]  # h5py has no types: to mypy its File is Any
    """An HDF5 file on a `_Disk`, whose flush tells whether the disk has taken all."""

    def __init__(self, disk: _Disk, mode: str, **options: Any) -> None:
        self._disk = disk
        super().__init__(disk, mode, **options)

    def flush(self) -> None:
        with undisturbed():
            super().flush()
        self._disk.check()


@undisturbed()
def put_attribute(file: h5py.File, name: str, value: str | int) -> None:
    """Write an attribute of the root group; texts get a fixed length."""
    known = np.asarray(np.bytes_(value.encode()) if isinstance(value, str) else value)
    if h5a.exists(file.id, name.encode()):
        file.attrs[name] = known[()]
        return
    kind = h5t.py_create(known.dtype, logical=True)
    h5a.create(file.id, name.encode(), kind, h5s.create(h5s.SCALAR)).write(known)


# ---------------------------------------------------------------- writing


def pays(name: str, value: Array) -> bool:
    """Whether an array of this name is stored compressed."""
    return may_be_packed(name, value.dtype) and value.size > 0 and packing.pays(value)


@undisturbed()
def put_array(file: h5py.File, name: str, value: Array) -> None:
    """Write or replace an array; `packing` says when integers are compressed."""
    for old in (name, _thin(name)):
        if old in file:
            del file[old]
    add_array(file, name, value)


def _thin(name: str) -> str:
    """Where what a thin array needs beside its values lies."""
    return f"{schema.SPARSE}/{name.removeprefix(schema.ARRAYS + '/')}"


@undisturbed()
def add_array(file: h5py.File, name: str, value: Array, packed: bool | None = None) -> None:
    """`put_array` where nothing of this name can be, as in a new file: to look takes a while.

    ``packed``: what `pays` says, where it is known already.
    """
    packed = pays(name, value) if packed is None else packed
    parts = packing.split(value) if packed else None
    if parts is None:
        _put(file, name, value, packed)
        return
    _put(file, name, parts[1], packed)
    _put(file, f"{_thin(name)}/{schema.KEPT}", parts[0], packed)
    _put(file, f"{_thin(name)}/{schema.SHAPE}", np.array(value.shape, "<i8"), False)


def _put(file: h5py.File, name: str, value: Array, packed: bool) -> None:
    """One dataset: checksummed, chunked (an empty one without).

    By the library itself: h5py's ``create_dataset`` takes three times as long, in every file.
    """
    if value.size == 0:
        file.create_dataset(name, data=value)
        return
    # Chunks of one size, so that the last one is nearly full: HDF5 fills it up.
    count = -(-value.nbytes // schema.CHUNK_BYTES)
    chunks = (-(-value.shape[0] // min(count, value.shape[0])), *value.shape[1:])
    made = h5p.create(h5p.DATASET_CREATE)
    made.set_chunk(chunks)
    if packed:
        made.set_shuffle()
        made.set_deflate(1)
    made.set_fletcher32()
    made.set_obj_track_times(False)
    kind, space = h5t.py_create(value.dtype, logical=True), h5s.create_simple(value.shape)
    data = h5d.create(file.id, name.encode(), kind, space, made, lcpl=_with_groups())
    if packed:
        packing.write_packed(data, chunks[0], value)
    else:
        data.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(value))


@cache
def _with_groups() -> h5p.PropLCID:
    links = h5p.create(h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    return links


# ---------------------------------------------------------------- reading


@contextmanager
def damage_as_error(path: Path) -> Iterator[None]:
    """Turn the errors that HDF5 raises for damaged bytes into one `CorruptFileError`."""
    try:
        yield
    except AflError:
        raise
    except _DAMAGE as error:
        text = " ".join(str(error).split())
        raise CorruptFileError(f"{path} is damaged ({text}); make it or fetch it again") from error


def get_array(path: Path, file: h5py.File, name: str, limit: int | None = None) -> Array:
    """Read a whole dataset, at most ``limit`` bytes."""
    data = checked(path, file, name)
    if limit is not None and data.nbytes > limit:
        raise CorruptFileError(f"{path} is damaged: /{name} has more than {limit} bytes")
    return data.read()


@dataclass(frozen=True, slots=True)
class Additive:
    """An array below /arrays, sparse or not, which is not read yet."""

    path: Path
    values: Plain
    kept: Plain | None  # the bitmap of a sparse one
    shape: tuple[int, ...]

    @property
    def stored_bytes(self) -> int:
        """Bytes in the file, fewer where they are compressed."""
        return self.values.stored + (0 if self.kept is None else self.kept.stored)

    def read(self) -> Array:
        """The whole array."""
        if self.kept is None:
            return self.values.read()
        if self.kept.dtype != np.uint8 or len(self.values.shape) != 1 or len(self.kept.shape) != 1:
            raise CorruptFileError(
                f"{self.path} is damaged: a sparse array is not a bitmap of flat values"
            )
        return packing.joined(self.kept.read(), self.values.read(), self.shape)


def find_additive(path: Path, file: h5py.File) -> dict[str, Additive]:
    """The arrays below /arrays by name."""
    where = schema.ARRAYS.encode()
    names = [name.decode() for name in h5g.open(file.id, where)] if where in file.id else []
    return {name: _additive(path, file, name) for name in names}


def _additive(path: Path, file: h5py.File, name: str) -> Additive:
    values, thin = checked(path, file, f"{schema.ARRAYS}/{name}"), f"{schema.SPARSE}/{name}"
    if schema.SPARSE.encode() not in file.id or thin.encode() not in file.id:
        return Additive(path, values, None, values.shape)
    kept = checked(path, file, f"{thin}/{schema.KEPT}")
    return Additive(path, values, kept, _shape(path, file, thin))


def describe_additive(path: Path, file: h5py.File) -> dict[str, dict[str, Any]]:
    """Shape, type, bytes as a plain array and bytes in the file of the arrays below /arrays."""
    return {
        name: {
            "shape": list(entries.shape),
            "type": entries.values.dtype.str,
            "bytes": prod(entries.shape) * entries.values.dtype.itemsize,
            "stored_bytes": entries.stored_bytes,
        }
        for name, entries in find_additive(path, file).items()
    }


def _shape(path: Path, file: h5py.File, thin: str) -> tuple[int, ...]:
    shape = get_array(path, file, f"{thin}/{schema.SHAPE}", limit=1024)
    if shape.dtype.str != "<i8" or shape.ndim != 1 or shape.min(initial=0) < 0:
        raise CorruptFileError(f"{path} is damaged: /{thin}/{schema.SHAPE} is not a shape")
    return tuple(shape.tolist())
