"""Sandwiched least squares: Ω = argmin ‖R − F Ω W‖² + γ‖Ω‖², from Π = FᵀF and Υ = FᵀR alone.

Tang et al., "DeepAFL", ICLR 2026, equations (16)–(18). The paper prints ⊙ in (17) and names it
element-wise division; it is a division. The normal equation is Π Ω WWᵀ + γ Ω = Υ Wᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from ..errors import NumericalError
from ..values.arrays import F64, Array

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class LowRank:
    """Ω = Z Uᵀ: ``Z`` (d_F, r), ``U`` (d_Φ, r); for r = d_Φ ``U`` is None and ``Z`` Ω itself."""

    Z: F64
    U: F64 | None = None

    def astype(self, dtype: Any) -> tuple[Array, Array | None]:
        """Z and U as rows of a compute type take them."""
        return self.Z.astype(dtype), None if self.U is None else self.U.astype(dtype)


def low_rank(Pi: F64, Upsilon: F64, W: F64, gamma: float) -> LowRank:
    """Ω = Z Uᵀ from a thin SVD W = U diag(s) Qᵀ: (s_j² Π + γ I) z_j = s_j Υ q_j; Π (d_F, d_F), Υ
    (d_F, C), W (d_Φ, C). Equals (17), by eigendecompositions of Π and WWᵀ. For γ > 0 one
    tridiagonal form of Π serves every column (4/3 d_F³); for γ = 0 its eigenvectors (9 d_F³), where
    0/0 = 0: Ω = F⁺ R W⁺. `NumericalError` when Π + γ/s² I is not positive definite."""
    U, s, Qt = scipy.linalg.svd(W, full_matrices=False)
    s = np.where(s > max(W.shape) * EPS * s.max(initial=0.0), s, 0.0)
    B = Upsilon @ Qt.T * s
    if gamma > 0:
        Z = _solve_shifted(Pi, s**2, gamma, B)
    else:
        lam, V = scipy.linalg.eigh(Pi, driver="evd")
        Z = V @ _divide_by_scales(V.T @ B, _positive(lam), s**2, 0.0)
    return LowRank(Z, U) if len(s) < len(W) else LowRank(Z @ U.T)


def reconstructing(
    Pi: F64, labels: tuple[F64, F64], decoder: tuple[F64, F64], share: float, gamma: float
) -> LowRank:
    """Ω = argmin (1−η)‖R − FΩW‖² + η‖E − FΩQ‖² + γ‖Ω‖², (88) with η = 1 − ρ, as one sandwiched
    problem. ``labels``: FᵀR (d_F, C) and W (d_Φ, C); ``decoder``: FᵀE (d_F, d_Φ) and Q (d_Φ, d_Φ),
    E = Φ_0 − Φ_tQ."""
    a, b = np.sqrt(1.0 - share), np.sqrt(share)
    Upsilon = np.hstack([a * labels[0], b * decoder[0]])
    return low_rank(Pi, Upsilon, np.hstack([a * labels[1], b * decoder[1]]), gamma)


def bytes_needed(hidden: int, width: int = 0) -> int:
    """Memory of `low_rank` beside Π: a working copy of it, float64, and of a right factor of full
    rank ``width`` = d_Φ its SVD and the dense Ω."""
    return 8 * (hidden * hidden + 6 * width * width + 4 * hidden * width)


def _positive(lam: F64) -> F64:
    """Eigenvalues with those below d·ε·λ_max, LAPACK's backward error, as zeros."""
    return np.where(lam > len(lam) * EPS * lam.max(initial=0.0), lam, 0.0)


def _divide_by_scales(numerator: F64, left: F64, right: F64, gamma: float) -> F64:
    under, none = gamma + np.outer(left, right), np.zeros_like(numerator)
    return np.asarray(np.divide(numerator, under, out=none, where=under > 0))


def _solve_shifted(Pi: F64, scales: F64, gamma: float, B: F64) -> F64:
    """Columns z_j of (scale_j Π + γ I)⁻¹ b_j, by Π = Q T Qᵀ with T tridiagonal."""
    if not B.size:
        return np.zeros_like(B)
    n = len(Pi)
    if n == 1:  # nothing to reduce, and LAPACK takes no empty subdiagonal
        return np.asarray(B / (scales * Pi[0, 0] + gamma))
    reduced, d, e, tau, _ = scipy.linalg.lapack.dsytrd(Pi, lower=1, lwork=64 * n)
    reflectors = np.asfortranarray(reduced[1:, :-1])
    Z = np.array(B, order="F")
    Z[1:] = _apply_reflectors(reflectors, tau, Z[1:], "T")
    for j, scale in enumerate(scales):
        _, _, x, info = scipy.linalg.lapack.dptsv(scale * d + gamma, scale * e, Z[:, j])
        if info:
            raise NumericalError(
                f"the layer's system Π + {gamma:g}/s² I ({n} × {n}) is not positive definite to "
                "working precision",
                advice=": use a larger --block-ridge, or 0 for the minimum-norm solution",
            )
        Z[:, j] = x.reshape(n)
    Z[1:] = _apply_reflectors(reflectors, tau, Z[1:], "N")
    return Z


def _apply_reflectors(reflectors: F64, tau: F64, B: F64, trans: str) -> F64:
    """Q B or Qᵀ B for the reflectors that `dsytrd` leaves below the subdiagonal."""
    made = scipy.linalg.lapack.dormqr("L", trans, reflectors, tau, B, 64 * B.shape[1])
    return np.asarray(made[0])
