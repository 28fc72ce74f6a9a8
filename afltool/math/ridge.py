"""Ridge regression from its normal equations: (G + λI) W = H with G = XᵀX, H = XᵀY.

All functions take G, H and counts, never rows, so no result depends on who has which rows.

Sums of a feature that lies far from zero may no longer tell its deviation: Σ(x − x̄)² = Σx² − N x̄²
cancels. With |x̄| = r times the deviation, rounding Σx² once changes it by r² times the spacing of
float64; a whole sum has ten to thirty such roundings as its error.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import isfinite

import numpy as np
import scipy

from ..errors import NumericalError, RidgeNeededError
from ..values.arrays import F64, Array
from . import blas
from .blas import unpack

EPS = float(np.finfo(float).eps)
TINY = float(np.finfo(float).tiny)
WIDE = 2048  # features from which on an eigenvalue problem costs seconds
FARTHEST = 1e6  # |x̄| / deviation: rounding then is below 1 % of Σ(x − x̄)², and 10 % at three times
CONSTANT = 1e4  # roundings: class sums of a constant feature differ by less (measured: one)


@dataclass(frozen=True)
class Moments:
    """Of d features: ``means`` x̄, ``raw`` Σx², ``centered`` Σ(x − x̄)² and ``varies``, all (d,):
    whether the class means differ. They lose r times the spacing, not r² times, so they still tell
    where ``centered`` is rounding alone."""

    means: F64
    raw: F64
    centered: F64
    varies: Array

    @classmethod
    def of(cls, raw: F64, H: F64, counts: Array) -> Moments:
        """From Σx² (d,), the class sums XᵀY (d, C) and the rows of each class (C,)."""
        rows = float(counts.sum())
        means = H.sum(axis=1) / rows
        expected = np.outer(means, counts)
        differ = np.abs(H - expected) > CONSTANT * EPS * np.abs(expected)
        return cls(means, raw, raw - rows * means**2, np.asarray(differ.any(axis=1)))

    def check(self, ridge: F64 | float, constant: bool) -> None:
        """Refuse with `NumericalError` features that vary, but whose deviation is lost. ``ridge``:
        added to ``centered``, (d,) or one; ``constant``: whether the problem has a constant
        feature, whose place else a single feature far from zero takes."""
        lost = (self.centered + ridge < self.raw / FARTHEST**2) & (self.raw > 0)
        bad = np.flatnonzero(lost & self.varies)
        if len(bad) and (constant or lost.sum() > 1):
            j = int(bad[np.argmax(np.abs(self.means[bad]))])
            raise NumericalError(
                f"feature {j} lies too far from zero: its mean is {self.means[j]:.4g}, more than "
                f"{FARTHEST:.0e} times its deviation, which sums of float64 no longer tell "
                f"({len(bad)} of {len(lost)} features are like this): subtract a number near the "
                "mean that all sites agree on before import, or leave the feature out"
            )


@dataclass(frozen=True)
class Conditioning:
    """What the eigenvalues of a gram matrix say: ``rank`` of ``dim``, smallest and largest."""

    dim: int
    rank: int
    smallest: float
    largest: float

    @property
    def full(self) -> bool:
        return self.rank == self.dim

    @property
    def condition(self) -> float:
        """λ_max / λ_min of the gram matrix; infinite when it is singular to working precision."""
        return self.largest / self.smallest if self.full else float("inf")

    def with_ridge(self, ridge: float) -> float | None:
        """That of gram + λI; None without a ridge, and where the quotient is infinite."""
        if ridge == 0:
            return None
        condition = (self.largest + ridge) / (max(self.smallest, 0.0) + ridge)
        return condition if isfinite(condition) else None


def conditioning(eigenvalues: F64) -> Conditioning:
    """Judge ascending eigenvalues; those below d·ε·λ_max count as zero (LAPACK's backward error).

    >>> conditioning(np.array([0.0, 1.0])).rank
    1
    """
    d, largest = len(eigenvalues), max(float(eigenvalues[-1]), 0.0)
    rank = int((eigenvalues > d * EPS * largest).sum())
    return Conditioning(d, rank, float(eigenvalues[0]), largest)


def eigenvalues(G: F64) -> F64:
    """Ascending eigenvalues of a symmetric matrix, 4/3 d³."""
    return np.asarray(scipy.linalg.eigvalsh(G, check_finite=False), dtype=np.float64)


def degrees_of_freedom(s: F64, ridge: float) -> float:
    """tr((G + λI)⁻¹ G) of ascending eigenvalues; for λ = 0 the rank of G."""
    positive = s.clip(0.0)
    return float(conditioning(s).rank if ridge == 0 else (positive / (positive + ridge)).sum())


def cholesky_solve(G: F64, H: F64, ridge: float) -> F64:
    """W = (G + λI)⁻¹ H by one Cholesky factorization, d³/3. `NumericalError` when the matrix is not
    positive definite to working precision."""
    return np.asarray(scipy.linalg.cho_solve((_factor(G, ridge), True), H, check_finite=False))


def _factor(G: F64, ridge: float) -> F64:
    """The lower triangle L of G + λI = L Lᵀ, Fortran-ordered; wide ones by all threads."""
    A = G.copy(order="F")
    A.flat[:: A.shape[0] + 1] += ridge
    try:
        if len(A) < WIDE:
            return np.asarray(scipy.linalg.cho_factor(A, True, True, check_finite=False)[0])
        blas.cholesky_in_place(A.T)
    except scipy.linalg.LinAlgError as error:
        raise not_definite(ridge, len(A), error) from None
    blas.mirror_upper(A)
    return A


def solve_wide(G: F64, H: F64, ridge: float) -> tuple[F64, float, float] | None:
    """W of `cholesky_solve`, LAPACK's estimate of the condition number of G + λI in the 1-norm, and
    degrees of freedom d − λ tr (G + λI)⁻¹: d³ operations. None where λ = 0 and G may be singular:
    then only eigenvalues tell."""
    try:
        L = _factor(G, ridge)
    except RidgeNeededError:
        if ridge:
            raise
        return None
    W: F64 = scipy.linalg.cho_solve((L, True), H, check_finite=False)
    norm = scipy.linalg.norm(G, 1, check_finite=False) + ridge
    share, _ = scipy.linalg.lapack.dpocon(L, norm, uplo="L")
    if share <= len(G) * EPS and not ridge:
        return None
    inverse, _ = scipy.linalg.lapack.dpotri(L, lower=1, overwrite_c=1)
    return W, 1.0 / max(float(share), TINY), len(G) - ridge * float(np.trace(inverse))


def definite_solve(A: F64, B: F64) -> F64:
    """A⁻¹B (d, C) of a symmetric positive definite A (d, d); of one that is badly conditioned D A D
    with a diagonal of one is solved, so units of rows do not matter. ``LinAlgError`` when that,
    too, is singular to working precision."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", scipy.linalg.LinAlgWarning)
        try:
            return np.asarray(scipy.linalg.solve(A, B, assume_a="pos", check_finite=False))
        except scipy.linalg.LinAlgWarning:
            D = 1.0 / np.sqrt(np.diag(A))[:, None]
    scaled = D * A * D[:, 0]
    if not conditioning(eigenvalues(scaled)).full:
        raise scipy.linalg.LinAlgError("singular to working precision")
    factor = scipy.linalg.cho_factor(scaled, lower=True, check_finite=False)
    return np.asarray(D * scipy.linalg.cho_solve(factor, D * B, check_finite=False))


