"""The SAFLe head against explicit one-hot problems, in the paper's shape, and over files."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from problems import absorb, gathered, one_hot, report_of, sums, trained

import afltool
from afltool import AnalyticClassifier
from afltool.errors import NumericalError
from afltool.heads import make_head, options_class
from afltool.heads.safle.options import DEFAULT_SIDE
from afltool.math import codes, ridge_choice
from afltool.math.counts import density
from afltool.math.gram import FixedPoint, real

CLASSES, DIM = 3, 6
PLAIN = {"thresholds": "range:-2:2", "buckets": 4, "experts": 7, "ridge": 3.0}


def rows(n=300, seed=0):
    """Classes that only a non-linear head tells apart: by the distance from the origin."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    X = rng.normal(size=(n, DIM)) * (0.2 + y[:, None])
    return FixedPoint(np.rint(X * 512).astype(np.int16), 9), y


def made(**options):
    return make_head("safle", {**PLAIN, **options}).bind(DIM, CLASSES)


def solved(X, y, *held, **options):
    return trained(made(**options), X, y, *held)


def explicit(head, X):
    """Φ, or [x, Φ] of a hybrid, as a dense matrix."""
    phi = one_hot(head, X)
    return np.hstack([real(X), phi]) if head.options.with_linear else phi


def penalty(head):
    P = np.full(head.options.columns_for(head.dim), report_of(head)["ridge"])
    P[: DIM if head.options.with_linear else 0] = 1.0
    return P


@pytest.mark.parametrize("with_linear", [False, True])
@pytest.mark.parametrize("bucketing", ["integer", "onehot", "overlap"])
def test_lookups_are_the_explicit_ridge_regression(bucketing, with_linear):
    X, y = rows()
    head = solved(X, y, bucketing=bucketing, with_linear=with_linear)
    phi, Y = explicit(head, X), np.eye(CLASSES)[y]
    W = np.linalg.solve(phi.T @ phi + np.diag(penalty(head)), phi.T @ Y)
    assert np.allclose(head.decision_function(X), phi @ W, atol=1e-11)
    fresh, _ = rows(seed=9)
    assert np.allclose(head.decision_function(fresh), explicit(head, fresh) @ W, atol=1e-11)
    assert np.isclose(report_of(head)["training_mse"], ((phi @ W - Y) ** 2).sum() / len(y))


@pytest.mark.parametrize("with_linear", [False, True])
def test_statistics_are_the_blocks_of_the_explicit_gram(with_linear):
    X, y = rows()
    head = made(with_linear=with_linear)
    arrays = sums(head, X, y).arrays
    assert all(a.dtype == np.int64 for a in arrays.values())
    phi = explicit(made(), X)
    assert np.array_equal(arrays["labels"].reshape(-1, CLASSES), phi.T @ np.eye(CLASSES)[y])
    if with_linear:
        feature_sums = (phi.T @ X.values).reshape(7, -1, DIM)
        assert np.array_equal(arrays["sums"], feature_sums[:, 1:])
        linear = sums(make_head("linear").bind(DIM, CLASSES), X, y).arrays
        assert all(np.array_equal(arrays[name], linear[name]) for name in ("gram", "cross"))


@pytest.mark.parametrize("with_linear", [False, True])
def test_cross_validation_and_held_out_errors_are_the_explicit_ones(with_linear, monkeypatch):
    """And auto finds the least of those that it tried."""
    (X, y), (V, v) = rows(), rows(seed=4)
    head = solved(X, y, ridge="auto", with_linear=with_linear)
    phi, Y, n, path = explicit(head, X), np.eye(CLASSES)[y], len(y), report_of(head)["ridge_path"]
    for point in path:
        P = penalty(head)
        P[report_of(head)["ridge"] == P] = point["ridge"]
        hat = phi @ np.linalg.solve(phi.T @ phi + np.diag(P), phi.T)
        assert np.isclose(point["degrees_of_freedom"], np.trace(hat))
        assert np.isclose(point["gcv"], n * ((Y - hat @ Y) ** 2).sum() / (n - np.trace(hat)) ** 2)
    assert report_of(head)["ridge"] == min(path, key=lambda point: point["gcv"])["ridge"]
    assert len(path) >= 3
    report = report_of(solved(X, y, V, v, ridge="1:100:5", with_linear=with_linear))
    for point in report["ridge_path"]:
        fixed = solved(X, y, ridge=point["ridge"], with_linear=with_linear)
        error = ((np.eye(CLASSES)[v] - fixed.decision_function(V)) ** 2).sum() / len(v)
        assert np.isclose(point["validation_mse"], error)
    best = min(report["ridge_path"], key=lambda p: p["validation_mse"])
    assert (report["ridge"], report["ridge_by"]) == (best["ridge"], "held-out clients")
    exact = report_of(solved(X, y))["degrees_of_freedom"]
    monkeypatch.setattr(ridge_choice, "EXACT_SIDE", 0)  # of large systems it is estimated
    estimate = report_of(solved(X, y))["degrees_of_freedom"]
    assert np.isclose(estimate, exact, rtol=0.05)
    assert estimate != exact


