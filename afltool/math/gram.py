"""Gram matrix XᵀX and cross-correlation XᵀY of rows and one-hot labels.

Products run in float64 through BLAS ``dsyrk`` (half the work of a full product). For fixed-point
rows they are exact integers, see `afltool.math.fixedpoint`.

Symmetric matrices are stored, sent and added as one triangle, the lower one row by row: entry
(i, j) with j ≤ i lies at i(i+1)/2 + j. As LAPACK's packed storage this is 'U' packed by columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from math import isqrt
from typing import Any

import numpy as np
import scipy

from .. import cores
from ..errors import InvalidDataError
from ..values.arrays import F64, I64, Array
from . import blas
from .fixedpoint import FixedPoint, Rows, check_int64, dim, exact_rows

PIECE = 512  # rows: 2 MB of 512 features in float64
BUFFER_BYTES = 64 << 20  # of float64 rows; blocks are half as large, see `files.features`
MIRRORED = 256  # columns that are mirrored together: they stay in the cache
LARGEST_ENTRY = 2**15  # of |x̂|: int16, and the constant feature 2^bits


class Products:
    """The sums XᵀX and XᵀY over blocks of rows, every block through the same float64 buffer.

    A new buffer for each block would double the cost of the conversion, by page faults. BLAS
    adds each block to the triangle in place. For fixed-point rows every sum is exact, because the
    triangle is added to int64 before a sum could exceed 2^53.
    """

    def __init__(self, d: int, classes: int, bits: int | None, intercept: bool = False) -> None:
        self.bits, self.classes, self.rows = bits, classes, 0
        self._constant = [1.0 if bits is None else 2.0**bits] if intercept else []
        width = d + intercept
        self._buffer = np.empty((0, width))
        self._upper = np.zeros((width, width), order="F")
        self._moved = np.zeros(0 if bits is None else length(width), dtype=np.int64)
        self._room = exact_rows(LARGEST_ENTRY)  # rows until the triangle has to move
        # Sums of n int16 numbers stay below n · 2^15: float64 holds them exactly up to 2^38 rows.
        self._sums = np.zeros((classes, width))

    @classmethod
    def like(cls, X: Rows, classes: int, intercept: bool = False) -> Products:
        """Empty sums for rows like X.

        With ``intercept`` a constant feature 1 (2^bits in fixed point, as exact as any other) is
        appended as the last column.
        """
        return cls(dim(X), classes, X.bits if isinstance(X, FixedPoint) else None, intercept)

    @classmethod
    def over(
        cls,
        blocks: Iterable[tuple[Rows, I64]],
        classes: int,
        intercept: bool = False,
        lift: Callable[[Rows], Rows] = lambda X: X,
    ) -> tuple[Array, Array]:
        """`result` of all blocks, of which there is at least one, by all threads in use.

        ``lift``: what rows become first.
        """
        stream = iter(blocks)
        first = next(stream)
        like = lift(first[0][:0])
        return _added(cls._parts(chain([first], stream), like, classes, intercept, lift))

    @classmethod
    def _parts(
        cls,
        blocks: Iterable[tuple[Rows, I64]],
        like: Rows,
        classes: int,
        intercept: bool,
        lift: Callable[[Rows], Rows],
    ) -> Iterator[tuple[Array, Array]]:
        """Sums of pieces, in order, since sums of reals depend on it; exact ones of each thread."""
        exact, side = isinstance(like, FixedPoint), dim(like) + intercept
        spare = cores.Spare(lambda: cls.like(like, classes, intercept))

        def work(piece: tuple[Rows, I64]) -> tuple[Array, Array] | None:
            with spare() as part:
                part.add(lift(piece[0]), piece[1])
                return None if exact else part.taken()

        cut = pieces(blocks, max(PIECE, BUFFER_BYTES // (8 * side)))
        size = 12 * side * side + BUFFER_BYTES
        for found in cores.each(work, cut, size, f"sums of {side} features"):
            if found is not None:
                yield found
        if exact:
            check_int64(sum(part.rows for part in spare.made), LARGEST_ENTRY)
            yield from (part.result() for part in spare.made)

    def add(self, X: Rows, y: I64) -> Products:
        """Add rows X (n, d) with labels y (n,) in 0 … classes−1; n·d² multiply–adds."""
        check_labels(y, self.classes)
        self.rows += len(y)
        if self.bits is not None:
            check_int64(self.rows, LARGEST_ENTRY)
        step = min(self._largest_step(), exact_rows(LARGEST_ENTRY))
        for part, labels in pieces([(X, y)], step):
            self._add(part.values if isinstance(part, FixedPoint) else part, labels)
        return self

    def result(self) -> tuple[Array, Array]:
        """gram as a packed triangle and cross (d, C); int64 for fixed point, else float64.

        They equal ``np.tril(X.T @ X)`` row by row and ``X.T @ np.eye(classes)[y]``, in units of
        2^(−2 bits) and 2^−bits for fixed point.
        """
        sums = np.ascontiguousarray(self._sums.T)
        if self.bits is None:
            return pack(self._upper.T), sums
        self._move()
        return self._moved, sums.astype(np.int64)

    def taken(self) -> tuple[Array, Array]:
        """`result` of real rows, and begin again at zero."""
        found = self.result()
        self._upper[:] = 0.0
        self._sums[:] = 0.0
        return found

    def _largest_step(self) -> int:
        return max(PIECE, BUFFER_BYTES // (8 * self._buffer.shape[1]))

    def _add(self, values: Array, y: I64) -> None:
        n, d = values.shape
        if len(self._buffer) < n:
            self._buffer = np.empty((n, self._buffer.shape[1]))
            self._buffer[:, d:] = self._constant
        real = self._buffer[:n]
        for start in range(0, n, PIECE):  # summed while the cache still holds what was converted
            part = slice(start, start + PIECE)
            np.copyto(real[part, :d], values[part])
            self._sums += _class_sums(real[part], y[part], self.classes)
        if self._room < n and self.bits is not None:
            self._move()
        self._room -= n
        blas.gram(real, self._upper)

    def _move(self) -> None:
        self._moved += pack(self._upper.T).astype(np.int64)
        self._upper[:] = 0.0
        self._room = exact_rows(LARGEST_ENTRY)


def gram_and_cross(X: Rows, y: I64, classes: int) -> tuple[Array, Array]:
    """XᵀX as a packed triangle and XᵀY (d, C) of rows with labels, see `Products.result`."""
    return Products.like(X, classes).add(X, y).result()


def real_gram(X: Array) -> F64:
    """XᵀX as a packed float64 triangle, the product itself in the type of X, float32 or float64.

    For features that are real numbers. A float32 product rounds within its block of rows; add the
    blocks in float64. Twice as fast as `gram_and_cross`.
    """
    if not len(X):
        return np.zeros(length(X.shape[1]))
    upper = np.zeros((X.shape[1], X.shape[1]), X.dtype, order="F")
    blas.gram(X, upper)
    return np.asarray(pack(upper.T), dtype=np.float64)


def real_cross(X: Array, y: I64, classes: int) -> F64:
    """XᵀY (d, C) of float32 or float64 rows, as float64; the sums as in `real_gram`."""
    check_labels(y, classes)
    return np.ascontiguousarray(_class_sums(X, y, classes).T, dtype=np.float64)


def product(A: Array, B: Array) -> Array:
    """A B in C order, float32 or float64."""
    out = np.empty((len(A), B.shape[1]), A.dtype)
    blas.product_into(out, A, B)
    return out


def row_product(X: Rows, W: F64) -> F64:
    """X W (n, C), float64, of rows X (n, d) in units of one, a few at a time: they stay in the
    cache, and the memory for them is used again. NumPy's product, so that SciPy is not loaded."""
    values, unit = (X.values, 2.0**-X.bits) if isinstance(X, FixedPoint) else (X, 1.0)
    out = np.empty((len(X), W.shape[1]))
    buffer = np.empty((min(PIECE, len(X)), len(W)))
    for start in range(0, len(X), PIECE):
        part = values[start : start + PIECE]
        rows = np.multiply(part, unit, out=buffer[: len(part)])
        np.matmul(rows, W, out=out[start : start + PIECE])
    return out


