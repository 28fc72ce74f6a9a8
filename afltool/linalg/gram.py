"""Gram matrix XᵀX and cross-correlation XᵀY of rows and one-hot labels.

Products run in float64 through BLAS ``dsyrk`` (half the work of a full product). For fixed-point
rows they are exact integers, see `afltool.linalg.fixedpoint`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dgemm, dsyrk, sgemm, ssyrk
from scipy.sparse import csr_matrix

from ..errors import InvalidDataError
from .fixedpoint import FixedPoint, Rows, check_int64, exact_rows
from .triangle import length, pack

PIECE = 512  # rows: 2 MB of 512 features in float64


def gram(X: Rows, intercept: bool = False) -> NDArray[Any]:
    """XᵀX as a packed triangle; int64 for fixed-point rows, in units of 2^(−2 bits), else float64.

    Equals ``np.tril(X.T @ X)``, row by row. Cost n·d² multiply–adds and n·d float64 of memory.
    With ``intercept`` a constant feature 1 (2^bits in fixed point, as exact as any other) is
    appended as the last column.
    """
    if isinstance(X, FixedPoint):
        return _integer_gram(_with_constant(X.values, 2**X.bits, intercept))
    real = _with_constant(np.asarray(X, dtype=np.float64), 1.0, intercept)
    return pack(_syrk(real))


def cross(X: Rows, y: NDArray[np.int64], classes: int, intercept: bool = False) -> NDArray[Any]:
    """XᵀY (d, C), the per-class sums of rows; int64 in units of 2^−bits for fixed point.

    ``y`` holds labels 0 … classes−1. Equals ``X.T @ np.eye(classes)[y]``, without the one-hot
    matrix: n·d additions.
    """
    check_labels(y, classes)
    if isinstance(X, FixedPoint):
        values = _with_constant(X.values, 2**X.bits, intercept)
        return _class_sums(values.astype(np.int64), y, classes)
    return _class_sums(_with_constant(np.asarray(X, np.float64), 1.0, intercept), y, classes)


def gram_and_cross(
    X: Rows, y: NDArray[np.int64], classes: int, intercept: bool = False
) -> tuple[NDArray[Any], NDArray[Any]]:
    """`gram` and `cross` of one block of rows, with one conversion to float64."""
    if not isinstance(X, FixedPoint):
        return gram(X, intercept), cross(X, y, classes, intercept)
    check_labels(y, classes)
    values = _with_constant(X.values, 2**X.bits, intercept)
    real = np.empty(values.shape)
    # Class sums stay below n · 2^15, so float64 holds them exactly up to 2^38 rows.
    sums = np.zeros((values.shape[1], classes))
    for start in range(0, len(y), PIECE):  # summed while the cache still holds what was converted
        piece = real[start : start + PIECE]
        np.copyto(piece, values[start : start + PIECE])
        sums += _class_sums(piece, y[start : start + PIECE], classes)
    return _integer_gram(values, real), sums.astype(np.int64)


def real_gram(X: NDArray[Any]) -> NDArray[np.float64]:
    """XᵀX as a packed float64 triangle, the product itself in the type of X, float32 or float64.

    For features that were computed anyway. A float32 product rounds within its block of rows;
    blocks are to be added in float64. Twice as fast as `gram`.
    """
    if not len(X):
        return np.zeros(length(X.shape[1]))
    product = ssyrk if X.dtype == np.float32 else dsyrk
    return np.asarray(pack(product(1.0, X.T, trans=0, lower=0).T), dtype=np.float64)


def real_cross(X: NDArray[Any], y: NDArray[np.int64], classes: int) -> NDArray[np.float64]:
    """XᵀY (d, C) of float32 or float64 rows, as float64; the sums as in `real_gram`."""
    check_labels(y, classes)
    return np.asarray(_class_sums(X, y, classes), dtype=np.float64)


def add_product(target: NDArray[Any], A: NDArray[Any], B: NDArray[Any]) -> None:
    """target += A Bᵀ in place, by one BLAS call: target (n, d), A (n, r), B (d, r), one type.

    A contiguous target is written where it lies; NumPy would make the product first and then add.
    """
    if not target.size or not A.size:
        return
    product = sgemm if target.dtype == np.float32 else dgemm
    found = product(1.0, B.T, A.T, beta=1.0, c=target.T, trans_a=1, overwrite_c=1)
    if not np.shares_memory(found, target):
        target[:] = found.T


def check_labels(y: NDArray[np.int64], classes: int) -> None:
    """Raise `InvalidDataError` for a label outside 0 … classes−1."""
    bad = (y < 0) | (y >= classes)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InvalidDataError(
            f"row {row} has label {int(y[row])}; with {classes} classes labels run from 0 to "
            f"{classes - 1} ({int(bad.sum())} of {len(y)} rows are outside)"
        )


def _integer_gram(values: NDArray[Any], real: NDArray[Any] | None = None) -> NDArray[np.int64]:
    n, d = values.shape
    largest = _largest(values)
    check_int64(n, largest)
    if real is None:
        real = values.astype(np.float64)
    total = np.zeros(length(d), dtype=np.int64)
    step = max(exact_rows(largest), 1)
    for start in range(0, n, step):
        total += pack(_syrk(real[start : start + step])).astype(np.int64)
    return total


def _largest(values: NDArray[Any]) -> int:
    if not values.size:
        return 0
    return max(int(values.max()), -int(values.min()))


def _syrk(X: NDArray[Any]) -> NDArray[Any]:
    """Lower triangle (in C order) of XᵀX; C-contiguous rows go to Fortran's BLAS uncopied."""
    if not len(X):
        return np.zeros((X.shape[1], X.shape[1]))
    return dsyrk(1.0, X.T, trans=0, lower=0).T


def _class_sums(X: NDArray[Any], y: NDArray[np.int64], classes: int) -> NDArray[Any]:
    n = len(y)
    one_hot = csr_matrix((np.ones(n, X.dtype), y, np.arange(n + 1)), shape=(n, classes))
    return np.ascontiguousarray((one_hot.T.tocsr() @ X).T)


def _with_constant(values: NDArray[Any], one: float, intercept: bool) -> NDArray[Any]:
    if not intercept:
        return values
    return np.hstack([values, np.full((len(values), 1), one, dtype=values.dtype)])
