"""The linear head on one wide layer of random features, [σ(XA), X]; one phase.

Random features are of Rahimi and Recht, "Random features for large-scale kernel machines", NIPS
2007. With a ridge they need one round; a deep analytic network has to be better than they are.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Self

import numpy as np

from ..math.gram import FixedPoint, Rows, product, real, real_cross, real_gram, rows_as, together
from ..values.arrays import F64, I64, Array
from ..values.names import CROSS, GRAM
from ..values.statistics import ArraySpec, Statistics
from .base import Accumulator, Added, Found, State, products, unsolved
from .least_squares import RidgeHead, Sums, fit
from .options import FIXED, RandomFeaturesOptions
from .projections import Projection, Tabled, in_fixed_point, projection
from .rounding import checked, named


class Lift:
    """X ↦ σ(XA + a): rows (n, d) → (n, width), of the type of the rows."""

    def __init__(self, options: RandomFeaturesOptions) -> None:
        self._options = options
        self._drawn, self._fixed = lru_cache(2)(self._draw), lru_cache(2)(self._table)

    def __reduce__(self) -> tuple[type[Self], tuple[RandomFeaturesOptions]]:
        return type(self), (self._options,)  # caches cannot be pickled

    def _draw(self, dim: int) -> Projection:
        o = self._options
        return projection(o.projection, o.seed, 0, dim, o.width)

    def _table(self, dim: int, bits: int) -> Tabled:
        remedy = "use --activation tanh, or extract with fewer --fraction-bits"
        return Tabled(self._drawn(dim), self._options.activation, bits, bits, remedy)

    def rows(self, X: Rows) -> Rows:
        """The rows in the compute type; `UsageError` for fixed and rows that are real."""
        compute = self._options.compute
        return in_fixed_point(X) if compute == FIXED else rows_as(X, compute)

    def __call__(self, rows: Rows) -> Array:
        """σ(XA + a) of rows in a compute type, or of fixed-point rows int16 of as many bits."""
        if isinstance(rows, FixedPoint):
            return self._fixed(rows.dim, rows.bits)(rows.values)
        return self._drawn(rows.shape[1])(rows, self._options.activation)

    def beside(self, lifted: Array, rows: Rows) -> Rows:
        """The result of a call, followed by the rows themselves if asked for."""
        values = rows.values if isinstance(rows, FixedPoint) else rows
        both = np.hstack([lifted, values]) if self._options.with_linear else lifted
        return FixedPoint(both, rows.bits) if isinstance(rows, FixedPoint) else both


@dataclass(frozen=True, eq=False)
class RandomFeaturesHead(RidgeHead):
    """Ridge regression on σ(XA + a), and on the features X too with ``with_linear``.

    The statistics are real numbers, because σ is: totals agree up to rounding. With ``compute``
    fixed σ is rounded as the features are, and the statistics are integers.
    """

    name = "random-features"
    options: RandomFeaturesOptions

    @cached_property
    def _lift(self) -> Lift:
        return Lift(self.options)

    @property
    def _side(self) -> int:
        return self.options.side(self._bound()[0])

    @property
    def at_once(self) -> int:  # type: ignore[override]  # sums of reals are of whole blocks
        return together(self._side) if self.options.compute == FIXED else sys.maxsize

    def accumulator(self) -> Accumulator:
        """Integers, or float64 sums of products."""
        if self.options.compute == FIXED:
            return Sums(self._bound()[1], self.options.intercept, self._features)
        return Added(self._products, False)

    def _columns(self, dim: int) -> int:
        return dim + self.options.width

    def _products(self, X: Rows, y: I64, known: State | None) -> tuple[dict[str, Array], State]:
        phi = self.lift(X)
        return {GRAM: real_gram(phi), CROSS: real_cross(phi, y, self._bound()[1])}, {}

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        return products(self._side, self._bound()[1], self.options.compute == FIXED)

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        with named(self.options.compute):
            W, report = fit(total, self.options, validation, self.options.compute, checked)
        return replace(self, weights=W), Found(head=report)

    def decision_function(self, X: Rows) -> F64:
        """[σ(XA), X] W (+ intercept), float64."""
        if self.weights is None:
            raise unsolved()
        phi = self.lift(X)
        return np.asarray(product(phi, self.weights.astype(phi.dtype)), dtype=np.float64)

    def _features_of(self, X: Rows) -> Array:
        return self.lift(X)

    def lift(self, X: Rows) -> Array:
        """Φ = [σ(XA + a), X if asked, 1 if asked] (n, D), in the compute type; fixed: float64."""
        lifted = self._features(X)
        phi = real(lifted) if isinstance(lifted, FixedPoint) else lifted
        one = np.ones((len(phi), 1), phi.dtype)
        return np.hstack([phi, one]) if self.options.intercept else phi

    def _features(self, X: Rows) -> Rows:
        """Φ without the constant, in the compute type."""
        rows = self._lift.rows(X)
        return self._lift.beside(self._lift(rows), rows)


HEAD = RandomFeaturesHead
