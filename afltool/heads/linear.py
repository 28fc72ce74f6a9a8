"""AFL's linear head: W = G⁻¹H from G = Σ XₖᵀXₖ and H = Σ XₖᵀYₖ; one phase.

He et al., "AFL: A Single-Round Analytic Approach for Federated Learning with Pre-trained Models",
CVPR 2025: equations (13)–(16). Clients' γ never enters the sums, so removing it exactly (16) is
leaving it out; ``keep_gamma`` shows (14), what remains without the removal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..linalg.fixedpoint import Rows, real
from ..linalg.gram import Products
from ..statistics import Statistics
from .base import Array, Block, Head, expect_shape
from .least_squares import CROSS, GRAM, Choice, Problem, solve
from .options import LinearOptions

PHASE = "gram"


class LinearHead(Head):
    """Least squares on one-hot labels, with an optional ridge and intercept."""

    name = "linear"
    options: LinearOptions

    def __init__(self, options: LinearOptions) -> None:
        super().__init__(options)
        self.weights: NDArray[np.float64] | None = None

    def phase(self) -> str | None:
        return PHASE if self.weights is None else None

    def statistics(self, X: Rows, y: NDArray[np.int64]) -> Statistics:
        """gram (one triangle) and cross of the rows, with the constant feature if asked."""
        return self.collect([(X, y)])

    def collect(self, blocks: Iterable[Block]) -> Statistics:
        """`statistics` of rows in blocks, through one buffer."""
        if self.classes is None:
            raise UsageError("bind the head to a number of classes first: head.bind(dim, classes)")
        products, counts = None, np.zeros(self.classes, dtype=np.int64)
        for X, y in blocks:
            products = products or Products.like(X, self.classes, self.options.intercept)
            products.add(X, y)
            counts += np.bincount(y, minlength=self.classes)
        if products is None:
            raise UsageError("there are no blocks to collect; give at least an empty one")
        G, H = products.result()
        return Statistics(PHASE, {GRAM: G, CROSS: H}, counts)

    def absorb(self, total: Statistics, validation: Statistics | None = None) -> LinearHead:
        """Solve (G + λI) W = H; raises `NumericalError` when G does not determine W."""
        problem = Problem.of(total, self.options.intercept)
        kept = sum(g * n for g, n in total.gammas.items()) if self.options.keep_gamma else 0.0
        choice = Choice.make(self.options.ridge, problem, validation, self.options.intercept)
        W, facts = solve(problem, choice, kept, self.options.min_norm)
        solved = self.bind(self.dim_of(total), W.shape[1])
        solved.weights = problem.with_intercept(W)
        solved.report = {**facts, **choice.report(), "rows": total.rows}
        solved.report["training_mse"] = problem.squared_error(W) / total.rows
        if kept:
            solved.report["kept_gamma"] = kept
        return solved

    def dim_of(self, total: Statistics) -> int:
        """Number of features d of the rows that a total was gathered from."""
        return int(total.arrays[CROSS].shape[0]) - self.options.intercept

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
