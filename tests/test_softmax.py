"""The softmax head against finite differences, scikit-learn and its own promises."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import sums, total
from rounds_of_heads import absorb, report_of
from scipy.special import logsumexp, softmax
from sklearn.linear_model import LogisticRegression

from afltool.errors import InvalidDataError, MismatchError, UsageError
from afltool.heads import make_head
from afltool.heads.base import binding
from afltool.math import softmax as sm
from afltool.math.gram import LARGEST, FixedPoint, real
from afltool.math.softmax import Coded, Dense
from afltool.values.statistics import Client, ClientId, Context


def rows(n=200, d=6, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    X = np.random.default_rng(9).normal(size=(classes, d))[y] + rng.normal(size=(n, d))
    return FixedPoint(np.rint(X * 512).astype(np.int16), 9), y


def gathered(head, X, y, client="a"):
    """One client's statistics for the head's phase."""
    context = Context({"fraction_bits": 9}, tuple("abcdefghij"[: head.classes]), binding(head))
    found = sums(head, X, y)
    return replace(found, context=context, clients={ClientId(client): Client(len(X))})


def trained(X, y, check=None, classes=4, **options):
    head = make_head("softmax", options).bind(X.dim, classes)
    while head.phase() is not None:
        head = absorb(head, gathered(head, X, y))
        if check is not None:
            check(head)
    return head


def gradients(head):
    """What the report says of each gradient round."""
    return [p for p in report_of(head)["phases"] if p["phase"].startswith("gradient")]


def mean_loss(W, F, y, smoothing=0.0):
    """The mean loss of scores FW from the rows themselves."""
    S = F @ W
    log_p = S - logsumexp(S, axis=1, keepdims=True)
    Y = np.full(S.shape, smoothing / S.shape[1])
    Y[np.arange(len(y)), y] += 1.0 - smoothing
    return -(Y * log_p).sum() / len(y)


def objective(W, X, y, mu):
    """The penalised mean loss of raw features and an intercept."""
    F = np.hstack([real(X), np.ones((len(y), 1))])
    return mean_loss(W, F, y) + 0.5 * mu * (W[:-1] ** 2).sum()


def gradient_and_loss(parts, V, smoothing=0.0):
    """The summands of one block, added up."""
    sums = sm.Gradients(V, smoothing)
    sums.add(parts)
    return tuple(sums.taken().values())


def designs(X, y):
    """Φ of rows as each kind of features makes it, dense for reference, and its unit."""
    codes = np.random.default_rng(2).integers(0, 4, (5, len(y))).astype(np.uint8)
    hot = np.concatenate([np.eye(4)[row] for row in codes], axis=1)
    ones = np.ones((len(y), 1))
    return {
        "raw, exact": (Dense(X), np.hstack([real(X), ones]), 9),
        "raw, real": (Dense(real(X)), np.hstack([real(X), ones]), None),
        "codes": (Coded(codes, 4), hot, 0),
        "hybrid, exact": (Coded(codes, 4, X), np.hstack([real(X), hot]), 9),
        "hybrid, real": (Coded(codes, 4, real(X)), np.hstack([real(X), hot]), None),
    }


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["raw, exact", "raw, real", "codes", "hybrid, exact",
                                  "hybrid, real"])  # fmt: skip
def test_the_gradient_is_that_of_finite_differences(kind, smoothing):
    X, y = rows()
    design, F, bits = designs(X, y)[kind]
    assert design.bits == bits
    assert design.columns == F.shape[1]
    assert np.abs(F).sum(axis=1).max() * 2.0 ** (bits or 0) <= design.reach
    V = np.random.default_rng(1).normal(size=(F.shape[1], 4))
    gradient, loss = gradient_and_loss([(design, y)], V, smoothing)
    units = (1.0, 1.0) if bits is None else (2.0 ** -(bits + sm.BITS), 2.0**-sm.BITS)
    gradient, loss = gradient * units[0] / 200, loss[0] * units[1] / 200
    assert np.isclose(loss, mean_loss(V, F, y, smoothing), rtol=1e-6)
    for i, j in ((0, 0), (3, 2), (6, 1), (-1, 3)):
        step = np.zeros_like(V)
        step[i, j] = 1e-5
        up, down = (mean_loss(V + s, F, y, smoothing) for s in (step, -step))
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
    mu_n = sm.penalty_of(1e-3, n, d + 1, intercept=True)
    hessian += np.kron(np.eye(classes), np.diag(mu_n))
    above = np.kron(np.eye(classes), 0.5 * F.T @ F + np.diag(mu_n)) - hessian
    assert np.linalg.eigvalsh(above)[0] > -1e-9


@pytest.mark.parametrize("mu", [1e-3, 1e-1])
def test_the_limit_is_scikit_learns(mu):
    X, y = rows(n=400)
    oracle = LogisticRegression(C=1 / (mu * 400), tol=1e-12, max_iter=10_000).fit(real(X), y)
    best = objective(np.vstack([oracle.coef_.T, oracle.intercept_]), X, y, mu)
    head = trained(X, y, rounds=400, penalty=mu)
    assert np.isclose(objective(head.weights, X, y, mu), best, rtol=1e-6)
    soon = trained(X, y, rounds=60, penalty=mu)
    assert -1e-6 < objective(soon.weights, X, y, mu) - best < 1e-3 * best


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.floats(1e-6, 1e6), st.integers(1, 4000), st.integers(0, 2**32 - 1))
def test_scores_of_rounded_weights_are_exact(scale, columns, seed):
    V = scale * np.random.default_rng(seed).normal(size=(columns, 2))
    reach = columns * LARGEST
    rounded, s = sm.exact_weights(V, reach)
    assert np.abs(rounded).max() * reach <= 2**53
    assert np.abs(rounded).max() * reach > 2**51, "bits are given away"
    assert np.abs(rounded * 2.0**-s - V).max() <= 2.0 ** -(s + 1)


def test_a_round_sums_over_whoever_is_there_and_says_so():
    X, y = rows(n=300)
    head = make_head("softmax", {"rounds": 3}).bind(6, 4)
    thirds = [(X[i::3], y[i::3], f"c{i}") for i in range(3)]
    head = absorb(head, total(gathered(head, *t) for t in thirds))
    head = absorb(head, total(gathered(head, *t) for t in thirds[:2]))
    entry = gradients(head)[0]
    assert (entry["clients"], entry["rows"]) == (2, 200)
    bound = sm.Bound.of(_full_gram(X), sm.penalty_of(1e-3, 300, 7, intercept=True))
    V = head.point
    part = X[np.arange(300) % 3 != 2]
    some = y[np.arange(300) % 3 != 2]
    gradient, _ = gradient_and_loss([(Dense(part), some)], V)
    step = V - bound.solve(gradient * 2.0 ** -(9 + sm.BITS) + 200 * 1e-3 * _bare(V))
    assert objective(step, part, some, 1e-3) <= objective(V, part, some, 1e-3)


def _full_gram(X):
    F = np.hstack([real(X), np.ones((len(X), 1))])
    return F.T @ F


def _bare(V):
    return np.vstack([V[:-1], np.zeros((1, V.shape[1]))])


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


def overfitted(**options):
    """A head of few rows and hardly any penalty, held-out clients' rows, the points on its way."""
    X, y = rows(n=24, d=6, seed=3)
    V, v = rows(n=400, seed=4)
    head = make_head("softmax", {"rounds": 30, "penalty": 1e-6, **options}).bind(6, 4)
    points = []
    while head.phase() is not None:
        points.append(head.point)
        held = gathered(head, V, v, "held")
        head = absorb(head, gathered(head, X, y), held)
    return head, points


