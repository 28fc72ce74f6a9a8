"""The layers of a deep analytic network and the sums over them: in floats, or exact integers.

    Φ_0 = σ_0(XA)      F_t = σ(Φ_t B_t)      Φ_{t+1} = Φ_t + F_t Ω_{t+1}

The paper's other strategies (E.3.7) put a random layer behind each solved one instead of a block,
Φ_{t+1} = σ(Φ_t W_t B_t); docs/decisions/deepafl.md says how its text is read.

`Layers` computes in float32 or float64. `FixedLayers` has int16 rows with f fraction bits,
Φ̂_{t+1} = Φ̂_t + round(round(F̂_t Ẑ) Ûᵀ): matrices are rounded to integers such that every product is
exact in float64, so a row is the same integers everywhere. Per number σ is off by 2^−(f+1) and its
argument by 2^−(f+4), FΩ by 2^−(f+1), residuals by 2^−21. Nothing is clipped, but refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...errors import InvalidDataError
from ...math.gram import (
    EXACT_FLOAT64,
    LARGEST,
    FixedPoint,
    Rows,
    add_product,
    gram_and_cross,
    product,
    real_cross,
    real_gram,
    rows_as,
)
from ...math.sandwich import LowRank
from ...math.softmax import exact_weights
from ...values.arrays import F64, I64, Array, Digest
from ...values.names import CROSS, GRAM, Phase
from ...values.statistics import Statistics
from ..base import FeatureMap, State
from ..projections import Projection, activate, projection, require_fixed_point, tabled
from .options import ACTIVATED, BLOCK, RESIDUAL, WEIGHTS, DeepAFLOptions

PHI, PHI0, HIDDEN = "phi", "phi0", "hidden"  # of some rows, in the type of the layers
MOVED = "moved"  # P of `Layers.add_layer`, and ΦᵀP
OF_LABELS = 2**32  # the first stream of random numbers for labels; layers have 0, 1, 2, …
OF_OMEGA = 2**33  # and for each Ω that is frozen
LARGEST_RESIDUAL = 2**24  # of fixed point, so that a row adds at most 2^39 to a sum
RESIDUAL_BITS = 20
EXACT_ROWS = EXACT_FLOAT64 // (LARGEST_RESIDUAL << 15)
RIGHT_BITS = 22  # of U, whose columns have length 1


@dataclass(frozen=True)
class Layers(FeatureMap):
    """X ↦ Φ_t of t = ``deepest``, from what the round before leaves of Φ_t of t = ``begin``, with
    the learned W_t and Ω_t. Rows are float32 or float64, sums float64."""

    fewer = "use a smaller --width"

    options: DeepAFLOptions
    weights: tuple[F64, ...] = ()
    blocks: tuple[LowRank, ...] = ()
    deepest: int = 0
    begin: int = 0

    @property
    def keys(self) -> tuple[str, str]:
        return self._key(self.begin), self._key(self.deepest)

    def _key(self, t: int) -> str:
        """A key of everything that Φ_t depends on, except the rows."""
        digest = Digest().json("deepafl", [self.options.as_dict(), t])
        of_blocks = (a for b in self.blocks[:t] for a in (b.Z, b.U) if a is not None)
        for array in of_blocks if self.options.learns_blocks else self.weights[:t]:
            digest.array("learned", array, "<f8")
        return digest.hex()

    def columns(self, dim: int) -> int:
        return self.options.widths[0]

    def numbers(self, dim: int) -> int:
        return dim + sum(self.options.widths)

    def bits(self, given: int | None) -> int | None:
        return self.options.fixed_bits

    def rows(self, X: Rows, known: State | None = None) -> tuple[Rows, State]:
        """Φ_t of rows X (n, d); left: `PHI`, `PHI0` where an option needs it in later layers, and
        of --incremental the last `MOVED`, (n, r)."""
        state, begin = (known, self.begin) if known else (self._start(X), 0)
        for t in range(begin, self.deepest):
            self._step(state, t)
        return self.stored(state[PHI]), state

    def each(self, X: Rows) -> Iterator[tuple[Phase, Rows]]:
        state = self._start(X)
        for t in range(len(self.weights)):
            if t:
                self._step(state, t - 1)
            yield Phase.of(WEIGHTS, t), self.stored(state[PHI])

    def _start(self, X: Rows) -> State:
        phi0 = self.first(X)
        keeps = self.options.from_phi0 or self.options.reconstruction
        return {PHI: phi0, PHI0: phi0.copy()} if keeps else {PHI: phi0}

    def _step(self, state: State, t: int) -> None:
        """Φ_t → Φ_{t+1}, in place where possible."""
        o = self.options
        if o.deepening != RESIDUAL:
            state[PHI] = self.cascade(state[PHI], t, self.weights[t])
            return
        hidden = state.pop(HIDDEN) if HIDDEN in state else self.hidden_of(state, t)
        state[PHI], P = self.add_layer(state[PHI], hidden, t, self.omega(t))
        if o.incremental:
            state[MOVED] = P

    def hidden_of(self, state: State, t: int) -> Array:
        """F_t of Φ_t, or of Φ_0 in the variant (89)."""
        return self.hidden(state[PHI0 if self.options.from_phi0 else PHI], t)

    def stored(self, phi: Array) -> Rows:
        """Φ as rows in units of one."""
        bits = self.options.fixed_bits
        return phi if bits is None else FixedPoint(phi, bits)

    def draw_weights(self, stream: int, fan_in: int, fan_out: int) -> Projection:
        """A for stream 0, B_t for t + 1; Q_t and Ω_t, which have no bias, from `OF_LABELS` on."""
        o = self.options
        biased = o.bias in ("both", "first" if stream == 0 else "layers") and stream < OF_LABELS
        return projection(o.seed, stream, fan_in, fan_out, biased)

    def omega(self, t: int) -> LowRank | None:
        """Ω_{t+1}: learned, random, or None, the identity."""
        if not self.options.random_omega:
            return self.blocks[t] if self.options.learns_blocks else None
        phi, hidden = self.options.widths
        return LowRank(self.draw_weights(OF_OMEGA + t, hidden, phi).A.astype(np.float64))

    def first(self, X: Rows) -> Array:
        """Φ_0."""
        o = self.options
        rows = rows_as(X, o.compute)
        return self.draw_weights(0, X.shape[1], o.widths[0])(rows, str(o.phi0_activation))

    def hidden(self, source: Array, t: int) -> Array:
        """F_t = σ(Φ_t B_t)."""
        o = self.options
        if o.identity_projection:
            return activate(str(o.activation), source.copy())
        return self.draw_weights(t + 1, *o.widths)(source, str(o.activation))

    def add_layer(
        self, phi: Array, hidden: Array, t: int, omega: LowRank | None
    ) -> tuple[Array, Array]:
        """Φ_{t+1} = Φ_t + P Uᵀ, in place where possible, and P = F_t Z (n, r) of Ω = Z Uᵀ; F_t
        itself where Ω is dense, or the identity (None)."""
        if omega is None:
            return hidden if self.options.no_skip else phi + hidden, hidden
        Z, U = omega.astype(hidden.dtype)
        after = np.zeros_like(phi) if self.options.no_skip else phi
        P = hidden if U is None else product(hidden, Z)
        add_product(after, P, Z.T if U is None else U)
        return after, P

    def cascade(self, phi: Array, t: int, W: F64) -> Array:
        """σ(Φ_t W_t B_t), or σ(Φ_t W_t Q_t B_t), since the ridge regression of Y Q_t on Φ_t is
        W_t Q_t; σ = 1 if not activated."""
        o, fitted = self.options, product(phi, W.astype(phi.dtype))
        if o.label_encoding:
            fitted = self.draw_weights(OF_LABELS + t, fitted.shape[1], o.widths[1])(fitted)
        σ = str(o.activation) if o.deepening == ACTIVATED else "none"
        return self.draw_weights(t + 1, fitted.shape[1], o.widths[0])(fitted, σ)

    def scores(self, phi: Rows, W: F64) -> F64:
        """ΦW (n, C)."""
        rows = rows_as(phi, self.options.compute)
        return np.asarray(product(rows, W.astype(rows.dtype)), dtype=np.float64)

    def gram(self, rows: Array) -> Array:
        """rowsᵀ rows, one triangle."""
        return real_gram(rows)

    def cross_product(self, rows: Array, y: I64, classes: int) -> Array:
        """rowsᵀ Y (d, C)."""
        return real_cross(rows, y, classes)

    def product(self, rows: Array, others: Array) -> Array:
        """rowsᵀ others (d, e) of features, or of features and what `residual` gives."""
        return product(rows.T, others).astype(np.float64)

    def residual(self, phi: Array, W: F64, y: I64) -> Array:
        """Y − ΦW (n, C)."""
        rest = -product(phi, W.astype(phi.dtype))
        rest[np.arange(len(y)), y] += 1
        return rest

    def read_sums(self, total: Statistics) -> Statistics:
        """The same sums as float64 in units of one, for the server's solves."""
        return total


