"""Compressed arrays: their chunks, which any reader of HDF5 can read, and sparse blocks.

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

import zlib
from collections.abc import Iterator
from math import prod

import numpy as np
from h5py import h5d

from ..values.arrays import Array

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
    if (found := int(np.count_nonzero(chosen))) != len(values):
        raise ValueError(f"{len(values)} values are kept and {found} are marked")
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
