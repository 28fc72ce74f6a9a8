"""Differential privacy of one round of gram and cross: clipped rows, calibrated integer noise.

Neighbours are data sets that differ by one row, added or removed. A row x of norm at most R adds
x xᵀ to the gram, of norm ‖x‖² ≤ R², x to one column of the cross, and 1 to one class count. The
gram is sent as a triangle, whose entries off the diagonal stand for two of the matrix: they get
noise of σ/√2 where the diagonal gets σ. docs/privacy.md has the derivation. Other heads and phases
have no derivation there, so they are refused. The ridge of a solve with noise is by AdaSSP's rule
(Wang, "Revisiting differentially private linear regression", UAI 2018, algorithm 2), with a bound
of the noise of the gram.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..heads.evaluation import changes_of_counts
from ..math.blas import side, unpack
from ..math.gram import FixedPoint, Rows
from ..values.arrays import F64, I64
from ..values.names import COUNTS as COUNTED
from ..values.statistics import Statistics
from . import accountant
from .accountant import Block
from .identity import derive
from .masking import COUNTS
from .noise import ALGORITHM, Bits, discrete_gaussian, rounded_gaussian
from .roster import Roster
from .terms import DISTRIBUTED, LOCAL, Budget

# How the budget is shared: σᵢ = m Δᵢ / √shareᵢ, and Σ (Δᵢ/σᵢ)² = 1/m² for any shares that add up to
# 1. Class counts are only used in reports.
SHARES = {"gram": 0.5, "cross": 0.45, COUNTS: 0.05}
OFF = "gram_off_diagonal"  # the σ of these entries; without it, in older files, that of the gram
# With σ below 1, a sum of discrete Gaussians is far from a discrete Gaussian; then the gram would
# need more noise only because of the class counts. With σ of 2 it is close (τ below 1e-15).
WIDE = 2.0
FAILURE = 0.05  # probability that the bound on the noise does not hold
NOTHING = 0.05  # σ in integer units, below which all integer noise is 0: 1 / 0.05 / 2 is ten σ
# How far an integer of noise is from the Gaussian that it goes with: two roundings by 1/2, or two
# discrete Gaussians, each within 2 (docs/privacy.md).
ROUNDING = 4.0
# With a ridge of the bound alone, the noisy gram may be nearly singular: 6 points less top-1 where
# 5,000 rows stand against the noise of ε = 0.5. With 1.5, noise is at most two thirds of the ridge.
MARGIN = 1.5


@dataclass(frozen=True)
class Noise:
    """What each client does before its statistics leave it.

    ``clip``: largest norm of a row, in units of the features. ``members``: the number of clients
    whose noise together gives (ε, δ); 1 for the local form. ``colluding``: so many members, and the
    one that reads the sum, know their own noise, and it does not count. ``changes``: of counts, the
    most that one row changes each array, as a Euclidean norm; the clip is not used then.
    """

    epsilon: float
    delta: float
    clip: float
    bits: int  # fraction bits of the features
    members: int = 1
    colluding: int = 0
    changes: tuple[tuple[str, float], ...] = ()

    @property
    def form(self) -> str:
        return LOCAL if self.members == 1 else DISTRIBUTED

    @property
    def radius(self) -> int:
        """The largest norm of a row in integer units, 2^bits to one."""
        return math.floor(self.clip * 2.0**self.bits)

    @property
    def sensitivity(self) -> dict[str, float]:
        """The largest change of each block of numbers by one row, in integer units.

        That of the gram is of the whole matrix: √(Σᵢ Gᵢᵢ² + 2 Σ_{i<j} Gᵢⱼ²).
        """
        if self.changes:
            return dict(self.changes)
        return {"gram": float(self.radius) ** 2, "cross": float(self.radius), COUNTS: 1.0}

    @property
    def shares(self) -> dict[str, float]:
        """How the budget is shared; all counts get the same σ."""
        if not self.changes:
            return SHARES
        total = sum(change**2 for _, change in self.changes)
        return {name: change**2 / total for name, change in self.changes}

    def sigmas(self, sizes: Mapping[str, int]) -> dict[str, float]:
        """Standard deviation of each client's noise, block by block, in integer units.

        ``sizes``: how many numbers each array has. The gram has two: of its diagonal, and `OFF`.
        """
        accountant.check_budget(self.epsilon, self.delta)
        if self.members == 1:
            return self._scaled(accountant.gaussian_multiplier(self.epsilon, self.delta))

        as_shared, wide = (self._shared(sizes, least) for least in (0.0, WIDE))
        first = next(iter(self.sensitivity))
        return wide if 1 < wide[first] < 0.99 * as_shared[first] else as_shared

    def _shared(self, sizes: Mapping[str, int], least: float) -> dict[str, float]:
        """The smallest σ per member, at least ``least``, whose sum over ``members`` keeps the
        budget."""

        def good(m: float) -> bool:
            rho = self.rho(self._scaled(m, least), sizes, self.members)
            return accountant.concentrated_delta(rho, self.epsilon) <= self.delta

        return self._scaled(accountant.least(good), least)

    def _scaled(self, m: float, least: float = 0.0) -> dict[str, float]:
        """σ of the blocks for a multiplier of the whole sum's noise."""
        each = m / math.sqrt(self.members)
        shares = self.shares
        scales = {k: each * d / math.sqrt(shares[k]) for k, d in self.sensitivity.items()}
        if not self.changes:
            scales[OFF] = scales["gram"] / math.sqrt(2)
        return {k: max(sigma, least) for k, sigma in scales.items()}

    # ------------------------------------------------------------ what a σ is worth

    def blocks(self, sigma: Mapping[str, float], sizes: Mapping[str, int]) -> list[Block]:
        """The blocks of numbers, each with the most that one row changes it."""
        cut = []
        for name, change in self.sensitivity.items():
            parts = [(sigma[name], sizes[name])]
            most = change / sigma[name]
            if name == "gram":
                d, off = side(sizes[name]), sigma.get(OFF, sigma[name])
                parts = [(sigma[name], d), (off, sizes[name] - d)]
                most = change / min(sigma[name], math.sqrt(2) * off)
            cut.append(Block(most, tuple(parts)))
        return cut

    def rho(self, sigma: Mapping[str, float], sizes: Mapping[str, int], clients: int) -> float:
        """ρ (zCDP) of the sum over so many clients with distributed noise."""
        return accountant.sum_of_discrete(self.blocks(sigma, sizes), clients)

    def epsilon_of(
        self, sigma: Mapping[str, float], sizes: Mapping[str, int], clients: int
    ) -> float:
        """ε at δ of the numbers of one client, or of the sum over so many with distributed noise;
        infinite without noise."""
        if clients < 1:
            return math.inf
        if self.form == DISTRIBUTED:
            return accountant.concentrated_epsilon(self.rho(sigma, sizes, clients), self.delta)
        return accountant.gaussian_epsilon(self.multiplier(sigma, sizes), self.delta)

    def multiplier(self, sigma: Mapping[str, float], sizes: Mapping[str, int]) -> float:
        """σ of all blocks together, in units of what one row changes."""
        return 1 / math.hypot(*(block.change for block in self.blocks(sigma, sizes)))

    # ------------------------------------------------------------ the entry in files

    def facts(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """The entry in files; only statistics with equal entries can be added."""
        public: dict[str, Any] = {
            "form": self.form,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "clip": self.clip,
            "neighbours": "one row added or removed",
            "members": self.members,
            "sigma": self.sigmas(sizes),
        }
        if self.form == DISTRIBUTED:
            public["colluding"] = self.colluding
            public["rho"] = self.rho(public["sigma"], sizes, self.members)
        return public

    @classmethod
    def of(
        cls, facts: Mapping[str, Any], bits: int, changes: tuple[tuple[str, float], ...] = ()
    ) -> Noise:
        """What an entry in a file says."""
        epsilon, delta, clip = (facts[k] for k in ("epsilon", "delta", "clip"))
        return cls(epsilon, delta, clip, bits, facts["members"], facts.get("colluding", 0), changes)

    # ------------------------------------------------------------ at the client

    def clipped(self, blocks: Iterable[tuple[Rows, Any]]) -> Iterator[tuple[Rows, Any]]:
        """Blocks of rows whose norms are at most ``clip``."""
        if self.changes:
            yield from blocks
            return
        for X, y in blocks:
            if not isinstance(X, FixedPoint):
                raise UsageError("differential privacy needs int16 features, whose sums are exact")
            yield FixedPoint(clip_rows(X.values, self.radius), X.bits), y

    def added(self, statistics: Statistics, key: bytes) -> Statistics:
        """The statistics with noise from a secret key; equal keys give equal noise."""
        named = {**statistics.arrays, COUNTS: statistics.class_counts}
        facts = self.facts({name: a.size for name, a in named.items()})
        sigma = facts["sigma"]
        noisy = {name: a + self._drawn(key, name, a.shape, sigma) for name, a in named.items()}
        counts = noisy.pop(COUNTS)
        context = replace(statistics.context, noise=facts)
        return replace(statistics, arrays=noisy, class_counts=counts, context=context)

    def _drawn(
        self, key: bytes, name: str, shape: tuple[int, ...], sigma: Mapping[str, float]
    ) -> I64:
        """The noise of one array."""
        if name != "gram":
            return self._stream(key, name, shape, sigma[name])
        d = side(shape[0])
        diagonal = np.arange(1, d + 1).cumsum() - 1
        draws = np.empty(shape, np.int64)
        on = np.zeros(shape, bool)
        on[diagonal] = True
        draws[on] = self._stream(key, name, (d,), sigma[name])
        draws[~on] = self._stream(key, OFF, (shape[0] - d,), sigma[OFF])
        return draws

    def _stream(self, key: bytes, name: str, shape: tuple[int, ...], sigma: float) -> I64:
        """Noise of a key of its own: two arrays that differ in anything have nothing in common."""
        of_its_own = derive(key, b"", "noise", name, repr(shape), sigma.hex(), str(ALGORITHM))
        draw = rounded_gaussian if self.form == LOCAL else discrete_gaussian
        return draw(Bits(of_its_own), math.prod(shape), sigma).reshape(shape)


def noise_of(
    budget: Budget,
    bound: Mapping[str, Any],
    space: Mapping[str, Any],
    roster: Roster | None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Noise:
    """The noise of each client: shared by the members of a ``roster``, or of the client alone.

    ``bound``: a head's binding; ``space``: that of the features; ``shapes``: of its arrays.
    """
    check_head(bound["name"], bound["phase"], bound["options"], space["dtype"])
    shared = (1, 0) if roster is None else (roster.sharing, roster.colluding)
    changes = changes_of(bound, shapes or {})
    bits = space["fraction_bits"]
    made = Noise(budget.epsilon, budget.delta, budget.clip, bits, *shared, changes)
    if not changes and made.radius < 1:
        raise UsageError(
            f"--clip {budget.clip:g} is less than one step of features with {made.bits} fraction "
            f"bits ({2.0**-made.bits:g})"
        )
    return made


def changes_of(
    bound: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]
) -> tuple[tuple[str, float], ...]:
    """What one row changes in each array of counts; () for what is no counts."""
    if bound.get("phase") != COUNTED:
        return ()
    known = {name: shape for name, shape in shapes.items() if name != COUNTS}
    return (*changes_of_counts(known), (COUNTS, 1.0))


def check_head(name: str, phase: str | None, options: Mapping[str, Any], dtype: str) -> None:
    """Refuse heads, phases and features whose sensitivity is not derived in docs/privacy.md."""
    if phase == COUNTED:
        return  # counts of any rows
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
        rows = np.trunc(wide * factor[:, None]).astype(np.int64)
        squares = (rows * rows).sum(axis=1)
        long = squares > radius**2
        if not long.any():
            return rows.astype(np.int16)
        # A second pass only corrects a last bit, because float64 products are rounded.
        factor[long] *= radius / np.sqrt(squares[long]) * (1 - 2.0**-50)


# ---------------------------------------------------------------- the ridge of a solve


def ridge_of(total: Statistics) -> float:
    """AdaSSP's ridge for a total with noise."""
    unit = 4.0 ** -total.context.space["fraction_bits"]
    G = unpack(total.arrays["gram"]) * unit
    sigma = total.context.noise["sigma"]
    bound = noise_bound(len(G), sigma["gram"], sigma.get(OFF, sigma["gram"]), len(total.clients))
    return adassp_ridge(G, bound * unit)


def noise_bound(d: int, diagonal: float, off: float, clients: int) -> float:
    """A bound of the spectral norm of the gram's noise that fails with probability ρ = 5 %.

    s (√(2d) + √(2 ln(2/ρ))) + 4 d K in integer units, with s = √K max(σ, √2 σ') for K ``clients``,
    whose noise has the standard deviation σ on the ``diagonal`` and σ' ``off`` it. docs/privacy.md
    has the proof. 0 where σ is so small that integers have no noise.
    """
    if max(diagonal, off) <= NOTHING:
        return 0.0
    s = math.sqrt(clients) * max(diagonal, math.sqrt(2) * off)
    return s * (math.sqrt(2 * d) + math.sqrt(2 * math.log(2 / FAILURE))) + ROUNDING * d * clients


def adassp_ridge(G: F64, bound: float) -> float:
    """AdaSSP's ridge: a bound on the gram's noise, minus a bound on the gram's least eigenvalue.

    λ = max(0, 1.5 b − λ_min), b the ``bound``. λ_min is the least eigenvalue of the noisy gram
    ``G`` (d, d) less b, at least 0: a function of published numbers, so it uses no privacy budget.
    """
    least = float(np.linalg.eigvalsh(G)[0]) if bound else 0.0
    return max(0.0, MARGIN * bound - max(0.0, least - bound))
