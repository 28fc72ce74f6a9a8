"""Cholesky factors of large matrices, in the memory of the matrix."""

from __future__ import annotations

from functools import partial

import scipy

from .. import cores
from ..values.arrays import F64
from . import blas

BLOCK = 1024  # columns that are factored together, and rows that one thread works on


def cholesky_in_place(A: F64) -> None:
    """The lower triangle of A (D, D) ← L with A = L Lᵀ; the upper triangle is not touched. D³/3.

    As ``scipy.linalg.cholesky(A, lower=True)`` up to rounding, block column by block column, in
    tiles that each one thread makes: the bits do not depend on the number of threads. LAPACK's own
    dpotrf in OpenBLAS 0.3.30 crashes with two threads of its own from a side of about 16,000 on
    (measured). Raises ``LinAlgError`` when A is not positive definite to working precision.
    """
    side = len(A)
    for a in range(0, side, BLOCK):
        b = min(a + BLOCK, side)
        _subtract(A, a, b, a)
        A[a:b, a:b] = scipy.linalg.cholesky(A[a:b, a:b], lower=True, check_finite=False)
        for _ in cores.each(partial(_fill, A, a, b), range(b, side, BLOCK)):
            pass


def _fill(A: F64, a: int, b: int, row: int) -> None:
    """The tile of L in columns a … b−1 and some rows."""
    _subtract(A, a, b, row)
    blas.divide(A[row : row + BLOCK, a:b], A[a:b, a:b])


def _subtract(A: F64, a: int, b: int, row: int) -> None:
    """What the columns before a give to columns a … b−1 of some rows."""
    rows = slice(row, row + BLOCK)
    blas.product_into(A[rows, a:b], A[rows, :a], A[a:b, :a].T, factor=-1.0, keep=1.0)


class Cholesky:
    """A = L Lᵀ in the memory of A (D, D), C-ordered, of which only the lower triangle is read."""

    def __init__(self, A: F64) -> None:
        cholesky_in_place(A)
        self._upper = A.T  # Lᵀ, Fortran-ordered

    def solve(self, B: F64) -> F64:
        """A⁻¹B (D, C)."""
        found: F64 = scipy.linalg.cho_solve((self._upper, False), B, check_finite=False)
        return found

    def half(self, B: F64) -> F64:
        """L⁻¹B (D, C), whose squares add up to tr(BᵀA⁻¹B)."""
        found: F64 = scipy.linalg.solve_triangular(self._upper, B, trans="T", check_finite=False)
        return found
