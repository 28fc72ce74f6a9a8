"""The products of the softmax regression, Φ V and Φᵀ R, for a few rows at a time.

Φ is [X, 1] for features and [X, one-hot codes] for codes, whose products are sparse: a dense
one-hot matrix is never made. Columns of fixed-point rows are integers in units of 2^−bits, the
constant 1 is 2^bits, so products with integers are exact in any order.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import scipy

from ..values.arrays import F64
from . import blas
from .codes import Codes
from .fixedpoint import LARGEST, FixedPoint, Rows

FEW = 64  # rows of one product: OpenBLAS has kernels for small ones, twice as fast


class Design(Protocol):
    """Φ of some rows, and what its products need to know of it.

    ``bits``: columns are integers in units of 2^−bits; None: reals in units of one. ``reach``: no
    row has Σ_j |Φ̂_j| beyond it, in those units. ``columns``: their number D.
    """

    bits: int | None
    reach: int
    columns: int

    def forward(self, V: F64) -> F64:
        """Φ̂ V (n, C) of V (D, C)."""

    def backward(self, R: F64, total: F64) -> None:
        """total += Φ̂ᵀ R (D, C) of R (n, C)."""


class Buffers:
    """Float64 arrays that every few rows use again: new pages of memory cost more than the numbers.

    What was put there is overwritten by the next rows that use them.
    """

    def __init__(self) -> None:
        self._held: dict[str, F64] = {}

    def __call__(self, name: str, rows: int, columns: int) -> F64:
        """The first rows of the array of this name, with any numbers in it."""
        held = self._held.get(name)
        if held is None or len(held) < rows or held.shape[1] != columns:
            held = self._held[name] = np.empty((rows, columns))
        return held[:rows]


class Dense:
    """[X, 1] of rows X (n, d), with the constant feature last.

    Designs that share ``buffers`` are used one after the other.
    """

    def __init__(self, X: Rows, buffers: Buffers | None = None) -> None:
        self._buffers = buffers or Buffers()
        self.bits, self.values = _values(X, self._buffers)
        self._one = 2.0 ** (self.bits or 0)
        self.columns = self.values.shape[1] + 1
        self.reach = self.columns * max(LARGEST, int(self._one))

    def forward(self, V: F64) -> F64:
        out = self._buffers("scores", len(self.values), V.shape[1])
        for at in range(0, len(out), FEW):
            few = slice(at, at + FEW)
            blas.product_into(out[few], self.values[few], V[:-1])
        out += self._one * V[-1]
        return out

    def backward(self, R: F64, total: F64) -> None:
        for at in range(0, len(R), FEW):
            few = slice(at, at + FEW)
            blas.product_into(total[:-1], self.values[few].T, R[few], keep=1.0)
        total[-1] += self._one * (np.ones(len(R)) @ R)


class Coded:
    """[X, one-hot codes] of codes (E, n) below V = ``size``; without X the codes alone."""

    def __init__(
        self, codes: Codes, size: int, X: Rows | None = None, buffers: Buffers | None = None
    ) -> None:
        groups, rows = codes.shape
        none = 0, np.empty((rows, 0))
        self.bits, self.values = none if X is None else _values(X, buffers or Buffers())
        self._one = 2.0 ** (self.bits or 0)
        self._raw = self.values.shape[1]
        self.columns = self._raw + groups * size
        self.reach = self._raw * LARGEST + groups * int(self._one)
        places = codes.T + np.arange(groups, dtype=np.int32) * np.int32(size)
        starts = np.arange(rows + 1, dtype=np.int32) * groups
        ones = np.full(places.size, self._one)
        self._hot = scipy.sparse.csr_matrix(
            (ones, places.ravel(), starts), shape=(rows, groups * size)
        )

    def forward(self, V: F64) -> F64:
        out: F64 = self._hot @ V[self._raw :]
        if self._raw:
            blas.product_into(out, self.values, V[: self._raw], keep=1.0)
        return out

    def backward(self, R: F64, total: F64) -> None:
        if self._raw:
            blas.product_into(total[: self._raw], self.values.T, R, keep=1.0)
        total[self._raw :] += self._hot.T @ R


def _values(X: Rows, buffers: Buffers) -> tuple[int | None, F64]:
    """Bits and float64 values of rows; integers for fixed point."""
    bits, given = (X.bits, X.values) if isinstance(X, FixedPoint) else (None, X)
    if given.dtype == np.float64:
        return bits, np.asarray(given, dtype=np.float64)
    values = buffers("values", *given.shape)
    np.copyto(values, given)
    return bits, values
