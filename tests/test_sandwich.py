"""The sandwiched least squares against brute force, its gradient, and its limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afltool.linalg.sandwich import eigen_form, low_rank

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


def both(Pi, Upsilon, W, gamma):
    return [eigen_form(Pi, Upsilon, W, gamma), low_rank(Pi, Upsilon, W, gamma).dense()]


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


def test_the_ridge_going_to_zero_leads_there():
    _, _, W, Pi, Upsilon = problem(40, 7, 5, 3)
    limit = low_rank(Pi, Upsilon, W, 0.0).dense()
    gaps = [np.abs(low_rank(Pi, Upsilon, W, g).dense() - limit).max() for g in (1e-2, 1e-4, 1e-6)]
    assert gaps[0] > 50 * gaps[1] > 2500 * gaps[2] > 0


def test_the_factors_are_thin_and_orthonormal_on_the_right():
    _, _, W, Pi, Upsilon = problem(40, 7, 5, 3)
    found = low_rank(Pi, Upsilon, W, 0.1)
    assert found.Z.shape == (7, 3)
    assert found.U.shape == (5, 3)
    assert np.allclose(found.U.T @ found.U, np.eye(3), atol=1e-14)


def test_weights_of_zero_give_no_layer():
    _, _, W, Pi, Upsilon = problem(40, 7, 5, 3)
    for gamma in (0.0, 0.1):
        assert not low_rank(Pi, Upsilon, 0 * W, gamma).dense().any()


def test_badly_scaled_hidden_features():
    F, R, W, _, _ = problem(60, 7, 5, 3)
    F = F * np.logspace(0, -6, 7)
    Pi, Upsilon = F.T @ F, F.T @ R
    found = low_rank(Pi, Upsilon, W, 1e-8)
    assert np.allclose(found.dense(), eigen_form(Pi, Upsilon, W, 1e-8), rtol=1e-5, atol=1e-7)