class FixedLayers(Layers):
    """Rows of int16 and sums of int64, of blocks alone; residuals have `RESIDUAL_BITS`."""

    @property
    def unit(self) -> int:
        """Fraction bits of Φ and F."""
        return int(self.options.fixed_bits or 0)

    def first(self, X: Rows) -> Array:
        rows, o = require_fixed_point(X), self.options
        drawn = self.draw_weights(0, rows.shape[1], o.widths[0])
        return tabled(drawn, str(o.phi0_activation), rows.bits, self.unit)(rows.values)

    def hidden(self, source: Array, t: int) -> Array:
        drawn = self.draw_weights(t + 1, *self.options.widths)
        return tabled(drawn, str(self.options.activation), self.unit, self.unit)(source)

    def add_layer(
        self, phi: Array, hidden: Array, t: int, omega: LowRank | None
    ) -> tuple[Array, Array]:
        assert omega is not None
        after = ExactOmega.of(omega).times(hidden) + phi
        return _check_within(after, LARGEST, self.unit, f"Φ_{t + 1}").astype(np.int16), hidden

    def scores(self, phi: Rows, W: F64) -> F64:
        rows = require_fixed_point(phi)
        whole, scale = exact_product(rows.values, W)
        return whole * (scale * 2.0**-rows.bits)

    def gram(self, rows: Array) -> Array:
        return gram_and_cross(FixedPoint(rows, self.unit), np.zeros(len(rows), np.int64), 1)[0]

    def cross_product(self, rows: Array, y: I64, classes: int) -> Array:
        return real_cross(rows.astype(np.float64), y, classes).astype(np.int64)  # exact: < 2^53

    def product(self, rows: Array, others: Array) -> Array:
        total = np.zeros((rows.shape[1], others.shape[1]), np.int64)
        for start in range(0, len(rows), EXACT_ROWS):
            part = slice(start, start + EXACT_ROWS)
            left, right = (a[part].astype(np.float64) for a in (rows, others))
            total += product(left.T, right).astype(np.int64)
        return total

    def residual(self, phi: Array, W: F64, y: I64) -> Array:
        whole, scale = exact_product(phi, W)
        units = -np.rint(whole * (scale * 2.0 ** (RESIDUAL_BITS - self.unit)))
        units[np.arange(len(y)), y] += 2.0**RESIDUAL_BITS
        return _check_within(units, LARGEST_RESIDUAL, RESIDUAL_BITS, "a residual Y − ΦW")

    def read_sums(self, total: Statistics) -> Statistics:
        one, block = 2.0**-self.unit, total.phase.kind == BLOCK
        units = {GRAM: one * one, CROSS: one * 2.0**-RESIDUAL_BITS if block else one}
        return replace(total, arrays={name: a * units[name] for name, a in total.arrays.items()})


