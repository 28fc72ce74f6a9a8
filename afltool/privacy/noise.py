"""Integer noise from a key: rounded Gaussian, and discrete Gaussian.

The bits are a ChaCha20 stream: without the key they cannot be told from random bits, and the same
key gives the same noise. Uniforms have 52 bits, so one draw gives integer k the probability that it
should have up to 2^−52. With σ ≤ `ONE_DRAW` that is a total variation of about 2^−42 a number. With
a large σ it is not enough: few uniforms lead to the tails, and integers there would be impossible
that the distribution allows, which tells what was under the noise. So large noise is the sum of two
draws of σ/√2: every integer is then reached by about σ pairs of them, whose errors are averaged.

Two rounded Gaussians: x + round(G₁) + round(G₂) has the law of round(x + G + U), U uniform on ±½,
up to e^(−π²σ²), so it is post-processing of x + G as a single one is. Two discrete Gaussians of
that width are a discrete Gaussian up to as little (Kairouz, Liu and Steinke 2021).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from ..errors import NumericalError
from ..values.arrays import F64, I64

ALGORITHM = 2  # to be raised with every change of what a key gives; 1 was one stream for all arrays
LARGEST_SIGMA = 2.0**48  # of σ: noise of ten times that is still exact in float64
ONE_DRAW = 16.0  # the largest σ for which 52 bits are enough
BLOCK = 1 << 16  # numbers at a time


class Bits:
    """Uniform numbers from a key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        self._stream = Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor()

    def words(self, n: int) -> NDArray[np.uint64]:
        """n uniform 64-bit words."""
        return np.frombuffer(self._stream.update(bytes(8 * n)), "<u8")

    def uniforms(self, n: int) -> F64:
        """n uniforms within (0, 1), odd multiples of 2^−53: with another bit some would be 1."""
        draws: F64 = ((self.words(n) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
        return draws


def rounded_gaussian(bits: Bits, n: int, sigma: float) -> I64:
    """n Gaussians of standard deviation ``sigma``, rounded to integers.

    Integers plus this are the rounded Gaussian mechanism: rounding is post-processing.
    """
    return _drawn(_rounded, bits, n, sigma)


def discrete_gaussian(bits: Bits, n: int, sigma: float) -> I64:
    """n integers k with probability ∝ exp(−k²/2σ²).

    Rejection from a discrete Laplace distribution: Canonne, Kairouz and Steinke, NeurIPS 2020,
    algorithm 3.
    """
    return _drawn(_discrete, bits, n, sigma)


def _drawn(draw: Callable[[Bits, int, float], I64], bits: Bits, n: int, sigma: float) -> I64:
    """One draw, or the sum of two where σ is large."""
    _check(sigma)
    if sigma <= ONE_DRAW:
        return draw(bits, n, sigma)
    half = sigma * 0.5**0.5
    return draw(bits, n, half) + draw(bits, n, half)


def _rounded(bits: Bits, n: int, sigma: float) -> I64:
    from scipy.special import ndtri  # as in `accountant`

    parts = [np.rint(sigma * ndtri(bits.uniforms(m))).astype(np.int64) for m in _blocks(n)]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _discrete(bits: Bits, n: int, sigma: float) -> I64:
    parts: list[I64] = [np.empty(0, np.int64)]
    left = n
    while left:
        draws = _accepted(bits, min(2 * left + 16, 2 * BLOCK), sigma)[:left]
        parts.append(draws)
        left -= len(draws)
    return np.concatenate(parts)


def _accepted(bits: Bits, tries: int, sigma: float) -> I64:
    scale = np.floor(sigma) + 1
    size = np.floor(-scale * np.log(bits.uniforms(tries)))  # geometric: P(size ≥ k) = e^(−k/scale)
    negative = bits.words(tries) >> np.uint64(63) == 1
    chance = np.exp(-0.5 * ((size - sigma**2 / scale) / sigma) ** 2)
    kept = (bits.uniforms(tries) < chance) & ~(negative & (size == 0))
    draws: I64 = np.where(negative, -size, size)[kept].astype(np.int64)
    return draws


def _blocks(n: int) -> list[int]:
    return [min(BLOCK, n - start) for start in range(0, n, BLOCK)]


def _check(sigma: float) -> None:
    if not sigma <= LARGEST_SIGMA:
        raise NumericalError(
            f"noise of standard deviation {sigma:.3g} is too large for integers "
            f"(at most {LARGEST_SIGMA:.3g}): use fewer --fraction-bits, a smaller --clip or "
            "a larger --dp-epsilon"
        )
