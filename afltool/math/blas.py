"""Symmetric matrices as one triangle, their products XᵀX, and Cholesky factors.

They are stored, sent and added as the lower triangle row by row: entry (i, j) with j ≤ i lies at
i(i+1)/2 + j. As LAPACK's packed storage this is 'U' packed by columns. Products are NumPy's, during
which other threads of Python work: SciPy's wrappers of BLAS hold the interpreter's lock.
"""

from __future__ import annotations

from functools import partial
from math import isqrt
from typing import Any

import numpy as np
import scipy

from .. import parallel
from ..errors import InvalidDataError
from ..values.arrays import F64, I64, Array

BLOCK = 1024  # columns that are factored together, and rows that one thread works on
TILE = 1024  # rows of a triangle XᵀX that are multiplied together
MIRRORED = 256  # columns that are mirrored together: they stay in the cache


def add_gram(X: Array, triangle: Array) -> None:
    """triangle += XᵀX: X (n, d) float64 or float32, whose type the product has; of integers where
    ``triangle`` (d(d+1)/2,) is. n·d² operations; `TILE` rows of the product are in memory."""
    for a in range(0, X.shape[1], TILE):
        columns = X[:, a : a + TILE]
        product = np.empty((columns.shape[1], a + columns.shape[1]), X.dtype)
        np.matmul(columns.T, X[:, :a], out=product[:, :a])
        np.matmul(columns.T, columns, out=product[:, a:])
        for i, row in enumerate(product, start=a):
            part = triangle[length(i) : length(i + 1)]
            part += row[: i + 1].astype(part.dtype, copy=False)


def cholesky_in_place(A: F64, floor: float | None = None) -> None:
    """The lower triangle of A (D, D) ← L with A = L Lᵀ; the upper one is not touched. D³/3, in
    tiles of one thread each: bits do not depend on threads, and dpotrf of OpenBLAS 0.3.30 crashes
    with two from a side of 16,000 on. ``LinAlgError`` when A is not positive definite; with a
    ``floor`` a pivot L_ii² not above it becomes infinite, so i is left out."""
    for a in range(0, len(A), BLOCK):
        b = min(a + BLOCK, len(A))
        corner = A[a:b, a:b]
        corner -= A[a:b, :a] @ A[a:b, :a].T
        if floor is None:
            corner[:] = scipy.linalg.cholesky(corner, lower=True, check_finite=False)
        else:
            _factor_corner(corner, floor)
        for _ in parallel.map_threads(partial(_fill, A, a, b), range(b, len(A), BLOCK)):
            pass


def _factor_corner(A: F64, floor: float) -> None:
    for i, row in enumerate(A):
        A[i:, i] -= A[i:, :i] @ row[:i]
        row[i] = np.sqrt(row[i]) if row[i] > floor else np.inf
        A[i + 1 :, i] /= row[i]


def _fill(A: F64, a: int, b: int, row: int) -> None:
    """The tile of L in columns a … b−1 and some rows."""
    rows = A[row : row + BLOCK]
    tile = rows[:, a:b]
    tile -= rows[:, :a] @ A[a:b, :a].T
    tile[:] = scipy.linalg.solve_triangular(A[a:b, a:b], tile.T, lower=True, check_finite=False).T


class Cholesky:
    """A = L Lᵀ in the memory of A (D, D), C-ordered, of which only the lower triangle is read."""

    def __init__(self, A: F64, floor: float | None = None) -> None:
        cholesky_in_place(A, floor)
        self.left_out = np.flatnonzero(np.isinf(A.diagonal()))  # for these `solve` finds 0
        self._upper = A.T  # Lᵀ, Fortran-ordered

    def solve(self, B: F64) -> F64:
        """A⁻¹B (D, C)."""
        return np.asarray(scipy.linalg.cho_solve((self._upper, False), B, check_finite=False))

    def half(self, B: F64) -> F64:
        """L⁻¹B (D, C), whose squares add up to tr(BᵀA⁻¹B)."""
        solve = scipy.linalg.solve_triangular
        return np.asarray(solve(self._upper, B, trans="T", check_finite=False))

    def null_space(self, columns: I64) -> F64:
        """Z (D, k) with AZ = 0: e_i less what of the columns before i equals it, L⁻ᵀ row_i(L)."""
        rows = np.arange(len(self._upper))[:, None]
        Z: F64 = np.where(rows < columns, self._upper[:, columns], 0.0)
        Z = scipy.linalg.solve_triangular(self._upper, -Z, overwrite_b=True, check_finite=False)
        Z[columns, np.arange(len(columns))] = 1.0
        return Z


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
    return np.concatenate([row[: i + 1] for i, row in enumerate(G)] or [G.reshape(0)])


def unpack(t: Array, dtype: Any = None) -> Array:
    """The symmetric matrix (d, d) whose lower triangle is ``t``; Fortran order, like LAPACK's."""
    G = unpack_transposed(t, dtype)
    mirror_upper(G)
    return G


def unpack_transposed(t: Array, dtype: Any = None) -> Array:
    """The upper triangle of a new (d, d), the transpose of ``t``'s; below it are any numbers. For
    LAPACK, which reads one triangle: a third of the time of `unpack`."""
    d = side(len(t))
    G = np.empty((d, d), dtype=dtype or t.dtype, order="F")
    for i in range(d):
        G[: i + 1, i] = t[length(i) : length(i + 1)]
    return G


def mirror_upper(G: Array) -> None:
    """Below the diagonal of G (d, d) what is above it."""
    for a in range(0, len(G), MIRRORED):
        b = a + MIRRORED
        G[b:, a:b] = G[a:b, b:].T
        corner = G[a:b, a:b]
        lower = np.tril_indices(len(corner), -1)
        corner[lower] = corner.T[lower]