def not_definite(ridge: float, side: int, why: object) -> RidgeNeededError:
    """What is said of a ridge that is too small for the numbers of a gram matrix."""
    return RidgeNeededError(
        f"the matrix gram + {ridge:g}·I ({side} × {side}) is not positive definite to working "
        f"precision ({why})",
        advice=": use a larger --ridge, or --ridge auto",
    )


@dataclass(frozen=True)
class Spectral:
    """One eigendecomposition G = Q diag(s) Qᵀ with A = QᵀH, from which every λ follows cheaply.
    ``s`` ascending (d,), ``Q`` and ``G`` (d, d), ``A`` (d, C), ``squares`` (d,) the row sums of
    A²."""

    s: F64
    Q: F64
    A: F64
    squares: F64
    G: F64

    @classmethod
    def of(cls, G: F64, H: F64) -> Spectral:
        """Factor once: about 9 d³ operations, then each solve is a product with Q."""
        s, Q = scipy.linalg.eigh(G, driver="evd", check_finite=False)
        A = Q.T @ H
        return cls(s, Q, A, (A**2).sum(axis=1), G)

    def filters(self, ridge: float) -> F64:
        """1/(s + λ) per direction, (d,); zero where s counts as zero and λ = 0 (minimum norm)."""
        s = self.s.clip(0.0)
        alive = s + ridge > (len(s) * EPS * s[-1] if ridge == 0 else -1.0)
        return np.asarray(np.divide(1.0, s + ridge, out=np.zeros_like(s), where=alive))

    def weights(self, ridge: float) -> F64:
        """(G + λI)⁻¹ H, or the minimum-norm least-squares solution G⁺H for λ = 0."""
        return self.Q @ (self.filters(ridge)[:, None] * self.A)

    def squared_error(self, ridge: float, target: float) -> float:
        """‖Y − XW‖² for W of this λ, given ‖Y‖²; O(d)."""
        f = self.filters(ridge)
        return float(target - (self.squares * f * (2.0 - self.s.clip(0.0) * f)).sum())


