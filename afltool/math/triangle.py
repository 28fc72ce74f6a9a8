"""Symmetric matrices as one triangle: what is stored, sent and added.

The lower triangle row by row: entry (i, j) with j ≤ i lies at i(i+1)/2 + j. As LAPACK's packed
storage this is 'U' packed by columns.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np

from ..errors import InvalidDataError
from ..values.arrays import Array

MIRRORED = 256  # columns that are mirrored together: they stay in the cache


def length(side: int) -> int:
    """Numbers in the triangle of a ``side`` × ``side`` matrix: side(side+1)/2."""
    return side * (side + 1) // 2


def side(length_: int) -> int:
    """Side of the matrix whose triangle has ``length_`` numbers.

    >>> side(6)
    3
    """
    d = (isqrt(8 * length_ + 1) - 1) // 2
    if length(d) != length_:
        raise InvalidDataError(
            f"a triangle of a symmetric matrix has d(d+1)/2 numbers; {length_} is no such number"
        )
    return d


def pack(G: Array) -> Array:
    """Lower triangle of G (d, d), row by row, as (d(d+1)/2,); the upper one is not looked at."""
    d = G.shape[0]
    out = np.empty(length(d), dtype=G.dtype)
    at = 0
    for i in range(d):  # slices: index arrays would take 16 bytes per entry
        out[at : at + i + 1] = G[i, : i + 1]
        at += i + 1
    return out


def unpack(t: Array, dtype: Any = None) -> Array:
    """The symmetric matrix (d, d) whose lower triangle is ``t``; Fortran order, like LAPACK's."""
    G = unpack_transposed(t, dtype)
    _mirror_upper(G)
    return G


def unpack_transposed(t: Array, dtype: Any = None) -> Array:
    """The upper triangle of a new (d, d), the transpose of ``t``'s; below it are any numbers.

    For LAPACK, which reads one triangle: a third of the time of `unpack`.
    """
    d = side(t.shape[0])
    G = np.empty((d, d), dtype=dtype or t.dtype, order="F")
    at = 0
    for i in range(d):
        G[: i + 1, i] = t[at : at + i + 1]
        at += i + 1
    return G


def _mirror_upper(G: Array) -> None:
    """Copy the upper triangle of G onto its lower one, block by block."""
    d = G.shape[0]
    for a in range(0, d, MIRRORED):
        b = min(a + MIRRORED, d)
        G[b:, a:b] = G[a:b, b:].T
        corner = G[a:b, a:b]
        lower = np.tril_indices(b - a, -1)
        corner[lower] = corner.T[lower]
