"""Random projections from a seed alone, activations, and the feature map that they make.

The numbers are the same on every platform. Generator: Philox4x64-10 (Salmon et al., "Parallel
random numbers: as easy as 1, 2, 3", SC 2011) with key (seed, stream) and counter 0; every
projection has its own stream (0 for A, t + 1 for B_t). Each 64-bit word gives two 24-bit integers
k, bits 8–31 first, then 40–63; (k − 2²³)·2⁻²³ is uniform on [−1, 1), exactly.

Of integer rows x with b fraction bits the features are integers with f bits, σ from a table:

    T[round(2^(f+3) · (x A + a))],    T[k] = round(2^f · σ(k · 2^−(f+3)))

The projection is rounded to integers such that the product is exact in float64, so a row gives the
same numbers everywhere. σ is rounded to 2^−f, its argument to 2^−(f+3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from ..errors import InvalidDataError, UsageError
from ..math.gram import LARGEST, FixedPoint, Rows, product, rows_as
from ..math.softmax import exact_weights
from ..values.arrays import F64, Array, Digest
from .base import FeatureMap, State
from .options import FIXED, RandomFeaturesOptions

AT_ONCE = 256  # rows whose bias and σ are taken together, while the cache holds them
LEAK = 0.01  # slope of LeakyReLU below zero, and
SHRINK = 0.5  # threshold of Softshrink: torch's defaults
FINER = 3  # bits by which the argument of σ is finer than its value
FLAT = {"tanh": 16}  # σ that are constant beyond, to more than 15 bits
LIFTED = "lifted"  # random features of some rows
ROWS = 1024  # whose products are in memory at once
#: erf of float32: P(z²) and Q(z²), the highest power first; the coefficients are those of Eigen.
ERF_P = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
ERF_Q = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
    -1.42647390514189e-02,
)  # fmt: skip
Whole = NDArray[np.int16]
_Activation = Callable[[Array], object]  # in place


@dataclass(frozen=True, eq=False)
class Projection:
    """x ↦ x A + a: ``A`` (fan_in, fan_out) float32; ``a`` (fan_out,) float32 or None."""

    A: NDArray[np.float32]
    a: NDArray[np.float32] | None

    def __call__(self, X: Array, activation: str = "none") -> Array:
        """σ(XA + a): X (n, fan_in) float32 or float64 → (n, fan_out) of the same type."""
        out: Array = product(X, self.A.astype(X.dtype, copy=False))
        return activate(activation, out, self.a)


@lru_cache(maxsize=8)  # those of the latest layers; others are drawn again
def projection(
    seed: int, stream: int, fan_in: int, fan_out: int, biased: bool = True
) -> Projection:
    """The projection number ``stream`` of a seed: float32 weights, then the bias, are uniform on
    ±1/√fan_in, as the initial values of a linear layer."""
    words = _words(seed, stream)
    scale = 1.0 / math.sqrt(max(fan_in, 1))
    values = (_uniform(words, (fan_in + 1) * fan_out) * scale).astype(np.float32)
    table = values.reshape(fan_in + 1, fan_out)
    return Projection(table[:-1], table[-1] if biased else None)


def _words(seed: int, stream: int) -> np.random.Philox:
    """Philox with counter 0 first: NumPy counts up before each block, so it starts at −1."""
    key = np.array([seed, stream], dtype=np.uint64)
    return np.random.Philox(key=key, counter=np.full(4, 2**64 - 1, dtype=np.uint64))


def _uniform(words: np.random.Philox, count: int) -> F64:
    """``count`` numbers on [−1, 1), multiples of 2⁻²³."""
    raw = words.random_raw((count + 1) // 2)
    mask = np.uint64(2**24 - 1)
    out = np.empty((len(raw), 2))
    for column, shift in enumerate((8, 40)):
        out[:, column] = (raw >> np.uint64(shift)) & mask
    out -= 2.0**23
    out *= 2.0**-23
    return out.reshape(-1)[:count]


def activate(name: str, X: Array, bias: NDArray[np.float32] | None = None) -> Array:
    """σ(X + bias), in place; X (n, d) float32 or float64, C-contiguous. By NumPy and SciPy alone,
    so bits do not depend on PyTorch; gelu of float32 by +, −, ×, ÷ alone."""
    σ = _IN_PLACE[name]
    for start in range(0, len(X), AT_ONCE):
        part = X[start : start + AT_ONCE]
        if bias is not None:
            part += bias
        σ(part)
    return X


def _gelu(x: Array) -> None:
    """x Φ(x) = x (1 + erf(x/√2)) / 2, not its tanh approximation; within 2 ε max(1, |x|)."""
    z = x * math.sqrt(0.5)
    Φ = scipy.special.erf(z) if x.dtype == np.float64 else _erf(z)
    Φ += 1
    Φ *= 0.5
    x *= Φ


def _erf(z: Array) -> Array:
    """erf of float32, z P(z²) / Q(z²), in a seventh of the time of SciPy's; z is overwritten."""
    np.clip(z, -4, 4, out=z)  # beyond it is ±1
    square = z * z
    ratio, below = (np.full_like(z, first) for first, *_ in (ERF_P, ERF_Q))
    for out, rest in ((ratio, ERF_P[1:]), (below, ERF_Q[1:])):
        for one in rest:
            out *= square
            out += one
    ratio *= z
    ratio /= below
    return ratio


