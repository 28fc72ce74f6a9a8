"""The objects in an HDF5 file: only its own are opened, and their claimed sizes are checked.

HDF5 can point elsewhere: external links to other files, symbolic links, virtual datasets made of
other files, datasets whose bytes lie in another file, references. A file from a stranger could so
make a reader open any path, or wait at a pipe. No file of ours has any of these.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5l, h5o, h5s, h5z
from numpy.typing import NDArray

from ..errors import CorruptFileError
from . import schema

MOST_OBJECTS = 10_000  # in one file; a head of 1,000 layers has 3,000
_PLAIN = (h5z.FILTER_FLETCHER32,)
_PACKED = (h5z.FILTER_SHUFFLE, h5z.FILTER_DEFLATE, h5z.FILTER_FLETCHER32)


@dataclass(frozen=True, slots=True)
class Plain:
    """A dataset that is what it claims, not read yet."""

    id: h5d.DatasetID
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    packed: bool
    stored: int  # bytes in the file

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def read(self) -> NDArray[Any]:
        """All of it; HDF5 compares the checksums."""
        values = np.empty(self.shape, self.dtype)
        if values.size:
            self.id.read(h5s.ALL, h5s.ALL, values)
        return values


def own_objects_only(path: Path, file: h5py.File) -> None:
    """Raise `CorruptFileError` for a link to elsewhere, anywhere in the file; none is followed."""
    count = 0

    def look(name: bytes, link: Any) -> str | None:
        """What is wrong, which ends the visit; the library lets no exception through."""
        nonlocal count
        count += 1
        if link.type != h5l.TYPE_HARD:
            shown = name.decode("utf-8", "backslashreplace")
            return f"/{shown} is a link to something else, and no link is followed"
        return f"it has more than {MOST_OBJECTS} objects" if count > MOST_OBJECTS else None

    wrong = file.id.links.visit(look, info=True)
    if wrong is not None:
        raise CorruptFileError(f"{path} is damaged: {wrong}; afltool writes no such file")


def may_be_packed(name: str, dtype: np.dtype[Any]) -> bool:
    """Whether a dataset may be compressed: integers of additive arrays."""
    return name.split("/")[0] in (schema.ARRAYS, schema.SPARSE) and dtype.kind in "iu"


def checked_dataset(path: Path, file: h5py.File, name: str) -> h5py.Dataset:
    """`checked`, as h5py's own object, which reads slices."""
    return h5py.Dataset(checked(path, file, name).id, readonly=True)


def checked(path: Path, file: h5py.File, name: str) -> Plain:
    """A dataset that is what it claims: plain numbers of its type, as many bytes as its shape.

    Nothing is allocated before the checks, so a file that claims 10^12 rows does no harm. They ask
    the library itself: h5py's objects take three times as long, in each file of a thousand.
    """
    try:
        data = h5o.open(file.id, name.encode())
    except KeyError:
        data = None
    if not isinstance(data, h5d.DatasetID):
        raise CorruptFileError(f"{path} is damaged: the dataset /{name} is missing")
    found = _plain(name, data)
    if found is None:
        raise CorruptFileError(f"{path} is damaged: /{name} is not a plain, checksummed dataset")
    kind, dimensions = schema.TYPES.get(name, (found.dtype.str, len(found.shape)))
    if kind not in (found.dtype.str, found.dtype.kind) or len(found.shape) != dimensions:
        raise CorruptFileError(
            f"{path} is damaged: /{name} has the type {found.dtype.str} and {len(found.shape)} "
            f"dimensions, not {kind} and {dimensions}"
        )
    least = found.nbytes // schema.DEFLATE_RATIO if found.packed else found.nbytes
    if found.stored < least or found.stored > os.path.getsize(path):
        raise CorruptFileError(
            f"{path} is damaged: /{name} claims the shape {found.shape}, "
            f"{found.nbytes} bytes; it holds {found.stored} of the file's "
            f"{os.path.getsize(path)}"
        )
    return found


def _plain(name: str, data: h5d.DatasetID) -> Plain | None:
    """A dataset all of whose bytes lie in this file, behind the filters that we write; or None.

    Where the bytes lie is asked first: the shape of a virtual dataset may be that of another file.
    """
    made = data.get_create_plist()
    layout = made.get_layout()
    if layout == h5d.VIRTUAL or made.get_external_count():
        return None
    dtype, shape = data.dtype, data.shape
    if dtype.kind not in "iufS" or not shape:
        return None
    filters = tuple(made.get_filter(i)[0] for i in range(made.get_nfilters()))
    found = Plain(data, shape, dtype, filters == _PACKED, data.get_storage_size())
    if 0 in shape:
        return found if filters in ((), _PLAIN) else None
    known = filters == _PLAIN or (found.packed and may_be_packed(name, dtype))
    fits = known and layout == h5d.CHUNKED and _chunks_fit(shape, made.get_chunk())
    return found if fits else None


def _chunks_fit(shape: tuple[int, ...], chunks: tuple[int, ...]) -> bool:
    """Whether a chunk, which is unpacked whole, is no larger than the data or a writer's block."""
    most = (max(shape[0], schema.CHUNK_ROWS), *shape[1:])
    return all(chunk <= size for chunk, size in zip(chunks, most, strict=True))
