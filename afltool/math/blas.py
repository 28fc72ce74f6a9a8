"""Triangles of matrices, and products and Cholesky factors by SciPy's BLAS.

Other threads of Python work meanwhile. SciPy's own wrappers hold the interpreter's lock: while one
thread is in ``scipy.linalg.blas.dsyrk`` the others stand still. These call the same functions, to
which SciPy leads Cython programs, so the bits are the same. Matrices are C-ordered (n, d), parts of
such ones, or transposes of them; others are copied. All are float64, or all float32.

Symmetric matrices are stored, sent and added as one triangle, the lower one row by row: entry
(i, j) with j ≤ i lies at i(i+1)/2 + j. As LAPACK's packed storage this is 'U' packed by columns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, partial
from math import isqrt
from typing import Any

import numpy as np
import scipy

from .. import cores
from ..errors import InvalidDataError
from ..values.arrays import F64, I64, Array

Argument = ctypes.c_void_p | ctypes.c_char_p | Any
BLOCK = 1024  # columns that are factored together, and rows that one thread works on
MIRRORED = 256  # columns that are mirrored together: they stay in the cache
_python = ctypes.pythonapi
_python.PyCapsule_GetName.restype = ctypes.c_char_p
_python.PyCapsule_GetName.argtypes = [ctypes.py_object]
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def gram(X: Array, upper: Array) -> None:
    """upper += XᵀX: X (n, d); of ``upper`` (d, d), Fortran-ordered, only the upper triangle."""
    if not X.size:
        return
    values, order, step = _laid_out(X)
    n, d = X.shape
    one, at = _number(X, 1.0), (values.ctypes.data, _int(step))
    sizes, to = (_int(d), _int(n)), (upper.ctypes.data, _int(d))
    _function("syrk", X)(b"U", order, *sizes, one, *at, one, *to)


def product_into(target: Array, A: Array, B: Array, factor: float = 1.0, keep: float = 0.0) -> None:
    """target ← keep · target + factor · A B: A (n, k), B (k, m), target (n, m), in place."""
    n, m = target.shape
    if not target.size:
        return
    if not A.size:
        target[...] = keep * target if keep else 0.0
        return
    # BLAS counts columns first, so C-ordered matrices are transposes to it: Bᵀ Aᵀ = (A B)ᵀ.
    (b, order_b, step_b), (a, order_a, step_a) = _laid_out(B), _laid_out(A)
    _function("gemm", target)(
        order_b, order_a, _int(m), _int(n), _int(A.shape[1]),
        _number(target, factor), b.ctypes.data, _int(step_b), a.ctypes.data, _int(step_a),
        _number(target, keep), target.ctypes.data, _int(target.strides[0] // target.itemsize),
    )  # fmt: skip


def divide(B: Array, L: Array) -> None:
    """B ← B L⁻ᵀ in place: B (n, d), L (d, d) of which the lower triangle is read."""
    n, d = B.shape
    if not B.size:
        return
    L, order, step = _laid_out(L)
    how = (b"U", b"T") if order == b"N" else (b"L", b"N")
    steps, one = (_int(step), _int(B.strides[0] // B.itemsize)), _number(B, 1.0)
    at = (L.ctypes.data, steps[0], B.ctypes.data, steps[1])
    _function("trsm", B)(b"L", *how, b"N", _int(d), _int(n), one, *at)


def _laid_out(M: Array) -> tuple[Array, bytes, int]:
    """A matrix, whether BLAS has to turn its transpose, and the step between rows or columns."""
    size, (n, d) = M.itemsize, M.shape
    if M.strides[1] == size and M.strides[0] >= size * d:
        return M, b"N", M.strides[0] // size
    if M.strides[0] == size and M.strides[1] >= size * n:
        return M, b"T", M.strides[1] // size
    return np.array(M, order="C"), b"N", d


def _int(number: int) -> Any:
    return ctypes.byref(ctypes.c_int(max(number, 1)))


def _number(like: Array, number: float) -> Any:
    kind = ctypes.c_float if like.dtype == np.float32 else ctypes.c_double
    return ctypes.byref(kind(number))


def _function(name: str, like: Array) -> Callable[..., None]:
    return _called("sd"[like.dtype == np.float64] + name)


@cache
def _called(name: str) -> Callable[..., None]:
    from scipy.linalg import cython_blas

    functions: dict[str, Any] = vars(cython_blas)["__pyx_capi__"]
    capsule = functions[name]
    named = _python.PyCapsule_GetName(capsule)
    arguments = named.count(b",") + 1
    kinds = [ctypes.c_void_p] * arguments
    return ctypes.CFUNCTYPE(None, *kinds)(_python.PyCapsule_GetPointer(capsule, named))


def cholesky_in_place(A: F64, floor: float | None = None) -> None:
    """The lower triangle of A (D, D) ← L with A = L Lᵀ; the upper triangle is not touched. D³/3.

    As ``scipy.linalg.cholesky(A, lower=True)`` up to rounding, block column by block column, in
    tiles that each one thread makes: the bits do not depend on the number of threads. LAPACK's own
    dpotrf in OpenBLAS 0.3.30 crashes with two threads of its own from a side of about 16,000 on
    (measured). Raises ``LinAlgError`` when A is not positive definite to working precision. With
    a ``floor`` A may be singular: a pivot L_ii² not above it becomes infinite, so i is left out.
    """
    side = len(A)
    for a in range(0, side, BLOCK):
        b = min(a + BLOCK, side)
        _subtract(A, a, b, a)
        if floor is None:
            A[a:b, a:b] = scipy.linalg.cholesky(A[a:b, a:b], lower=True, check_finite=False)
        else:
            _factor_corner(A[a:b, a:b], floor)
        for _ in cores.each(partial(_fill, A, a, b), range(b, side, BLOCK)):
            pass


def _factor_corner(A: F64, floor: float) -> None:
    for i, row in enumerate(A):
        A[i:, i] -= A[i:, :i] @ row[:i]
        row[i] = np.sqrt(row[i]) if row[i] > floor else np.inf
        A[i + 1 :, i] /= row[i]


def _fill(A: F64, a: int, b: int, row: int) -> None:
    """The tile of L in columns a … b−1 and some rows."""
    _subtract(A, a, b, row)
    divide(A[row : row + BLOCK, a:b], A[a:b, a:b])


def _subtract(A: F64, a: int, b: int, row: int) -> None:
    """What the columns before a give to columns a … b−1 of some rows."""
    rows = slice(row, row + BLOCK)
    product_into(A[rows, a:b], A[rows, :a], A[a:b, :a].T, factor=-1.0, keep=1.0)


def inverse_square(L: F64) -> float:
    """‖L⁻¹‖²_F of a lower triangle L (D, D), by rows of L⁻ᵀ that each one thread makes; D³/3."""
    side = len(L)

    def part(a: int) -> float:
        B = np.eye(min(BLOCK // 4, side - a), side - a)
        divide(B, L[a:, a:])
        return float(np.vdot(B, B))

    starts = range(0, side, BLOCK // 4)
    return sum(cores.each(part, starts, lambda _: 2 * BLOCK * side, "rows of an inverse"))


class Cholesky:
    """A = L Lᵀ in the memory of A (D, D), C-ordered, of which only the lower triangle is read."""

    def __init__(self, A: F64, floor: float | None = None) -> None:
        cholesky_in_place(A, floor)
        self.left_out = np.flatnonzero(np.isinf(A.diagonal()))  # for these `solve` finds 0
        self._upper = A.T  # Lᵀ, Fortran-ordered

    def solve(self, B: F64) -> F64:
        """A⁻¹B (D, C)."""
        solution: F64 = scipy.linalg.cho_solve((self._upper, False), B, check_finite=False)
        return solution

    def half(self, B: F64) -> F64:
        """L⁻¹B (D, C), whose squares add up to tr(BᵀA⁻¹B)."""
        solution: F64 = scipy.linalg.solve_triangular(self._upper, B, trans="T", check_finite=False)
        return solution

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
    mirror_upper(G)
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


def mirror_upper(G: Array) -> None:
    d = G.shape[0]
    for a in range(0, d, MIRRORED):
        b = min(a + MIRRORED, d)
        G[b:, a:b] = G[a:b, b:].T
        corner = G[a:b, a:b]
        lower = np.tril_indices(b - a, -1)
        corner[lower] = corner.T[lower]
