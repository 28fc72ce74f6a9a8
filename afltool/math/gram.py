"""Rows, exact in fixed point or not, their gram XᵀX and cross-correlation XᵀY with one-hot labels.

Fixed point: x̂ = round(x · 2^f) as int16, f fractional bits. Every float64 intermediate of a product
of such integers is exact as long as no sum exceeds 2^53, so a blocked matrix product gives the same
integers for every library, thread count and blocking; block results are added as int64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from ..errors import InvalidDataError, NumericalError
from ..values.arrays import F32, F64, I64, Array
from . import blas
from .blas import length

LARGEST = 2**15 - 1  # −32768 is kept free: it marks a row that was never written
EXACT_FLOAT64 = 2**53
EXACT_INT64 = 2**63 - 1
LARGEST_ENTRY = 2**15  # of |x̂|: int16, and the constant feature 2^bits
PIECE = 512  # rows: 2 MB of 512 features in float64
BUFFER_BYTES = 64 << 20  # of float64 rows; blocks are half as large, see `files.features`


@dataclass(frozen=True)
class FixedPoint:
    """Rows in fixed point: ``values`` int16 (n, d), each standing for value · 2^−``bits``."""

    values: NDArray[np.int16]
    bits: int

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> FixedPoint:
        return FixedPoint(self.values[rows], self.bits)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape


Rows = FixedPoint | F32 | F64


def real(X: Rows) -> F64:
    """The rows as float64 (n, d), exactly."""
    return rows_as(X, "float64")


def rows_as(X: Rows, kind: str) -> Array:
    """The rows as 'float32' or 'float64' (n, d); exact for fixed point, which has 16 bits."""
    if isinstance(X, FixedPoint):
        scaled: Array = np.multiply(X.values, 2.0**-X.bits, dtype=kind)
        return scaled
    return np.asarray(X, dtype=kind)


def encode(x: NDArray[np.floating], bits: int, first_row: int = 0) -> NDArray[np.int16]:
    """Round real features to fixed point, int16 (n, d); nothing is ever clipped.

    Raises `InvalidDataError` with row, column and value for NaN, infinity and values outside
    ±32767/2^bits, naming the most fraction bits that hold it.

    >>> encode(np.array([[0.5, -1.0]]), bits=9)
    array([[ 256, -512]], dtype=int16)
    """
    check_finite(x, first_row)
    scaled = np.rint(np.multiply(x, 2.0**bits, dtype=np.float64))
    if (largest := np.abs(scaled).max(initial=0.0)) > LARGEST:
        fit = np.floor(np.log2((LARGEST + 0.499) / np.abs(x).max()))
        hold = f"--fraction-bits {fit:.0f} would hold it; else " if fit >= 0 else ""
        refuse_entries(
            x, np.abs(scaled) == largest, first_row,
            f", beyond the range ±{LARGEST / 2**bits:.6g} of int16 features with {bits} fraction "
            "bits", f": {hold}use --dtype float32, or scale the features (afltool scale, then "
            "import --scale); the other sites do alike by import --like THIS.h5",
        )  # fmt: skip
    values: NDArray[np.int16] = scaled.astype(np.int16)
    return values


def refuse_entries(
    x: Array, bad: NDArray[np.bool_], first_row: int, why: str, advice: str = ""
) -> None:
    """Raise `InvalidDataError` naming the first entry of x (n, d) that is ``bad``, if one is."""
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise InvalidDataError(
            f"row {first_row + row}, feature {column} is {x[row, column]:.6g}{why}",
            advice=advice,
            feature=int(column),
        )


def check_finite(x: NDArray[np.floating], first_row: int = 0) -> None:
    """Raise `InvalidDataError` naming the first NaN or infinite entry of x (n, d)."""
    bad = ~np.isfinite(x)
    refuse_entries(
        x, bad, first_row,
        f": features must be finite; {int(bad.sum())} of {x.size} values here are not; check the "
        "model or the table that they come from",
    )  # fmt: skip


def check_float32(x: NDArray[np.floating], first_row: int = 0) -> None:
    """Raise `InvalidDataError` naming the first entry of x (n, d) that is no float32, so that no
    product of features, in float64, can overflow."""
    check_finite(x, first_row)
    with np.errstate(over="ignore"):
        beyond = np.isinf(x.astype(np.float32, copy=False))
    why = f", beyond the range of float32, ±{np.finfo(np.float32).max:.6g}: scale the features"
    refuse_entries(x, beyond, first_row, why)


class Products:
    """The sums XᵀX and XᵀY over blocks of rows, through one float64 buffer: new ones cost as much
    as the conversion. Exact for fixed-point rows: at most 2^23 of them stay below 2^53, and the
    triangle is of int64. ``intercept``: a last column 1 (2^bits in fixed point)."""

    def __init__(self, d: int, classes: int, bits: int | None, intercept: bool = False) -> None:
        self.bits, self.classes, self.rows = bits, classes, 0
        self._constant = [1.0 if bits is None else 2.0**bits] if intercept else []
        width = d + intercept
        self._buffer = np.empty((0, width))
        self._triangle: Array = np.zeros(length(width), np.float64 if bits is None else np.int64)
        # Sums of n int16 numbers stay below n · 2^15: float64 holds them exactly up to 2^38 rows.
        self._sums = np.zeros((classes, width))

    @classmethod
    def like(cls, X: Rows, classes: int, intercept: bool = False) -> Products:
        """Empty sums for rows like X."""
        return cls(X.shape[1], classes, X.bits if isinstance(X, FixedPoint) else None, intercept)

    def add(self, X: Rows, y: I64) -> Products:
        """Add rows X (n, d) with labels y (n,) in 0 … classes−1; n·d² multiply–adds."""
        check_labels(y, self.classes)
        self.rows += len(y)
        if self.bits is not None and self.rows * LARGEST_ENTRY**2 > EXACT_INT64:
            raise NumericalError(
                f"{self.rows} rows with entries up to {LARGEST_ENTRY} could give gram entries "
                f"beyond the int64 limit {EXACT_INT64:.3g}",
                advice=": extract with fewer --fraction-bits",
            )
        for part, labels in pieces([(X, y)], rows_per_product(self._buffer.shape[1])):
            self._add(part.values if isinstance(part, FixedPoint) else part, labels)
        return self

    def taken(self) -> tuple[Array, Array]:
        """gram as a packed triangle and cross (d, C) of the rows so far, float64, or int64 in units
        of 2^(−2 bits) and 2^−bits; it begins again at zero."""
        self.rows = 0
        cross = self._sums.T.astype(np.float64 if self.bits is None else np.int64, order="C")
        self._sums[:] = 0.0
        triangle, self._triangle = self._triangle, np.zeros_like(self._triangle)
        return triangle, cross

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
        blas.add_gram(real, self._triangle)


def rows_per_product(width: int) -> int:
    """Rows that are multiplied together: those of a buffer."""
    return max(PIECE, BUFFER_BYTES // (8 * width))


def gram_and_cross(X: Rows, y: I64, classes: int) -> tuple[Array, Array]:
    """XᵀX as a packed triangle and XᵀY (d, C) of rows with labels, see `Products.taken`."""
    return Products.like(X, classes).add(X, y).taken()


def real_gram(X: Array) -> F64:
    """XᵀX as a packed float64 triangle, the product itself in the type of X, float32 or float64:
    twice as fast as `gram_and_cross`. float32 rounds within a block of rows."""
    triangle = np.zeros(length(X.shape[1]))
    blas.add_gram(X, triangle)
    return triangle


def real_cross(X: Array, y: I64, classes: int) -> F64:
    """XᵀY (d, C) of float32 or float64 rows, as float64; the sums as in `real_gram`."""
    check_labels(y, classes)
    return np.ascontiguousarray(_class_sums(X, y, classes).T, dtype=np.float64)


def product(A: Array, B: Array) -> Array:
    """A B in C order, float32 or float64."""
    return np.asarray(np.matmul(A, B))


def row_product(X: Rows, W: F64) -> F64:
    """X W (n, C), float64, of rows X (n, d) in units of one, a few at a time: they stay in the
    cache, and the memory for them is used again."""
    values, unit = (X.values, 2.0**-X.bits) if isinstance(X, FixedPoint) else (X, 1.0)
    out = np.empty((len(X), W.shape[1]))
    buffer = np.empty((min(PIECE, len(X)), len(W)))
    for start in range(0, len(X), PIECE):
        part = values[start : start + PIECE]
        rows = np.multiply(part, unit, out=buffer[: len(part)])
        np.matmul(rows, W, out=out[start : start + PIECE])
    return out


def add_product(target: Array, A: Array, B: Array) -> None:
    """target += A Bᵀ in place: target (n, d), A (n, r), B (d, r), one type; a few rows at a time,
    so that their product stays in the cache."""
    for start in range(0, len(A), PIECE):
        part = slice(start, start + PIECE)
        target[part] += A[part] @ B.T


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
    entries = np.ones(n, X.dtype), y, np.arange(n + 1)
    return np.asarray(scipy.sparse.csc_matrix(entries, shape=(classes, n)) @ X)


def pieces(blocks: Iterable[tuple[Rows, I64]], most: int) -> Iterator[tuple[Rows, I64]]:
    """The rows of blocks, at most so many together."""
    for X, y in blocks:
        for at in range(0, max(len(y), 1), most):
            yield X[at : at + most], y[at : at + most]
