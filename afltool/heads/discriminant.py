"""One-shot classifiers from class sums: one phase, integer sums, and late clients can be added.

Nearest class mean (Rocchio), linear discriminant analysis (Fisher, 1936), FedCGS (Guan et al.,
"Capture global feature statistics for one-shot federated learning", AAAI 2025), Fed3R, Gaussian
naive Bayes and quadratic discriminant analysis. Clients send XᵀY and, depending on the rule, XᵀX,
(X∘X)ᵀY or the XᵀX of each class.

A rule goes from sums over clients to the arrays that score rows, all in float64: G = XᵀX (d, d),
H = XᵀY (d, C), counts n_c (C,), N = Σ n_c, M = H / n the class means μ_c, π = n/N. A class without
rows gets means of 0; its score is −∞.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy
from numpy.typing import NDArray

from .. import cores, memory
from ..errors import InvalidDataError, NumericalError, UsageError
from ..math.blas import length, pack, unpack
from ..math.gram import FixedPoint, Products, Rows, dim, pieces, real, real_cross, row_product
from ..math.ridge import FARTHEST, Moments, cross_matrix, definite_solve, gram_matrix
from ..memory import NOTHING, Carried
from ..values.arrays import F64, Array
from ..values.names import CROSS, GRAM, Phase
from ..values.statistics import ArraySpec, Statistics
from .base import Block, Found, Gathered, Head, add_up, products, state
from .least_squares import fraction_bits
from .options import DiscriminantOptions

CLASS_SUMS, SQUARES, GRAMS = Phase("class-sums"), "squares", "grams"
AT_ONCE = 4096  # rows: their squares of int16 add up below 2^53, and copies are small
VARIANCE_FLOOR = 1e-9  # times the largest pooled variance: scikit-learn's var_smoothing


@dataclass(frozen=True, eq=False)
class DiscriminantHead(Head):
    """A classifier from class sums; a class without rows is never predicted.

    ``counts``: rows of each class. Beside them a rule has ``weights``, or ``means`` with
    ``variances`` or ``factors``.
    """

    name = "discriminant"
    options: DiscriminantOptions
    counts: NDArray[np.int64] | None = state(np.int64)
    weights: F64 | None = state()
    means: F64 | None = state()
    variances: F64 | None = state()
    factors: F64 | None = state()

    @property
    def log_probabilities(self) -> bool:  # type: ignore[override]  # it depends on the rule
        """Whether softmax of the scores gives the rule's probabilities."""
        return self.options.rule in ("lda", "fedcgs", "naive-bayes", "qda")

    @property
    def shared_part(self) -> bool:  # type: ignore[override]  # it depends on the rule
        return self.options.rule == "nearest-mean"

    def phase(self) -> Phase | None:
        return CLASS_SUMS if self.counts is None else None

    # ------------------------------------------------------------ client side

    def _sums(self, blocks: Iterable[Block], carried: Carried) -> Gathered:
        d, classes = self._bound()
        size, what = 24 * AT_ONCE * d, f"class sums of {d} features"
        if self.options.rule == "qda":
            size, what = 16 * classes * length(d), f"{classes} grams of {d} features"
            memory.need(size, what)
        if self.options.rule in ("lda", "fedcgs", "fed3r"):
            G, H = Products.over(blocks, classes)
            return {GRAM: G, CROSS: H}, NOTHING
        parts = cores.each(self._part, pieces(blocks, AT_ONCE), lambda _: size, what)
        return add_up(parts), NOTHING

    def _part(self, block: Block) -> dict[str, Array]:
        """The class sums of a few rows; exact integers of fixed-point rows."""
        (X, y), classes = block, self._bound()[1]
        values = X.values if isinstance(X, FixedPoint) else X
        kind = np.int64 if isinstance(X, FixedPoint) else np.float64
        wide = values.astype(np.float64)
        sums = {CROSS: real_cross(wide, y, classes).astype(kind)}
        if self.options.rule == "naive-bayes":
            sums[SQUARES] = real_cross(wide * wide, y, classes).astype(kind)
        if self.options.rule == "qda":
            sums[GRAMS] = np.stack([_gram(X, y == c) for c in range(classes)])
        return sums

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        rule, (d, classes) = self.options.rule, self._bound()
        both = products(d, classes, bits is not None)
        if rule in ("lda", "fedcgs", "fed3r"):
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

    # ------------------------------------------------------------ server side

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """The classifier; `NumericalError` where a covariance is singular."""
        bits = fraction_bits(total)
        H = cross_matrix(total.arrays[CROSS], bits)
        if not total.context.noise:
            self._check_moments(total, H, bits)
        learned = self._learned(total, H, total.class_counts.astype(np.float64), bits)
        report = {"rule": self.options.rule, "rows": total.rows}
        return self._with(counts=total.class_counts, **learned), Found(head=report)

    def _check_moments(self, total: Statistics, H: F64, bits: int | None) -> None:
        """Refuse with `NumericalError` features that lie too far from zero for their deviation."""
        o = self.options
        if o.rule == "nearest-mean":
            check_means(H, total.class_counts)
            return
        moments = Moments.of(self._squares(total, bits), H, total.class_counts)
        ridge = o.shrinkage * max(float(moments.centred.mean()), 0.0)
        if o.rule == "fed3r":
            ridge = o.lam
        if o.rule == "naive-bayes":
            ridge = VARIANCE_FLOOR * max(float(moments.centred.max()), 0.0)
        moments.check(ridge, constant=True)

    def _squares(self, total: Statistics, bits: int | None) -> F64:
        """Σx² (d,) over all rows."""
        if self.options.rule == "naive-bayes":
            squares = total.arrays[SQUARES].sum(axis=1, dtype=np.float64)
            return np.asarray(squares if bits is None else squares * 4.0**-bits)
        packed = total.arrays[GRAMS] if self.options.rule == "qda" else [total.arrays[GRAM]]
        return np.asarray(np.sum([np.diag(gram_matrix(one, bits)) for one in packed], axis=0))

    def _learned(
        self, total: Statistics, H: F64, counts: F64, bits: int | None
    ) -> dict[str, Array]:
        o, scale = self.options, 1.0 if bits is None else 2.0 ** (-2 * bits)
        if o.rule == "nearest-mean":
            return {"weights": nearest_mean(H, counts)}
        if o.rule == "naive-bayes":
            variance = variances_of(total.arrays[SQUARES] * scale, H, counts)
            return {"means": means_of(H, counts), "variances": variance}
        if o.rule == "qda":
            return self._quadratic(total.arrays[GRAMS], H, counts, bits)
        G = gram_matrix(total.arrays[GRAM], bits)
        if o.rule == "fed3r":
            return {"weights": fed3r(G, H, counts, o.lam)}
        covariance = (within if o.rule == "lda" else overall)(G, H, counts)
        return {"weights": linear(covariance, H, counts, o.shrinkage)}

    def _quadratic(self, grams: Array, H: F64, counts: F64, bits: int | None) -> dict[str, Array]:
        M, s = means_of(H, counts), self.options.shrinkage
        factors = np.zeros((len(counts), length(len(M))))
        for c in np.flatnonzero(counts):
            G_c = gram_matrix(grams[c], bits)
            factors[c] = pack(quadratic_factor(G_c, M[:, c], counts[c], s))
        return {"means": M, "factors": factors}

    # ------------------------------------------------------------ scores

    def scores(self, X: Rows) -> F64:
        """Scores (n, C): log π + log density up to a constant of the row, except for these rules.

        nearest-mean: xᵀμ − ½‖μ‖²; fed3r: its normalised ridge scores. −∞ for a class without rows.
        """
        if self.counts is None:
            raise UsageError("the head is not solved yet")
        result = self._finite_scores(X, self.counts.astype(np.float64))
        result[:, self.counts == 0] = -np.inf
        return result

    def affine(self) -> tuple[F64, F64] | None:
        if self.weights is None or self.counts is None or not self.counts.all():
            return None
        return self.weights[:-1], self.weights[-1]

    def _finite_scores(self, rows: Rows, counts: F64) -> F64:
        if self.weights is not None:
            return np.asarray(row_product(rows, self.weights[:-1]) + self.weights[-1])
        X = real(rows)
        assert self.means is not None
        if self.variances is not None:
            return naive_bayes_scores(X, self.means, self.variances, counts)
        assert self.factors is not None
        out, shares = np.zeros((len(X), len(counts))), log_shares(counts)
        for c in np.flatnonzero(counts):
            L = np.tril(unpack(self.factors[c]))
            out[:, c] = quadratic_score(X, self.means[:, c], L, shares[c])
        return out

    # ------------------------------------------------------------ state

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        head = super().restore(phase, arrays)
        if head.counts is not None and ((head.counts < 0).any() or not head.counts.any()):
            raise InvalidDataError("the class counts of a head are from 0 on, one above 0")
        return head

    def _state_shapes(self) -> dict[str, tuple[int | None, ...]]:
        if self.counts is None:
            return {}
        dim, classes = self._bound()
        beside: dict[str, dict[str, tuple[int | None, ...]]] = {
            "naive-bayes": {"means": (dim, classes), "variances": (dim, classes)},
            "qda": {"means": (dim, classes), "factors": (classes, length(dim))},
        }
        weights = {"weights": (dim + 1, classes)}
        return {"counts": (classes,), **beside.get(self.options.rule, weights)}


