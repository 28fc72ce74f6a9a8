"""Arrays and attributes in an HDF5 file: checksummed, packed where it pays, read with suspicion.

Of the bytes of a file HDF5 checks only three kinds: chunks under fletcher32, and the superblock and
object headers from libver 1.8 on. The rest (the index of chunks) is left to the digest of each
file, which every reader compares. Nothing of variable length is written or read: the library
follows its pointers unchecked and crashes.
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
from ..memory import physical
from . import packing, schema, sparse
from .atomic import undisturbed

Array = NDArray[Any]
# What h5py raises when the bytes of a file make no sense to the HDF5 library.
_DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, MemoryError)


# ---------------------------------------------------------------- writing


@undisturbed()
def put_array(file: h5py.File, name: str, value: Array) -> None:
    """Write or replace an array; additive integers packed, in one of two ways where it pays.

    See `packing` and `sparse`.
    """
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
    # Chunks of one size, as even as can be: HDF5 fills the last one up.
    count = -(-value.nbytes // schema.CHUNK_BYTES)
    chunks = (-(-value.shape[0] // min(count, value.shape[0])), *value.shape[1:])
    if not packed:
        file.create_dataset(name, data=value, chunks=chunks, fletcher32=True)
        return
    filters = {"shuffle": True, "compression": "gzip", "compression_opts": 1, "fletcher32": True}
    data = file.create_dataset(name, value.shape, value.dtype, chunks=chunks, **filters)
    packing.write_chunks(data, value)


def may_be_packed(name: str, dtype: np.dtype[Any]) -> bool:
    """Whether a dataset may be compressed: integers of additive arrays."""
    return name.split("/")[0] in (schema.ARRAYS, schema.SPARSE) and dtype.kind in "iu"


# ---------------------------------------------------------------- reading


@contextmanager
def damage_as_error(path: Path) -> Iterator[None]:
    """What HDF5 says of damaged bytes, as one `CorruptFileError` with the path."""
    try:
        yield
    except AflError:
        raise
    except _DAMAGE as error:
        text = " ".join(str(error).split())
        raise CorruptFileError(f"{path} is damaged ({text}); make it or fetch it again") from error


def get_attribute(file: h5py.File, name: str) -> str | int | None:
    """An attribute of the root group: a text of fixed length or a whole number, else None."""
    attributes = file.attrs
    if name not in attributes:
        return None
    found = attributes.get_id(name)
    if found.shape != () or found.dtype.kind not in "iuS":
        return None
    value = attributes[name]
    return value.decode() if isinstance(value, bytes) else int(value)


def checked_dataset(path: Path, file: h5py.File, name: str) -> h5py.Dataset:
    """A dataset that is what it claims: plain numbers of its type, as many bytes as its shape.

    Nothing is allocated before this check, so a shape of 10^12 rows costs nothing.
    """
    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise CorruptFileError(f"{path} is damaged: it lacks the dataset /{name}")
    data = file[name]
    plain = (
        isinstance(data, h5py.Dataset)
        and data.dtype.kind in "iufS"
        and not data.is_virtual
        and data.external is None
        and data.compression in ((None, "gzip") if may_be_packed(name, data.dtype) else (None,))
        and (data.fletcher32 or data.size == 0)
    )
    if not plain:
        raise CorruptFileError(f"{path} is damaged: /{name} is not a plain, checksummed dataset")
    kind, dimensions = schema.TYPES.get(name, (data.dtype.str, data.ndim))
    if kind not in (data.dtype.str, data.dtype.kind) or data.ndim != dimensions:
        raise CorruptFileError(
            f"{path} is damaged: /{name} has the type {data.dtype.str} and {data.ndim} dimensions, "
            f"not {kind} and {dimensions}"
        )
    claimed, held = data.size * data.dtype.itemsize, data.id.get_storage_size()
    least = claimed // schema.DEFLATE_RATIO if data.compression else claimed
    if held < least or held > path.stat().st_size:
        raise CorruptFileError(
            f"{path} is damaged: /{name} claims the shape {data.shape}, "
            f"{claimed} bytes; it holds {held} of the file's "
            f"{path.stat().st_size}"
        )
    if data.compression and claimed > physical():
        raise CorruptFileError(f"{path}: /{name} claims {claimed} bytes, more than the memory")
    return cast(h5py.Dataset, data)


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
    """The shape of a sparse array; refused where memory would not hold it."""
    found = get_array(path, file, f"{thin}/{schema.SHAPE}", limit=1024)
    if found.dtype.str != "<i8" or found.ndim != 1 or found.min(initial=0) < 0:
        raise CorruptFileError(f"{path} is damaged: /{thin}/{schema.SHAPE} is not a shape")
    shape = tuple(found.tolist())
    if 8 * prod(shape) > physical():
        raise CorruptFileError(f"{path}: /{thin} claims the shape {shape}, more than the memory")
    return shape
