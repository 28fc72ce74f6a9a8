"""Arrays with many zeros: each block is stored sparse or dense, whichever takes fewer bytes.

A bitmap marks the numbers that are stored; the others are 0. A dense block stores all of its
numbers, zeros too, and its part of the bitmap is all ones, which compress to almost nothing. So no
list of blocks is needed, and ``a[numpy.unpackbits(kept, count=n) == 1] = values`` reads both kinds.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ..values.arrays import Array
from .packing import deflated

BLOCK = 1 << 20  # numbers of a block, a multiple of 8
SAMPLE = 1 << 14  # of each block that are tried
LEAST = 1 << 16  # numbers of an array that is looked at


def split(value: Array) -> tuple[Array, Array] | None:
    """``kept``, a bitmap (n/8,) of uint8, and the values kept (m,); None when no block is sparse.

    ``value`` is of integers that will be compressed; its order is row-major.
    """
    flat = value.reshape(-1)
    if len(flat) < LEAST:
        return None
    blocks = [flat[start : start + BLOCK] for start in range(0, len(flat), BLOCK)]
    thin = [_pays(block[:SAMPLE]) for block in blocks]
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


def _pays(sample: Array) -> bool:
    there = sample != 0
    sparse = len(deflated(np.packbits(there))) + len(deflated(sample[there]))
    return sparse < len(deflated(sample))


def _kept(block: Array, sparse: bool) -> tuple[Array, Array]:
    there = block != 0 if sparse else np.ones(len(block), dtype=bool)
    return np.packbits(there), block[there] if sparse else block
