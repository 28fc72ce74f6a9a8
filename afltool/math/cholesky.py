"""Cholesky factors of large matrices, in the memory of the matrix."""

from __future__ import annotations

import scipy

from ..values.arrays import F64

BLOCK = 1024  # columns that are factored together


def cholesky_in_place(A: F64) -> None:
    """The lower triangle of A (D, D) ← L with A = L Lᵀ; the upper triangle is not touched. D³/3.

    As ``scipy.linalg.cholesky(A, lower=True)`` up to rounding, block column by block column, with
    one of them, 8·D·`BLOCK` bytes, beside A. LAPACK's own dpotrf in OpenBLAS 0.3.30 crashes with
    two threads from a side of about 16,000 on (measured). Raises ``LinAlgError`` when A is not
    positive definite to working precision.
    """
    side = len(A)
    for a in range(0, side, BLOCK):
        b = min(a + BLOCK, side)
        A[a:, a:b] -= A[a:, :a] @ A[a:b, :a].T
        corner = scipy.linalg.cholesky(A[a:b, a:b], lower=True, check_finite=False)
        A[a:b, a:b] = corner
        A[b:, a:b] = scipy.linalg.solve_triangular(
            corner, A[b:, a:b].T, lower=True, check_finite=False
        ).T


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
