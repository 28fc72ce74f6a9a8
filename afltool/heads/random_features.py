"""The linear head on one wide layer of random features, [σ(XA), X]; one phase.

What a deep analytic network has to beat: random features (Rahimi and Recht, "Random features for
large-scale kernel machines", NIPS 2007) with a ridge, in one round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy

import numpy as np
from numpy.typing import NDArray

from .. import memory
from ..errors import UsageError
from ..linalg import gram
from ..linalg.fixedpoint import Rows, dim, typed
from ..linalg.triangle import length
from ..statistics import Statistics
from .base import Array, Block, Head, Shape, expect_shape
from .least_squares import CROSS, GRAM
from .linear import PHASE, LinearHead
from .random import Projections
from .random_options import RandomFeaturesOptions


class RandomFeaturesHead(LinearHead):
    """Ridge regression on σ(XA + a), with the features X themselves beside them or not.

    The statistics are real numbers, not integers: σ is not, so totals agree up to rounding.
    """

    name = "random-features"
    options: RandomFeaturesOptions

    def __init__(self, options: RandomFeaturesOptions) -> None:
        super().__init__(options)
        self._random = Projections(options.projection, options.seed)

    def statistics(self, X: Rows, y: NDArray[np.int64]) -> Statistics:
        """gram and cross of the lifted rows, float64 sums of products in the compute type."""
        if self.classes is None:
            raise UsageError("bind the head to a number of classes first: head.bind(dim, classes)")
        lifted = self.lift(X)
        arrays = {GRAM: gram.real_gram(lifted), CROSS: gram.real_cross(lifted, y, self.classes)}
        return Statistics(PHASE, arrays, np.bincount(y, minlength=self.classes).astype(np.int64))

    def collect(self, blocks: Iterable[Block]) -> Statistics:
        """Block by block, as most heads do: the linear head's buffer is for rows as they are."""
        return Head.collect(self, blocks)

    def shapes(self, bits: int | None) -> dict[str, Shape]:
        """Those of `statistics`, without a random number drawn."""
        if self.dim is None or self.classes is None:
            raise UsageError("bind the head to a number of features first: head.bind(dim, classes)")
        o = self.options
        side = o.width + o.with_linear * self.dim + o.intercept
        return {GRAM: ((length(side),), "f"), CROSS: ((side, self.classes), "f")}

    def absorb(self, total: Statistics, validation: Statistics | None = None) -> RandomFeaturesHead:
        """Solve as the linear head does, once the memory that it takes is known to be there."""
        side = len(total.arrays[CROSS])
        # The system and a copy of it; eigenvectors and LAPACK's workspace (2d²) when λ is chosen.
        squares = 2 if isinstance(self.options.ridge, float) and validation is None else 5
        memory.need(8 * squares * side * side, f"a linear system of {side} random features")
        solved = super().absorb(total, validation)
        assert isinstance(solved, RandomFeaturesHead)
        return solved

    def scores(self, X: Rows) -> NDArray[np.float64]:
        """[σ(XA), X] W (+ intercept), float64."""
        if self.weights is None:
            raise UsageError("the head is not solved yet")
        lifted = self.lift(X)
        return np.asarray(gram.product(lifted, self.weights.astype(lifted.dtype)), dtype=np.float64)

    def restore(self, phase: str | None, arrays: Mapping[str, Array]) -> RandomFeaturesHead:
        head = copy(self)
        if phase is None:
            head.weights = np.asarray(arrays["weights"], dtype=np.float64)
        return head

    def bind(self, dim: int, classes: int) -> RandomFeaturesHead:
        bound = super().bind(dim, classes)
        if self.weights is not None:
            expect_shape("weights", self.weights, bound.shapes(None)[CROSS][0])
        return bound

    def dim_of(self, total: Statistics) -> int:
        found = self.dim or total.context.space.get("dim")
        if found is None:
            raise UsageError("bind the head to a number of features first: head.bind(dim, classes)")
        return int(found)

    def lift(self, X: Rows) -> Array:
        """σ(XA + a), X if asked, and the constant feature if asked, in the compute type."""
        o = self.options
        rows = typed(X, o.compute)
        parts = [self._random(0, dim(X), o.width)(rows, o.activation)]
        parts += [rows] if o.with_linear else []
        parts += [np.ones((len(rows), 1), rows.dtype)] if o.intercept else []
        return np.hstack(parts) if len(parts) > 1 else parts[0]
