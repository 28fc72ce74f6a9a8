"""AFL's linear head: W = G⁻¹H from G = Σ XₖᵀXₖ and H = Σ XₖᵀYₖ; one phase.

He et al., "AFL: A Single-Round Analytic Approach for Federated Learning with Pre-trained Models",
CVPR 2025: equations (13)–(16). The clients' γ never enters the sums, so there is nothing to remove,
and the result is that of the exact removal (16). ``keep_gamma`` shows (14), the result without the
removal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from .. import memory
from ..errors import UsageError
from ..math.blas import gram_bytes, length
from ..math.gram import Products, Rows, row_product
from ..memory import NOTHING, Carried
from ..values.arrays import F64
from ..values.names import CROSS, GRAM, PHASE, Phase
from ..values.statistics import ArraySpec, Statistics
from .base import Block, Found, Gathered, Head, products, state
from .options import LinearOptions


@dataclass(frozen=True, eq=False)
class LinearHead(Head):
    """Least squares on one-hot labels, with an optional ridge and intercept.

    ``weights`` (d, C): the intercept last if there is one.
    """

    name = "linear"
    options: LinearOptions
    weights: F64 | None = state()

    def phase(self) -> Phase | None:
        return PHASE if self.weights is None else None

    def _sums(self, blocks: Iterable[Block], carried: Carried) -> Gathered:
        """gram (one triangle) and cross, with the constant feature if asked for; all blocks use
        one buffer."""
        dim, classes = self._bound()
        memory.need(gram_bytes(dim) + 8 * length(dim), f"the gram of {dim} features")
        G, H = Products.over(blocks, classes, self.options.intercept)
        return {GRAM: G, CROSS: H}, NOTHING

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        dim, classes = self._bound()
        return products(dim + self.options.intercept, classes, bits is not None)

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """(G + λI) W = H; raises `NumericalError` when G does not determine W."""
        from .least_squares import fit  # loads SciPy, which summing does not need

        W, report = fit(total, self.options, validation)
        return replace(self, weights=W), Found(head=report)

    def scores(self, X: Rows) -> F64:
        """X W (+ intercept), float64."""
        if self.weights is None:
            raise UsageError("the head is not solved yet")
        d = self.weights.shape[0] - self.options.intercept
        scores = row_product(X, self.weights[:d])
        return scores + self.weights[d] if self.options.intercept else scores

    def affine(self) -> tuple[F64, F64] | None:
        W = np.asarray(self.weights)
        return (W[:-1], W[-1]) if self.options.intercept else (W, np.zeros(W.shape[1]))

    def _state_shapes(self) -> dict[str, tuple[int | None, ...]]:
        dim, classes = self._bound()
        return {} if self.weights is None else {"weights": (dim + self.options.intercept, classes)}


HEAD = LinearHead
