"""Arrays in an HDF5 file: written with checksums, compressed where it helps, checked when read.

HDF5 checks three kinds of bytes: chunks under fletcher32, the superblock and object headers (from
libver 1.8 on). It does not check the index of chunks. The digest of each file covers that, and
every reader compares it. Nothing of variable length is written or read: the library follows such
pointers without a check and crashes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
from numpy.typing import NDArray

from ..errors import AflError, CorruptFileError
from . import packing, schema, sparse
from .members import checked_dataset
from .writer import undisturbed

Array = NDArray[Any]
# What h5py raises when the bytes of a file make no sense to the HDF5 library.
_DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, MemoryError)


# ---------------------------------------------------------------- writing


@undisturbed()
def put_array(file: h5py.File, name: str, value: Array) -> None:
    """Write or replace an array; `packing` and `sparse` say when integers are compressed."""
    thin = f"{schema.SPARSE}/{name.removeprefix(schema.ARRAYS + '/')}"
    for old in (name, thin):
        if old in file:
            del file[old]
    packed = name.startswith(schema.ARRAYS + "/") and value.size > 0 and packing.pays(value)
    parts = sparse.split(value) if packed else None
    if parts is None:
        _put(file, name, value, packed)
        return
    _put(file, name, parts[1], packed)
    _put(file, f"{thin}/{schema.KEPT}", parts[0], packed)
    _put(file, f"{thin}/{schema.SHAPE}", np.array(value.shape, "<i8"), False)


def _put(file: h5py.File, name: str, value: Array, packed: bool) -> None:
    """One dataset: checksummed, chunked (an empty one without)."""
    if value.size == 0:
        file.create_dataset(name, data=value)
        return
    # Chunks of one size, so that the last one is nearly full: HDF5 fills it up.
    count = -(-value.nbytes // schema.CHUNK_BYTES)
    chunks = (-(-value.shape[0] // min(count, value.shape[0])), *value.shape[1:])
    if not packed:
        file.create_dataset(name, data=value, chunks=chunks, fletcher32=True)
        return
    filters = {"shuffle": True, "compression": "gzip", "compression_opts": 1, "fletcher32": True}
    data = file.create_dataset(name, value.shape, value.dtype, chunks=chunks, **filters)
    packing.write_chunks(data, value)


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
    data = checked_dataset(path, file, name)
    if limit is not None and data.size * data.dtype.itemsize > limit:
        raise CorruptFileError(f"{path} is damaged: /{name} has more than {limit} bytes")
    return cast(Array, data[()])


def get_additive(path: Path, file: h5py.File, name: str) -> Array:
    """Read the array ``name`` below /arrays, sparse or not."""
    values, thin = get_array(path, file, f"{schema.ARRAYS}/{name}"), _thin(file, name)
    if thin is None:
        return values
    shape = _shape(path, file, thin)
    kept = get_array(path, file, f"{thin}/{schema.KEPT}")
    if kept.dtype != np.uint8 or values.ndim != 1 or kept.ndim != 1:
        raise CorruptFileError(f"{path} is damaged: /{thin} is not a bitmap of flat values")
    return sparse.joined(kept, values, shape)


def describe_additive(path: Path, file: h5py.File, name: str) -> dict[str, Any]:
    """Shape, type, bytes as a plain array and bytes in the file of an array below /arrays."""
    data, thin = checked_dataset(path, file, f"{schema.ARRAYS}/{name}"), _thin(file, name)
    shape, held = tuple(data.shape), data.id.get_storage_size()
    if thin is not None:
        shape = _shape(path, file, thin)
        held += checked_dataset(path, file, f"{thin}/{schema.KEPT}").id.get_storage_size()
    return {
        "shape": list(shape),
        "type": data.dtype.str,
        "bytes": prod(shape) * data.dtype.itemsize,
        "stored_bytes": held,  # fewer where they are compressed
    }


def _thin(file: h5py.File, name: str) -> str | None:
    """Where the bitmap of a sparse array lies; None for others."""
    where = f"{schema.SPARSE}/{name}"
    return where if where in file else None


def _shape(path: Path, file: h5py.File, thin: str) -> tuple[int, ...]:
    """The shape of a sparse array."""
    found = get_array(path, file, f"{thin}/{schema.SHAPE}", limit=1024)
    if found.dtype.str != "<i8" or found.ndim != 1 or found.min(initial=0) < 0:
        raise CorruptFileError(f"{path} is damaged: /{thin}/{schema.SHAPE} is not a shape")
    return tuple(found.tolist())
