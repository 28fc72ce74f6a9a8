"""Random features of fixed-point rows, also in fixed point: the same integers in every block.

    Φ̂ = T[round(2^(b+3) · X̂Â)],    T[k] = round(2^b · σ(k · 2^−(b+3)))

with b the fraction bits of the rows. The projection is rounded to integers Â such that the product
is exact in float64, and σ comes from a table, so a row gives the same numbers in any block. σ is
rounded to 2^−b, as the features were.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidDataError, UsageError
from ...linalg.fixedpoint import LARGEST, FixedPoint, Rows
from ...linalg.softmax import exact_weights
from ..projections import activate, projection
from .options import RandomFeaturesOptions

FINER = 3  # bits by which the argument of σ is finer than its value
FLAT = {"tanh": 16, "sigmoid": 16}  # σ that are constant beyond, to more than 15 bits
ROWS = 1024  # whose products are in memory at once


class FixedLift:
    """X ↦ σ(XA + a) for rows of ``dim`` features with ``bits`` fraction bits."""

    def __init__(self, options: RandomFeaturesOptions, dim: int, bits: int) -> None:
        self.activation, self.dim, self.bits = options.activation, dim, bits
        made = projection(options.projection, options.seed, 0, dim, options.width)
        bias = np.zeros(options.width) if made.a is None else made.a
        one = 2**bits
        both = np.vstack([made.A, bias]).astype(np.float64)
        rounded, s = exact_weights(both, dim * LARGEST + one)
        self._A, self._a = rounded[:-1], rounded[-1] * one
        self._scale = 2.0 ** (FINER - s)  # of products, in units of 2^−(bits + s), to table places
        self.table = table(self.activation, bits)

    def __call__(self, X: FixedPoint) -> NDArray[np.int16]:
        """Φ̂ (n, width); `InvalidDataError` for a value beyond ±32767."""
        out = np.empty((len(X), len(self._a)), dtype=np.int16)
        for start in range(0, len(X), ROWS):
            part = X.values[start : start + ROWS].astype(np.float64)
            place = part @ self._A
            place += self._a
            place *= self._scale
            np.take(self.table, self._places(place), out=out[start : start + ROWS])
        return out

    def _places(self, place: NDArray[np.float64]) -> NDArray[np.int32]:
        reach = len(self.table) // 2
        np.rint(place, out=place)
        if self.activation in FLAT:
            np.clip(place, -reach, reach, out=place)  # where σ is constant
        elif (largest := np.abs(place).max(initial=0.0)) > reach:
            step = 2.0 ** -(self.bits + FINER)
            raise InvalidDataError(
                f"a random feature of {largest * step:.6g} before --activation {self.activation} "
                f"is beyond ±{reach * step:.6g}, the range of features with {self.bits} fraction "
                "bits: take --activation tanh, or extract with fewer --fraction-bits"
            )
        place += reach
        return place.astype(np.int32)


def table(activation: str, bits: int) -> NDArray[np.int16]:
    """T, from −reach to +reach: all values that int16 with ``bits`` fraction bits can hold."""
    reach = FLAT.get(activation, 2 ** (15 - bits)) << (bits + FINER)
    z = np.arange(-reach, reach + 1) * 2.0 ** -(bits + FINER)
    values = np.rint(activate(activation, z) * 2.0**bits)
    if activation in FLAT and np.abs(values).max() > LARGEST:
        raise InvalidDataError(
            f"--activation {activation} reaches 1, beyond features with {bits} fraction bits: "
            "extract with --fraction-bits 14 or fewer"
        )
    return np.asarray(values.clip(-LARGEST, LARGEST), dtype=np.int16)


class FixedFeatures:
    """[σ(XA + a), X if asked] of fixed-point rows, in fixed point of the same fraction bits."""

    def __init__(self, options: RandomFeaturesOptions) -> None:
        self._options = options
        self._lift: FixedLift | None = None

    def lift(self, X: Rows) -> NDArray[np.int16]:
        """σ(XA + a) alone; `UsageError` for rows that are not in fixed point."""
        if not isinstance(X, FixedPoint):
            raise UsageError(
                f"--compute fixed needs int16 features; these are {X.dtype}: take --compute "
                "float32 or float64, or extract with --dtype int16"
            )
        if self._lift is None or (self._lift.dim, self._lift.bits) != (X.dim, X.bits):
            self._lift = FixedLift(self._options, X.dim, X.bits)
        return self._lift(X)

    def features(self, X: Rows) -> FixedPoint:
        """All of them, in fixed point."""
        lifted = self.lift(X)
        assert isinstance(X, FixedPoint)  # otherwise `lift` has refused them
        return self.beside(lifted, X)

    def beside(self, lifted: NDArray[np.int16], X: FixedPoint) -> FixedPoint:
        """The result of `lift`, followed by the rows themselves if asked for."""
        values = np.hstack([lifted, X.values]) if self._options.with_linear else lifted
        return FixedPoint(values, X.bits)
