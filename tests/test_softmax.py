"""The softmax head against finite differences, scikit-learn and its own promises."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import afltool
from afltool.errors import InvalidDataError, MismatchError, UsageError
from afltool.heads import make_head
from afltool.linalg import softmax as sm
from afltool.linalg.fixedpoint import FixedPoint, real
from afltool.stages.run_config import make_config
from afltool.statistics import Client, ClientId, Context, total


def rows(n=200, d=6, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    X = np.random.default_rng(9).normal(size=(classes, d))[y] + rng.normal(size=(n, d))
    return FixedPoint(np.rint(X * 512).astype(np.int16), 9), y


def gathered(head, X, y, client="a"):
    """One client's statistics for the head's phase."""
    context = Context({"fraction_bits": 9}, tuple("abcd"), head.binding())
    found = head.statistics(X, y)
    return replace(found, context=context, clients={ClientId(client): Client(len(X))})


def trained(X, y, check=None, **options):
    head = make_head("softmax", options).bind(X.dim, 4)
    while head.phase() is not None:
        head = head.absorb(gathered(head, X, y))
        if check is not None:
            check(head)
    return head


def objective(W, X, y, mu, smoothing=0.0):
    """The penalised mean loss from the rows themselves."""
    S = real(X) @ W[:-1] + W[-1]
    log_p = S - np.log(np.exp(S - S.max(1, keepdims=True)).sum(1, keepdims=True))
    log_p -= S.max(1, keepdims=True)
    Y = sm.targets(y, W.shape[1], smoothing)
    return -(Y * log_p).sum() / len(y) + 0.5 * mu * (W[:-1] ** 2).sum()


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("exact", [True, False])
def test_the_gradient_is_that_of_finite_differences(exact, smoothing):
    X, y = rows()
    V = np.random.default_rng(1).normal(size=(7, 4))
    block = X if exact else real(X)
    gradient, loss = sm.gradient_and_loss(block, y, V, smoothing)
    units = (2.0 ** -(9 + sm.BITS), 2.0**-sm.BITS) if exact else (1.0, 1.0)
    gradient, loss = gradient * units[0] / 200, loss[0] * units[1] / 200
    assert np.isclose(loss, objective(V, X, y, 0.0, smoothing), rtol=1e-6)
    for i, j in ((0, 0), (3, 2), (6, 1), (6, 3)):
        step = np.zeros_like(V)
        step[i, j] = 1e-5
        up, down = (objective(V + s, X, y, 0.0, smoothing) for s in (step, -step))
        assert np.isclose(gradient[i, j], (up - down) / 2e-5, atol=2e-6)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.floats(0.0, 20.0))
def test_the_bound_is_above_the_true_hessian(seed, scale):
    rng = np.random.default_rng(seed)
    n, d, classes = 30, 4, 3
    F = np.hstack([rng.normal(size=(n, d)), np.ones((n, 1))])
    W = scale * rng.normal(size=(d + 1, classes))
    P, _ = sm.probabilities(F @ W)
    hessian = np.zeros(((d + 1) * classes,) * 2)
    for f, p in zip(F, P, strict=True):
        hessian += np.kron(np.diag(p) - np.outer(p, p), np.outer(f, f))
    mu_n = sm.penalty_of(1e-3, n, d)
    hessian += np.kron(np.eye(classes), np.diag(mu_n))
    above = np.kron(np.eye(classes), 0.5 * F.T @ F + np.diag(mu_n)) - hessian
    assert np.linalg.eigvalsh(above)[0] > -1e-9


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([1e-4, 1e-2, 1.0]), st.integers(3, 80))
def test_the_objective_never_rises_without_momentum(seed, penalty, n):
    X, y = rows(n=n, seed=seed)
    head = trained(X, y, rounds=12, penalty=penalty, momentum=False)
    values = [r["objective"] for r in head.report["rounds"]]
    assert all(b <= a + 1e-6 for a, b in itertools.pairwise(values))
    assert objective(head.state["weights"], X, y, penalty) <= values[-1] + 1e-6


@pytest.mark.parametrize("mu", [1e-3, 1e-1])
def test_the_limit_is_scikit_learns(mu):
    X, y = rows(n=400)
    oracle = LogisticRegression(C=1 / (mu * 400), tol=1e-12, max_iter=10_000).fit(real(X), y)
    best = objective(np.vstack([oracle.coef_.T, oracle.intercept_]), X, y, mu)
    head = trained(X, y, rounds=400, penalty=mu)
    assert np.isclose(objective(head.state["weights"], X, y, mu), best, rtol=1e-6)
    slow = trained(X, y, rounds=60, penalty=mu, momentum=False)
    fast = trained(X, y, rounds=60, penalty=mu)
    gaps = [objective(h.state["weights"], X, y, mu) - best for h in (fast, slow)]
    assert -1e-6 < gaps[0] <= gaps[1] + 1e-7


def test_every_sum_is_an_integer_and_the_same_for_every_split_and_order():
    X, y = rows(n=300)
    head = make_head("softmax", {"rounds": 2}).bind(6, 4)
    for phase in ("gram", "gradient-1", "gradient-2"):
        assert head.phase() == phase
        pooled = gathered(head, X, y)
        assert pooled.exact
        for K in (2, 17, 300):
            owner = np.random.default_rng(K).integers(0, K, 300)
            parts = [gathered(head, X[owner == k], y[owner == k], f"c{k}") for k in range(K)]
            assert total(parts[::-1]).digest() == pooled.digest()
        order = np.random.default_rng(0).permutation(300)
        assert gathered(head, X[order], y[order]).digest() == pooled.digest()
        head = head.absorb(pooled)


def test_blocks_keep_the_gradient_exact(monkeypatch):
    X, y = rows(n=300)
    V = np.random.default_rng(1).normal(size=(7, 4))
    whole = sm.gradient_and_loss(X, y, V)
    monkeypatch.setattr(sm, "EXACT_FLOAT64", sm.LARGEST << (sm.BITS + 3))
    monkeypatch.setattr(sm, "exact_weights", lambda V, _: (np.rint(V * 2.0**20), 20))
    again = sm.gradient_and_loss(X, y, V)
    assert again[0].dtype == np.int64
    assert np.abs(whole[0] - again[0]).max() <= 300 * 2**15  # other roundings of V, no more


def test_a_round_sums_over_whoever_is_there_and_says_so():
    X, y = rows(n=300)
    head = make_head("softmax", {"rounds": 3}).bind(6, 4)
    thirds = [(X[i::3], y[i::3], f"c{i}") for i in range(3)]
    head = head.absorb(total(gathered(head, *t) for t in thirds))
    head = head.absorb(total(gathered(head, *t) for t in thirds[:2]))
    entry = head.report["rounds"][0]
    assert (entry["clients"], entry["rows"]) == (2, 200)
    bound = sm.Bound(_full_gram(X), sm.penalty_of(1e-3, 300, 6))
    V = head.state["point"]
    part = X[np.arange(300) % 3 != 2]
    some = y[np.arange(300) % 3 != 2]
    gradient, _ = sm.gradient_and_loss(part, some, V)
    step = bound.step(V, gradient * 2.0 ** -(9 + sm.BITS) + 200 * 1e-3 * _bare(V))
    assert objective(step, part, some, 1e-3) <= objective(V, part, some, 1e-3)


def _full_gram(X):
    F = np.hstack([real(X), np.ones((len(X), 1))])
    return F.T @ F


def _bare(V):
    return np.vstack([V[:-1], np.zeros((1, V.shape[1]))])


def test_a_client_whom_the_bound_does_not_cover_is_refused_by_name():
    X, y = rows()
    head = make_head("softmax").bind(6, 4)
    head = head.absorb(gathered(head, X, y, "early"))
    with pytest.raises(MismatchError, match=r"1 clients, such as late, were not in the gram"):
        head.absorb(gathered(head, X, y, "late"))


def test_held_out_clients_keep_the_best_round():
    X, y = rows(n=24, d=6, seed=3)
    V, v = rows(n=400, seed=4)
    head = make_head("softmax", {"rounds": 30, "penalty": 1e-6}).bind(6, 4)
    points = []
    while head.phase() is not None:
        points.append(head.state.get("point"))
        held = gathered(head, V, v, "held")
        head = head.absorb(gathered(head, X, y), held)
    losses = [r["validation_loss"] for r in head.report["rounds"]]
    best = int(np.argmin(losses))
    assert best < 29, "it never overfits: a weak test"
    assert head.report["best"] == best + 1
    assert np.array_equal(head.state["weights"], points[best + 1])


def test_momentum_restarts_when_the_objective_rises():
    X, y = rows(n=40)
    rounds = trained(X, y, rounds=150, penalty=1e-2).report["rounds"]
    values = [r["objective"] for r in rounds]
    for i, r in enumerate(rounds[1:], start=1):
        assert r["restarted"] == (values[i] > values[i - 1])
    assert any(r["restarted"] for r in rounds), "it never restarts: a weak test"


def test_a_small_gradient_ends_it_early():
    X, y = rows()
    head = trained(X, y, rounds=500, penalty=0.1, tolerance=1e-4)
    assert len(head.report["rounds"]) < 500
    assert head.report["rounds"][-1]["gradient_norm"] < 1e-4


def test_settings_that_would_diverge_cannot_be_had():
    for bad in ({"penalty": 0.0}, {"penalty": -1.0}, {"penalty": float("nan")}, {"rounds": 0},
                {"label_smoothing": 1.0}):  # fmt: skip
        with pytest.raises(UsageError):
            make_head("softmax", bad)
    with pytest.raises(UsageError, match="fixes --penalty"):
        make_head("softmax").with_options(penalty=1.0)


def test_no_rows_are_refused():
    X, y = rows()
    head = make_head("softmax").bind(6, 4)
    with pytest.raises(InvalidDataError, match="0 rows"):
        head.absorb(gathered(head, X[:0], y[:0]))


def test_float_features_give_the_same_up_to_rounding():
    X, y = rows()
    head = make_head("softmax", {"rounds": 10}).bind(6, 4)
    while head.phase() is not None:
        found = replace(gathered(head, X, y), arrays=head.statistics(real(X), y).arrays)
        head = head.absorb(replace(found, context=Context({"fraction_bits": None}, (), {})))
    exact = trained(X, y, rounds=10)
    assert np.allclose(head.state["weights"], exact.state["weights"], atol=1e-5)


def test_over_files_the_rounds_are_the_same_for_every_partition(tmp_path):
    X, y = rows(n=400)
    for name, part in (("train", slice(0, 300)), ("test", slice(300, 400))):
        np.savez(tmp_path / f"{name}.npz", x=real(X)[part], y=y[part])
        afltool.import_embeddings(tmp_path / f"{name}.npz", tmp_path / f"{name}.h5")
    digests = set()
    for i, more in enumerate(
        (
            {"scheme": "iid", "clients": 1},
            {"scheme": "shards", "shards_per_client": 1, "clients": 10},
            {"scheme": "dirichlet", "alpha": 0.01, "clients": 1000},
        )
    ):
        given = {
            "features": tmp_path / "train.h5",
            "test_features": tmp_path / "test.h5",
            "head": "softmax",
            "rounds": 3,
            **more,
        }
        run = afltool.run(make_config(given), tmp_path / str(i))
        heads = [afltool.info(p)["digest"] for p in sorted(run.glob("05-head*.h5"))]
        assert len(heads) == 4
        digests.add(tuple(heads))
    assert len(digests) == 1