THOUSANDS = {"experts": 9, "group_size": 9}


@pytest.mark.parametrize(("n", "options"), [
    (300, {}), (40, {}), (300, {"experts": 40}), (300, {"with_linear": True}),
    pytest.param(300, THOUSANDS, marks=pytest.mark.slow),
    pytest.param(300, {**THOUSANDS, "with_linear": True}, marks=pytest.mark.slow),
])  # fmt: skip
def test_ridge_zero_is_the_minimum_norm_solution(n, options):
    """Also where columns of rare codes are dependent; a hybrid's raw features have ridge 1."""
    (X, y), (V, v) = rows(n), rows(seed=4)
    head = solved(X, y, V, v, ridge=0, **options)
    phi, raw = explicit(head, X), DIM * head.options.with_linear
    both = np.vstack([phi, np.eye(raw, phi.shape[1])])
    Y = np.vstack([np.eye(CLASSES)[y], np.zeros((raw, CLASSES))])
    W, _, rank, _ = np.linalg.lstsq(both, Y, rcond=1e-10)
    assert (phi.shape[1] > 4096) == ("group_size" in options), "the premise"
    for rows_ in (X, V):
        expected = explicit(head, rows_) @ W
        assert np.allclose(head.decision_function(rows_), expected, atol=1e-8)
    report = report_of(head)
    assert (report["rank"], report["minimum_norm"]) == (rank, True)
    error = ((np.eye(CLASSES)[v] - head.decision_function(V)) ** 2).sum() / len(v)
    assert np.isclose(report["validation_mse"], error)
    if phi.shape[1] <= 4096:
        found = head.tables.reshape(-1, CLASSES)
        found = found if head.linear is None else np.vstack([head.linear, found])
        assert np.allclose(found, W, atol=1e-9)


def test_ridge_zero_needs_exact_counts():
    X, y = rows()
    total = gathered(head := made(ridge=0), X, y)
    noisy = replace(total, context=replace(total.context, noise={"epsilon": 1.0}))
    with pytest.raises(NumericalError, match="ridge 0 needs exact counts"):
        head.absorb(noisy)


def test_the_hybrid_has_afl_in_it_and_tells_apart_what_no_linear_head_can():
    """A huge ridge of the codes is AFL."""
    X, y = rows()
    afl = solved(X, y, with_linear=True, ridge=1e12)
    linear = trained(make_head("linear", {"ridge": 1.0}).bind(DIM, CLASSES), X, y)
    assert np.allclose(afl.decision_function(X), linear.decision_function(X), atol=1e-6)
    (X, y), (test, truth) = rows(n=1000), rows(n=1000, seed=5)
    head = solved(X, y, thresholds="federated", ridge="auto", buckets=8, experts=100)
    accuracy = [(h.decision_function(test).argmax(1) == truth).mean() for h in (head, linear)]
    assert accuracy[0] > accuracy[1] + 0.2


def test_a_problem_that_does_not_fit_is_refused_with_the_numbers():
    X, y = rows()
    with pytest.raises(NumericalError, match=r"800000 columns .* about 2560.00 GB of memory and"):
        sums(made(experts=100_000), X, y)
    federated = made(thresholds="federated", experts=100_000)
    with pytest.raises(NumericalError, match=r"7680.00 GB .* use fewer --experts"):
        absorb(federated, gathered(federated, X, y))


def test_the_default_number_of_experts_uses_every_digit_within_its_limit():
    for bucketing, dim in product(("integer", "onehot", "overlap"), (1, 30, 768, 1280)):
        head = make_head("safle", {"thresholds": "range:0:1", "bucketing": bucketing}).bind(dim, 2)
        digits = dim * (1 if bucketing == "integer" else 8)
        assert head.options.columns_for(head.dim) <= DEFAULT_SIDE
        assert len(np.unique(head._assign_digits())) == min(digits, 3 * 2048)


def test_more_rows_than_one_sum_holds_are_exact():
    """Two blocks' worth of the largest feature: sums of both, beyond int32."""
    n = 2**16 + 5
    X, y = FixedPoint(np.full((n, 2), 32767, np.int16), 9), np.zeros(n, np.int64)
    options = {"thresholds": "range:-2:2", "buckets": 2, "experts": 2, "with_linear": True}
    arrays = sums(make_head("safle", options).bind(2, 2), X, y).arrays
    assert arrays["sums"].max() == n * 32767 > 2**31
    assert arrays["pairs"].max() == n