_IN_PLACE: dict[str, _Activation] = {
    "gelu": _gelu,
    "none": lambda x: x,
    "tanh": lambda x: np.tanh(x, out=x),
    "relu": lambda x: np.maximum(x, 0, out=x),
    "leaky-relu": lambda x: np.maximum(x, LEAK * x, out=x),
    "hardswish": lambda x: np.divide(x * np.clip(x + 3, 0, 6), 6, out=x),
    "softshrink": lambda x: np.subtract(x, np.clip(x, -SHRINK, SHRINK), out=x),
}


class Tabled:
    """X ↦ σ(XA + a) for int16 rows of ``given`` fraction bits, as int16 of ``bits``."""

    def __init__(self, drawn: Projection, activation: str, given: int, bits: int) -> None:
        self.activation, self.bits = activation, bits
        fan_in, width = drawn.A.shape
        bias = np.zeros(width) if drawn.a is None else drawn.a
        one = 2**given
        both = np.vstack([drawn.A, bias]).astype(np.float64)
        rounded, s = exact_weights(both, fan_in * LARGEST + one)
        self.A, self.a = rounded[:-1], rounded[-1] * one
        self.scale = 2.0 ** (bits + FINER - given - s)  # of products, to places of the table
        self.table = table(activation, bits)

    def __call__(self, values: Whole) -> Whole:
        """Features (n, width); `InvalidDataError` for an argument beyond the table."""
        out, reach = np.empty((len(values), len(self.a)), dtype=np.int16), len(self.table) // 2
        for start in range(0, len(values), ROWS):
            place = product(values[start : start + ROWS].astype(np.float64), self.A)
            place += self.a
            place *= self.scale
            np.rint(place, out=place)
            if self.activation in FLAT:
                np.clip(place, -reach, reach, out=place)  # where σ is constant
            elif (largest := np.abs(place).max(initial=0.0)) > reach:
                step = 2.0 ** -(self.bits + FINER)
                raise InvalidDataError(
                    f"a random feature of {largest * step:.6g} before --activation "
                    f"{self.activation} is beyond ±{reach * step:.6g}: use --activation tanh, or "
                    "fewer --fixed-bits (deepafl) or --fraction-bits (extract)"
                )
            place += reach
            # The places are within the table; NumPy would copy ``out`` in its mode that checks.
            part = out[start : start + ROWS]
            np.take(self.table, place.astype(np.int32), out=part, mode="clip")
        return out


tabled = lru_cache(maxsize=8)(Tabled)  # of the latest layers


def require_fixed_point(X: Rows) -> FixedPoint:
    """The rows of a head with --compute fixed; `UsageError` where they are not in fixed point."""
    if not isinstance(X, FixedPoint):
        why = f"--compute fixed needs int16 features; these are {X.dtype}"
        raise UsageError(f"{why}: use --compute float64, or extract with --dtype int16")
    return X


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


class RandomFeatures(FeatureMap):
    """Φ = [σ(XA + a), X if asked]: in the compute type, or int16 with the bits of the rows.
    ``exact``: values of ``compute`` with which features of int16 rows are int16."""

    fewer = "use a smaller --width"

    def __init__(self, options: RandomFeaturesOptions, *exact: str) -> None:
        self.options, self.compute, self._exact = options, options.compute, exact
        self._key = Digest().json(LIFTED, options.as_dict()).hex()

    @property
    def keys(self) -> tuple[str, str]:
        return self._key, self._key

    def columns(self, dim: int) -> int:
        return self.options.width + self.options.with_linear * dim

    def bits(self, given: int | None) -> int | None:
        return given if self.options.compute in self._exact else None

    def rows(self, X: Rows, known: State | None = None) -> tuple[Rows, State]:
        """Φ of rows; `UsageError` for --compute fixed and rows that are real."""
        o, rows = self.options, X
        if o.compute == FIXED:
            rows = require_fixed_point(X)
        elif not (isinstance(X, FixedPoint) and o.compute in self._exact):
            rows = rows_as(X, o.compute)
        random = self(rows) if known is None else known[LIFTED]
        if not isinstance(rows, FixedPoint):
            return np.hstack([random, rows]) if o.with_linear else random, {LIFTED: random}
        both = np.hstack([random, rows.values]) if o.with_linear else random
        return FixedPoint(both, rows.bits), {LIFTED: random}

    def __call__(self, rows: Rows) -> Array:
        """σ(XA + a) of rows in a compute type, or of fixed-point rows int16 of as many bits."""
        o = self.options
        drawn = projection(o.seed, 0, rows.shape[1], o.width)
        if isinstance(rows, FixedPoint):
            return tabled(drawn, o.activation, rows.bits, rows.bits)(rows.values)
        return drawn(rows, o.activation)
