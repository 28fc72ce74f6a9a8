"""DeepAFL beyond the paper: the reconstruction objective (88); layers chosen by held-out rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from problems import sums
from rounds_of_heads import absorb, report_of
from test_deepafl import C, D, fitted, rows

from afltool.errors import InvalidDataError, UsageError
from afltool.heads import make_head
from afltool.heads.projections import activate, projection
from afltool.values.statistics import Sum


def with_held_out(X, y, V, v, **options):
    """The solved head whose rounds also see the statistics of held-out rows."""
    head = make_head("deepafl", {"width": 12, "compute": "float64", **options}).bind(D, C)
    while head.phase() is not None:
        head = absorb(head, sums(head, X, y), sums(head, V, v))
    return head


# ---------------------------------------------------------------- the reconstruction objective


def reconstructed(X, y, T, lam, gamma, share, hidden):
    """(88) layer by layer on pooled rows, as one ridge on vec(Ω)."""
    Y, width = np.eye(C)[y], 12
    phi0 = activate("tanh", projection("linear-uniform", 0, 0, D, width)(X))
    phi, errors = phi0.copy(), []
    for t in range(T + 1):
        inverse = np.linalg.inv(phi.T @ phi + lam * np.eye(width))
        W, Q = inverse @ phi.T @ Y, inverse @ phi.T @ phi0
        errors.append(((phi0 - phi @ Q) ** 2).sum() / len(y))
        if t == T:
            return phi, W, errors
        F = activate("gelu", projection("linear-uniform", 0, t + 1, width, hidden)(phi))
        a, b = np.sqrt(1 - share), np.sqrt(share)
        A = np.vstack([a * np.kron(W.T, F), b * np.kron(Q.T, F)])
        targets = [a * (Y - phi @ W), b * (phi0 - phi @ Q)]
        r = np.concatenate([one.reshape(-1, order="F") for one in targets])
        omega = np.linalg.solve(A.T @ A + gamma * np.eye(hidden * width), A.T @ r)
        phi = phi + F @ omega.reshape(hidden, width, order="F")
    raise AssertionError


@pytest.mark.parametrize("hidden", [12, 9])
def test_reconstruction_is_88_layer_by_layer(hidden):
    X, y = rows(120)
    options = {"layers": 2, "hidden_width": hidden, "ridge": 0.5, "block_ridge": 0.2}
    head = fitted(X, y, reconstruction=0.4, **options)
    phi, W, errors = reconstructed(X, y, 2, 0.5, 0.2, 0.4, hidden)
    assert np.allclose(head.scores(X), phi @ W, rtol=1e-7, atol=1e-8)
    rounds = report_of(head)["phases"]
    found = [r["reconstruction_mse"] for r in rounds if "reconstruction_mse" in r]
    assert np.allclose(found, errors, rtol=1e-6, atol=1e-12)
    assert not np.allclose(head.scores(X), fitted(X, y, **options).scores(X))


def test_reconstruction_keeps_more_of_phi0():
    X, y = rows(300)
    options = {"layers": 6, "block_ridge": 1e-2, "ridge": 1e-3}
    left = [
        report_of(fitted(X, y, reconstruction=share, **options))["phases"][-1]["reconstruction_mse"]
        for share in (1e-6, 0.1, 0.5, 1.0)
    ]
    assert all(b < 0.6 * a for a, b in pairwise(left)), left


# ---------------------------------------------------------------- layers by held-out clients


def overfitting():
    """Few training rows with flipped labels: more layers soon fit the noise."""
    X, y = rows(60, seed=1)
    wrong = np.random.default_rng(2).random(60) < 0.3
    y[wrong] = (y[wrong] + 1) % C
    return (X, y), rows(400, seed=3)


OVERFITTING = {"layers": 9, "ridge": 0.1, "block_ridge": 0.1}


def test_held_out_rows_choose_the_number_of_layers():
    (X, y), (V, v) = overfitting()
    head = with_held_out(X, y, V, v, **OVERFITTING)
    by_hand = []
    for _, scores in fitted(X, y, **OVERFITTING).round_scores(V):
        by_hand.append(((np.eye(C)[v] - scores) ** 2).sum() / len(v))
    told = [r["validation_mse"] for r in report_of(head)["phases"] if "validation_mse" in r]
    assert np.allclose(told, by_hand, rtol=1e-9)
    best = int(np.argmin(by_hand))
    assert 0 < best < 9, "the premise: neither the first nor the last is the best"
    assert report_of(head)["layers"] == best
    assert len(head.weights) == best + 1
    few = with_held_out(X, y, V, v, **{**OVERFITTING, "layers": best})
    assert np.array_equal(head.scores(V), few.scores(V))
    assert head.digest() == few.digest()


def test_a_cut_head_is_restored_from_its_arrays():
    (X, y), (V, v) = overfitting()
    head = with_held_out(X, y, V, v, **OVERFITTING)
    again = make_head("deepafl", head.options.as_dict()).restore(None, head.arrays())
    assert again.phase() is None
    assert np.array_equal(again.bind(D, C).scores(X), head.scores(X))
    broken = {name: a for name, a in head.arrays().items() if not name.startswith("block-2")}
    with pytest.raises(InvalidDataError, match="a head of phase None holds the arrays of phase"):
        make_head("deepafl", head.options.as_dict()).restore(None, broken)


def test_patience_ends_the_rounds_early_with_the_same_choice():
    (X, y), (V, v) = overfitting()
    whole = with_held_out(X, y, V, v, **OVERFITTING)
    errors = [r["validation_mse"] for r in report_of(whole)["phases"] if "validation_mse" in r]
    early = with_held_out(X, y, V, v, **OVERFITTING, patience=1)
    stop = next(t for t, (a, b) in enumerate(pairwise(errors), 1) if b >= a)
    assert len(report_of(early)["phases"]) == 2 * stop + 1
    assert report_of(early)["layers"] == stop - 1
    with pytest.raises(UsageError, match="--patience is at least 1"):
        make_head("deepafl", {"patience": 0})


def test_layers_without_held_out_rows_are_all_kept():
    (X, y), _ = overfitting()
    head = fitted(X, y, **OVERFITTING)
    assert len(head.weights) == 10
    assert "layers" not in report_of(head)


def test_the_rounds_so_far_are_the_networks_of_the_layers_that_are_known():
    X, y = rows()
    head = make_head("deepafl", {"width": 9, "layers": 3, "compute": "float64"}).bind(D, C)
    assert not list(head.round_scores(X))
    while head.phase() is not None:
        head = absorb(head, sums(head, X, y))
        known = len(head.weights) - 1
        few = fitted(X, y, width=9, layers=known)
        names, scores = zip(*head.round_scores(X), strict=True)
        assert list(names) == [f"weights-{t}" for t in range(known + 1)]
        assert np.array_equal(scores[-1], few.scores(X))


def test_the_report_counts_rows_clients_and_bytes_of_every_round():
    X, y = rows()
    head = fitted(X, y, width=9, hidden_width=7, layers=2)
    for one in report_of(head)["phases"]:
        side = 9 if one["phase"].startswith("weights") else 7
        assert one["rows"] == len(y)
        assert one["upload_bytes"] == 8 * (side * (side + 1) // 2 + side * C)
        learned = 9 * C if side == 9 else (9 + 7) * C
        assert one["download_bytes"] == 8 * learned
        assert one["clients"] == 0  # nobody named any


def test_sums_of_parts_choose_like_their_whole():
    (X, y), (V, v) = overfitting()
    head = make_head("deepafl", {"width": 12, "compute": "float64", **OVERFITTING}).bind(D, C)
    while head.phase() is not None:
        seen = Sum(sums(head, V[:100], v[:100])).add(sums(head, V[100:], v[100:]))
        head = absorb(head, sums(head, X, y), seen.result())
    wanted = with_held_out(X, y, V, v, **OVERFITTING)
    assert report_of(head)["layers"] == report_of(wanted)["layers"]


def test_what_the_layers_are_chosen_by_is_part_of_the_head_until_it_is_solved():
    """The same total with other held-out rows: the same weights, and another choice to come."""
    (X, y), (V, v) = overfitting()
    head = make_head("deepafl", {"width": 12, "compute": "float64", **OVERFITTING}).bind(D, C)
    one, other, none = (
        absorb(head, sums(head, X, y), held) for held in (sums(head, V, v), sums(head, X, y), None)
    )
    assert np.array_equal(one.weights[0], other.weights[0])
    assert len({one.digest(), other.digest(), none.digest()}) == 3
    again = make_head("deepafl", head.options.as_dict()).restore("block-1", one.arrays())
    assert again.digest() == one.digest()
    again = again.bind(D, C)
    while again.phase() is not None:
        again = absorb(again, sums(again, X, y), sums(again, V, v))
    wanted = with_held_out(X, y, V, v, **OVERFITTING)
    assert report_of(again)["layers"] == report_of(wanted)["layers"]


def test_layers_are_all_kept_where_held_out_rows_were_missing_once():
    (X, y), (V, v) = overfitting()
    head = make_head("deepafl", {"width": 12, "compute": "float64", **OVERFITTING}).bind(D, C)
    while head.phase() is not None:
        held = None if head.phase() == "weights-2" else sums(head, V, v)
        head = absorb(head, sums(head, X, y), held)
    assert len(head.weights) == 10
