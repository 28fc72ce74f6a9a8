"""One-shot classifiers from class sums.

Nearest class mean (Rocchio), linear discriminant analysis (Fisher, 1936), FedCGS (Guan et al.,
"Capture global feature statistics for one-shot federated learning", AAAI 2025), Fed3R, Gaussian
naive Bayes and quadratic discriminant analysis, from G = XᵀX or those of each class, H = XᵀY,
(X∘X)ᵀY and counts n_c; N = Σ n_c, M = H / n the class means μ_c (d, C), π = n/N.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy

from ..errors import InvalidDataError, NumericalError
from ..math.blas import length, pack, unpack
from ..math.gram import (
    FixedPoint,
    Rows,
    gram_and_cross,
    real,
    real_cross,
    row_product,
    rows_per_product,
)
from ..math.ridge import FARTHEST, Moments, cross_matrix, definite_solve, gram_matrix
from ..values.arrays import F64, I64, Array
from ..values.names import CROSS, GRAM, Phase
from ..values.statistics import ArraySpec, Statistics
from .base import Accumulator, Found, Head, Shape, State, products, require_solved, state
from .least_squares import Sums
from .options import DiscriminantOptions
from .problem import fraction_bits

CLASS_SUMS, SQUARES, GRAMS = Phase("class-sums"), "squares", "grams"
OF_GRAM = ("lda", "fedcgs", "fed3r")  # rules that take XᵀX of all rows
AT_ONCE = 4096  # rows: their squares of int16 add up below 2^53, and copies are small
VARIANCE_FLOOR = 1e-9  # times the largest pooled variance: scikit-learn's var_smoothing


@dataclass(frozen=True, eq=False)
class DiscriminantHead(Head):
    """A classifier from class sums; a class without rows is never predicted. Beside ``counts`` of
    rows a rule has ``weights``, or ``means`` with ``variances`` or ``factors``."""

    name = "discriminant"
    options: DiscriminantOptions
    counts: I64 | None = state(np.int64)
    weights: F64 | None = state()
    means: F64 | None = state()
    variances: F64 | None = state()
    factors: F64 | None = state()

    @property
    def score_kind(self) -> str:  # type: ignore[override]  # it depends on the rule
        others = {"nearest-mean": "differences", "fed3r": "values"}
        return others.get(self.options.rule, "log-probabilities")

    def phase(self) -> Phase | None:
        return CLASS_SUMS if self.counts is None else None

    @property
    def at_once(self) -> int:  # type: ignore[override]  # it depends on the number of features
        return rows_per_product(self._bound()[0]) if self.options.rule in OF_GRAM else AT_ONCE

    def accumulator(self) -> Accumulator:
        return Sums(self._bound()[1]) if self.options.rule in OF_GRAM else super().accumulator()

    def _part(self, X: Rows, y: I64, known: State | None) -> tuple[dict[str, Array], State]:
        """The class sums of a few rows; exact integers of fixed-point rows."""
        classes, exact = self._bound()[1], isinstance(X, FixedPoint)
        kind = np.int64 if exact else np.float64
        wide = (X.values if isinstance(X, FixedPoint) else X).astype(np.float64)
        sums = {CROSS: real_cross(wide, y, classes).astype(kind)}
        if self.options.rule == "naive-bayes":
            sums[SQUARES] = real_cross(wide * wide, y, classes).astype(kind)
        if self.options.rule == "qda":
            of_class = (X[np.flatnonzero(y == c)] for c in range(classes))
            grams = [gram_and_cross(one, np.zeros(len(one), np.int64), 1)[0] for one in of_class]
            sums[GRAMS] = np.stack(grams)
        return sums, {}

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        rule, (d, classes) = self.options.rule, self._bound()
        both = products(d, classes, bits is not None)
        if rule in OF_GRAM:
            return both
        sums, gram = both[CROSS], both[GRAM]
        if rule == "nearest-mean":
            return {CROSS: replace(sums, rows_of="")}
        if rule == "qda":
            return {
                CROSS: replace(sums, rows_of=GRAMS),
                GRAMS: replace(gram, shape=(classes, length(d))),
            }
        squares = replace(gram, shape=(d, classes), square=False, by_class=True)
        return {CROSS: replace(sums, rows_of=SQUARES), SQUARES: squares}

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """The classifier; `NumericalError` where a covariance is singular, or features lie too far
        from zero for their deviation."""
        o, bits, counts = self.options, fraction_bits(total), total.class_counts.astype(np.float64)
        H, check = cross_matrix(total.arrays[CROSS], bits), not total.context.noise
        learned: dict[str, Any]
        if o.rule == "nearest-mean":
            learned = {"weights": nearest_mean(H, counts, check)}
        elif o.rule == "naive-bayes":
            Q = total.arrays[SQUARES] * (1.0 if bits is None else 4.0**-bits)
            moments = Moments.of(Q.sum(axis=1), H, total.class_counts)
            if check:
                moments.check(VARIANCE_FLOOR * max(float(moments.centered.max()), 0.0), True)
            learned = {
                "means": compute_means(H, counts),
                "variances": class_variances(Q, H, counts),
            }
        else:
            packed = total.arrays[GRAMS if o.rule == "qda" else GRAM]
            grams = [gram_matrix(one, bits) for one in np.atleast_2d(packed)]
            raw = np.sum([np.diag(one) for one in grams], axis=0)
            moments = Moments.of(raw, H, total.class_counts)
            ridge = o.shrinkage * max(float(moments.centered.mean()), 0.0)
            if check:
                moments.check(o.lam if o.rule == "fed3r" else ridge, constant=True)
            learned = self._of_grams(grams, H, counts)
        report = {"rule": o.rule, "rows": total.rows}
        return replace(self, counts=total.class_counts, **learned), Found(head=report)

    def _of_grams(self, grams: list[F64], H: F64, counts: F64) -> dict[str, Array]:
        o = self.options
        if o.rule == "fed3r":
            return {"weights": fed3r(grams[0], H, counts, o.lam)}
        if o.rule != "qda":
            covariance = pooled_covariance(o.rule, grams[0], H, counts)
            return {"weights": linear(covariance, H, counts, o.shrinkage)}
        M, factors = compute_means(H, counts), np.zeros((len(counts), length(len(H))))
        for c in np.flatnonzero(counts):
            own = grams[c] - counts[c] * np.outer(M[:, c], M[:, c])  # scikit-learn's from 1.9 on
            factors[c] = pack(factor(own / counts[c], o.shrinkage))
        return {"means": M, "factors": factors}

    def decision_function(self, X: Rows) -> F64:
        """Scores (n, C): log π + log density up to a constant of the row; of nearest-mean xᵀμ −
        ½‖μ‖², of fed3r its normalized ridge scores. −∞ for a class without rows."""
        counts, known = require_solved(self.counts).astype(np.float64), self.state_dict()
        if self.weights is not None:
            out = np.asarray(row_product(X, self.weights[:-1]) + self.weights[-1])
        elif self.variances is not None:
            out = naive_bayes_scores(real(X), known["means"], self.variances, counts)
        else:
            rows, out, shares = real(X), np.zeros((len(X), len(counts))), log_shares(counts)
            for c in np.flatnonzero(counts):
                L = np.tril(unpack(known["factors"][c]))  # −½ (‖L⁻¹(x − μ)‖² + log det Σ) + log π
                z = scipy.linalg.solve_triangular(L, (rows - known["means"][:, c]).T, lower=True)
                out[:, c] = shares[c] - np.log(np.diag(L)).sum() - 0.5 * (z * z).sum(axis=0)
        out[:, self.counts == 0] = -np.inf
        return out

    def affine(self) -> tuple[F64, F64] | None:
        if self.weights is None:
            return None
        return self.weights[:-1], np.where(self.state_dict()["counts"], self.weights[-1], -np.inf)

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        head = super().restore(phase, arrays)
        if head.counts is not None and ((head.counts < 0).any() or not head.counts.any()):
            raise InvalidDataError("the class counts of a head are from 0 on, one above 0")
        return head

    def _state_shapes(self) -> Mapping[str, Shape]:
        if self.counts is None:
            return {}
        d, classes = self._bound()
        shapes: dict[str, Shape] = {"weights": (d + 1, classes)}
        if self.options.rule == "naive-bayes":
            shapes = {"means": (d, classes), "variances": (d, classes)}
        if self.options.rule == "qda":
            shapes = {"means": (d, classes), "factors": (classes, length(d))}
        return {"counts": (classes,), **shapes}


def compute_means(H: F64, counts: F64) -> F64:
    """M (d, C)."""
    return np.asarray(H / np.maximum(counts, 1.0))


def log_shares(counts: F64) -> F64:
    """log π (C,); 0 for a class without rows."""
    present = counts > 0
    logs: F64 = np.log(counts / counts.sum(), out=np.zeros_like(counts), where=present)
    return logs


def nearest_mean(H: F64, counts: F64, check: bool = False) -> F64:
    """xᵀμ_c − ½‖μ_c‖², as (d + 1, C) with the constant last: the nearest mean, Euclidean.
    ``check``: refuse with `NumericalError` means so close that ‖μ‖² has lost their distance."""
    M, mean = compute_means(H, counts), H.sum(axis=1) / counts.sum()
    apart = ((M[:, counts > 0] - mean[:, None]) ** 2).sum(axis=0).max()
    varies = Moments.of((M * H).sum(axis=1), H, counts).varies.any()
    if check and varies and apart < (mean**2).sum() / FARTHEST**2:
        raise NumericalError(
            f"the means of classes are {np.sqrt(apart):.3g} from their middle, and that is "
            f"{np.linalg.norm(mean):.3g} from zero, too far to tell them apart: subtract numbers "
            "near the mean that all sites agree on before import"
        )
    return np.vstack([M, -0.5 * (M**2).sum(axis=0)])


def pooled_covariance(rule: str, G: F64, H: F64, counts: F64) -> F64:
    """Σ (d, d) of lda, (G − Σ n_c μ_c μ_cᵀ) / N, or of fedcgs, (G − N μμᵀ) / (N − 1)."""
    M, N = compute_means(H, counts), counts.sum()
    if rule == "lda":
        return np.asarray((G - (M * counts) @ M.T) / N)
    mean = H.sum(axis=1) / N
    return np.asarray((G - N * np.outer(mean, mean)) / max(N - 1.0, 1.0))


def linear(covariance: F64, H: F64, counts: F64, shrinkage: float) -> F64:
    """xᵀΣ⁻¹μ_c − ½ μ_cᵀΣ⁻¹μ_c + log π_c, as (d + 1, C) with the constant last; d³/3. With the
    covariance of lda it is scikit-learn's LinearDiscriminantAnalysis('lsqr', shrinkage=s)."""
    M = compute_means(H, counts)
    W = scipy.linalg.cho_solve((factor(covariance, shrinkage), True), M)
    return np.vstack([W, -0.5 * (M * W).sum(axis=0) + log_shares(counts)])


