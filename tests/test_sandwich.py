"""The sandwiched least squares against one plain problem in vec(Ω), and the paper's own form."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import dense
from scipy import linalg

from afltool.math.sandwich import EPS, low_rank, reconstructing

SHAPES = [  # n, d_F, d_Φ, C
    (40, 7, 5, 3),
    (40, 5, 7, 3),
    (40, 1, 4, 2),
    (30, 6, 2, 4),
    (30, 6, 1, 1),
]


def problem(n, hidden, width, classes, seed=0, rank_f=None, rank_w=None):
    """F, R and W of given ranks."""
    rng = np.random.default_rng(seed)
    F, R = rng.normal(size=(n, hidden)), rng.normal(size=(n, classes))
    W = rng.normal(size=(width, classes))
    if rank_f is not None:
        F[:, rank_f:] = F[:, :1]
    if rank_w is not None:
        W[:, rank_w:] = W[:, :1]
    return F, R, W


def plain(F, gamma, *terms):
    """argmin Σ share ‖R − FΩW‖² + γ‖Ω‖² over (share, R, W), by vec(FΩW) = (Wᵀ ⊗ F) vec(Ω).

    Of γ = 0 the solution of minimum norm.
    """
    hidden, width = F.shape[1], len(terms[0][2])
    A = [np.sqrt(share) * np.kron(W.T, F) for share, _, W in terms]
    b = [np.sqrt(share) * R.reshape(-1, order="F") for share, R, _ in terms]
    A, b = [*A, np.sqrt(gamma) * np.eye(hidden * width)], [*b, np.zeros(hidden * width)]
    omega = np.linalg.lstsq(np.vstack(A), np.concatenate(b), rcond=1e-10)[0]
    return omega.reshape(hidden, width, order="F")


def eigen_form(Pi, Upsilon, W, gamma):
    """Ω (d_F, d_Φ) as the paper prints it, (17): V [(VᵀΥWᵀU) / (γ + λ_F λ_Wᵀ)] Uᵀ; 0/0 = 0."""
    (lam_F, V), (lam_W, U) = linalg.eigh(Pi), linalg.eigh(W @ W.T)
    left, right = (np.where(s > len(s) * EPS * s.max(), s, 0.0) for s in (lam_F, lam_W))
    divisor = gamma + np.outer(left, right)
    numerator = V.T @ Upsilon @ W.T @ U
    quotient = np.divide(numerator, divisor, out=np.zeros_like(divisor), where=divisor > 0)
    return V @ quotient @ U.T


@pytest.mark.parametrize("ranks", [(None, None), (3, None), (None, 1), (3, 1)])
@pytest.mark.parametrize("shape", SHAPES)
def test_both_forms_are_the_least_squares_of_vec(shape, ranks):
    F, R, W = problem(*shape, rank_f=ranks[0], rank_w=ranks[1])
    for gamma in (0.0, 0.01, 1.0, 100.0):
        expected, given = plain(F, gamma, (1.0, R, W)), (F.T @ F, F.T @ R, W, gamma)
        within = {"rtol": 1e-9, "atol": 1e-12} if gamma else {"rtol": 1e-7, "atol": 1e-9}
        for found in (eigen_form(*given), dense(low_rank(*given))):
            assert np.allclose(found, expected, **within), gamma


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.tuples(*[st.integers(1, 9)] * 4), st.floats(1e-3, 1e3), st.integers(0, 999), st.booleans()
)
def test_the_gradient_is_zero_at_the_solution(shape, gamma, seed, deficient):
    F, R, W = problem(*shape, seed, *((1, 1) if deficient else ()))
    Pi, Upsilon = F.T @ F, F.T @ R
    scale = (np.abs(Upsilon @ W.T).max() + 1.0) * (1 + np.abs(Pi).max() * (W**2).sum())
    omega = dense(low_rank(Pi, Upsilon, W, gamma))
    gradient = -F.T @ (R - F @ omega @ W) @ W.T + gamma * omega
    assert np.abs(gradient).max() < 1e-10 * scale


def test_the_factors_are_thin_and_orthonormal_and_weights_of_zero_give_no_layer():
    F, R, W = problem(40, 7, 5, 3)
    Pi, Upsilon = F.T @ F, F.T @ R
    found = low_rank(Pi, Upsilon, W, 0.1)
    assert (found.Z.shape, found.U.shape) == ((7, 3), (5, 3))
    assert np.allclose(found.U.T @ found.U, np.eye(3), atol=1e-14)
    for gamma in (0.0, 0.1):
        assert not dense(low_rank(Pi, Upsilon, 0 * W, gamma)).any()


def test_badly_scaled_hidden_features():
    F, R, W = problem(60, 7, 5, 3)
    F = F * np.logspace(0, -6, 7)
    given = F.T @ F, F.T @ R, W, 1e-8
    assert np.allclose(dense(low_rank(*given)), eigen_form(*given), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_reconstruction_objective_88_is_the_least_squares_of_vec(shape, share):
    """E (n, d_Φ) is what a decoder Q leaves of Φ_0; without a ridge the minimum norm."""
    F, R, W = problem(*shape)
    (n, _), width, rng = F.shape, len(W), np.random.default_rng(1)
    E, Q = rng.normal(size=(n, width)), rng.normal(size=(width, width))
    for gamma in (0.0, 0.01, 10.0):
        expected = plain(F, gamma, (1 - share, R, W), (share, E, Q))
        found = dense(reconstructing(F.T @ F, (F.T @ R, W), (F.T @ E, Q), share, gamma))
        assert np.allclose(found, expected, rtol=1e-7, atol=1e-9), gamma
