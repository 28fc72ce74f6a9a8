"""How a dataset lies in an HDF5 file: what is read only as what it claims, and how it is packed.

HDF5 can point elsewhere: external links to other files, symbolic links, virtual datasets made of
other files, datasets whose bytes lie in another file, references. A file from a stranger could so
make a reader open any path, or wait at a pipe. No file of ours has any of these: only a file's own
objects are opened, and their claimed sizes are checked.

HDF5's deflate filter uses zlib's default strategy, which looks for repeated strings. Counts have
runs of zeros instead: with zlib's strategy Z_RLE the pairs of codes take a fifth to a third fewer
bytes in the same time (docs/decisions/safle.md). The format of the stream is the same. So this
module filters the chunks itself: it shuffles the bytes, deflates them and appends the checksum.

Of arrays with many zeros each block is stored sparse or dense, whichever takes fewer bytes. A
bitmap marks the numbers that are stored; the others are 0. A dense block stores all of its numbers,
and its part of the bitmap is all ones, which compress to almost nothing. So no list of blocks is
needed, and ``a[numpy.unpackbits(kept, count=n) == 1] = values`` reads both kinds.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5l, h5o, h5s, h5z
from numpy.typing import NDArray

from ..errors import CorruptFileError
from ..values.arrays import Array
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
    plain = _plain(name, data)
    if plain is None:
        raise CorruptFileError(f"{path} is damaged: /{name} is not a plain, checksummed dataset")
    kind, dimensions = schema.TYPES.get(name, (plain.dtype.str, len(plain.shape)))
    if kind not in (plain.dtype.str, plain.dtype.kind) or len(plain.shape) != dimensions:
        raise CorruptFileError(
            f"{path} is damaged: /{name} has the type {plain.dtype.str} and {len(plain.shape)} "
            f"dimensions, not {kind} and {dimensions}"
        )
    least = plain.nbytes // schema.DEFLATE_RATIO if plain.packed else plain.nbytes
    if plain.stored < least or plain.stored > os.path.getsize(path):
        raise CorruptFileError(
            f"{path} is damaged: /{name} claims the shape {plain.shape}, "
            f"{plain.nbytes} bytes; it holds {plain.stored} of the file's "
            f"{os.path.getsize(path)}"
        )
    return plain


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
    plain = Plain(data, shape, dtype, filters == _PACKED, data.get_storage_size())
    if 0 in shape:
        return plain if filters in ((), _PLAIN) else None
    known = filters == _PLAIN or (plain.packed and may_be_packed(name, dtype))
    fits = known and layout == h5d.CHUNKED and _chunks_fit(shape, made.get_chunk())
    return plain if fits else None


def _chunks_fit(shape: tuple[int, ...], chunks: tuple[int, ...]) -> bool:
    """Whether a chunk, which is unpacked whole, is no larger than the data or a writer's block."""
    most = (max(shape[0], schema.CHUNK_ROWS), *shape[1:])
    return all(chunk <= size for chunk, size in zip(chunks, most, strict=True))


SAMPLE = 1 << 16  # bytes of an array of wide integers that are tried
WORTH = 0.5  # what they shrink to at the most, if the array is to be compressed
BLOCK = 1 << 20  # numbers of a block, a multiple of 8
TRIED = 1 << 14  # of each block, to see whether sparse is smaller
LEAST = 1 << 16  # numbers of an array that is looked at
_WEIGHTS = np.arange(1 << 14, 0, -1, dtype=np.float64)  # of as many words: their sum is exact


