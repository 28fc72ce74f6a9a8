"""Theorems and equations of the papers that no other file writes out: by NumPy, beside afltool."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import dense, trained
from scipy import linalg

import afltool
from afltool.files.heads import load_head
from afltool.heads import make_head
from afltool.math import pairwise
from afltool.math.blas import unpack
from afltool.math.sandwich import EPS, low_rank, reconstructing
from afltool.runs.config import RunConfig

CLASSES, DIM = 3, 6


def rows(n=120, dim=DIM):
    y = np.arange(n) % CLASSES
    return np.random.default_rng(0).normal(size=(n, dim)) + 1.5 * np.eye(CLASSES, dim)[y], y


# ---------------------------------------------------------------- AFL


def test_lemma_1_and_theorem_1_with_the_signs_that_are_right():
    """X† = [𝒲_u X_u†, 𝒲_v X_v†] with + before the last term; as printed (6), (8), (10) are not."""
    (X, y), ends = rows(), [50]
    (X_u, X_v), pinv = np.split(X, ends), np.linalg.pinv
    C_u, C_v = X_u.T @ X_u, X_v.T @ X_v

    def right(C, D):
        A = np.linalg.inv(C) @ D
        return np.eye(len(C)) - A + A @ np.linalg.inv(C + D) @ D

    parts = np.hstack([right(C_u, C_v) @ pinv(X_u), right(C_v, C_u) @ pinv(X_v)])
    assert np.allclose(parts, pinv(X), atol=1e-12)
    Y = np.eye(CLASSES)[y]
    sent = zip((X_u, X_v), np.split(Y, ends), strict=True)
    sent = [pairwise.party(x.T @ x, x.T @ t, 0.0) for x, t in sent]
    for order in (sent, sent[::-1]):
        assert np.allclose(pairwise.fold(order).W, parts @ Y, atol=1e-11)
    u, v = 1.0, 2.0  # C_u and C_v of one feature; R = 1 / 3
    six, eight, ten = 1 - v / u - v / u / 3 * v, 1 - v / u / 3 * v, 1 - v / u * (1 + v / 3)
    assert np.allclose([six, eight, ten], [-7 / 3, -1 / 3, -7 / 3])
    assert np.isclose(right(np.array([[u]]), np.array([[v]])), 1 / 3)


def test_theorem_2_what_gamma_does_and_how_it_is_removed():
    """(14) W^r = (C + KγI)⁻¹ C Ŵ of 30 clients with four rows each, fewer than features; (16)."""
    X, y = rows()
    Y, gamma, clients = np.eye(CLASSES)[y], 0.7, 30
    parts = zip(np.split(X, clients), np.split(Y, clients), strict=True)
    folded = pairwise.fold([pairwise.party(x.T @ x, x.T @ t, gamma) for x, t in parts])
    C, W = X.T @ X, np.linalg.pinv(X) @ Y
    left_in = np.linalg.solve(C + clients * gamma * np.eye(DIM), C @ W)
    assert np.allclose(folded.W, left_in, atol=1e-12)
    assert not np.allclose(left_in, W, atol=0.01)
    G, H = pairwise.remove_gamma(folded)
    assert np.allclose(np.linalg.solve(G, H), W, atol=1e-10)


# ---------------------------------------------------------------- client files, apart

ON_FILES = {
    "linear": {"ridge": 0},
    "safle": {"thresholds": "range:-4:4", "experts": 6, "ridge": 1},
    "deepafl": {"layers": 1, "width": 12},
}


@pytest.mark.parametrize("head", ON_FILES)
def test_theorem_1_on_client_files(road, tmp_path, head):
    """A file of each client, added up: integers have one digest, real sums one head to 1e-7."""
    given = {"train_features": road.train, "test_features": road.test, "keep_clients": True}
    X, digests, right, scores = rows(50, 8)[0], set(), set(), []
    for clients, dealt in ((3, {"scheme": "iid"}), (9, {"alpha": 0.1})):
        config = RunConfig(head=head, clients=clients, **given, **dealt, **ON_FILES[head])
        run = afltool.run(config, tmp_path / str(clients))
        assert len(list((run / "04-stats").glob("*.h5"))) == clients
        found = json.loads((run / "summary.json").read_text())
        digests.add(found["digests"]["total"])
        right.add(found["top1"])
        scores.append(load_head(run / "head-final.h5")[0].decision_function(X))
    assert len(right) == 1
    assert len(digests) == (2 if head == "deepafl" else 1)  # of reals the last bits differ
    assert np.allclose(*scores, rtol=0, atol=1e-7 * np.abs(scores[0]).max())


# ---------------------------------------------------------------- DeepAFL


@pytest.mark.parametrize("n", [1, 7, 20])
def test_the_rank_of_its_first_sums_tells_the_rows_of_a_client(n):
    """Of fewer rows than width: N_k need not be sent, (11) says it."""
    X, y = rows(n)
    head = make_head("deepafl", {"layers": 1, "width": 40}).bind(DIM, CLASSES)
    sent, _ = head.gather([(X, y)])
    assert np.linalg.matrix_rank(unpack(sent.arrays["gram"]), hermitian=True) == n


# ---------------------------------------------------------------- SAFLe


@pytest.mark.parametrize("group_size", [1, 2])
def test_a_shuffle_changes_integer_codes_of_two_digits_not_of_one(group_size):
    """So the integer figures of table 2, ± 0.00 throughout, fit G = 1 with every digit."""
    X, y = rows()
    scores = []
    for seed in (0, 1):
        given = {"bucketing": "integer", "buckets": 4, "thresholds": "range:-3:3", "ridge": 0}
        given |= {"every_digit": True, "group_size": group_size, "seed": seed}
        head = trained(make_head("safle", given).bind(DIM, CLASSES), X, y)
        scores.append(head.decision_function(X))
    assert np.allclose(*scores, atol=1e-9) == (group_size == 1)


# ---------------------------------------------------------------- layers: (17), (18), (88)


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
        within = {"rtol": 1e-8, "atol": 1e-11} if gamma else {"rtol": 1e-7, "atol": 1e-9}
        assert np.allclose(found, expected, **within), gamma
