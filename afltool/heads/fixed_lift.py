"""Random features of fixed-point rows, again in fixed point: the same integers in every block.

    Φ̂ = T[round(2^(b+3) · X̂Â)],    T[k] = round(2^b · σ(k · 2^−(b+3)))

with b the fraction bits of the rows. The projection's numbers are rounded to integers Â such that
the product is exact in float64, and σ is looked up: no number depends on which rows are multiplied
together. Rounding σ to 2^−b is what was done to the features themselves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError
from ..linalg.fixedpoint import LARGEST, FixedPoint
from ..linalg.softmax import exact_weights
from .random import activate, projection
from .random_options import RandomFeaturesOptions

FINER = 3  # bits by which the argument of σ is finer than its value
FLAT = {"tanh": 16, "sigmoid": 16}  # σ that are constant beyond, to more than 15 bits
ROWS = 1024  # whose products are in memory at once


class FixedLift:
    """X ↦ σ(XA + a) for rows of ``dim`` features with ``bits`` fraction bits."""

    def __init__(self, options: RandomFeaturesOptions, dim: int, bits: int) -> None:
        self.activation, self.bits = options.activation, bits
        made = projection(options.projection, options.seed, 0, dim, options.width)
        bias = np.zeros(options.width) if made.a is None else made.a
        one = 2**bits
        both = np.vstack([made.A, bias]).astype(np.float64)
        rounded, s = exact_weights(both, dim * LARGEST + one)
        self._A, self._a = rounded[:-1], rounded[-1] * one
        self._scale = 2.0 ** (FINER - s)  # of products, in units of 2^−(bits + s), to table places
        self.table = table(self.activation, bits)

    def __call__(self, X: FixedPoint) -> NDArray[np.int16]:
        """Φ̂ (n, width); `InvalidDataError` for a value that ±32767 do not hold."""
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
    """T, from −reach to +reach; as wide as int16 values of ``bits`` fraction bits need."""
    reach = FLAT.get(activation, 2 ** (15 - bits)) << (bits + FINER)
    z = np.arange(-reach, reach + 1) * 2.0 ** -(bits + FINER)
    values = np.rint(activate(activation, z) * 2.0**bits)
    if activation in FLAT and np.abs(values).max() > LARGEST:
        raise InvalidDataError(
            f"--activation {activation} reaches 1, beyond features with {bits} fraction bits: "
            "extract with --fraction-bits 14 or fewer"
        )
    return np.asarray(values.clip(-LARGEST, LARGEST), dtype=np.int16)
