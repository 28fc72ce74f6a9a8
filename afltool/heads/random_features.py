"""Feature maps X ↦ Φ, and the linear head on one wide layer of random features, [σ(XA), X].

Rahimi and Recht, "Random features for large-scale kernel machines", NIPS 2007. A deep analytic
network has to be better than they are.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..math.gram import FixedPoint, Rows, product, real, real_cross, real_gram, rows_as, together
from ..values.arrays import F64, I64, Array, Digest
from ..values.names import CROSS, GRAM
from .base import Accumulator, Added, FeatureMap, State, solved
from .least_squares import RidgeHead
from .options import FIXED, RandomFeaturesOptions
from .projections import in_fixed_point, projection, tabled

LIFTED = "lifted"


class RandomFeatures(FeatureMap):
    """Φ = [σ(XA + a), X if asked]: in the compute type, or int16 with the bits of the rows.
    ``exact``: values of ``compute`` with which features of int16 rows are int16."""

    fewer = "use a smaller --width"

    def __init__(self, options: RandomFeaturesOptions, *exact: str) -> None:
        self.options, self.compute, self._exact = options, options.compute, exact
        self._key = Digest().json(LIFTED, options.as_dict()).hex()

    @property
    def keys(self) -> tuple[str, str]:
        return self._key, self._key

    def columns(self, dim: int) -> int:
        return self.options.width + self.options.with_linear * dim

    def bits(self, given: int | None) -> int | None:
        return given if self.options.compute in self._exact else None

    def rows(self, X: Rows, known: State | None = None) -> tuple[Rows, State]:
        """Φ of rows; `UsageError` for --compute fixed and rows that are real."""
        o, rows = self.options, X
        if o.compute == FIXED:
            rows = in_fixed_point(X)
        elif not (isinstance(X, FixedPoint) and o.compute in self._exact):
            rows = rows_as(X, o.compute)
        random = self(rows) if known is None else known[LIFTED]
        if not isinstance(rows, FixedPoint):
            return np.hstack([random, rows]) if o.with_linear else random, {LIFTED: random}
        both = np.hstack([random, rows.values]) if o.with_linear else random
        return FixedPoint(both, rows.bits), {LIFTED: random}

    def __call__(self, rows: Rows) -> Array:
        """σ(XA + a) of rows in a compute type, or of fixed-point rows int16 of as many bits."""
        o = self.options
        drawn = projection(o.seed, 0, rows.shape[1], o.width)
        if isinstance(rows, FixedPoint):
            return tabled(drawn, o.activation, rows.bits, rows.bits)(rows.values)
        return drawn(rows, o.activation)


@dataclass(frozen=True, eq=False)
class RandomFeaturesHead(RidgeHead):
    """Ridge regression on σ(XA + a), and on the features X too with ``with_linear``. The statistics
    are real numbers, or with ``compute`` fixed integers: σ is rounded as the features are."""

    name = "random-features"
    options: RandomFeaturesOptions

    @cached_property
    def features(self) -> FeatureMap:
        return RandomFeatures(self.options, FIXED)

    @property
    def at_once(self) -> int:  # type: ignore[override]  # sums of reals are of whole blocks
        return together(self._side) if self.options.compute == FIXED else sys.maxsize

    def accumulator(self) -> Accumulator:
        """Integers, or float64 sums of products in the compute type."""
        return super().accumulator() if self.options.compute == FIXED else Added(self._part)

    def _part(self, X: Rows, y: I64, known: State | None) -> tuple[dict[str, Array], State]:
        phi = self.lift(X)
        return {GRAM: real_gram(phi), CROSS: real_cross(phi, y, self._bound()[1])}, {}

    def decision_function(self, X: Rows) -> F64:
        """[σ(XA), X] W (+ intercept), float64."""
        W, phi = solved(self.weights), self.lift(X)
        return np.asarray(product(phi, W.astype(phi.dtype)), dtype=np.float64)

    def lift(self, X: Rows) -> Array:
        """Φ = [σ(XA + a), X if asked, 1 if asked] (n, D), in the compute type; fixed: float64."""
        rows, _ = self.features.rows(X)
        phi = real(rows) if isinstance(rows, FixedPoint) else rows
        one = np.ones((len(phi), 1), phi.dtype)
        return np.hstack([phi, one]) if self.options.intercept else phi


HEAD = RandomFeaturesHead
