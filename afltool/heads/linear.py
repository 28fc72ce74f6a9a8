"""AFL's linear head: W = G⁻¹H from G = Σ XₖᵀXₖ and H = Σ XₖᵀYₖ; one phase.

He et al., "AFL: A Single-Round Analytic Approach for Federated Learning with Pre-trained Models",
CVPR 2025: equations (13)–(16). Clients' γ never enters the sums, so removing it exactly (16) is
leaving it out; ``keep_gamma`` shows (14), what remains without the removal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError, NumericalError, UsageError
from ..linalg import ridge as rr
from ..linalg.fixedpoint import Rows, real
from ..linalg.gram import gram_and_cross
from ..statistics import Statistics
from .base import Array, Head
from .options import LinearOptions, check_path

GRAM = "gram"  # the only phase, and the array; `cross` beside it


class LinearHead(Head):
    """Least squares on one-hot labels, with an optional ridge and intercept."""

    name = "linear"
    options: LinearOptions

    def __init__(self, options: LinearOptions) -> None:
        super().__init__(options)
        self.weights: NDArray[np.float64] | None = None

    def phase(self) -> str | None:
        return GRAM if self.weights is None else None

    def statistics(self, X: Rows, y: NDArray[np.int64]) -> Statistics:
        """gram (one triangle) and cross of the rows, with the constant feature if asked."""
        if self.classes is None:
            raise UsageError("bind the head to a number of classes first: head.bind(dim, classes)")
        G, H = gram_and_cross(X, y, self.classes, self.options.intercept)
        counts = np.bincount(y, minlength=self.classes).astype(np.int64)
        return Statistics(GRAM, {GRAM: G, "cross": H}, counts)

    def absorb(self, total: Statistics, validation: Statistics | None = None) -> LinearHead:
        """Solve (G + λI) W = H; raises `NumericalError` when G does not determine W."""
        problem = _Problem.of(total, self.options.intercept)
        kept = sum(g * n for g, n in total.gammas.items()) if self.options.keep_gamma else 0.0
        choice = _Choice.make(self.options.ridge, problem, validation, self.options.intercept)
        W, facts = _solve(problem, choice, kept, self.options.min_norm)
        solved = self.bind(total.arrays["cross"].shape[0] - self.options.intercept, W.shape[1])
        solved.weights = problem.with_intercept(W)
        solved.report = {**facts, **choice.report(), "rows": total.rows}
        solved.report["training_mse"] = problem.squared_error(W) / total.rows
        if kept:
            solved.report["kept_gamma"] = kept
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
            d, classes = head.weights.shape
            head.dim, head.classes = d - self.options.intercept, classes
        return head


class _Problem:
    """One least-squares problem in float64, centred when there is an intercept."""

    def __init__(self, G: rr.F64, H: rr.F64, rows: int, class_counts: Array, intercept: bool):
        self.rows, self.means = rows, None
        self.target = float(rows)  # ‖Y‖² of one-hot labels
        self.extra = 0.0
        self.G, self.H = G, H
        if intercept:
            self.G, self.H, mean_x, mean_y = rr.centred(G, H, rows)
            self.means = (mean_x, mean_y)
            self.target -= float((class_counts.astype(float) ** 2).sum()) / rows
            self.extra = 1.0

    @classmethod
    def of(cls, total: Statistics, intercept: bool) -> _Problem:
        if total.rows == 0:
            raise InvalidDataError(
                f"the total of {len(total.clients)} clients has 0 rows: there is nothing to solve"
            )
        bits = _bits(total)
        G = rr.real_gram(total.arrays[GRAM], bits)
        H = rr.real_cross(total.arrays["cross"], bits)
        return cls(G, H, total.rows, total.class_counts, intercept)

    def squared_error(self, W: rr.F64) -> float:
        return max(rr.squared_error(W, self.G, self.H, self.target), 0.0)

    def with_intercept(self, W: rr.F64) -> rr.F64:
        if self.means is None:
            return W
        mean_x, mean_y = self.means
        return np.vstack([W, mean_y - mean_x @ W])


def _bits(statistics: Statistics) -> int | None:
    """Fraction bits of integer statistics; None for real ones, which are in units of one."""
    if not statistics.exact:
        return None
    bits: int | None = statistics.context.space.get("fraction_bits")
    if bits is None:
        raise InvalidDataError("integer statistics without their number of fraction bits")
    return bits


class _Choice:
    """A ridge and, where one was chosen from several, the path that it was chosen from."""

    def __init__(self, ridge: float, how: str, spectral: rr.Spectral | None, path: list[Any]):
        self.ridge, self.how, self.spectral, self.path = ridge, how, spectral, path

    @classmethod
    def make(
        cls, ridge: str | float, problem: _Problem, validation: Statistics | None, intercept: bool
    ) -> _Choice:
        if isinstance(ridge, float) and validation is None:
            return cls(ridge, "given", None, [])
        spectral = rr.Spectral.of(problem.G, problem.H)
        ridges = rr.auto_grid(spectral) if ridge == "auto" else _ridges(ridge)
        held = None if validation is None else _held_out(validation, problem, intercept)
        path = [_point(float(r), spectral, problem, held) for r in ridges]
        by = "gcv" if held is None else "validation_mse"
        usable = [point for point in path if point[by] is not None] or path[-1:]
        best = min(usable, key=lambda point: (point[by] or 0.0, -point["ridge"]))
        how = "held-out clients" if held else "generalised cross-validation"
        return cls(best["ridge"], how if len(path) > 1 else "given", spectral, path)

    def report(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"ridge": self.ridge, "ridge_by": self.how}
        if self.path:
            facts["ridge_path"] = self.path
        return facts


def _ridges(ridge: str | float) -> rr.F64:
    if isinstance(ridge, float):
        return np.array([ridge])
    low, high, count = check_path(ridge)
    return np.logspace(np.log10(low), np.log10(high), count)


def _held_out(validation: Statistics, problem: _Problem, intercept: bool) -> Any:
    """The held-out clients' squared error as a function of W: N − 2tr(WᵀH) + tr(WᵀGW)."""
    bits = _bits(validation)
    G = rr.real_gram(validation.arrays[GRAM], bits)
    H = rr.real_cross(validation.arrays["cross"], bits)
    rows = validation.rows
    if rows == 0:
        raise InvalidDataError("the held-out clients have 0 rows: nothing to validate on")
    return lambda W: rr.squared_error(problem.with_intercept(W), G, H, float(rows)) / rows


