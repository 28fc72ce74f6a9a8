"""Differential privacy of one round of gram and cross: clipped rows, calibrated integer noise.

Neighbours are data sets that differ by one row, added or removed. A row x of norm at most R adds
x xᵀ to the gram, of norm ‖x‖² ≤ R² (its triangle of no more), x to one column of the cross, and 1
to one class count; docs/privacy.md has the derivation. Other heads and phases have no derivation
there, so they are refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import F64
from ..errors import UsageError
from ..linalg.fixedpoint import FixedPoint, Rows
from ..linalg.triangle import unpack
from ..statistics import Statistics
from . import accountant
from .masking import COUNTS
from .noise import Bits, discrete_gaussian, rounded_gaussian
from .terms import DISTRIBUTED, LOCAL

# How the budget is shared: σᵢ = m Δᵢ / √shareᵢ, and Σ (Δᵢ/σᵢ)² = 1/m² for any shares that add up to
# 1. Class counts are only used in reports.
SHARES = {"gram": 0.5, "cross": 0.45, COUNTS: 0.05}
# With σ below 1, a sum of discrete Gaussians is far from a discrete Gaussian; then the gram would
# need more noise only because of the class counts. With σ of 2 it is close (τ below 1e-15).
WIDE = 2.0
FAILURE = 0.05  # probability that AdaSSP's bound on the noise does not hold


@dataclass(frozen=True)
class Noise:
    """What each client does before its statistics leave it.

    ``clip``: largest norm of a row, in units of the features. ``members``: the number of clients
    whose noise together gives (ε, δ); 1 for the local form.
    """

    epsilon: float
    delta: float
    clip: float
    bits: int  # fraction bits of the features
    members: int = 1

    @property
    def form(self) -> str:
        return LOCAL if self.members == 1 else DISTRIBUTED

    @property
    def radius(self) -> int:
        """The largest norm of a row in integer units, 2^bits to one."""
        return math.floor(self.clip * 2.0**self.bits)

    @property
    def sensitivity(self) -> dict[str, float]:
        """The largest change of each block of numbers by one row, in integer units."""
        return {"gram": float(self.radius) ** 2, "cross": float(self.radius), COUNTS: 1.0}

    def sigmas(self, sizes: Mapping[str, int]) -> dict[str, float]:
        """Standard deviation of each client's noise, block by block, in integer units."""
        accountant.check_budget(self.epsilon, self.delta)
        if self.members == 1:
            return self._scaled(accountant.gaussian_multiplier(self.epsilon, self.delta))

        as_shared, wide = (self._shared(sizes, least) for least in (0.0, WIDE))
        return wide if 1 < wide["gram"] < 0.99 * as_shared["gram"] else as_shared

    def _shared(self, sizes: Mapping[str, int], least: float) -> dict[str, float]:
        """The smallest σ per member, at least ``least``, whose sum over ``members`` keeps the
        budget."""

        def good(m: float) -> bool:
            sigma = self._scaled(m, least)
            rho = accountant.sum_of_discrete(self.sensitivity, sigma, sizes, self.members)
            return accountant.concentrated_delta(rho, self.epsilon) <= self.delta

        return self._scaled(accountant.least(good), least)

    def _scaled(self, m: float, least: float = 0.0) -> dict[str, float]:
        """σ of the blocks for a multiplier of the whole sum's noise."""
        each = m / math.sqrt(self.members)
        found = {k: each * d / math.sqrt(SHARES[k]) for k, d in self.sensitivity.items()}
        return {k: max(sigma, least) for k, sigma in found.items()}

    def facts(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """The entry in files; only statistics with equal entries can be added."""
        found: dict[str, Any] = {
            "form": self.form,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "clip": self.clip,
            "neighbours": "one row added or removed",
            "members": self.members,
            "sigma": self.sigmas(sizes),
        }
        if self.form == DISTRIBUTED:
            found["rho"] = accountant.sum_of_discrete(
                self.sensitivity, found["sigma"], sizes, self.members
            )
        return found

    # ------------------------------------------------------------ at the client

    def clipped(self, blocks: Iterable[tuple[Rows, Any]]) -> Iterator[tuple[Rows, Any]]:
        """Blocks of rows whose norms are at most ``clip``."""
        for X, y in blocks:
            if not isinstance(X, FixedPoint):
                raise UsageError("differential privacy needs int16 features, whose sums are exact")
            yield FixedPoint(clip_rows(X.values, self.radius), X.bits), y

    def added(self, statistics: Statistics, key: bytes) -> Statistics:
        """The statistics with noise from a secret key; equal keys give equal noise."""
        named = {**statistics.arrays, COUNTS: statistics.class_counts}
        sizes = {name: a.size for name, a in named.items()}
        facts = self.facts(sizes)
        bits = Bits(key)
        draw = rounded_gaussian if self.form == LOCAL else discrete_gaussian
        noisy = {
            name: a + draw(bits, a.size, facts["sigma"][name]).reshape(a.shape)
            for name, a in sorted(named.items())
        }
        counts = noisy.pop(COUNTS)
        context = replace(statistics.context, noise=facts)
        return replace(statistics, arrays=noisy, class_counts=counts, context=context)


def check_head(name: str, phase: str | None, options: Mapping[str, Any], dtype: str) -> None:
    """Refuse heads, phases and features whose sensitivity is not derived in docs/privacy.md."""
    if name != "linear" or phase != "gram" or options.get("intercept"):
        what = "a linear head with an intercept" if name == "linear" else f"a {name} head"
        raise UsageError(
            f"--dp-epsilon is for the linear head without --intercept: the sensitivity of {what} "
            f"in phase {phase!r} is not derived (docs/privacy.md)"
        )
    if dtype != "int16":
        raise UsageError(f"--dp-epsilon needs int16 features; these are {dtype}")


def clip_rows(values: NDArray[np.int16], radius: int) -> NDArray[np.int16]:
    """Rows (n, d) scaled to a norm of at most ``radius``, rounded towards 0; shorter rows stay.

    >>> clip_rows(np.array([[300, 400], [3, 4]], np.int16), 250)
    array([[150, 200],
           [  3,   4]], dtype=int16)
    """
    wide = values.astype(np.int64)
    factor = np.ones(len(values))
    while True:
        found = np.trunc(wide * factor[:, None]).astype(np.int64)
        squares = (found * found).sum(axis=1)
        long = squares > radius**2
        if not long.any():
            return found.astype(np.int16)
        # A second pass only corrects a last bit, because float64 products are rounded.
        factor[long] *= radius / np.sqrt(squares[long]) * (1 - 2.0**-50)


# ---------------------------------------------------------------- at the server


def with_ridge(total: Statistics, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a solve; with noise and no given ridge, AdaSSP's ridge is chosen."""
    if not total.context.noise or "ridge" in given:
        return dict(given)
    bits = total.context.space["fraction_bits"]
    each = total.context.noise["sigma"]["gram"] * 4.0**-bits  # of one client's noise
    G = unpack(total.arrays["gram"]) * 4.0**-bits
    return {**given, "ridge": adassp_ridge(G, each * math.sqrt(len(total.clients)))}


def ridge_by(total: Statistics, given: Mapping[str, Any]) -> dict[str, str]:
    """The entry in a head's report for a ridge that `with_ridge` chose."""
    return {"ridge_by": "AdaSSP"} if total.context.noise and "ridge" not in given else {}


def adassp_ridge(G: F64, sigma: float) -> float:
    """AdaSSP's ridge: a bound on the gram's noise, minus a bound on the gram's least eigenvalue.

    λ = max(0, s − λ_min), s = σ √(d ln(2d²/ρ)), a bound on the noise's spectral norm that fails
    with probability ρ = 5 % (Wang, "Revisiting differentially private linear regression", UAI 2018,
    algorithm 2). λ_min is the least eigenvalue of the noisy gram ``G`` (d, d) less s, at least 0: a
    function of published numbers, so it uses no privacy budget. Units are those of ``G``.
    """
    d = len(G)
    spread = sigma * math.sqrt(d * math.log(2 * d * d / FAILURE))
    least = float(np.linalg.eigvalsh(G)[0]) if spread else 0.0
    return max(0.0, spread - max(0.0, least - spread))


def account(facts: Mapping[str, Any], clients: int) -> str:
    """The accountant's result for statistics over a number of clients, as sentences."""
    budget = f"(ε = {facts['epsilon']:g}, δ = {facts['delta']:g})"
    row = f"for one row added or removed, of norm up to {facts['clip']:g}"
    if facts["form"] == LOCAL:
        return f"Each client's numbers are {budget}-differentially private {row}."
    share = clients / facts["members"]
    epsilon = accountant.concentrated_epsilon(facts["rho"] / share, facts["delta"])
    if clients < facts["members"]:
        return (
            f"The noise of {clients} clients; {facts['members']} together make the sum "
            f"{budget}-differentially private {row}."
        )
    return (
        f"The sum over {clients} clients is (ε = {epsilon:.4g}, δ = {facts['delta']:g})-"
        f"differentially private {row}; it was made to be {budget} with {facts['members']}."
    )