def factor(covariance: F64, s: float) -> F64:
    """L of (1 − s)Σ + s tr(Σ)/d I = L Lᵀ, lower triangle.
    Raises `NumericalError` where that is not positive definite to working precision."""
    d = len(covariance)
    S: F64 = (1.0 - s) * covariance + (s * np.trace(covariance) / d) * np.eye(d)
    try:
        L: F64 = np.tril(scipy.linalg.cholesky(S, lower=True))
        diagonal = np.diag(L) ** 2 / np.maximum(np.diag(S), np.finfo(float).tiny)
        if not (diagonal < len(L) * np.finfo(float).eps).any():
            return L
    except scipy.linalg.LinAlgError:
        pass
    why = f"a covariance of {len(S)} features is singular to working precision"
    raise NumericalError(why, advice=": give --shrinkage 0.05, or gather more rows than features")


def fed3r(G: F64, H: F64, counts: F64, ridge: float) -> F64:
    """Ridge on (x, 1), λ on the constant too, each class divided by the norm of its weights (Fanì
    et al., ICML 2024). The constant's column of the gram is H·1 and N."""
    s, N = H.sum(axis=1), counts.sum()
    A = np.block([[G, s[:, None]], [s[None, :], np.array([[N]])]])
    A.flat[:: len(A) + 1] += ridge
    B = np.vstack([H, counts])
    try:
        W = definite_solve(A, B)
    except scipy.linalg.LinAlgError:
        why = f"gram + {ridge:g} I of {len(A)} columns is singular to working precision"
        raise NumericalError(why, advice=": use a larger --ridge") from None
    norms = np.linalg.norm(W[:-1], axis=0)
    return np.asarray(W / np.where(norms > 0, norms, 1.0))


