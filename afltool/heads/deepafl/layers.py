"""The layers of a deep analytic network and the sums over them: in floats, or exact integers.

    Φ_0 = σ_0(XA)      F_t = σ(Φ_t B_t)      Φ_{t+1} = Φ_t + F_t Ω_{t+1}

The paper's other strategies (E.3.7) put a random layer behind each solved one instead of a block,
Φ_{t+1} = σ(Φ_t W_t B_t); docs/decisions/deepafl.md says how its text is read.

`Layers` computes in float32 or float64, the compute type. `FixedLayers` has int16 rows with f
fraction bits (``--fixed-bits``), Φ̂_{t+1} = Φ̂_t + round(round(F̂_t Ẑ) Ûᵀ). All matrices are rounded
to integers such that every product is exact in float64; what is rounded in between is rounded
number by number. So a row is the same integers in any block, at any client, with any number of
threads, and sums are int64. Per number σ is off by 2^−(f+1) and its argument by 2^−(f+4), FΩ by
2^−(f+1), residuals by 2^−21. Nothing is clipped: a value that int16 does not hold is refused.
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
    add_product,
    dim,
    gram_and_cross,
    product,
    real_cross,
    real_gram,
    rows_as,
)
from ...math.sandwich import LowRank
from ...math.softmax import exact_weights
from ...memory import Kept
from ...values.arrays import F64, I64, Array
from ...values.names import CROSS, GRAM
from ...values.statistics import Statistics
from ..projections import (
    Projection,
    Tabled,
    activate,
    activated,
    in_fixed_point,
    projection,
    projections,
)
from .options import ACTIVATED, BLOCK, CASCADE, DeepAFLOptions

OF_LABELS = 2**32  # the first stream of random numbers for labels; layers have 0, 1, 2, …
RECONSTRUCTION, ENERGY = "reconstruction", "energy"  # arrays of (88)
LARGEST_RESIDUAL = 2**24  # of fixed point, so that a row adds at most 2^39 to a sum
RESIDUAL_BITS = 20
EXACT_ROWS = EXACT_FLOAT64 // (LARGEST_RESIDUAL << 15)
RIGHT_BITS = 22  # of U, whose columns have length 1


class Layers:
    """Rows of float32 or float64, and sums of float64."""

    exact = False  # whether sums are integers

    def __init__(self, options: DeepAFLOptions) -> None:
        self.options = options
        self._random = projections(options.projection, options.seed)

    def first(self, X: Rows) -> Array:
        """Φ_0."""
        o = self.options
        A = self._random(0, dim(X), o.widths[0])
        return A(rows_as(X, o.compute), str(o.phi0_activation))

    def hidden(self, source: Array, t: int) -> Array:
        """F_t = σ(Φ_t B_t)."""
        o = self.options
        if o.identity_projection:
            return activate(str(o.activation), source.copy())
        return self._random(t + 1, *o.widths)(source, str(o.activation))

    def moved(
        self, phi: Array, hidden: Array, t: int, omega: LowRank | None
    ) -> tuple[Array, Array]:
        """Φ_{t+1} = Φ_t + P Uᵀ, in place where possible, and P = F_t Z (n, r) of Ω = Z Uᵀ.

        P is F_t itself where Ω is dense, or the identity (None).
        """
        if omega is None:
            return hidden if self.options.no_skip else phi + hidden, hidden
        Z, U = omega.astype(hidden.dtype)
        after = np.zeros_like(phi) if self.options.no_skip else phi
        P = hidden if U is None else product(hidden, Z)
        add_product(after, P, Z.T if U is None else U)
        return after, P

    def cascade(self, phi: Array, t: int, W: F64) -> Array:
        """σ(Φ_t W_t B_t), or σ(Φ_t W_t Q_t B_t) with encoded labels; σ = 1 if not activated.

        The ridge regression of Y Q_t on Φ_t is W_t Q_t, so encoded labels need no other sums.
        """
        o = self.options
        fitted = product(phi, W.astype(phi.dtype))
        if o.label_encoding:
            fitted = self.codes(t, fitted.shape[1])(fitted)
        B = self.projected(t, fitted.shape[1])
        return B(fitted, str(o.activation) if o.deepening == ACTIVATED else "none")

    def codes(self, t: int, classes: int) -> Projection:
        """Q_t (C, d_F), the labels' random map; a stream of its own, linear, without a bias."""
        return Projection(self._random(OF_LABELS + t, classes, self.options.widths[1]).A, None)

    def projected(self, t: int, fan_in: int) -> Projection:
        """B_t of a cascade."""
        return self._random(t + 1, fan_in, self.options.widths[0])

    def scores(self, phi: Array, W: F64) -> F64:
        """ΦW (n, C)."""
        return np.asarray(product(phi, W.astype(phi.dtype)), dtype=np.float64)

    def real(self, phi: Array) -> Array:
        """Features in units of one, float32 or float64."""
        return phi

    # ------------------------------------------------------------ sums

    def gram(self, rows: Array) -> Array:
        """rowsᵀ rows, one triangle."""
        return real_gram(rows)

    def by_class(self, rows: Array, y: I64, classes: int) -> Array:
        """rowsᵀ Y (d, C)."""
        return real_cross(rows, y, classes)

    def between(self, rows: Array, others: Array) -> Array:
        """rowsᵀ others (d, e) of features, or of features and what `residual` or `rest` gives."""
        return product(rows.T, others).astype(np.float64)

    def energy(self, rows: Array) -> Array:
        """‖rows‖²: one number, or of integers the sum of squares of each feature."""
        return np.array([(rows.astype(np.float64) ** 2).sum()])

    def residual(self, phi: Array, W: F64, y: I64) -> Array:
        """Y − ΦW (n, C)."""
        rest = product(phi, W.astype(phi.dtype))
        np.negative(rest, out=rest)
        rest[np.arange(len(y)), y] += 1
        return rest

    def rest(self, phi0: Array, phi: Array, Q: F64 | None) -> Array:
        """Φ_0 − ΦQ (n, d_Φ); Φ_0 itself without Q."""
        return phi0 if Q is None else np.asarray(phi0 - product(phi, Q.astype(phi.dtype)))

    def read(self, total: Statistics) -> Statistics:
        """The same sums as float64 in units of one, for the server's solves."""
        return total