def add_product(target: Array, A: Array, B: Array) -> None:
    """target += A Bᵀ in place, by one BLAS call: target (n, d), A (n, r), B (d, r), one type."""
    blas.product_into(target, A, B.T, keep=1.0)


def check_labels(y: I64, classes: int) -> None:
    """Raise `InvalidDataError` for a label outside 0 … classes−1."""
    bad = (y < 0) | (y >= classes)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InvalidDataError(
            f"row {row} has label {int(y[row])}; with {classes} classes labels run from 0 to "
            f"{classes - 1} ({int(bad.sum())} of {len(y)} rows are outside)"
        )


def _class_sums(X: Array, y: I64, classes: int) -> Array:
    """YᵀX (C, d): each row added to the sum of its class, n·d additions."""
    n = len(y)
    one_hot = scipy.sparse.csc_matrix(
        (np.ones(n, X.dtype), y, np.arange(n + 1)), shape=(classes, n)
    )
    return np.asarray(one_hot @ X)


def pieces(blocks: Iterable[tuple[Rows, I64]], most: int) -> Iterator[tuple[Rows, I64]]:
    """The rows of blocks, at most so many together."""
    for X, y in blocks:
        for at in range(0, max(len(y), 1), most):
            yield X[at : at + most], y[at : at + most]


def _added(results: Iterator[tuple[Array, Array]]) -> tuple[Array, Array]:
    """The sums of several parts, in order; the first one is added to."""
    G, H = next(results)
    for gram, cross in results:
        G += gram
        H += cross
    return G, H


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
    d = G.shape[0]
    for a in range(0, d, MIRRORED):
        b = min(a + MIRRORED, d)
        G[b:, a:b] = G[a:b, b:].T
        corner = G[a:b, a:b]
        lower = np.tril_indices(b - a, -1)
        corner[lower] = corner.T[lower]
