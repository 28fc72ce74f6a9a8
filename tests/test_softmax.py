"""The softmax head against finite differences, scikit-learn and its own promises; over files."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import absorb, gathered, report_of, total, trained
from scipy.special import logsumexp, softmax
from sklearn.linear_model import LogisticRegression

import afltool
from afltool.errors import InvalidDataError, MismatchError, UsageError
from afltool.files.features import open_features
from afltool.files.heads import load_head
from afltool.heads import make_head
from afltool.heads.projections import projection
from afltool.heads.random_features import Lift
from afltool.math import codes as cd
from afltool.math import softmax as sm
from afltool.math.gram import LARGEST, FixedPoint, real
from afltool.math.softmax import Coded, Dense
from afltool.runs.config import RunConfig

DIM, CLASSES = 6, 4


KINDS = {
    "raw": {},
    "random": {"features": "random", "width": 20},
    "random beside raw": {"features": "random", "width": 20, "with_linear": True},
    "codes": {"features": "safle", "buckets": 4, "group_size": 2, "experts": 9},
    "codes beside raw": {
        "features": "safle", "buckets": 4, "group_size": 2, "experts": 9, "with_linear": True,
    },
}  # fmt: skip


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    X = np.random.default_rng(9).normal(size=(CLASSES, DIM))[y] + rng.normal(size=(n, DIM))
    return FixedPoint(np.rint(X * 512).astype(np.int16), 9), y


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


def mean_loss(W, F, y, smoothing=0.0):
    """The mean loss of scores FW from the rows themselves."""
    S = F @ W
    log_p = S - logsumexp(S, axis=1, keepdims=True)
    Y = np.full(S.shape, smoothing / S.shape[1])
    Y[np.arange(len(y)), y] += 1.0 - smoothing
    return -(Y * log_p).sum() / len(y)


def objective(W, F, y, mu, free):
    """With the penalty, of which the last ``free`` columns are free."""
    return mean_loss(W, F, y) + 0.5 * mu * (W[: len(W) - free] ** 2).sum()


def features(head, X):
    """Φ of rows as dense reals, made by other means: of random features and codes."""
    o = head.options
    beside = [real(X)] if o.with_linear else []
    ones = [np.ones((len(X), 1))]
    if o.features == "random":
        made = projection(o.projection, o.seed, 0, DIM, o.width)
        z = np.rint((real(X) @ made.A.astype(float) + made.a) * 4096) / 4096
        return np.hstack([np.rint(np.tanh(z) * 512) / 512, *beside, *ones])
    if o.features == "raw":
        return np.hstack([real(X), *ones])
    digits = cd.digits_per_feature(o.bucketing, o.buckets) * DIM
    dealt = cd.deal(digits, o.experts, o.group_size, o.seed)
    coder = cd.coder(head.state_dict()["thresholds"], o.bucketing, o.buckets, dealt)
    hot = [np.eye(coder.size)[row] for row in coder.codes(X)]
    return np.hstack([*beside, *hot])


# ---------------------------------------------------------------- the kernel


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
    X, y = rows(200)
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
    """Without an intercept where the features are codes, which add up to one in each group."""
    (X, y), mu = rows(), 1e-2
    head = solved(X, y, rounds=500, penalty=mu, tolerance=1e-7, **KINDS[kind])
    F, free = features(head, X), int("codes" not in kind)
    best = objective(fitted(F, y, mu, free), F, y, mu, free)
    assert np.isclose(objective(head.weights, F, y, mu, free), best, rtol=1e-6)
    assert np.allclose(head.decision_function(X), F @ head.weights, atol=1e-6)
    if kind == "raw":  # a small gradient ends it
        assert len(gradients(head)) < 500
        assert gradients(head)[-1]["gradient_norm"] < 1e-7
    soon = solved(X, y, rounds=60, penalty=mu, **KINDS[kind])
    assert -1e-6 < objective(soon.weights, F, y, mu, free) - best < 1e-2 * best


def fitted(F, y, mu, free):
    """The weights of scikit-learn; the last column of F is the intercept, if one is free."""
    how = {"C": 1 / (mu * len(y)), "solver": "newton-cholesky", "tol": 1e-12, "max_iter": 1000}
    kept = F[:, : F.shape[1] - free]
    oracle = LogisticRegression(fit_intercept=bool(free), **how).fit(kept, y)
    return np.vstack([oracle.coef_.T, *([oracle.intercept_] if free else [])])


def uneven(n=300, seed=0):
    """Rows whose features differ in scale by powers of two, one of them constant."""
    X, y = rows(n, seed)
    values = X.values >> np.arange(DIM) % 4
    values[:, 4] = 1024
    return FixedPoint(values, 9), y


def spread(F):
    """Standard deviations of the columns; 1 of a constant one."""
    s = F.std(axis=0)
    return np.where(s > 1e-9, s, 1.0)


@pytest.mark.parametrize("kind", ["raw", "random beside raw", "codes"])
def test_standardised_is_scikit_learns_on_features_divided_by_their_deviation(kind):
    (X, y), mu, free = uneven(), 0.03, int("codes" not in kind)
    asked = {"rounds": 600, "penalty": mu, "tolerance": 1e-6, **KINDS[kind]}
    head = solved(X, y, standardise=True, **asked)
    F = features(head, X)
    s = spread(F)
    best = objective(fitted(F / s, y, mu, free), F / s, y, mu, free)
    assert np.isclose(objective(s[:, None] * head.weights, F / s, y, mu, free), best, rtol=1e-6)
    assert np.isclose(gradients(head)[-1]["objective"], best, rtol=1e-5)
    plain = solved(X, y, **asked)
    assert objective(s[:, None] * plain.weights, F / s, y, mu, free) > best * 1.001, "weak test"


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    st.sampled_from(sorted(KINDS)),
    st.booleans(),
    st.integers(0, 10**6),
    st.sampled_from([1e-6, 1e-4, 1e-2, 1.0]),
    st.integers(1, 60),
)
def test_a_step_of_the_bound_never_raises_the_objective(kind, standardise, seed, penalty, n):
    """The best weights are such a step from a point whose objective is the least so far."""
    X, y = uneven(n, seed) if standardise else rows(n, seed)
    given = {"rounds": 8, "penalty": penalty, "standardise": standardise, **KINDS[kind]}
    best = []
    for head in heads(X, y, **given):
        W = head.weights if head.best is None else head.best
        best += [] if W is None else [W]
    F, free = features(head, X), int("codes" not in kind)
    s = spread(F) if standardise else np.ones(F.shape[1])
    values = [p["objective"] for p in report_of(head)["phases"] if "objective" in p]
    assert len(values) == 8
    found = [objective(s[:, None] * W, F / s, y, penalty, free) for W in best[1:]]
    least = np.minimum.accumulate(values)
    assert all(b <= a + 1e-6 * max(1, a) for a, b in zip(least, found, strict=True))


def test_a_round_of_some_clients_weighs_by_the_variances_of_all():
    X, y = uneven()
    head = make_head("softmax", {"rounds": 3, "standardise": True}).bind(DIM, CLASSES)
    head = absorb(head, total(gathered(head, X[i::2], y[i::2], f"c{i}") for i in range(2)))
    V, F = head.point, features(head, X)
    assert np.allclose(head.variances, spread(F) ** 2, rtol=1e-9)
    (found,) = gradients(absorb(head, gathered(head, X[::2], y[::2], "c0")))
    assert (found["clients"], found["rows"]) == (1, 150)
    s = spread(F)[:, None]
    assert np.isclose(
        found["objective"], objective(s * V, F[::2] / s.T, y[::2], 1e-3, 1), rtol=1e-6
    )


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


def test_held_out_clients_keep_the_best_round_and_patience_stops():
    """Of few rows and hardly any penalty."""
    (X, y), (V, v) = rows(24, 3), rows(400, 4)

    def overfitted(patience):
        how = {"rounds": 30, "penalty": 1e-6, "patience": patience}
        head, points = make_head("softmax", how).bind(DIM, CLASSES), []
        while head.phase() is not None:
            points.append(head.point)
            head = absorb(head, gathered(head, X, y), gathered(head, V, v, "held"))
        return head, points

    head, points = overfitted(0)
    losses = [r["validation_loss"] for r in gradients(head)]
    best = int(np.argmin(losses))
    assert best < 29, "it never overfits: a weak test"
    assert report_of(head)["best_round"] == best + 1
    assert np.array_equal(head.weights, points[best + 1])
    for patience in (1, 3):
        head, points = overfitted(patience)
        assert [r["validation_loss"] for r in gradients(head)] == losses[: best + 1 + patience]
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
    for options, wrong in (
        ({}, {"momentum": np.ones(2), "best-round": np.array([7]), "factor": np.ones(3),
              "covered": np.ones((1, 2), np.int64), "step": np.ones((2, 2))}),
        ({"standardise": True}, {"variances": np.zeros(DIM + 1)}),
        ({"standardise": True}, {"variances": np.ones(DIM)}),
    ):  # fmt: skip
        begun = make_head("softmax", {"rounds": 9, **options})
        head = begun.bind(DIM, CLASSES)
        for _ in range(2):
            head = absorb(head, gathered(head, X, y))
        for name, value in wrong.items():
            with pytest.raises(InvalidDataError, match=f"the array '{name}'"):
                begun.restore(head.phase(), {**head.state_dict(), name: value}).bind(DIM, CLASSES)


# ---------------------------------------------------------------- over files


@pytest.fixture(scope="module")
def random_run(road, tmp_path_factory):
    """Three rounds on random features of five clients."""
    return carried_out(road, tmp_path_factory.mktemp("softmax") / "RUN")


def carried_out(road, out, head="softmax", **options):
    how = {"features": "random", "width": 20, "rounds": 3} if head == "softmax" else {}
    given = {"train_features": road.train, "test_features": road.test, "clients": 5, **how}
    return afltool.run(RunConfig(head=head, **{**given, **options}), out)


def test_a_run_lifts_its_rows_once_and_what_it_keeps_changes_nothing(
    road, random_run, tmp_path, monkeypatch
):
    lifted, lift = [], Lift.__call__
    monkeypatch.setattr(Lift, "__call__", lambda self, X: lifted.append(len(X)) or lift(self, X))
    cached = carried_out(road, tmp_path / "cached", memory="1GB")
    assert sum(lifted) == 2 * 600 + 200  # the gram, the first gradient, the test rows
    small = carried_out(road, tmp_path / "small", memory="0")
    same = {afltool.info(f / "05-head-4.h5")["digest"] for f in (random_run, cached, small)}
    assert len(same) == 1


def test_the_rounds_so_far_make_a_head_at_any_time(road, random_run):
    with open_features(road.test) as opened:
        X, y = opened.rows(0, len(opened)), opened.labels
    assert not list(load_head(random_run / "03-head0.h5")[0].round_scores(X))
    losses = []
    for suffix in ("", "-2", "-3", "-4"):
        file = load_head(random_run / f"05-head{suffix}.h5")
        head = file.head
        ((name, scores),) = head.round_scores(X)
        assert file.phase_of(name) == file.rounds[-1]["phase"]
        if head.phase() is None:
            assert np.array_equal(scores, head.decision_function(X))
        losses.append((logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]).mean())
    assert losses[-1] < losses[0]
    assert losses[-1] == pytest.approx(losses[-2], abs=0.05)


def test_thresholds_of_a_file_end_up_in_the_head(road, tmp_path):
    how = {"features": "safle", "experts": 9, "group_size": 2, "buckets": 4, "rounds": 2}
    of_rows = afltool.head(
        "softmax", tmp_path / "h.h5", head_options={**how, "thresholds": str(road.train)}
    )
    head = load_head(of_rows)[0]
    assert head.phase() == "codes"
    assert str(head.options.thresholds).startswith("features:")
    federated = carried_out(road, tmp_path / "F", **how, width=None)
    mine = carried_out(road, tmp_path / "M", head=str(of_rows))
    arrays = [
        load_head(f)[0].state_dict() for f in (federated / "05-head-2.h5", mine / "05-head.h5")
    ]
    for name in ("thresholds", "point"):
        assert np.array_equal(arrays[0][name], arrays[1][name])


def test_clients_may_miss_rounds_but_not_the_first(road, tmp_path):
    """A round sums over whoever is there and says so; who was not in the gram is refused."""
    how = {"partition": road.clients, "sum": True}
    head = afltool.head("softmax", tmp_path / "head0.h5", head_options={"rounds": 3})
    for number, only in enumerate(("0-4", "0-2", "2-4", "1,3")):
        if number == 2:
            late = afltool.local_stats(road.train, head, tmp_path / "late.h5", **how)
            with pytest.raises(MismatchError, match="1 of 6 clients were not in the first"):
                afltool.solve(late, tmp_path / "x.h5", head=head)
        total = tmp_path / f"total{number}.h5"
        afltool.local_stats(road.train, head, total, only=only, **how)
        head = afltool.solve(total, tmp_path / f"head{number + 1}.h5", head=head)
    phases = afltool.info(head)["report"]["phases"]
    assert [p["clients"] for p in phases] == [5, 3, 3, 2]
    assert afltool.evaluate(head, road.test)["top1"] > 0.5
