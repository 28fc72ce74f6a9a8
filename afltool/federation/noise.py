"""Noise that members share: discrete Gaussians, of which that of t − 1 − c together is enough.

One row of norm ≤ R changes the gram by R² (Frobenius), the cross by R, the class counts by 1. The
gram is sent as a triangle, whose entries off the diagonal get σ/√2. docs/privacy.md derives it.

The sum of discrete Gaussians, and (ε, δ) of its concentrated privacy: Kairouz, Liu and Steinke,
ICML 2021, section 4; Canonne, Kairouz and Steinke, NeurIPS 2020, corollary 13. With σ ≥ 2 the sum
differs from a discrete Gaussian by less than 1e-15 a number.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import to_builtins
from numpy.typing import NDArray

from ..errors import UsageError
from ..math.blas import side, unpack
from ..values.arrays import F64, I64
from .agreement import Agreement
from .compute import Layout

SHARES = {"gram": 0.5, "cross": 0.45, "class counts": 0.05}  # of the budget
LEAST_SIGMA = {"gram": 4.0, "cross": 2.0, "class counts": 2.0}
ONE_DRAW, LARGEST = 16.0, 2.0**48
FAILURE, ROUNDING, MARGIN = 0.05, 4.0, 1.5  # of AdaSSP's ridge


@dataclass(frozen=True)
class Noise:
    """The noise of each member of a session, for one layout of numbers."""

    sigma: dict[str, float]  # of the gram that of its diagonal
    radius: int  # the largest norm of a row, in steps of the features
    rho: float  # of what ``sharing`` members add, which is enough
    sharing: int  # of t one may be the attacker, and c work with the server

    @classmethod
    def of(cls, agreed: Agreement, layout: Layout) -> Noise:
        budget, sharing = agreed.noise, agreed.threshold - 1 - agreed.colluding
        assert budget is not None
        if agreed.head.name != "linear" or agreed.head.options["intercept"]:
            raise UsageError("noise is derived for the linear head without --intercept alone")
        radius = math.floor(budget.clip * 2 ** agreed.space["fraction_bits"])
        change = {"gram": float(radius) ** 2, "cross": float(radius), "class counts": 1.0}
        sizes = {name: one.size for name, one in layout.arrays}
        full = {**sizes, "gram": side(sizes["gram"])}  # numbers with σ; others have σ/√2
        share = {k: math.sqrt(part * sharing) for k, part in SHARES.items()}

        def scaled(m: float) -> dict[str, float]:
            return {k: max(m * change[k] / share[k], LEAST_SIGMA[k]) for k in SHARES}

        def total(sigma: dict[str, float]) -> float:
            return sum(
                rho(change[k] / s, {s: full[k], s / math.sqrt(2): sizes[k] - full[k]}, sharing)
                for k, s in sigma.items()
            )

        sigma = scaled(smallest(lambda m: delta(total(scaled(m)), budget.epsilon) <= budget.delta))
        if max(sigma.values()) > LARGEST:
            raise UsageError("noise beyond integers: fewer --fraction-bits, or a smaller --clip")
        return cls(sigma, radius, total(sigma), sharing)

    def facts(self, agreed: Agreement) -> dict[str, Any]:
        """What a total's file says of it."""
        members = {"members": self.sharing, "form": "distributed"}
        return {**to_builtins(agreed.noise), **members, "sigma": self.sigma}

    def draw(self, layout: Layout) -> I64:
        """New noise for all numbers; what leaves the site is kept, so it is drawn once."""
        parts = []
        for name, one in layout.arrays:
            of_gram, sigma = name == "gram", self.sigma[name]
            part = discrete_gaussian(one.size, sigma / math.sqrt(2) if of_gram else sigma)
            if of_gram:
                diagonal = np.arange(1, side(one.size) + 1).cumsum() - 1
                part[diagonal] = discrete_gaussian(len(diagonal), sigma)
            parts.append(part)
        return np.concatenate(parts)

    def ridge(self, gram: I64, unit: float, members: int) -> float:
        """AdaSSP's ridge (Wang, UAI 2018) for the gram of a sum, a function of it alone."""
        G: F64 = unpack(gram) * unit
        d, s = len(G), math.sqrt(members) * self.sigma["gram"]
        tail = math.sqrt(2 * d) + math.sqrt(2 * math.log(2 / FAILURE))
        bound = (s * tail + ROUNDING * d * members) * unit
        ridge = MARGIN * bound - max(0.0, float(np.linalg.eigvalsh(G)[0]) - bound)
        return float(f"{max(0.0, ridge):.3g}")  # the same on machines whose eigenvalues differ