def _gram(X: Rows, mine: NDArray[np.bool_]) -> Array:
    rows = X[np.flatnonzero(mine)]
    if not len(rows):
        return np.zeros(length(dim(X)), np.int64 if isinstance(X, FixedPoint) else np.float64)
    return Products.like(X, 1).add(rows, np.zeros(len(rows), np.int64)).taken()[0]


def means_of(H: F64, counts: F64) -> F64:
    """M (d, C)."""
    return np.asarray(H / np.maximum(counts, 1.0))


def log_shares(counts: F64) -> F64:
    """log π (C,); 0 for a class without rows."""
    present = counts > 0
    logs: F64 = np.log(counts / counts.sum(), out=np.zeros_like(counts), where=present)
    return logs


def nearest_mean(H: F64, counts: F64) -> F64:
    """xᵀμ_c − ½‖μ_c‖², as (d + 1, C) with the constant last: the nearest mean, Euclidean."""
    M = means_of(H, counts)
    return np.vstack([M, -0.5 * (M**2).sum(axis=0)])


def check_means(H: F64, counts: Array) -> None:
    """Refuse with `NumericalError` means that lie so close that ‖μ‖² has lost their distance."""
    present = counts > 0
    mean, M = H.sum(axis=1) / counts.sum(), means_of(H, counts)[:, present]
    apart = ((M - mean[:, None]) ** 2).sum(axis=0).max()
    moments = Moments.of((H**2 / np.maximum(counts, 1)).sum(axis=1), H, counts)
    if moments.varies.any() and apart < (mean**2).sum() / FARTHEST**2:
        raise NumericalError(
            f"the means of classes are {np.sqrt(apart):.3g} from their middle, which is "
            f"{np.linalg.norm(mean):.3g} from zero: float64 cannot tell them apart; subtract "
            "numbers near the mean that all sites agree on before import"
        )