def class_variances(squares: F64, H: F64, counts: F64) -> F64:
    """Q/n − μ² + 10⁻⁹ · the largest pooled variance, (d, C), of Q = (X∘X)ᵀY: GaussianNB's.
    A difference Q/n − μ² that may be rounding alone, as of a constant feature, counts as 0."""
    N, mean = counts.sum(), H.sum(axis=1) / counts.sum()
    pooled = squares.sum(axis=1) / N - mean**2
    second = squares / np.maximum(counts, 1.0)
    own = second - compute_means(H, counts) ** 2
    own = np.where(own > second / FARTHEST**2, own, 0.0)
    floored = own + VARIANCE_FLOOR * pooled.max()
    if VARIANCE_FLOOR * pooled.max() < np.finfo(float).tiny:
        raise NumericalError("no feature varies: naive Bayes has no variances to divide by")
    return np.asarray(np.where(counts > 0, floored, 1.0))


def naive_bayes_scores(X: F64, means: F64, variance: F64, counts: F64) -> F64:
    """Σ_j [−½ log 2πσ² − (x − μ)²/2σ²] + log π (n, C)."""
    base = log_shares(counts) - 0.5 * np.log(2.0 * np.pi * variance).sum(axis=0)
    out = np.empty((len(X), len(counts)))
    for c in range(len(counts)):
        away = X - means[:, c]
        out[:, c] = base[c] - 0.5 * ((away * away) @ (1.0 / variance[:, c]))
    return out
