"""The softmax head against finite differences, scikit-learn and its own promises; over files."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import absorb, clouds, drawn, gathered, report_of, trained
from scipy.special import logsumexp, softmax
from sklearn.linear_model import LogisticRegression

from afltool.errors import InvalidDataError, MismatchError, UsageError
from afltool.files.features import open_features
from afltool.files.heads import load_head
from afltool.heads import make_head
from afltool.math import softmax as sm
from afltool.math.gram import LARGEST, real
from afltool.math.softmax import Dense

DIM, CLASSES = 6, 4
KINDS = {
    "raw": {},
    "random": {"features": "random", "width": 20},
    "random beside raw": {"features": "random", "width": 20, "with_linear": True},
}


def rows(n=300, seed=0):
    return clouds(n, DIM, CLASSES, seed)


def heads(X, y, **options):
    """The head before every phase and after the last, of one client."""
    head = make_head("softmax", options).bind(DIM, CLASSES)
    yield head
    while head.phase() is not None:
        head = absorb(head, gathered(head, X, y))
        yield head


def solved(X, y, *held, **options):
    return trained(make_head("softmax", options).bind(DIM, CLASSES), X, y, *held)


def gradients(head):
    """What the report says of each gradient round."""
    return [p for p in report_of(head)["phases"] if p["phase"].startswith("gradient")]


def mean_loss(W, F, y):
    """The mean loss of scores FW from the rows themselves."""
    S = F @ W
    return (logsumexp(S, axis=1) - S[np.arange(len(y)), y]).mean()


def objective(W, F, y, mu):
    """With the penalty, of which the intercept is free."""
    return mean_loss(W, F, y) + 0.5 * mu * (W[:-1] ** 2).sum()


def features(head, X):
    """Φ of rows as dense reals, random ones made by other means."""
    o = head.options
    beside = [real(X)] if o.with_linear else []
    ones = [np.ones((len(X), 1))]
    if o.features == "random":
        z = np.rint(drawn(real(X), 0, o.width, o.seed) * 4096) / 4096
        return np.hstack([np.rint(np.tanh(z) * 512) / 512, *beside, *ones])
    return np.hstack([real(X), *ones])


# ---------------------------------------------------------------- the kernel


@pytest.mark.parametrize("bits", [9, None])
def test_the_gradient_is_that_of_finite_differences(bits):
    X, y = rows(200)
    design, F = Dense(X if bits else real(X)), np.hstack([real(X), np.ones((200, 1))])
    assert design.bits == bits
    assert design.columns == F.shape[1]
    assert np.abs(F).sum(axis=1).max() * 2.0 ** (bits or 0) <= design.reach
    V = np.random.default_rng(1).normal(size=(F.shape[1], 4))
    sums = sm.Gradients(V)
    sums.add([(design, y)])
    gradient, loss = sums.taken().values()
    units = (1.0, 1.0) if bits is None else (2.0 ** -(bits + sm.BITS), 2.0**-sm.BITS)
    gradient, loss = gradient * units[0] / 200, loss[0] * units[1] / 200
    assert np.isclose(loss, mean_loss(V, F, y), rtol=1e-6)
    for i, j in ((0, 0), (3, 2), (6, 1), (-1, 3)):
        step = np.zeros_like(V)
        step[i, j] = 1e-5
        up, down = (mean_loss(V + s, F, y) for s in (step, -step))
        assert np.isclose(gradient[i, j], (up - down) / 2e-5, atol=2e-6)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.floats(0.0, 20.0))
def test_the_bound_is_above_the_true_hessian(seed, scale):
    rng = np.random.default_rng(seed)
    n, d, classes = 30, 4, 3
    F = np.hstack([rng.normal(size=(n, d)), np.ones((n, 1))])
    W = scale * rng.normal(size=(d + 1, classes))
    P = softmax(F @ W, axis=1)
    hessian = np.zeros(((d + 1) * classes,) * 2)
    for f, p in zip(F, P, strict=True):
        hessian += np.kron(np.diag(p) - np.outer(p, p), np.outer(f, f))
    mu_n = sm.make_penalty(1e-3, n, d + 1)
    hessian += np.kron(np.eye(classes), np.diag(mu_n))
    above = np.kron(np.eye(classes), 0.5 * F.T @ F + np.diag(mu_n)) - hessian
    assert np.linalg.eigvalsh(above)[0] > -1e-9


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.floats(1e-6, 1e6), st.integers(1, 4000), st.integers(0, 2**32 - 1))
def test_scores_of_rounded_weights_are_exact(scale, columns, seed):
    V = scale * np.random.default_rng(seed).normal(size=(columns, 2))
    reach = columns * LARGEST
    rounded, s = sm.exact_weights(V, reach)
    assert np.abs(rounded).max() * reach <= 2**53
    assert np.abs(rounded).max() * reach > 2**51, "bits are given away"
    assert np.abs(rounded * 2.0**-s - V).max() <= 2.0 ** -(s + 1)


# ---------------------------------------------------------------- what the rounds reach


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_is_scikit_learns_on_the_same_features(kind):
    (X, y), mu = rows(), 1e-2
    head = solved(X, y, rounds=200, penalty=mu, **KINDS[kind])
    F = features(head, X)
    best = objective(fitted(F, y, mu), F, y, mu)
    assert np.isclose(objective(head.weights, F, y, mu), best, rtol=1e-6)
    assert np.allclose(head.decision_function(X), F @ head.weights, atol=1e-6)
    soon = solved(X, y, rounds=60, penalty=mu, **KINDS[kind])
    assert -1e-6 < objective(soon.weights, F, y, mu) - best < 1e-2 * best


def fitted(F, y, mu):
    """The weights of scikit-learn; the last column of F is the intercept."""
    how = {"C": 1 / (mu * len(y)), "solver": "newton-cholesky", "tol": 1e-12, "max_iter": 1000}
    oracle = LogisticRegression(**how).fit(F[:, :-1], y)
    return np.vstack([oracle.coef_.T, oracle.intercept_])


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    st.sampled_from(sorted(KINDS)),
    st.integers(0, 10**6),
    st.sampled_from([1e-6, 1e-4, 1e-2, 1.0]),
    st.integers(1, 60),
)
def test_a_step_of_the_bound_never_raises_the_objective(kind, seed, penalty, n):
    """The best weights are such a step from a point whose objective is the least so far."""
    X, y = rows(n, seed)
    given = {"rounds": 8, "penalty": penalty, **KINDS[kind]}
    best = []
    for head in heads(X, y, **given):
        W = head.weights if head.best is None else head.best
        best += [] if W is None else [W]
    F = features(head, X)
    values = [p["objective"] for p in report_of(head)["phases"] if "objective" in p]
    assert len(values) == 8
    found = [objective(W, F, y, penalty) for W in best[1:]]
    least = np.minimum.accumulate(values)
    assert all(b <= a + 1e-6 * max(1, a) for a, b in zip(least, found, strict=True))


def test_a_client_whom_the_bound_does_not_cover_is_refused():
    X, y = rows()
    head = make_head("softmax").bind(6, 4)
    head = absorb(head, gathered(head, X, y, "early"))
    found = gathered(head, X, y, "early")
    moved = {who: replace(c, source="elsewhere") for who, c in found.clients.items()}
    for other in (
        gathered(head, X, y, "late"),
        gathered(head, X[1:], y[1:], "early"),
        replace(found, clients=moved),
    ):
        with pytest.raises(MismatchError, match="1 of 1 clients were not in the first phase"):
            absorb(head, other)
    assert absorb(head, found).phase() == "gradient-2"
    assert "early" not in json.dumps(report_of(head)), "head files go to everybody"


def test_held_out_clients_keep_the_best_round():
    """Of few rows and hardly any penalty."""
    (X, y), (V, v) = rows(24, 3), rows(400, 4)
    head, points = make_head("softmax", {"rounds": 30, "penalty": 1e-6}).bind(DIM, CLASSES), []
    while head.phase() is not None:
        points.append(head.point)
        head = absorb(head, gathered(head, X, y), gathered(head, V, v, "held"))
    losses = [r["validation_loss"] for r in gradients(head)]
    best = int(np.argmin(losses))
    assert best < 29, "it never overfits: a weak test"
    assert report_of(head)["best_round"] == best + 1
    assert np.array_equal(head.weights, points[best + 1])


def test_held_out_clients_judge_all_rounds_or_none():
    X, y = rows()
    head = make_head("softmax").bind(DIM, CLASSES)
    head = absorb(head, gathered(head, X, y))
    head = absorb(head, gathered(head, X, y), gathered(head, X, y, "held"))
    with pytest.raises(UsageError, match="in all of them or in none"):
        absorb(head, gathered(head, X, y))


def test_momentum_restarts_when_the_objective_rises():
    X, y = rows(n=40)
    rounds = gradients(solved(X, y, rounds=150, penalty=1e-2))
    values = [r["objective"] for r in rounds]
    for i, r in enumerate(rounds[1:], start=1):
        assert r["restarted"] == (values[i] > values[i - 1])
    assert any(r["restarted"] for r in rounds), "it never restarts: a weak test"


# ---------------------------------------------------------------- state


def test_momentum_and_the_best_round_are_part_of_the_digest_and_clients_are_not():
    X, y = rows()
    begun = make_head("softmax", {"rounds": 9}).bind(DIM, CLASSES)
    heads = [absorb(begun, gathered(begun, X, y, name)) for name in "ab"]
    assert heads[0].digest() == heads[1].digest()
    assert not np.array_equal(*(h.state_dict()["covered"] for h in heads))
    head = absorb(heads[0], gathered(heads[0], X, y))
    for name in ("momentum", "best-round"):
        other = {**head.state_dict(), name: head.state_dict()[name].copy()}
        other[name][0] = 1 - other[name][0]
        assert begun.restore(head.phase(), other).digest() != head.digest(), name


def test_state_that_does_not_fit_together_is_refused():
    X, y = rows()
    begun = make_head("softmax", {"rounds": 9})
    head = begun.bind(DIM, CLASSES)
    for _ in range(2):
        head = absorb(head, gathered(head, X, y))
    for name, value in {
        "momentum": np.ones(2), "best-round": np.array([7]), "factor": np.ones(3),
        "covered": np.ones((1, 2), np.int64), "step": np.ones((2, 2)),
    }.items():  # fmt: skip
        with pytest.raises(InvalidDataError, match=f"the array '{name}'"):
            begun.restore(head.phase(), {**head.state_dict(), name: value}).bind(DIM, CLASSES)


# ---------------------------------------------------------------- over files


def test_the_rounds_so_far_make_a_head_at_any_time(road, done_run):
    """Three rounds on random features of five clients."""
    run = done_run(head="softmax", clients=5, features="random", width=20, rounds=3)
    with open_features(road.test) as opened:
        X, y = opened.rows(0, len(opened)), opened.labels
    assert not list(load_head(run / "03-head0.h5")[0].round_scores(X))
    losses = []
    for suffix in ("", "-2", "-3", "-4"):
        file = load_head(run / f"05-head{suffix}.h5")
        head = file.head
        ((name, scores),) = head.round_scores(X)
        assert file.phase_of(name) == file.rounds[-1]["phase"]
        if head.phase() is None:
            assert np.array_equal(scores, head.decision_function(X))
        losses.append((logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]).mean())
    assert losses[-1] < losses[0]
    assert losses[-1] == pytest.approx(losses[-2], abs=0.05)
