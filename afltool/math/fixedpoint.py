"""Features as fixed-point integers, whose sums do not depend on their order.

x̂ = round(x · 2^f) as int16, f fractional bits. Every float64 intermediate of a product of such
integers is exact as long as no sum exceeds 2^53, so a blocked matrix product gives the same
integers for every library, thread count and blocking; block results are added as int64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError, NumericalError, Remedy
from ..values.arrays import F32, F64, Array

LARGEST = 2**15 - 1  # −32768 is kept free: it marks a row that was never written
EXACT_FLOAT64 = 2**53
EXACT_INT64 = 2**63 - 1


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
    def dim(self) -> int:
        return int(self.values.shape[1])


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


def dim(X: Rows) -> int:
    """Number of features d of a block of rows."""
    return int(X.values.shape[1] if isinstance(X, FixedPoint) else X.shape[1])


def encode(x: NDArray[np.floating], bits: int, first_row: int = 0) -> NDArray[np.int16]:
    """Round real features to fixed point, int16 (n, d).

    Raises `InvalidDataError` with row, column and value for NaN, infinity and values outside
    ±32767/2^bits, naming the largest number of bits that would fit. Nothing is ever clipped.

    >>> encode(np.array([[0.5, -1.0]]), bits=9)
    array([[ 256, -512]], dtype=int16)
    """
    check_finite(x, first_row)
    scaled = np.rint(np.multiply(x, 2.0**bits, dtype=np.float64))
    largest = np.abs(scaled).max(initial=0.0)
    if largest > LARGEST:
        row, column = np.argwhere(np.abs(scaled) == largest)[0]
        fit = largest_bits(float(np.abs(x[row, column])))
        raise InvalidDataError(
            f"row {first_row + row}, feature {column} is {x[row, column]:.6g}, beyond the range "
            f"±{LARGEST / 2**bits:.6g} of int16 features with {bits} fraction bits"
            f"{'; no number of fraction bits holds it' if fit is None else ''}",
            remedy=Remedy.REALS if fit is None else Remedy.FRACTION_BITS,
            number=fit or 0,
        )
    values: NDArray[np.int16] = scaled.astype(np.int16)
    return values


def largest_bits(largest: float) -> int | None:
    """Most fraction bits f ≥ 0 with largest · 2^f ≤ 32767; None if there are none."""
    for bits in range(15, -1, -1):
        if np.rint(largest * 2.0**bits) <= LARGEST:
            return bits
    return None


def check_finite(x: NDArray[np.floating], first_row: int = 0) -> None:
    """Raise `InvalidDataError` naming the first NaN or infinite entry of x (n, d)."""
    good = np.isfinite(x)
    if not good.all():
        row, column = np.argwhere(~good)[0]
        raise InvalidDataError(
            f"row {first_row + row}, feature {column} is {x[row, column]}: features must be "
            f"finite; {int((~good).sum())} of {x.size} values here are not; check the images and "
            "the model that made them"
        )


def check_float32(x: NDArray[np.floating], first_row: int = 0) -> None:
    """Raise `InvalidDataError` naming the first entry of x (n, d) that is no float32.

    So no product of features, in float64, can overflow.
    """
    check_finite(x, first_row)
    with np.errstate(over="ignore"):
        beyond = np.argwhere(np.isinf(x.astype(np.float32, copy=False)))
    if len(beyond):
        row, column = beyond[0]
        raise InvalidDataError(
            f"row {first_row + row}, feature {column} is {x[row, column]:.6g}, beyond the range of "
            f"float32, ±{np.finfo(np.float32).max:.6g}: scale the features"
        )


def exact_rows(largest: int) -> int:
    """Rows whose gram is exact in float64: n with n · largest² ≤ 2^53.

    >>> exact_rows(2**15 - 1) >= 2**23
    True
    """
    return EXACT_FLOAT64 // max(int(largest) ** 2, 1)


def check_int64(rows: int, largest: int) -> None:
    """Refuse, before the product, a gram that could exceed int64: rows · largest² > 2^63 − 1."""
    if rows * int(largest) ** 2 > EXACT_INT64:
        raise NumericalError(
            f"{rows} rows with entries up to {largest} could give gram entries of "
            f"{rows * int(largest) ** 2:.3g}, beyond the int64 limit {EXACT_INT64:.3g}",
            remedy=Remedy.FEWER_BITS_OF_ROWS,
        )
