"""The objects in an HDF5 file: only its own are opened, and their claimed sizes are checked.

HDF5 can point elsewhere: external links to other files, symbolic links, virtual datasets made of
other files, datasets whose bytes lie in another file, references. A file from a stranger could so
make a reader open any path, or wait at a pipe. No file of ours has any of these.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np

from ..errors import CorruptFileError
from . import schema

MOST_OBJECTS = 10_000  # in one file; a head of 1,000 layers has 3,000
_PLAIN = (h5py.h5z.FILTER_FLETCHER32,)
_PACKED = (h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_FLETCHER32)


def own_objects_only(path: Path, file: h5py.File) -> None:
    """Raise `CorruptFileError` for a link to elsewhere, anywhere in the file; none is followed."""
    count = 0

    def look(name: bytes, link: Any) -> str | None:
        """What is wrong, which ends the visit; the library lets no exception through."""
        nonlocal count
        count += 1
        if link.type != h5py.h5l.TYPE_HARD:
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
    """A dataset, once checked: plain numbers of its type, and as many bytes as its shape needs.

    Nothing is allocated before the checks, so a file that claims 10^12 rows does no harm.
    """
    data = file.get(name)
    if not isinstance(data, h5py.Dataset):
        raise CorruptFileError(f"{path} is damaged: it lacks the dataset /{name}")
    if not _plain(name, data):
        raise CorruptFileError(f"{path} is damaged: /{name} is not a plain, checksummed dataset")
    kind, dimensions = schema.TYPES.get(name, (data.dtype.str, data.ndim))
    if kind not in (data.dtype.str, data.dtype.kind) or data.ndim != dimensions:
        raise CorruptFileError(
            f"{path} is damaged: /{name} has the type {data.dtype.str} and {data.ndim} dimensions, "
            f"not {kind} and {dimensions}"
        )
    _check_claim(path, name, data)
    return cast(h5py.Dataset, data)


def _plain(name: str, data: h5py.Dataset) -> bool:
    """Whether all bytes of a dataset lie in this file, behind the filters that we write.

    Where the bytes lie is asked first: the shape of a virtual dataset may be that of another file.
    """
    made = data.id.get_create_plist()
    if made.get_layout() == h5py.h5d.VIRTUAL or made.get_external_count():
        return False
    if data.dtype.kind not in "iufS":
        return False
    filters = tuple(made.get_filter(i)[0] for i in range(made.get_nfilters()))
    if data.size == 0:
        return filters in ((), _PLAIN)
    known = filters == _PLAIN or (filters == _PACKED and may_be_packed(name, data.dtype))
    return known and _chunks_fit(data)


def _chunks_fit(data: h5py.Dataset) -> bool:
    """Whether a chunk, which is unpacked whole, is no larger than the data or a writer's block."""
    most = (max(len(data), schema.CHUNK_ROWS), *data.shape[1:])
    return all(chunk <= size for chunk, size in zip(data.chunks, most, strict=True))


def _check_claim(path: Path, name: str, data: h5py.Dataset) -> None:
    claimed, held = data.size * data.dtype.itemsize, data.id.get_storage_size()
    least = claimed // schema.DEFLATE_RATIO if data.compression else claimed
    if held < least or held > path.stat().st_size:
        raise CorruptFileError(
            f"{path} is damaged: /{name} claims the shape {data.shape}, "
            f"{claimed} bytes; it holds {held} of the file's "
            f"{path.stat().st_size}"
        )
