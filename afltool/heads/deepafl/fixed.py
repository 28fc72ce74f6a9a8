"""Layers and sums in fixed point: the same integers for every block, client and thread.

    Φ̂_0 = T[X̂Â]      F̂_t = T[Φ̂_t B̂_t]      Φ̂_{t+1} = Φ̂_t + round(round(F̂_t Ẑ) Ûᵀ)

Φ̂ and F̂ are int16 with f fraction bits (``--fixed-bits``). All matrices are rounded to integers such
that every product is exact in float64, whatever the library, the blocking and the number of
threads; what is rounded in between is rounded number by number. `heads.projections` has T.
Per number:

    σ          2^−(f+1), and its argument 2^−(f+4)
    FΩ         2^−(f+1), beside rounded weights, far below it
    residuals  2^−21 (``RESIDUAL_BITS`` + 1)

Nothing is clipped: a value that int16 does not hold is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...errors import InvalidDataError
from ...math.gram import (
    EXACT_FLOAT64,
    LARGEST,
    FixedPoint,
    Rows,
    gram_and_cross,
    product,
    real_cross,
)
from ...math.sandwich import LowRank
from ...math.softmax import exact_weights
from ...memory import Kept
from ...values.arrays import F64, Array
from ...values.names import CROSS, GRAM
from ...values.statistics import Statistics
from ..projections import Tabled, activated, in_fixed_point, projection
from .learned import Learned
from .network import (
    ENERGY,
    LARGEST_RESIDUAL,
    OF_LABELS,
    PHI,
    RECONSTRUCTION,
    Labels,
    Layers,
    State,
    Sums,
)
from .options import BLOCK, CASCADE, DeepAFLOptions

RESIDUAL_BITS = 20
EXACT_ROWS = EXACT_FLOAT64 // (LARGEST_RESIDUAL << 15)
RIGHT_BITS = 22  # of U, whose columns have length 1


class FixedLayers(Layers):
    """Rows of int16 with ``--fixed-bits`` fraction bits."""

    KEEP = 64 << 20  # bytes of projections: those of seven layers of width 1024

    def __init__(self, options: DeepAFLOptions) -> None:
        super().__init__(options)
        self.bits = options.fixed
        self._made = Kept(self._make, self.KEEP)

    def _make(self, stream: int, fan_in: int, fan_out: int, given: int) -> Tabled:
        """The random features of a layer; A for stream 0, B_t for t + 1."""
        o = self.options
        drawn = projection(o.projection, o.seed, stream, fan_in, fan_out)
        activation = o.activation if stream else o.phi0_activation
        if stream >= OF_LABELS:
            drawn = replace(drawn, a=None)
        if stream >= OF_LABELS or (stream and o.deepening == CASCADE):
            activation = "none"
        return Tabled(drawn, str(activation), given, self.bits, "use fewer --fixed-bits")

    def random(self, stream: int, fan_in: int, fan_out: int, given: int) -> Tabled:
        """The random features of a layer for rows of ``given`` fraction bits."""
        return self._made(stream, fan_in, fan_out, given)

    def _first(self, X: Rows) -> Array:
        rows = in_fixed_point(X)
        return self.random(0, rows.dim, self.options.widths[0], rows.bits)(rows.values)

    def hidden(self, state: State, t: int) -> Array:
        o, source = self.options, self.source(state)
        if o.identity_projection:
            return activated(source, str(o.activation), self.bits)
        return self.random(t + 1, *o.widths, self.bits)(source)

    def _block(self, state: State, hidden: Array, t: int, learned: Learned) -> Array:
        if self.options.identity_omega:
            moved = hidden.astype(np.float64)
        else:
            moved = ExactOmega.of(learned.blocks[t]).times(hidden)
        if not self.options.no_skip:
            moved += state[PHI]
        state[PHI] = self._held(moved, f"Φ_{t + 1}")
        return hidden

    def cascade(self, phi: Array, t: int, W: F64) -> Array:
        fitted, scale = exact_product(phi, W)
        fitted *= scale
        units = self._held(np.rint(fitted, out=fitted), f"Φ_{t} W_{t}")
        for one in self.cascaded(t, units.shape[1]):
            units = one(units)
        return units

    def cascaded(self, t: int, classes: int) -> list[Tabled]:
        """What follows Φ_t W_t in a cascade: Q_t with encoded labels, then B_t and σ."""
        (phi, hidden), chain = self.options.widths, []
        if self.options.label_encoding:
            chain, classes = [self.random(OF_LABELS + t, classes, hidden, self.bits)], hidden
        return [*chain, self.random(t + 1, classes, phi, self.bits)]

    def _held(self, values: F64, what: str) -> Array:
        largest = np.abs(values).max(initial=0.0)
        if largest > LARGEST:
            raise InvalidDataError(
                f"{what} of a row reaches {largest * 2.0**-self.bits:.6g}, beyond the range "
                f"±{LARGEST * 2.0**-self.bits:.6g} of --fixed-bits {self.bits}: make a new "
                "head with fewer, or with larger ridges"
            )
        return values.astype(np.int16)

    def scores(self, phi: Array, W: F64) -> F64:
        whole, scale = exact_product(phi, W)
        whole *= scale * 2.0**-self.bits
        return whole

    def real(self, phi: Array) -> Array:
        return np.asarray(phi * 2.0**-self.bits)


@dataclass(frozen=True)
class ExactOmega:
    """Ω = Z Uᵀ in integers: F̂ ↦ round(2^−b · round(2^−a · F̂ Z) Uᵀ), both products exact.

    ``Z`` (d_F, r) and ``U`` (d_Φ, r) are whole numbers; without ``U`` it is round(2^−a · F̂ Z).
    ``first``, ``second``: the two powers of two.
    """

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
        found = product(hidden.astype(np.float64), self.Z)
        found *= self.first
        np.rint(found, out=found)
        if self.U is not None:
            found = product(found, self.U.T)
            found *= self.second
            np.rint(found, out=found)
        return found


def exact_product(phi: Array, W: F64) -> tuple[F64, float]:
    """(S, u): Φ̂ W = S u with whole numbers S; W is rounded so that the product is exact."""
    whole, s = exact_weights(W, max(len(W), 1) * LARGEST)
    return product(phi.astype(np.float64), whole), 2.0**-s


class FixedSums(Sums):
    """Sums of int16 rows, int64; residuals have `RESIDUAL_BITS` fraction bits."""

    exact = True

    def __init__(self, options: DeepAFLOptions) -> None:
        self.bits, self._skips = options.fixed, not options.no_skip

    def gram(self, rows: Array) -> Array:
        return gram_and_cross(FixedPoint(rows, self.bits), np.zeros(len(rows), np.int64), 1)[0]

    def classes(self, rows: Array, y: Labels, classes: int) -> Array:
        return real_cross(rows.astype(np.float64), y, classes).astype(np.int64)  # exact: < 2^53

    def energy(self, rows: Array) -> Array:
        """The sum of squares of each feature, so that no number is above that of a gram."""
        return np.asarray((rows.astype(np.int64) ** 2).sum(axis=0))

    def residual(self, phi: Array, W: F64, y: Labels) -> Array:
        units = self._in_units(*exact_product(phi, W))
        np.negative(units, out=units)
        units[np.arange(len(y)), y] += 2.0**RESIDUAL_BITS
        return _within(units, "residual Y − ΦW")

    def rest(self, phi0: Array, phi: Array | None, Q: F64 | None) -> Array:
        left = phi0 * 2.0 ** (RESIDUAL_BITS - self.bits)
        if phi is not None and Q is not None:
            left -= self._in_units(*exact_product(phi, Q))
        return _within(left, "residual Φ_0 − ΦQ")

    def _in_units(self, product_: F64, scale: float) -> F64:
        """Whole products of Φ̂ and weights, rounded to 2^−RESIDUAL_BITS."""
        product_ *= scale * 2.0 ** (RESIDUAL_BITS - self.bits)
        return np.rint(product_, out=product_)

    def between(self, rows: Array, others: Array) -> Array:
        total = np.zeros((rows.shape[1], others.shape[1]), np.int64)
        for start in range(0, len(rows), EXACT_ROWS):
            part = slice(start, start + EXACT_ROWS)
            left, right = (a[part].astype(np.float64) for a in (rows, others))
            total += product(left.T, right).astype(np.int64)
        return total

    def read(self, total: Statistics) -> Statistics:
        one = 2.0**-self.bits
        block = total.phase.kind == BLOCK
        finer = one * 2.0**-RESIDUAL_BITS if block else one * one
        units = {
            GRAM: one * one,
            CROSS: finer if block and self._skips else one,
            RECONSTRUCTION: finer,
            ENERGY: one * one,
        }
        arrays = {name: a * units[name] for name, a in total.arrays.items()}
        if ENERGY in arrays:
            arrays[ENERGY] = arrays[ENERGY].sum(keepdims=True)
        return replace(total, arrays=arrays)


def _within(units: F64, what: str) -> F64:
    largest = np.abs(units).max(initial=0.0)
    if largest > LARGEST_RESIDUAL:
        raise InvalidDataError(
            f"a {what} of a row is {largest * 2.0**-RESIDUAL_BITS:.6g}; with --compute fixed it "
            f"may be at most {LARGEST_RESIDUAL >> RESIDUAL_BITS}: use larger ridges, or look at "
            "the features of this client"
        )
    return units
