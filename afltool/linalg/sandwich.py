"""Sandwiched least squares: Ω = argmin ‖R − F Ω W‖² + γ‖Ω‖², from Π = FᵀF and Υ = FᵀR alone.

Tang et al., "DeepAFL", ICLR 2026, equations (16)–(18). The paper prints ⊙ in (17) and names it
element-wise division; it is a division. The normal equation is Π Ω WWᵀ + γ Ω = Υ Wᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.linalg import lapack

from ..errors import NumericalError

F64 = NDArray[np.float64]
EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Factors:
    """Ω = Z Uᵀ by its factors: ``Z`` (d_F, r), ``U`` (d_Φ, r), r ≤ the number of classes."""

    Z: F64
    U: F64

    def dense(self) -> F64:
        """Ω itself, (d_F, d_Φ)."""
        return self.Z @ self.U.T


def eigen_form(Pi: F64, Upsilon: F64, W: F64, gamma: float) -> F64:
    """Ω (d_F, d_Φ) as printed, (17): V [(VᵀΥWᵀU) / (γ + λ_F λ_Wᵀ)] Uᵀ, two eigendecompositions.

    Π = V diag(λ_F) Vᵀ (d_F, d_F), WWᵀ = U diag(λ_W) Uᵀ (d_Φ, d_Φ), Υ (d_F, C), W (d_Φ, C), all
    float64. For γ = 0 quotients 0/0 are 0, which gives Ω = F⁺ R W⁺. About 9(d_F³ + d_Φ³)
    operations: `low_rank` is the fast road, this one is there to be checked against.
    """
    lam_F, V = linalg.eigh(Pi)
    lam_W, U = linalg.eigh(W @ W.T)
    quotient = _divided(V.T @ Upsilon @ W.T @ U, _positive(lam_F), _positive(lam_W), gamma)
    return V @ quotient @ U.T


def low_rank(Pi: F64, Upsilon: F64, W: F64, gamma: float) -> Factors:
    """The same Ω = Z Uᵀ from a thin SVD W = U diag(s) Qᵀ: (s_j² Π + γ I) z_j = s_j Υ q_j.

    WWᵀ has rank ≤ C, so its d_Φ³ eigendecomposition is not needed. For γ > 0 one tridiagonal
    form of Π serves every column (4/3 d_F³ operations); for γ = 0 the eigenvectors of Π (9 d_F³),
    where 0/0 = 0 as in `eigen_form`. Raises `NumericalError` when Π + γ/s² I is not positive
    definite to working precision.
    """
    U, s, Qt = linalg.svd(W, full_matrices=False)
    s = np.where(s > max(W.shape) * EPS * s.max(initial=0.0), s, 0.0)
    B = (Upsilon @ Qt.T) * s
    if gamma > 0:
        return Factors(_shifted(Pi, s**2, gamma, B), U)
    lam, V = linalg.eigh(Pi, driver="evd")
    return Factors(V @ _divided(V.T @ B, _positive(lam), s**2, 0.0), U)


def bytes_needed(hidden: int) -> int:
    """Memory of `low_rank` beside Π itself: a working copy of it, float64."""
    return 8 * hidden * hidden


def _positive(lam: F64) -> F64:
    """Eigenvalues with those below d·ε·λ_max, LAPACK's backward error, as zeros."""
    return np.where(lam > len(lam) * EPS * lam.max(initial=0.0), lam, 0.0)


def _divided(numerator: F64, left: F64, right: F64, gamma: float) -> F64:
    denominator = gamma + np.outer(left, right)
    out = np.zeros_like(numerator)
    np.divide(numerator, denominator, out=out, where=denominator > 0)
    return out


def _shifted(Pi: F64, scales: F64, gamma: float, B: F64) -> F64:
    """Columns z_j of (scale_j Π + γ I)⁻¹ b_j, by Π = Q T Qᵀ with T tridiagonal."""
    if not B.size:
        return np.zeros_like(B)
    n = len(Pi)
    if n == 1:  # nothing to reduce, and LAPACK takes no empty subdiagonal
        single: F64 = B / (scales * Pi[0, 0] + gamma)
        return single
    reduced, d, e, tau, _ = lapack.dsytrd(Pi, lower=1, lwork=64 * n)
    reflectors = np.asfortranarray(reduced[1:, :-1])
    Z = np.array(B, order="F")
    Z[1:] = _reflected(reflectors, tau, Z[1:], "T")
    for j, scale in enumerate(scales):
        _, _, x, info = lapack.dptsv(scale * d + gamma, scale * e, Z[:, j])
        if info:
            raise NumericalError(
                f"the layer's system Π + {gamma:g}/s² I ({n} × {n}) is not positive definite to "
                "working precision: use a larger --block-ridge, or 0 for the minimum-norm solution"
            )
        Z[:, j] = x.reshape(n)
    Z[1:] = _reflected(reflectors, tau, Z[1:], "N")
    return Z


def _reflected(reflectors: F64, tau: F64, B: F64, trans: str) -> F64:
    """Q B or Qᵀ B for the reflectors that `dsytrd` leaves below the subdiagonal."""
    found: F64 = lapack.dormqr("L", trans, reflectors, tau, B, 64 * B.shape[1])[0]
    return found