class FixedLayers(Layers):
    """Rows of int16 and sums of int64; residuals have `RESIDUAL_BITS` fraction bits."""

    exact = True
    KEEP = 64 << 20  # bytes of projections: those of seven layers of width 1024

    def __init__(self, options: DeepAFLOptions) -> None:
        super().__init__(options)
        self.bits = options.fixed
        #: The random features of a layer, A for stream 0, B_t for t + 1: of (stream, fan-in,
        #: fan-out, fraction bits of the rows).
        self.random = Kept(self._make, self.KEEP)

    def _make(self, stream: int, fan_in: int, fan_out: int, given: int) -> Tabled:
        o = self.options
        drawn = projection(o.projection, o.seed, stream, fan_in, fan_out)
        activation = o.activation if stream else o.phi0_activation
        if stream >= OF_LABELS:
            drawn = replace(drawn, a=None)
        if stream >= OF_LABELS or (stream and o.deepening == CASCADE):
            activation = "none"
        return Tabled(drawn, str(activation), given, self.bits, "use fewer --fixed-bits")

    def first(self, X: Rows) -> Array:
        rows = in_fixed_point(X)
        return self.random(0, rows.dim, self.options.widths[0], rows.bits)(rows.values)

    def hidden(self, source: Array, t: int) -> Array:
        o = self.options
        if o.identity_projection:
            return activated(source, str(o.activation), self.bits)
        return self.random(t + 1, *o.widths, self.bits)(source)

    def moved(
        self, phi: Array, hidden: Array, t: int, omega: LowRank | None
    ) -> tuple[Array, Array]:
        F = hidden.astype(np.float64) if omega is None else ExactOmega.of(omega).times(hidden)
        if not self.options.no_skip:
            F += phi
        return self._held(F, f"Φ_{t + 1}"), hidden

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

    def gram(self, rows: Array) -> Array:
        return gram_and_cross(FixedPoint(rows, self.bits), np.zeros(len(rows), np.int64), 1)[0]

    def by_class(self, rows: Array, y: I64, classes: int) -> Array:
        return real_cross(rows.astype(np.float64), y, classes).astype(np.int64)  # exact: < 2^53

    def between(self, rows: Array, others: Array) -> Array:
        total = np.zeros((rows.shape[1], others.shape[1]), np.int64)
        for start in range(0, len(rows), EXACT_ROWS):
            part = slice(start, start + EXACT_ROWS)
            left, right = (a[part].astype(np.float64) for a in (rows, others))
            total += product(left.T, right).astype(np.int64)
        return total

    def energy(self, rows: Array) -> Array:
        return np.asarray((rows.astype(np.int64) ** 2).sum(axis=0))

    def residual(self, phi: Array, W: F64, y: I64) -> Array:
        units = self._in_units(*exact_product(phi, W))
        np.negative(units, out=units)
        units[np.arange(len(y)), y] += 2.0**RESIDUAL_BITS
        return _within(units, "residual Y − ΦW")

    def rest(self, phi0: Array, phi: Array, Q: F64 | None) -> Array:
        left = phi0 * 2.0 ** (RESIDUAL_BITS - self.bits)
        if Q is not None:
            left -= self._in_units(*exact_product(phi, Q))
        return _within(left, "residual Φ_0 − ΦQ")

    def _in_units(self, product_: F64, scale: float) -> F64:
        """Whole products of Φ̂ and weights, rounded to 2^−RESIDUAL_BITS."""
        product_ *= scale * 2.0 ** (RESIDUAL_BITS - self.bits)
        return np.rint(product_, out=product_)

    def read(self, total: Statistics) -> Statistics:
        one, block = 2.0**-self.bits, total.phase.kind == BLOCK
        finer = one * 2.0**-RESIDUAL_BITS if block else one * one
        units = {
            GRAM: one * one,
            CROSS: finer if block and not self.options.no_skip else one,
            RECONSTRUCTION: finer,
            ENERGY: one * one,
        }
        arrays = {name: a * units[name] for name, a in total.arrays.items()}
        if ENERGY in arrays:
            arrays[ENERGY] = arrays[ENERGY].sum(keepdims=True)
        return replace(total, arrays=arrays)


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


def _within(units: F64, what: str) -> F64:
    largest = np.abs(units).max(initial=0.0)
    if largest > LARGEST_RESIDUAL:
        raise InvalidDataError(
            f"a {what} of a row is {largest * 2.0**-RESIDUAL_BITS:.6g}; with --compute fixed it "
            f"may be at most {LARGEST_RESIDUAL >> RESIDUAL_BITS}: use larger ridges, or look at "
            "the features of this client"
        )
    return units