def test_raw_features_too_far_from_zero_are_refused():
    """The codes of a group add up to a constant, so a hybrid centres its raw features."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    near = rng.normal(size=(300, 4)) + 1.5 * np.eye(3, 4)[y]

    def learned(away):
        X = (near + away).astype(np.float32)
        cuts = {"thresholds": f"range:{away - 2}:{away + 2}", "experts": 11}
        return AnalyticClassifier("safle", options={"with_linear": True, **cuts}).fit(X, y), X

    head, X = learned(1e5)
    assert head.score(X, y) == pytest.approx(learned(0.0)[0].score(near, y), abs=0.02)
    with pytest.raises(ValueError, match="lies too far from zero"):
        learned(1e7)


# ---------------------------------------------------------------- the paper's own shape


@pytest.mark.parametrize("dim", [5, 40, 512])
def test_the_papers_shape_uses_every_digit_once_in_one_round(dim):
    head = make_head("safle", {"preset": "paper"}).bind(dim, 4)
    o, dealt = head.options, head._assign_digits()
    assert (o.size, o.digits_of_code, o.buckets, o.bucketing) == (32, 5, 8, "overlap")
    assert dealt.shape == (-(-8 * dim // 5), 5)
    assert sorted(dealt.ravel()[: 8 * dim]) == list(range(8 * dim))  # the last code is filled up
    assert (head.one_round, head.phase()) == (True, "codes")


def test_a_preset_is_its_values_and_given_ones_come_first():
    """Its tables have 32 rows, or the next smaller power."""
    of = options_class("safle")
    told = of(every_digit=True, group_size=5, thresholds="range:0:2", ridge=0)
    assert of(preset="paper") == told
    assert of(preset="paper").as_dict() == told.as_dict()
    changed = of(preset="paper", thresholds="federated", group_size=6, experts=9)
    assert (changed.thresholds, changed.size, changed.experts) == ("federated", 64, 9)
    assert not changed.every_digit
    sizes = {("onehot", 20): 32, ("integer", 2): 32, ("integer", 3): 27, ("integer", 40): 40}
    for (bucketing, buckets), size in sizes.items():
        assert of(preset="paper", bucketing=bucketing, buckets=buckets).size == size
    assert of().as_dict() == {  # what files of before say
        "bucketing": "overlap", "buckets": 8, "group_size": 3, "experts": None,
        "thresholds": "federated", "with_linear": False, "ridge": "auto", "linear_ridge": 1.0,
        "seed": 0, "gamma": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"bucketing": "onehot", "group_size": 2}])
def test_the_density_is_that_of_the_dense_matrix(options):
    for n in (1, 9, 300):
        X, y = rows(n)
        head = solved(X, y, **options)
        phi, o = explicit(head, X), head.options
        assert np.array_equal(codes.one_hot(head.coder().codes(X), o.size), phi)
        share = np.count_nonzero(phi.T @ phi) / o.columns_for(head.dim) ** 2
        assert report_of(head)["density"] == pytest.approx(share)
        arrays = sums(made(**options), X, y).arrays
        assert report_of(head)["density"] == density(arrays["labels"], arrays["pairs"])


def test_a_run_that_cannot_be_solved_reads_no_row(road, tmp_path, cli, free_memory):
    out = tmp_path / "RUN"
    words = [
        "run", "--train-features", road.train, "--test-features", road.test, "--partition",
        road.clients, "--head", "safle", "--preset", "paper", "-o", out,
    ]  # fmt: skip
    free_memory(10**6)
    done = cli(*words)
    assert done.exit_code == 5
    assert "416 columns" in done.stderr  # 8 features, 64 digits, 13 codes
    assert not list(out.glob("04-*"))
    free_memory(10**9)
    assert cli(*words).exit_code == 0
    summary = json.loads((out / "summary.json").read_text())
    assert len(summary["bytes_per_client"]) == 1
    assert summary["options"]["every_digit"] is True


@pytest.mark.parametrize("thresholds", [None, "range:-2:2"])
def test_a_run_has_one_round_unless_thresholds_are_found_first(done_run, thresholds):
    named = {} if thresholds is None else {"thresholds": thresholds}
    run = done_run(head="safle", experts=9, held_out=0.34, **named)
    summary = json.loads((run / "summary.json").read_text())
    phases = ["histogram", "codes"] if thresholds is None else ["codes"]
    assert [sent["phase"] for sent in summary["bytes_per_client"]] == phases
    report = afltool.info(run / "head-final.h5")["report"]
    assert report["ridge_by"] == "held-out clients"