def test_held_out_clients_keep_the_best_round():
    head, points = overfitted(patience=0)
    losses = [r["validation_loss"] for r in gradients(head)]
    best = int(np.argmin(losses))
    assert best < 29, "it never overfits: a weak test"
    assert report_of(head)["best_round"] == best + 1
    assert np.array_equal(head.weights, points[best + 1])


def test_patience_stops_when_held_out_clients_gain_no_more():
    every, _ = overfitted(patience=0)
    losses = [r["validation_loss"] for r in gradients(every)]
    best = int(np.argmin(losses))
    for patience in (1, 3):
        head, points = overfitted(patience=patience)
        assert len(gradients(head)) < 30
        assert [r["validation_loss"] for r in gradients(head)] == losses[: best + 1 + patience]
        assert np.array_equal(head.weights, points[best + 1])


def test_held_out_clients_judge_all_rounds_or_none():
    X, y = rows()
    head = make_head("softmax").bind(6, 4)
    head = absorb(head, gathered(head, X, y))
    head = absorb(head, gathered(head, X, y), gathered(head, X, y, "held"))
    with pytest.raises(UsageError, match="in all of them or in none"):
        absorb(head, gathered(head, X, y))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    st.integers(0, 10**6),
    st.floats(1e-8, 1e3),
    st.integers(1, 40),
    st.floats(0.0, 0.99),
)
def test_no_options_make_it_diverge(seed, penalty, n, smoothing):
    """What the rounds reach is never worse than where they start."""
    X, y = rows(n=n, seed=seed)
    head = trained(X, y, rounds=8, penalty=penalty, label_smoothing=smoothing)
    F = np.hstack([real(X), np.ones((n, 1))])
    W = head.weights
    reached = mean_loss(W, F, y, smoothing) + 0.5 * penalty * (W[:-1] ** 2).sum()
    values = [r["objective"] for r in gradients(head)]
    assert reached <= min(values) + 1e-6 * (1 + values[0])