def within(G: F64, H: F64, counts: F64) -> F64:
    """Σ_w = (G − Σ n_c μ_c μ_cᵀ) / N."""
    M = means_of(H, counts)
    return np.asarray((G - (M * counts) @ M.T) / counts.sum())


def overall(G: F64, H: F64, counts: F64) -> F64:
    """(G − N μμᵀ) / (N − 1), μ the mean of all rows: FedCGS's covariance, which is not LDA's."""
    N, mean = counts.sum(), H.sum(axis=1) / counts.sum()
    return np.asarray((G - N * np.outer(mean, mean)) / max(N - 1.0, 1.0))


def linear(covariance: F64, H: F64, counts: F64, shrinkage: float) -> F64:
    """xᵀΣ⁻¹μ_c − ½ μ_cᵀΣ⁻¹μ_c + log π_c, as (d + 1, C) with the constant last.

    With `within` it is Fisher's linear discriminant analysis, LinearDiscriminantAnalysis(
    solver='lsqr', shrinkage=s) of scikit-learn; d³/3.
    """
    M = means_of(H, counts)
    W = scipy.linalg.cho_solve((factor(shrunk(covariance, shrinkage)), True), M)
    return np.vstack([W, -0.5 * (M * W).sum(axis=0) + log_shares(counts)])