@dataclass(frozen=True)
class ExactOmega:
    """Ω = Z Uᵀ, whole numbers: F̂ ↦ round(second · round(first · F̂ Z) Uᵀ), both products exact;
    without ``U`` round(first · F̂ Z)."""

    Z: F64
    first: float
    U: F64 | None = None
    second: float = 1.0

    @classmethod
    def of(cls, omega: LowRank) -> ExactOmega:
        """From learned factors, so everybody who has these makes the same integers."""
        Z, s = exact_weights(omega.Z, len(omega.Z) * LARGEST)
        if omega.U is None:
            return cls(Z, 2.0**-s)
        U = np.rint(omega.U * 2.0**RIGHT_BITS)
        # No |F̂Z| is above `most`, no sum over a row of |U| above `across`. So many bits are taken
        # off F̂Z that most · across, and what rounding adds, stay below 2^53.
        most = LARGEST * int(np.abs(Z).sum(axis=0).max(initial=0.0))
        across = int(np.abs(U).sum(axis=1).max(initial=0.0))
        off = max(0, (most * across).bit_length() - 52)
        return cls(Z, 2.0**-off, U, 2.0 ** (off - s - RIGHT_BITS))

    def times(self, hidden: Array) -> F64:
        """F̂Ω rounded to the units of F̂, (n, d_Φ)."""
        found = np.rint(product(hidden.astype(np.float64), self.Z) * self.first)
        return found if self.U is None else np.rint(product(found, self.U.T) * self.second)


def exact_product(phi: Array, W: F64) -> tuple[F64, float]:
    """(S, u): Φ̂ W = S u with whole numbers S; W is rounded so that the product is exact."""
    whole, s = exact_weights(W, max(len(W), 1) * LARGEST)
    return product(phi.astype(np.float64), whole), 2.0**-s


def _check_within(units: F64, most: int, bits: int, what: str) -> F64:
    largest = np.abs(units).max(initial=0.0)
    if largest > most:
        raise InvalidDataError(
            f"{what} of a row reaches {largest * 2.0**-bits:.6g}, beyond ±{most * 2.0**-bits:.6g}, "
            "which --compute fixed holds: make a new head with fewer --fixed-bits or larger ridges"
        )
    return units
