"""The rules: from class sums to the arrays that score rows. All in float64, from sums over clients.

G = XᵀX (d, d), H = XᵀY (d, C), counts n_c (C,), N = Σ n_c, M = H / n the class means μ_c, π = n/N.
A class without rows gets means of 0 here; the head sets its score to −∞.
"""

from __future__ import annotations

import numpy as np
import scipy

from ...errors import NumericalError, Remedy
from ...math.moments import FARTHEST, Moments
from ...math.ridge import definite_solve
from ...values.arrays import F64, Array

VARIANCE_FLOOR = 1e-9  # times the largest pooled variance: scikit-learn's var_smoothing


def means_of(H: F64, counts: F64) -> F64:
    """M (d, C)."""
    return np.asarray(H / np.maximum(counts, 1.0))


def log_shares(counts: F64) -> F64:
    """log π (C,); 0 for a class without rows."""
    present = counts > 0
    found: F64 = np.log(counts / counts.sum(), out=np.zeros_like(counts), where=present)
    return found


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


def total(G: F64, H: F64, counts: F64) -> F64:
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
            remedy=Remedy.SHRINKAGE,
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
            remedy=Remedy.LARGER_FIXED_RIDGE,
        ) from None
    norms = np.linalg.norm(W[:-1], axis=0)
    return np.asarray(W / np.where(norms > 0, norms, 1.0))


def variances(squares: F64, H: F64, counts: F64) -> F64:
    """Q/n − μ² + 10⁻⁹ · the largest pooled variance, (d, C), of Q = (X∘X)ᵀY: GaussianNB's.

    A difference Q/n − μ² that may be rounding alone counts as 0: a constant feature would else have
    another variance in each class.
    """
    N, mean = counts.sum(), H.sum(axis=1) / counts.sum()
    pooled = squares.sum(axis=1) / N - mean**2
    second = squares / np.maximum(counts, 1.0)
    own = second - means_of(H, counts) ** 2
    own = np.where(own > second / FARTHEST**2, own, 0.0)
    found = own + VARIANCE_FLOOR * pooled.max()
    if VARIANCE_FLOOR * pooled.max() < np.finfo(float).tiny:
        raise NumericalError("no feature varies: naive Bayes has no variances to divide by")
    return np.asarray(np.where(counts > 0, found, 1.0))


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