def clip_rows(values: NDArray[np.int16], radius: int) -> NDArray[np.int16]:
    """Rows scaled to a norm of at most ``radius``, rounded towards 0; shorter rows stay."""
    wide = values.astype(np.int64)
    squares = (wide * wide).sum(axis=1)
    longer = squares > radius**2
    factor = radius / np.sqrt(squares[longer]) * (1 - 2.0**-50)
    wide[longer] = np.trunc(wide[longer] * factor[:, None]).astype(np.int64)
    return wide.astype(np.int16)


def discrete_gaussian(n: int, sigma: float) -> I64:
    """n integers k with probability ∝ exp(−k²/2σ²): Canonne, Kairouz and Steinke, algorithm 3."""
    if sigma > ONE_DRAW:  # two draws, whose 52 bits each reach every integer of the tails
        return _draw(n, sigma * 0.5**0.5) + _draw(n, sigma * 0.5**0.5)
    return _draw(n, sigma)


def _draw(n: int, sigma: float) -> I64:
    parts, left, scale = [np.empty(0, np.int64)], n, math.floor(sigma) + 1

    def uniforms(k: int) -> F64:
        words = np.frombuffer(secrets.token_bytes(8 * k), "<u8") >> np.uint64(12)
        return np.asarray((words.astype(np.float64) + 0.5) * 2.0**-52)

    while left:
        tries = min(2 * left + 16, 1 << 17)
        size = np.floor(-scale * np.log(uniforms(tries)))  # discrete Laplace, with a sign
        negative = uniforms(tries) < 0.5
        chance = np.exp(-0.5 * ((size - sigma**2 / scale) / sigma) ** 2)
        kept = (uniforms(tries) < chance) & ~(negative & (size == 0))
        draws = np.where(negative, -size, size)[kept].astype(np.int64)[:left]
        parts.append(draws)
        left -= len(draws)
    return np.concatenate(parts)


def rho(change: float, sigmas: dict[float, int], members: int) -> float:
    """ρ of the sum of ``members``: ``change`` is √Σ(aⱼ/σⱼ)² of a row, ``sigmas``: σ → how many."""
    ratio, ks = change**2 / members, range(1, members)
    tau = {s: 10 * sum(math.exp(-2 * (math.pi * s) ** 2 * k / (k + 1)) for k in ks) for s in sigmas}
    first = ratio + sum(tau[s] * n for s, n in sigmas.items()) / 2
    second = (math.sqrt(ratio) + math.sqrt(sum(tau[s] ** 2 * n for s, n in sigmas.items()))) ** 2
    return min(first, second) / 2


def delta(rho: float, epsilon: float) -> float:
    """δ at ε of ρ-zCDP, the least over the order α, where the derivative changes its sign."""
    above = smallest(lambda a: (2 * a + 1) * rho - epsilon - math.log1p(1 / a) > 0)  # α − 1
    value = above * ((1 + above) * rho - epsilon) - math.log(above)
    return math.exp(min(0.0, value - (1 + above) * math.log1p(1 / above)))


def epsilon(rho: float, at: float) -> float:
    """The least ε at which ρ-zCDP is (ε, δ)-differentially private."""
    return smallest(lambda e: delta(rho, e) <= at)


def smallest(good: Callable[[float], bool]) -> float:
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