def squared_error(W: F64, G: F64, H: F64, target: float) -> float:
    """‖Y − XW‖² = ‖Y‖² − 2 tr(WᵀH) + tr(WᵀGW), for any W (d, C), from statistics alone."""
    return float(target - 2.0 * (W * H).sum() + (W * (G @ W)).sum())


def auto_grid(spectral: Spectral) -> F64:
    """Ridges to try: powers 10^(j/4) from 1e-10 λ_max to λ_max, the same for equal totals."""
    top = np.ceil(4 * np.log10(max(float(spectral.s[-1]), TINY)))
    grid = np.asarray(10.0 ** (np.arange(top - 40, top + 1) / 4))
    return grid[grid >= TINY]


def centered(G: F64, H: F64, rows: int) -> tuple[F64, F64, F64, F64]:
    """Of G (d+1, d+1) and H (d+1, C), constant last: G_xx − N x̄x̄ᵀ, H_x − N x̄ȳᵀ, and the means x̄
    (d,), ȳ (C,), so that a ridge leaves the intercept ȳ − x̄ᵀW alone, as scikit-learn's Ridge."""
    mean_x, mean_y = G[-1, :-1] / rows, H[-1] / rows
    G_c = G[:-1, :-1] - rows * np.outer(mean_x, mean_x)
    return G_c, H[:-1] - rows * np.outer(mean_x, mean_y), mean_x, mean_y


def spreads(moments: F64, means: F64 | float) -> F64:
    """Standard deviations (d,) from second moments Σx²/N and means Σx/N; 1 for a constant feature,
    whose variance is lost in the rounding of its second moment."""
    variances = moments - means**2
    varied = variances > len(moments) * EPS * np.abs(moments)
    return np.sqrt(np.where(varied, variances, 1.0))


def not_determined(c: Conditioning, rows: int) -> RidgeNeededError:
    """What is said of a system that does not determine the weights."""
    few = f"{rows} rows are fewer than {c.dim} features"
    why = few if rows < c.dim else "some features are constant zero or combinations of others"
    return RidgeNeededError(
        f"the data do not determine the head: the gram matrix has rank {c.rank} of {c.dim} "
        f"(eigenvalues {c.smallest:.3g} to {c.largest:.3g}); {why}",
        advice=". Give a ridge (--ridge 1, or --ridge auto to choose it by generalized "
        "cross-validation), or --min-norm for the minimum-norm solution",
    )


def gram_matrix(packed: Array, bits: int | None) -> F64:
    """The gram matrix as float64 (d, d) from its triangle, scaled by 2^(−2 bits) (exactly)."""
    G: F64 = unpack(packed, np.float64)
    if bits is not None:
        G *= 2.0 ** (-2 * bits)
    return G


def cross_matrix(cross: Array, bits: int | None) -> F64:
    """The cross-correlation as float64 (d, C), scaled by 2^−bits (exactly)."""
    H: F64 = np.asarray(cross, dtype=np.float64)
    return H if bits is None else H * 2.0**-bits
