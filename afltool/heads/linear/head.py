"""AFL's linear head: W = G⁻¹H from G = Σ XₖᵀXₖ and H = Σ XₖᵀYₖ; one phase.

He et al., "AFL: A Single-Round Analytic Approach for Federated Learning with Pre-trained Models",
CVPR 2025: equations (13)–(16). The clients' γ never enters the sums, so there is nothing to remove,
and the result is that of the exact removal (16). ``keep_gamma`` shows (14), the result without the
removal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from ... import memory
from ...arrays import Array
from ...errors import UsageError
from ...linalg.fixedpoint import Rows, real
from ...linalg.gram import Products
from ...statistics import Statistics
from ..base import Block, Head, Source, expect_shape
from ..carried import NOTHING, Carried
from ..gathered import CROSS, GRAM, PHASE
from ..least_squares import fit
from .options import LinearOptions


class LinearHead(Head):
    """Least squares on one-hot labels, with an optional ridge and intercept."""

    name = "linear"
    options: LinearOptions

    def __init__(self, options: LinearOptions, sources: Mapping[str, Source] | None = None) -> None:
        super().__init__(options, sources)
        self.weights: NDArray[np.float64] | None = None

    def phase(self) -> str | None:
        return PHASE if self.weights is None else None

    def _sums(
        self, blocks: Iterable[Block], carried: Carried
    ) -> tuple[Mapping[str, Array], Carried]:
        """gram (one triangle) and cross, with the constant feature if asked for; all blocks use
        one buffer."""
        dim, classes = self._bound()
        memory.need(16 * dim * dim, f"the gram of {dim} features")  # a square and two triangles
        products: Products | None = None
        for X, y in blocks:
            products = products or Products.like(X, classes, self.options.intercept)
            products.add(X, y)
        assert products is not None  # there is one block at least
        G, H = products.result()
        return {GRAM: G, CROSS: H}, NOTHING

    def absorb(self, total: Statistics, validation: Statistics | None = None) -> LinearHead:
        """Solve (G + λI) W = H; raises `NumericalError` when G does not determine W."""
        W, report = fit(total, self.options, validation)
        solved = self.bind(len(W) - self.options.intercept, W.shape[1])
        solved.weights, solved.report = W, report
        return solved

    def scores(self, X: Rows) -> NDArray[np.float64]:
        """X W (+ intercept), float64."""
        if self.weights is None:
            raise UsageError("the head is not solved yet")
        d = self.weights.shape[0] - self.options.intercept
        scores: NDArray[np.float64] = real(X) @ self.weights[:d]
        return scores + self.weights[d] if self.options.intercept else scores

    def arrays(self) -> dict[str, Array]:
        return {} if self.weights is None else {"weights": self.weights}

    def restore(self, phase: str | None, arrays: Mapping[str, Array]) -> LinearHead:
        head = LinearHead(self.options)
        if phase is None:
            head.weights = np.asarray(arrays["weights"], dtype=np.float64)
            expect_shape("weights", head.weights, (None, None))
            d, classes = head.weights.shape
            head.dim, head.classes = d - self.options.intercept, classes
        return head


HEAD = LinearHead
