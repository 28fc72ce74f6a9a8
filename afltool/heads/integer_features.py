"""Random features of integer rows as integers: exact products, and an activation from a table.

    T[round(2^(f+3) · (x A + a))],    T[k] = round(2^f · σ(k · 2^−(f+3)))

Rows have b fraction bits, features f. The projection is rounded to integers such that the product
is exact in float64, so a row gives the same numbers in any block, at any client, with any number of
threads. σ is rounded to 2^−f, its argument to 2^−(f+3).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError, UsageError
from ..math.fixedpoint import LARGEST, FixedPoint, Rows
from ..math.gram import product
from ..math.softmax import exact_weights
from .projections import Projection, activate

FINER = 3  # bits by which the argument of σ is finer than its value
FLAT = {"tanh": 16, "sigmoid": 16}  # σ that are constant beyond, to more than 15 bits
ROWS = 1024  # whose products are in memory at once
Whole = NDArray[np.int16]


class Tabled:
    """X ↦ σ(XA + a) for int16 rows of ``given`` fraction bits, as int16 of ``bits``.

    ``remedy``: what a message advises where an argument of σ is beyond the table.
    """

    def __init__(
        self, drawn: Projection, activation: str, given: int, bits: int, remedy: str
    ) -> None:
        self.activation, self.bits, self._remedy = activation, bits, remedy
        fan_in, width = drawn.A.shape
        bias = np.zeros(width) if drawn.a is None else drawn.a
        one = 2**given
        both = np.vstack([drawn.A, bias]).astype(np.float64)
        rounded, s = exact_weights(both, fan_in * LARGEST + one)
        self.A, self.a = rounded[:-1], rounded[-1] * one
        self.scale = 2.0 ** (bits + FINER - given - s)  # of products, to places of the table
        self.table = table(activation, bits)

    @property
    def nbytes(self) -> int:
        return self.A.nbytes

    def __call__(self, values: Whole) -> Whole:
        """Features (n, width); `InvalidDataError` for an argument beyond the table."""
        out = np.empty((len(values), len(self.a)), dtype=np.int16)
        for start in range(0, len(values), ROWS):
            place = product(values[start : start + ROWS].astype(np.float64), self.A)
            place += self.a
            place *= self.scale
            np.rint(place, out=place)
            self._look_up(place, out[start : start + ROWS])
        return out

    def _look_up(self, place: NDArray[np.float64], out: Whole) -> None:
        """T at whole places k, which are overwritten, into ``out``."""
        reach = len(self.table) // 2
        if self.activation in FLAT:
            np.clip(place, -reach, reach, out=place)  # where σ is constant
        elif (largest := np.abs(place).max(initial=0.0)) > reach:
            step = 2.0 ** -(self.bits + FINER)
            raise InvalidDataError(
                f"a random feature of {largest * step:.6g} before --activation {self.activation} "
                f"is beyond ±{reach * step:.6g}, the range of features with {self.bits} fraction "
                f"bits: {self._remedy}"
            )
        place += reach
        # The places are within the table; NumPy would copy ``out`` in its mode that checks them.
        np.take(self.table, place.astype(np.int32), out=out, mode="clip")


def in_fixed_point(X: Rows) -> FixedPoint:
    """The rows of a head with --compute fixed; `UsageError` where they are not in fixed point."""
    if not isinstance(X, FixedPoint):
        raise UsageError(
            f"--compute fixed needs int16 features; these are {X.dtype}: use --compute "
            "float32 or float64, or extract with --dtype int16"
        )
    return X


def activated(values: Whole, activation: str, bits: int) -> Whole:
    """σ of int16 values, element by element, without a projection."""
    found = table(activation, bits)
    reach = len(found) // 2
    place = np.clip(values.astype(np.int32) << FINER, -reach, reach)  # a clip only where σ is flat
    return np.asarray(found[place + reach])


@lru_cache(maxsize=8)
def table(activation: str, bits: int) -> Whole:
    """T, from −reach to +reach: all values that int16 with ``bits`` fraction bits can hold."""
    reach = FLAT.get(activation, 2 ** (15 - bits)) << (bits + FINER)
    z = np.arange(-reach, reach + 1) * 2.0 ** -(bits + FINER)
    values = np.rint(activate(activation, z) * 2.0**bits)
    if activation in FLAT and np.abs(values).max() > LARGEST:
        raise InvalidDataError(
            f"--activation {activation} reaches 1, beyond features with {bits} fraction bits: "
            "extract with --fraction-bits 14 or fewer"
        )
    made = np.asarray(values.clip(-LARGEST, LARGEST), dtype=np.int16)
    made.setflags(write=False)
    return made
