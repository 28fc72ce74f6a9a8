"""The linear head on one wide layer of random features, [σ(XA), X]; one phase.

Random features are of Rahimi and Recht, "Random features for large-scale kernel machines", NIPS
2007. With a ridge they need one round; a deep analytic network has to be better than they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..math import gram
from ..math.blas import gram_bytes
from ..math.gram import FixedPoint, Rows, real, rows_as
from ..memory import NOTHING, Carried, Kept
from ..values.arrays import F64, I64, Array
from ..values.names import CROSS, GRAM, PHASE, Phase
from ..values.statistics import ArraySpec, Statistics
from .base import LAST, Block, Found, Gathered, Head, State, add_up, products, state
from .least_squares import fit
from .options import FIXED, RandomFeaturesOptions
from .projections import Tabled, in_fixed_point, projection, projections
from .rounding import checked, named


def fixed_lift(options: RandomFeaturesOptions, dim: int, bits: int) -> Tabled:
    """X ↦ σ(XA + a) for rows of ``dim`` features with ``bits`` fraction bits."""
    made = projection(options.projection, options.seed, 0, dim, options.width)
    remedy = "use --activation tanh, or extract with fewer --fraction-bits"
    return Tabled(made, options.activation, bits, bits, remedy)


class Lift:
    """X ↦ σ(XA + a): rows (n, d) → (n, width), of the type of the rows."""

    def __init__(self, options: RandomFeaturesOptions) -> None:
        self._options = options
        self._random = projections(options.projection, options.seed)
        self._fixed = Kept(partial(fixed_lift, options), 0)

    def rows(self, X: Rows) -> Rows:
        """The rows in the compute type; `UsageError` for fixed and rows that are real."""
        compute = self._options.compute
        return in_fixed_point(X) if compute == FIXED else rows_as(X, compute)

    def __call__(self, rows: Rows) -> Array:
        """σ(XA + a) of rows in a compute type, or of fixed-point rows int16 of as many bits."""
        if isinstance(rows, FixedPoint):
            return self._fixed(rows.dim, rows.bits)(rows.values)
        o = self._options
        return self._random(0, rows.shape[1], o.width)(rows, o.activation)

    def beside(self, lifted: Array, rows: Rows) -> Rows:
        """The result of a call, followed by the rows themselves if asked for."""
        values = rows.values if isinstance(rows, FixedPoint) else rows
        both = np.hstack([lifted, values]) if self._options.with_linear else lifted
        return FixedPoint(both, rows.bits) if isinstance(rows, FixedPoint) else both


@dataclass(frozen=True, eq=False)
class RandomFeaturesHead(Head):
    """Ridge regression on σ(XA + a), and on the features X too with ``with_linear``.

    The statistics are real numbers, because σ is: totals agree up to rounding. With ``compute``
    fixed σ is rounded as the features are, and the statistics are integers.
    """

    name = "random-features"
    options: RandomFeaturesOptions
    weights: F64 | None = state()

    @cached_property
    def _lift(self) -> Lift:
        return Lift(self.options)

    def phase(self) -> Phase | None:
        return PHASE if self.weights is None else None

    def _sums(self, blocks: Iterable[Block], carried: Carried) -> Gathered:
        """gram and cross of the lifted rows: integers, or float64 sums of products."""
        self.options.check_room(self._bound()[0])
        if self.options.compute == FIXED:
            classes, intercept = self._bound()[1], self.options.intercept
            G, H = gram.Products.over(blocks, classes, intercept, self._features)
            return {GRAM: G, CROSS: H}, NOTHING
        side = self.array_specs(None)[CROSS].shape[0]
        what = f"products of {side} random features"
        return add_up(self._each(self._products, blocks, gram_bytes(side), what)), NOTHING

    def _columns(self, dim: int) -> int:
        return dim + self.options.width

    def _products(self, X: Rows, y: I64, known: None) -> tuple[dict[str, Array], State]:
        phi = self.lift(X)
        return {GRAM: gram.real_gram(phi), CROSS: gram.real_cross(phi, y, self._bound()[1])}, {}

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        """Those of `gather`; this draws no random numbers."""
        o, (dim, classes) = self.options, self._bound()
        side = o.width + o.with_linear * dim + o.intercept
        return products(side, classes, o.compute == FIXED)

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        with named(self.options.compute):
            W, report = fit(total, self.options, validation, self.options.compute, checked)
        return replace(self, weights=W), Found(head=report)

    def scores(self, X: Rows) -> NDArray[np.float64]:
        """[σ(XA), X] W (+ intercept), float64."""
        if self.weights is None:
            raise UsageError("the head is not solved yet")
        phi = self.lift(X)
        return np.asarray(gram.product(phi, self.weights.astype(phi.dtype)), dtype=np.float64)

    def round_features(self, X: Rows) -> Iterator[tuple[Phase, Array]]:
        """Φ (n, D), see `lift`."""
        if self.phase() is None:
            yield LAST, self.lift(X)

    def _state_shapes(self) -> dict[str, tuple[int | None, ...]]:
        return {} if self.weights is None else {"weights": self.array_specs(None)[CROSS].shape}

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
