"""Shamir's secret sharing over the integers modulo a prime: any t of n shares give the secret.

Shamir, "How to share a secret", CACM 1979. This is the only arithmetic on secrets of our own; it is
tested with the numbers of RFC 9591, appendix E.1.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

PRIME = 2**256 + 297  # the smallest prime above 2^256, so that any 32 bytes are a secret


def split(secret: int, threshold: int, shares: int, prime: int = PRIME) -> list[int]:
    """Shares f(1) … f(n) of ``secret`` = f(0), f a random polynomial of degree t − 1."""
    rest = [secrets.randbelow(prime) for _ in range(threshold - 1)]
    return evaluate([secret, *rest], shares, prime)


def evaluate(coefficients: Sequence[int], shares: int, prime: int = PRIME) -> list[int]:
    """f(1) … f(n) modulo ``prime``, f with these coefficients, the constant one first.

    >>> evaluate([1234, 166, 94], 3, prime=1613)
    [1494, 329, 965]
    """
    values = []
    for x in range(1, shares + 1):
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * x + coefficient) % prime
        values.append(value)
    return values


def weights(places: Sequence[int], prime: int = PRIME) -> list[int]:
    """Lagrange's weights at 0: f(0) = Σ weightᵢ · f(placeᵢ), deg f below their number.

    ``places`` are different and none is 0 modulo ``prime``.
    """
    values = []
    for i, x in enumerate(places):
        above, below = 1, 1
        for j, other in enumerate(places):
            if j != i:
                above = above * other % prime
                below = below * (other - x) % prime
        values.append(above * pow(below, -1, prime) % prime)
    return values


def join(factors: Sequence[int], shares: Sequence[int], prime: int = PRIME) -> int:
    """The secret from shares and the `weights` of their places; of wrong or too few a wrong one.

    >>> join(weights([1, 2, 3], 1613), [1494, 329, 965], 1613)
    1234
    """
    return sum(w * y for w, y in zip(factors, shares, strict=True)) % prime
