"""The sandwiched least squares against brute force, its gradient, and its limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import dense
from scipy import linalg

from afltool.math.sandwich import EPS, low_rank, reconstructing

SHAPES = [
    (40, 7, 5, 3),
    (40, 5, 7, 3),
    (40, 1, 4, 2),
    (30, 6, 2, 4),
    (30, 6, 1, 1),
]  # n, d_F, d_Φ, C


def problem(n, hidden, width, classes, seed=0, rank_f=None, rank_w=None):
    """F, R, W and what the clients' sums say of them."""
    rng = np.random.default_rng(seed)
    F, R = rng.normal(size=(n, hidden)), rng.normal(size=(n, classes))
    W = rng.normal(size=(width, classes))
    if rank_f is not None:
        F[:, rank_f:] = F[:, :1]
    if rank_w is not None:
        W[:, rank_w:] = W[:, :1]
    return F, R, W, F.T @ F, F.T @ R


def eigen_form(Pi, Upsilon, W, gamma):
    """Ω (d_F, d_Φ) as the paper prints it, (17): V [(VᵀΥWᵀU) / (γ + λ_F λ_Wᵀ)] Uᵀ; 0/0 = 0."""
    (lam_F, V), (lam_W, U) = linalg.eigh(Pi), linalg.eigh(W @ W.T)
    left, right = (np.where(s > len(s) * EPS * s.max(), s, 0.0) for s in (lam_F, lam_W))
    divisor = gamma + np.outer(left, right)
    numerator = V.T @ Upsilon @ W.T @ U
    quotient = np.divide(numerator, divisor, out=np.zeros_like(divisor), where=divisor > 0)
    return V @ quotient @ U.T


def both(Pi, Upsilon, W, gamma):
    return [eigen_form(Pi, Upsilon, W, gamma), dense(low_rank(Pi, Upsilon, W, gamma))]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("gamma", [0.01, 1.0, 100.0])
def test_both_forms_are_the_kronecker_solve(shape, gamma):
    F, _R, W, Pi, Upsilon = problem(*shape)
    hidden, width = F.shape[1], W.shape[0]
    system = np.kron(W @ W.T, Pi) + gamma * np.eye(hidden * width)
    vector = np.linalg.solve(system, (Upsilon @ W.T).reshape(-1, order="F"))
    expected = vector.reshape(hidden, width, order="F")
    for found in both(Pi, Upsilon, W, gamma):
        assert np.allclose(found, expected, rtol=1e-9, atol=1e-12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.tuples(*[st.integers(1, 9)] * 4), st.floats(1e-3, 1e3), st.integers(0, 999), st.booleans()
)
def test_the_gradient_is_zero_at_the_solution(shape, gamma, seed, deficient):
    n, hidden, width, classes = shape
    ranks = {"rank_f": 1, "rank_w": 1} if deficient else {}
    F, R, W, Pi, Upsilon = problem(n, hidden, width, classes, seed, **ranks)
    scale = np.abs(Upsilon @ W.T).max() + 1.0
    for omega in both(Pi, Upsilon, W, gamma):
        gradient = -F.T @ (R - F @ omega @ W) @ W.T + gamma * omega
        assert np.abs(gradient).max() < 1e-10 * scale * (1 + np.abs(Pi).max() * (W**2).sum())


@pytest.mark.parametrize("ranks", [(None, None), (3, None), (None, 1), (3, 1)])
def test_without_a_ridge_it_is_the_minimum_norm_solution(ranks):
    F, R, W, Pi, Upsilon = problem(40, 7, 5, 3, rank_f=ranks[0], rank_w=ranks[1])
    expected = np.linalg.pinv(F, rcond=1e-10) @ R @ np.linalg.pinv(W, rcond=1e-10)
    for found in both(Pi, Upsilon, W, 0.0):
        assert np.allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_the_factors_are_thin_and_orthonormal_and_weights_of_zero_give_no_layer():
    _, _, W, Pi, Upsilon = problem(40, 7, 5, 3)
    found = low_rank(Pi, Upsilon, W, 0.1)
    assert (found.Z.shape, found.U.shape) == ((7, 3), (5, 3))
    assert np.allclose(found.U.T @ found.U, np.eye(3), atol=1e-14)
    for gamma in (0.0, 0.1):
        assert not dense(low_rank(Pi, Upsilon, 0 * W, gamma)).any()


def test_badly_scaled_hidden_features():
    F, R, W, _, _ = problem(60, 7, 5, 3)
    F = F * np.logspace(0, -6, 7)
    Pi, Upsilon = F.T @ F, F.T @ R
    found = low_rank(Pi, Upsilon, W, 1e-8)
    assert np.allclose(dense(found), eigen_form(Pi, Upsilon, W, 1e-8), rtol=1e-5, atol=1e-7)


def reconstruction_problem(shape, seed=0, rank_f=None):
    """Rows of (88): F, R, W, what a decoder Q leaves of Φ_0, and Q."""
    n, hidden, width, classes = shape
    F, R, W, _, _ = problem(n, hidden, width, classes, seed, rank_f)
    rng = np.random.default_rng([seed, 1])
    return F, R, W, rng.normal(size=(n, width)), rng.normal(size=(width, width))


def stacked(F, R, W, E, Q, share):
    """(88) without its ridge as one plain least-squares problem in vec(Ω)."""
    a, b = np.sqrt(1 - share), np.sqrt(share)
    left = np.vstack([a * np.kron(W.T, F), b * np.kron(Q.T, F)])
    return left, np.concatenate([a * R.reshape(-1, order="F"), b * E.reshape(-1, order="F")])


def solved_88(F, R, W, E, Q, share, gamma):
    return dense(reconstructing(F.T @ F, (F.T @ R, W), (F.T @ E, Q), share, gamma))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_reconstruction_objective_is_the_ridge_on_vec(shape, share):
    rows = reconstruction_problem(shape)
    A, b = stacked(*rows, share)
    hidden, width = shape[1], shape[2]
    for gamma in (0.01, 10.0):
        expected = np.linalg.solve(A.T @ A + gamma * np.eye(hidden * width), A.T @ b)
        found = solved_88(*rows, share, gamma)
        assert np.allclose(found, expected.reshape(hidden, width, order="F"), rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("rank_f", [None, 3])
def test_the_reconstruction_objective_without_a_ridge_is_the_minimum_norm_solution(rank_f):
    rows = reconstruction_problem((40, 7, 5, 3), rank_f=rank_f)
    A, b = stacked(*rows, 0.4)
    expected = np.linalg.lstsq(A, b, rcond=1e-10)[0].reshape(7, 5, order="F")
    assert np.allclose(solved_88(*rows, 0.4, 0.0), expected, rtol=1e-7, atol=1e-9)