def _point(ridge: float, spectral: rr.Spectral, problem: _Problem, held: Any) -> dict[str, Any]:
    """One row of the path."""
    gcv = spectral.gcv(ridge, problem.target, problem.rows, problem.extra)
    point = {
        "ridge": ridge,
        "gcv": gcv if np.isfinite(gcv) else None,  # as many parameters as rows: no estimate
        "training_mse": max(spectral.squared_error(ridge, problem.target), 0.0) / problem.rows,
        "degrees_of_freedom": spectral.degrees_of_freedom(ridge),
    }
    if held is not None:
        point["validation_mse"] = held(spectral.weights(ridge))
    return point


def _solve(
    problem: _Problem, choice: _Choice, kept: float, min_norm: bool
) -> tuple[rr.F64, dict[str, Any]]:
    """Weights, with rank, condition number and effective degrees of freedom of the system."""
    ridge = choice.ridge + kept
    s = choice.spectral.s if choice.spectral else rr.eigenvalues(problem.G)
    found = rr.conditioning(s)
    if ridge == 0 and not found.full and not min_norm:
        raise NumericalError(rr.explain_rank(found, problem.rows, _REMEDY))
    positive = np.maximum(s, 0.0)
    alive = positive[-found.rank :] if ridge == 0 else positive
    facts = {
        "rank": found.rank,
        "features": found.dim,
        "condition": found.condition if found.full else None,
        "condition_with_ridge": float((found.largest + ridge) / (max(found.smallest, 0) + ridge))
        if ridge
        else None,
        "degrees_of_freedom": float((alive / (alive + ridge)).sum()),
        "minimum_norm": ridge == 0 and not found.full,
    }
    if facts["minimum_norm"]:
        spectral = choice.spectral or rr.Spectral.of(problem.G, problem.H)
        return spectral.weights(0.0), facts
    return rr.cholesky_solve(problem.G, problem.H, ridge), facts


_REMEDY = (
    "Give a ridge (--ridge 1, or --ridge auto to choose it by generalised cross-validation), "
    "or --min-norm for the minimum-norm solution"
)
