"""The noise that (ε, δ) needs, and the (ε, δ) of a noise; a multiplier is σ / sensitivity.

- The Gaussian mechanism, exactly: Balle and Wang, "Improving the Gaussian Mechanism for
  Differential Privacy", ICML 2018, theorem 8.
- Sums of discrete Gaussians, by concentrated differential privacy: Kairouz, Liu and Steinke, "The
  Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation", ICML
  2021; to (ε, δ) by Canonne, Kairouz and Steinke, "The Discrete Gaussian for Differential Privacy",
  NeurIPS 2020, corollary 13.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..errors import UsageError

PRECISION = 1e-10  # relative, of a calibration; errs towards more noise


def gaussian_delta(epsilon: float, multiplier: float) -> float:
    """δ of Gaussian noise at ε: Φ(1/2m − εm) − e^ε Φ(−1/2m − εm), m = σ / sensitivity.

    >>> round(gaussian_delta(0.0, 1.0), 4)
    0.3829
    """
    from scipy.special import log_ndtr  # `solve` imports this module, mostly without noise

    near, far = 0.5 / multiplier, epsilon * multiplier
    first, second = log_ndtr(near - far), epsilon + log_ndtr(-near - far)
    return float(-math.exp(first) * math.expm1(second - first)) if second < first else 0.0


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The least σ / sensitivity that is (ε, δ)-differentially private.

    >>> round(gaussian_multiplier(1.0, 1e-5), 4)
    3.7306
    """
    check_budget(epsilon, delta)
    return least(lambda m: gaussian_delta(epsilon, m) <= delta)


def gaussian_epsilon(multiplier: float, delta: float) -> float:
    """The least ε at which Gaussian noise is (ε, δ)-differentially private.

    >>> round(gaussian_epsilon(3.7306316348, 1e-5), 6)
    1.0
    """
    return least(lambda epsilon: gaussian_delta(epsilon, multiplier) <= delta)


def check_budget(epsilon: float, delta: float) -> None:
    if not (0 < epsilon < math.inf and 0 < delta < 1):
        raise UsageError(
            f"a privacy budget is ε > 0 and 0 < δ < 1; found ε = {epsilon:g}, δ = {delta:g}"
        )


def concentrated_delta(rho: float, epsilon: float) -> float:
    """δ at ε of ρ-zCDP: the minimum over α > 1 of e^((α−1)(αρ−ε)) / (α−1) · (1 − 1/α)^α.

    Every α gives a bound that holds; the logarithm's derivative, (2α−1)ρ − ε + ln(1 − 1/α), has
    one root, which bisection finds.
    """
    if rho == 0:
        return 0.0
    low, high = -60.0, 60.0  # of ln(α − 1)
    for _ in range(100):
        middle = (low + high) / 2
        above = math.exp(middle)
        slope = (2 * above + 1) * rho - epsilon - math.log1p(1 / above)
        low, high = (low, middle) if slope > 0 else (middle, high)
    above = math.exp(low)
    value = above * ((1 + above) * rho - epsilon) - low - (1 + above) * math.log1p(1 / above)
    return math.exp(min(0.0, value))


def concentrated_epsilon(rho: float, delta: float) -> float:
    """The least ε at which ρ-zCDP is (ε, δ)-differentially private."""
    return least(lambda epsilon: concentrated_delta(rho, epsilon) <= delta) if rho else 0.0


@dataclass(frozen=True)
class Block:
    """Numbers with noise. ``change``: the most that one row changes them, as √Σ (change/σ)²;
    ``parts``: σ, and how many numbers have it."""

    change: float
    parts: tuple[tuple[float, int], ...]


def sum_of_discrete(blocks: Iterable[Block], members: int) -> float:
    """ρ (zCDP) of a sum of ``members`` discrete Gaussians of σ each, over blocks of numbers.

    For each block of change Δ, ε² = min(Δ²/n + Σ τⱼ/2, (Δ/√n + √Σ τⱼ²)²), sums over its numbers j,
    with τⱼ = 10 Σ_{k<n} e^(−2π²σⱼ² k/(k+1)), and ρ = Σ ε²/2. Kairouz et al. 2021, section 4, have
    one σ for all. Their bound of a single number, ε² = min(aⱼ²/n + τⱼ/2, (aⱼ/√n + τⱼ)²), aⱼ the
    change in units of σⱼ, adds up to this whatever σⱼ is.
    """
    rho = 0.0
    for block in blocks:
        taus = [(_closeness(sigma, members), size) for sigma, size in block.parts]
        ratio = block.change**2 / members
        first = ratio + sum(tau * d for tau, d in taus) / 2
        second = math.sqrt(ratio) + math.sqrt(sum(tau**2 * d for tau, d in taus))
        rho += min(first, second**2) / 2
    return rho


def _closeness(sigma: float, members: int) -> float:
    """τ: how far a sum of discrete Gaussians is from a discrete Gaussian."""
    terms = (math.exp(-2 * (math.pi * sigma) ** 2 * k / (k + 1)) for k in range(1, members))
    return 10 * sum(terms)


def least(good: Callable[[float], bool]) -> float:
    """The smallest positive number that is good, to a relative `PRECISION`; the result is good.

    Every number above a good number must be good.
    """
    low = high = 1.0
    while not good(high):
        low, high = high, 2 * high
    while good(low) and low > 1e-300:
        low, high = low / 2, low
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (low, middle) if good(middle) else (middle, high)
    return high