def pays(value: Array) -> bool:
    """Whether an additive array is compressed: narrow integers always, wide ones by a sample.

    Sums of features over the rows of one code shrink to less than half. A gram matrix hardly
    shrinks, and is not compressed, for speed.
    """
    if value.dtype.kind not in "iu":
        return False
    if value.dtype.itemsize <= 2:
        return True
    flat = value.reshape(-1)
    count = min(len(flat), SAMPLE // value.dtype.itemsize)
    start = (len(flat) - count) // 2
    sample = flat[start : start + count]
    return len(deflated(sample)) <= WORTH * sample.nbytes


def write_packed(data: h5d.DatasetID, rows: int, value: Array) -> None:
    """Fill a dataset made with the filters shuffle, gzip and fletcher32, chunk by chunk.

    ``data`` is chunked along its first axis alone, ``rows`` of them a chunk; the last one is filled
    up with zeros.
    """
    rest = (0,) * (value.ndim - 1)
    for number, part in enumerate(_chunks(value, rows)):
        stream = deflated(part)
        data.write_direct_chunk((number * rows, *rest), stream + checksum(stream))


def _chunks(value: Array, rows: int) -> Iterator[Array]:
    for start in range(0, len(value), rows):
        part = np.ascontiguousarray(value[start : start + rows])
        if len(part) < rows:
            part = np.concatenate([part, np.zeros((rows - len(part), *part.shape[1:]), part.dtype)])
        yield part


def deflated(part: Array) -> bytes:
    """An array's bytes, deflated: first the first byte of every number, then the second, …"""
    shuffled = np.ascontiguousarray(
        np.ascontiguousarray(part).view(np.uint8).reshape(-1, part.dtype.itemsize).T
    )
    packer = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_RLE)
    return packer.compress(shuffled.data) + packer.flush()


def checksum(data: bytes) -> bytes:
    """HDF5's fletcher32 of some bytes, as its filter puts it behind them: four, little-endian.

    Two sums over big-endian words w of 16 bits modulo 2^16 − 1, of w and of the first sum; an odd
    last byte is the upper one of a word. Sums are folded, so that 0 stands for no ones at all. To
    swap the bytes of a word is to multiply it by 256 there, so little-endian words are summed.
    """
    words = np.frombuffer(data + b"\0" * (len(data) % 2), "<u2")
    one = two = 0
    for start in range(0, len(words), len(_WEIGHTS)):
        part = words[start : start + len(_WEIGHTS)].astype(np.float64)
        two = _folded(two + len(part) * one + int(part @ _WEIGHTS[-len(part) :]))
        one = _folded(one + int(part.sum()))
    return ((_folded(256 * two) << 16) | _folded(256 * one)).to_bytes(4, "little")


def _folded(total: int) -> int:
    return (total - 1) % 0xFFFF + 1 if total else 0


# ---------------------------------------------------------------- sparse


def split(value: Array) -> tuple[Array, Array] | None:
    """``kept``, a bitmap (n/8,) of uint8, and the values kept (m,); None when no block is sparse.

    ``value`` is of integers that will be compressed; its order is row-major.
    """
    flat = value.reshape(-1)
    if len(flat) < LEAST:
        return None
    blocks = [flat[start : start + BLOCK] for start in range(0, len(flat), BLOCK)]
    thin = [_thin(block[:TRIED]) for block in blocks]
    if not any(thin):
        return None
    parts = [_kept(block, sparse) for block, sparse in zip(blocks, thin, strict=True)]
    bitmaps, values = zip(*parts, strict=True)
    return np.concatenate(bitmaps), np.concatenate(values)


def joined(kept: Array, values: Array, shape: tuple[int, ...]) -> Array:
    """The array of `split`; ``ValueError`` when its parts do not fit together."""
    count = prod(shape)
    if min(shape, default=0) < 0 or len(kept) != -(-count // 8):
        raise ValueError(f"a bitmap of {len(kept)} bytes does not belong to the shape {shape}")
    chosen = np.unpackbits(kept, count=count).view(bool)
    if (marked := int(np.count_nonzero(chosen))) != len(values):
        raise ValueError(f"{len(values)} values are kept and {marked} are marked")
    out = np.zeros(count, dtype=values.dtype)
    out[chosen] = values
    return out.reshape(shape)


def _thin(sample: Array) -> bool:
    there = sample != 0
    sparse = len(deflated(np.packbits(there))) + len(deflated(sample[there]))
    return sparse < len(deflated(sample))


def _kept(block: Array, sparse: bool) -> tuple[Array, Array]:
    there = block != 0 if sparse else np.ones(len(block), dtype=bool)
    return np.packbits(there), block[there] if sparse else block
