"""What noise is worth: a sum of discrete Gaussians, and (ε, δ) of its concentrated privacy.

Kairouz, Liu and Steinke, ICML 2021, section 4; Canonne, Kairouz and Steinke, NeurIPS 2020,
corollary 13. With σ ≥ 2 the sum differs from a discrete Gaussian by less than 1e-15 a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable

LEAST_SIGMA = 2.0


def rho(change: float, sigmas: dict[float, int], members: int) -> float:
    """ρ of the sum of ``members``: ``change`` is √Σ(aⱼ/σⱼ)² of a row, ``sigmas``: σ → how many."""
    tau = {
        s: 10 * sum(math.exp(-2 * (math.pi * s) ** 2 * k / (k + 1)) for k in range(1, members))
        for s in sigmas
    }
    ratio = change**2 / members
    first = ratio + sum(tau[s] * n for s, n in sigmas.items()) / 2
    second = (math.sqrt(ratio) + math.sqrt(sum(tau[s] ** 2 * n for s, n in sigmas.items()))) ** 2
    return min(first, second) / 2


def delta(rho: float, epsilon: float) -> float:
    """δ at ε of ρ-zCDP, the least over the order α: bisection finds it."""
    low, high = -60.0, 60.0  # of ln(α − 1)
    for _ in range(100):
        above = math.exp(middle := (low + high) / 2)
        slope = (2 * above + 1) * rho - epsilon - math.log1p(1 / above)
        low, high = (low, middle) if slope > 0 else (middle, high)
    above = math.exp(low)
    value = above * ((1 + above) * rho - epsilon) - low - (1 + above) * math.log1p(1 / above)
    return math.exp(min(0.0, value))


def epsilon(rho: float, at: float) -> float:
    """The least ε at which ρ-zCDP is (ε, δ)-differentially private."""
    return least(lambda e: delta(rho, e) <= at)


def least(good: Callable[[float], bool]) -> float:
    """The smallest positive number that is good, to 1e-10; the result is good."""
    low = high = 1.0
    while not good(high):
        low, high = high, 2 * high
    while good(low) and low > 1e-300:
        low, high = low / 2, low
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return high