def shrunk(covariance: F64, s: float) -> F64:
    """(1 − s)Σ + s tr(Σ)/d I."""
    d = len(covariance)
    return np.asarray((1.0 - s) * covariance + (s * np.trace(covariance) / d) * np.eye(d))


def factor(covariance: F64) -> F64:
    """L of Σ = L Lᵀ, lower triangle.

    Raises `NumericalError` where Σ is not positive definite to working precision.
    """
    try:
        L: F64 = np.tril(scipy.linalg.cholesky(covariance, lower=True))
        diagonal = np.diag(L) ** 2 / np.maximum(np.diag(covariance), np.finfo(float).tiny)
        weak = int((diagonal < len(L) * np.finfo(float).eps).sum())
    except scipy.linalg.LinAlgError:
        weak, L = 1, covariance
    if weak:
        raise NumericalError(
            f"a covariance of {len(covariance)} features is singular to working precision",
            advice=": give --shrinkage 0.05, or gather more rows than features",
        )
    return L


def fed3r(G: F64, H: F64, counts: F64, ridge: float) -> F64:
    """Ridge on x̃ = (x, 1), λ on the constant too, each class divided by the norm of its weights.

    Fanì et al., "Accelerating heterogeneous federated learning with closed-form classifiers", ICML
    2024. The constant's column of the gram is H·1 and N: nothing more is sent.
    """
    s, N = H.sum(axis=1), counts.sum()
    A = np.block([[G, s[:, None]], [s[None, :], np.array([[N]])]])
    A.flat[:: len(A) + 1] += ridge
    B = np.vstack([H, counts])
    try:
        W = definite_solve(A, B)
    except scipy.linalg.LinAlgError:
        raise NumericalError(
            f"gram + {ridge:g} I of {len(A)} columns is singular to working precision",
            advice=": use a larger --ridge",
        ) from None
    norms = np.linalg.norm(W[:-1], axis=0)
    return np.asarray(W / np.where(norms > 0, norms, 1.0))


def variances_of(squares: F64, H: F64, counts: F64) -> F64:
    """Q/n − μ² + 10⁻⁹ · the largest pooled variance, (d, C), of Q = (X∘X)ᵀY: GaussianNB's.

    A difference Q/n − μ² that may be rounding alone counts as 0: a constant feature would else have
    another variance in each class.
    """
    N, mean = counts.sum(), H.sum(axis=1) / counts.sum()
    pooled = squares.sum(axis=1) / N - mean**2
    second = squares / np.maximum(counts, 1.0)
    own = second - means_of(H, counts) ** 2
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


def quadratic_factor(G_c: F64, mean: F64, rows: float, shrinkage: float) -> F64:
    """L of one class's covariance (G_c − n μμᵀ)/n, shrunk: scikit-learn's from 1.9 on."""
    covariance = (G_c - rows * np.outer(mean, mean)) / rows
    return factor(shrunk(covariance, shrinkage))


def quadratic_score(X: F64, mean: F64, L: F64, log_share: float) -> F64:
    """−½ (‖L⁻¹(x − μ)‖² + log det Σ) + log π (n,)."""
    z = scipy.linalg.solve_triangular(L, (X - mean).T, lower=True)
    return np.asarray(log_share - np.log(np.diag(L)).sum() - 0.5 * (z * z).sum(axis=0))


HEAD = DiscriminantHead