def test_momentum_restarts_when_the_objective_rises():
    X, y = rows(n=40)
    rounds = gradients(trained(X, y, rounds=150, penalty=1e-2))
    values = [r["objective"] for r in rounds]
    for i, r in enumerate(rounds[1:], start=1):
        assert r["restarted"] == (values[i] > values[i - 1])
    assert any(r["restarted"] for r in rounds), "it never restarts: a weak test"


def test_a_small_gradient_ends_it_early():
    X, y = rows()
    head = trained(X, y, rounds=500, penalty=0.1, tolerance=1e-4)
    assert len(gradients(head)) < 500
    assert gradients(head)[-1]["gradient_norm"] < 1e-4


def test_momentum_and_the_best_round_are_part_of_the_digest_and_clients_are_not():
    X, y = rows()
    heads = [make_head("softmax", {"rounds": 9}).bind(6, 4) for _ in range(2)]
    heads = [absorb(h, gathered(h, X, y, name)) for h, name in zip(heads, "ab", strict=True)]
    assert heads[0].digest() == heads[1].digest()
    assert not np.array_equal(*(h.arrays()["covered"] for h in heads))
    head = absorb(heads[0], gathered(heads[0], X, y, "a"))
    for name in ("momentum", "best-round"):
        other = {**head.arrays(), name: head.arrays()[name].copy()}
        other[name][0] = 1 - other[name][0]
        changed = make_head("softmax", {"rounds": 9}).restore(head.phase(), other)
        assert changed.digest() != head.digest(), name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("momentum", np.ones(2)),
        ("best-round", np.array([7])),
        ("covered", np.ones((1, 2), np.int64)),
        ("factor", np.ones(3)),
        ("step", np.ones((2, 2))),
    ],
)
def test_state_that_does_not_fit_together_is_refused(name, value):
    X, y = rows()
    head = make_head("softmax", {"rounds": 9}).bind(6, 4)
    for _ in range(2):
        head = absorb(head, gathered(head, X, y))
    arrays = {**head.arrays(), name: value}
    with pytest.raises(InvalidDataError, match=f"the array '{name}'"):
        make_head("softmax").restore(head.phase(), arrays).bind(6, 4)
