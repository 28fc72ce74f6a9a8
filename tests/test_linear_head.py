"""AFL's head against scikit-learn and SciPy, and every option of its solve."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
from problems import sums
from rounds_of_heads import absorb, report_of
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from afltool.errors import NumericalError, UsageError
from afltool.heads import make_head
from afltool.heads.base import binding
from afltool.heads.checks import with_options
from afltool.math.gram import FixedPoint, real
from afltool.values.parsed import parse_ridge
from afltool.values.statistics import Client, ClientId, Context


def rows(n=300, d=16, classes=4, seed=0, rank=None):
    """Fixed-point rows with classes that a linear head can tell apart."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    centres = np.random.default_rng(99).normal(size=(classes, d))
    X = centres[y] + rng.normal(size=(n, d))
    if rank is not None:
        X[:, rank:] = 0
    return FixedPoint(np.rint(X * 512).astype(np.int16), 9), y


def collected(X, y, classes=4, gamma=0.0, clients=1, **options):
    """The head and the total of ``clients`` clients."""
    head = make_head("linear", {"ridge": 0, "gamma": gamma, **options}).bind(X.dim, classes)
    context = Context({"fraction_bits": 9}, tuple("abcd"[:classes]), binding(head))
    who = {ClientId(str(k)): Client(0, gamma) for k in range(clients)}
    return head, replace(sums(head, X, y), context=context, clients=who)


def solved(X, y, **options):
    head, total = collected(X, y, **options)
    return absorb(head, total)


def test_least_squares_is_scipys():
    X, y = rows()
    expected = scipy.linalg.lstsq(real(X), np.eye(4)[y])[0]
    assert np.allclose(solved(X, y).weights, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("ridge", [0.5, 30.0, 1e4])
def test_ridge_is_scikit_learns(ridge, intercept):
    X, y = rows()
    oracle = Ridge(alpha=ridge, fit_intercept=intercept, solver="cholesky")
    oracle.fit(real(X), np.eye(4)[y])
    head = solved(X, y, ridge=ridge, intercept=intercept)
    assert np.allclose(head.weights[:16], oracle.coef_.T, rtol=1e-8, atol=1e-11)
    assert np.allclose(head.scores(X), oracle.predict(real(X)), rtol=1e-8, atol=1e-9)
    if intercept:
        assert np.allclose(head.weights[16], oracle.intercept_, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0, 100.0])
def test_gamma_changes_nothing_after_its_removal(gamma):
    X, y = rows()
    assert np.array_equal(solved(X, y, gamma=gamma, clients=50).weights, solved(X, y).weights)


def test_gamma_left_in_is_a_ridge_of_k_gamma_that_moves_the_accuracy():
    X, y = rows(seed=1)
    test, truth = rows(n=2000, seed=2)
    kept = solved(X, y, gamma=1000.0, clients=50, keep_gamma=True)
    assert np.allclose(kept.weights, solved(X, y, ridge=50_000.0).weights, rtol=1e-12)
    assert report_of(kept)["kept_gamma"] == 50_000.0

    def accuracy(head):
        return (head.scores(test).argmax(1) == truth).mean()

    assert accuracy(kept) < accuracy(solved(X, y)) - 0.005


def test_an_undetermined_system_is_refused_with_numbers_and_remedies():
    X, y = rows(rank=10)
    said = r"rank 10 of 16.*--ridge auto.*--min-norm"
    with pytest.raises(NumericalError, match=said):
        solved(X, y)
    X, y = rows(n=9)
    with pytest.raises(NumericalError, match="9 rows are fewer than 16 features"):
        solved(X, y)


def test_minimum_norm_only_when_asked_and_as_scipys():
    X, y = rows(n=9)
    head = solved(X, y, min_norm=True)
    expected = scipy.linalg.lstsq(real(X), np.eye(4)[y])[0]
    assert np.allclose(head.weights, expected, atol=1e-9)
    assert report_of(head)["minimum_norm"]
    assert report_of(head)["condition"] is None
    full = solved(*rows(), min_norm=True)
    assert np.array_equal(full.weights, solved(*rows()).weights)
    assert not report_of(full)["minimum_norm"]


def test_the_report_says_rank_condition_and_degrees_of_freedom():
    X, y = rows()
    s = np.linalg.svd(real(X), compute_uv=False) ** 2
    report = report_of(solved(X, y, ridge=7.0))
    assert report["rank"] == 16
    assert np.isclose(report["condition"], s[0] / s[-1], rtol=1e-8)
    assert np.isclose(report["condition_with_ridge"], (s[0] + 7) / (s[-1] + 7), rtol=1e-8)
    assert np.isclose(report["degrees_of_freedom"], (s / (s + 7)).sum(), rtol=1e-9)


def brute_gcv(X, Y, ridge, intercept):
    """N·RSS/(N − df)² from the rows themselves."""
    n = len(X)
    if intercept:
        X, Y = X - X.mean(0), Y - Y.mean(0)
    hat = X @ np.linalg.solve(X.T @ X + ridge * np.eye(X.shape[1]), X.T)
    left = n - np.trace(hat) - intercept
    return n * ((Y - hat @ Y) ** 2).sum() / left**2


@pytest.mark.parametrize("intercept", [False, True])
def test_the_path_holds_gcv_of_every_ridge_and_takes_the_least(intercept):
    X, y = rows(n=60)
    head = solved(X, y, ridge="1e-2:1e3:12", intercept=intercept)
    path = report_of(head)["ridge_path"]
    assert len(path) == 12
    expected = [brute_gcv(real(X), np.eye(4)[y], p["ridge"], intercept) for p in path]
    assert np.allclose([p["gcv"] for p in path], expected, rtol=1e-8)
    assert report_of(head)["ridge"] == path[int(np.argmin(expected))]["ridge"]
    again = solved(X, y, ridge=report_of(head)["ridge"], intercept=intercept)
    assert np.allclose(head.weights, again.weights, rtol=1e-9)


def test_auto_is_a_good_ridge_and_the_same_for_equal_totals():
    X, y = rows(n=40)
    test, truth = rows(n=2000, seed=5)
    auto = solved(X, y, ridge="auto")
    errors = {}
    for value in (1e-6, report_of(auto)["ridge"]):
        W = solved(X, y, ridge=value).weights
        errors[value] = ((np.eye(4)[truth] - real(test) @ W) ** 2).mean()
    assert errors[report_of(auto)["ridge"]] < errors[1e-6]
    order = np.random.default_rng(0).permutation(40)
    assert report_of(solved(X[order], y[order], ridge="auto"))["ridge"] == report_of(auto)["ridge"]


@pytest.mark.parametrize("intercept", [False, True])
def test_held_out_clients_choose_the_ridge_by_their_squared_error(intercept):
    X, y = rows(n=40)
    V, v = rows(n=200, seed=7)
    head, total = collected(X, y, ridge="1e-2:1e3:9", intercept=intercept)
    _, held = collected(V, v, ridge="1e-2:1e3:9", intercept=intercept)
    found = absorb(head, total, held)
    errors = []
    for point in report_of(found)["ridge_path"]:
        fixed = solved(X, y, ridge=point["ridge"], intercept=intercept)
        errors.append(((np.eye(4)[v] - fixed.scores(V)) ** 2).sum(1).mean())
    assert np.allclose([p["validation_mse"] for p in report_of(found)["ridge_path"]], errors)
    assert (
        report_of(found)["ridge"] == report_of(found)["ridge_path"][int(np.argmin(errors))]["ridge"]
    )


def test_options_that_are_wrong_are_refused():
    for bad in ("-1", "nan", "inf", "x"):
        with pytest.raises(UsageError, match="a ridge is"):
            parse_ridge(bad)
    for bad in ("1:2", "2:1:5", "0:1:5", "1:2:1", "a:b:c", "1:2:3:4"):
        with pytest.raises(UsageError, match="LO:HI:COUNT"):
            parse_ridge(bad)


def test_the_digest_of_an_unsolved_head_is_its_options_without_gamma():
    plain = make_head("linear")
    assert make_head("linear", {"gamma": 3.0}).digest() == plain.digest()
    assert make_head("linear", {"ridge": 1.0}).digest() != plain.digest()
    assert make_head("linear", {"intercept": True}).digest() != plain.digest()


# --- standardised ---------------------------------------------------------------------------------


def uneven(n=300, d=16):
    """Features whose scales differ by powers of two, and one that is always 2."""
    X, y = rows(n, d)
    values = X.values.astype(np.int64) >> np.arange(d) % 5
    values[:, 3] = 1024
    return FixedPoint(values.astype(np.int16), 9), y


@pytest.mark.parametrize("ridge", [0.5, 300.0])
def test_standardised_with_an_intercept_is_scikit_learns_scaler_and_ridge(ridge):
    X, y = uneven()
    oracle = make_pipeline(StandardScaler(), Ridge(alpha=ridge, solver="cholesky"))
    expected = oracle.fit(real(X), np.eye(4)[y]).predict(real(X))
    head = solved(X, y, ridge=ridge, intercept=True, standardise=True)
    assert np.allclose(head.scores(X), expected, rtol=1e-8, atol=1e-9)
    plain = solved(X, y, ridge=ridge, intercept=True)
    assert not np.allclose(plain.scores(X), expected, atol=1e-3), "the premise: it differs"


def test_standardised_is_a_penalty_of_each_features_variance():
    """(G + λ diag(var)) W = H, solved by SciPy; a constant feature is weighed as it is."""
    X, y = uneven()
    R, Y = real(X), np.eye(4)[y]
    variances = np.where(R.std(axis=0) > 0, R.var(axis=0), 1.0)
    expected = scipy.linalg.solve(R.T @ R + 7.0 * np.diag(variances), R.T @ Y, assume_a="pos")
    head = solved(X, y, ridge=7.0, standardise=True)
    assert np.allclose(head.weights, expected, rtol=1e-8, atol=1e-11)
    error = ((Y - R @ expected) ** 2).sum() / len(y)
    assert np.isclose(report_of(head)["training_mse"], error, rtol=1e-9)


@pytest.mark.parametrize("held", [False, True])
def test_a_scale_of_the_features_changes_nothing_once_they_are_standardised(held):
    """Not even the ridge that cross-validation or held-out clients choose."""
    X, y = rows(seed=3)
    scaled = FixedPoint((X.values >> 1 << 1).astype(np.int16), 9)
    halved = FixedPoint((scaled.values // [[1, 2] * 8]).astype(np.int16), 9)
    found = []
    for one in (scaled, halved):
        head, total = collected(one, y, ridge="auto", intercept=True, standardise=True)
        other = rows(seed=4)
        theirs = one is halved
        values = (other[0].values >> 1 << 1) // ([[1, 2] * 8] if theirs else 1)
        _, validation = collected(
            FixedPoint(values.astype(np.int16), 9), other[1], intercept=True, standardise=True
        )
        done = absorb(head, total, validation if held else None)
        found.append((report_of(done)["ridge"], done.scores(one)))
    assert found[0][0] == found[1][0]
    assert np.allclose(found[0][1], found[1][1], rtol=1e-7, atol=1e-9)


def test_what_standardise_leaves_as_it_was():
    assert "standardise" not in make_head("linear").options.as_dict()
    assert make_head("linear", {"standardise": True}).options.as_dict()["standardise"]
    with pytest.raises(UsageError, match="leave out --standardise"):
        make_head("linear", {"standardise": True, "keep_gamma": True})


def test_a_solve_may_standardise_what_was_gathered_without_a_word_of_it():
    X, y = uneven()
    head, total = collected(X, y, intercept=True)
    found = absorb(with_options(head, standardise=True, ridge=2.0), total)
    wanted = solved(X, y, intercept=True, standardise=True, ridge=2.0)
    assert np.array_equal(found.weights, wanted.weights)
    assert report_of(found)["standardised"]


# ---------------------------------------------------------------- features far from zero


def far_rows(ratio, constant=None, n=600, d=5):
    """Float32 rows whose mean is ``ratio`` deviations away, and a constant feature in front."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, n)
    X = (rng.normal(size=(n, d)) + 1.5 * np.eye(3, d)[y] + 1.4 * ratio).astype(np.float32)
    assert 0.7 * ratio < abs(X.mean(0) / X.std(0, dtype=np.float64)).min(), "the premise"
    return X if constant is None else np.column_stack([np.full(n, constant), X]), y


def of_far_rows(X, y, **options):
    """The head, and the training error and classes of centred rows in long double."""
    head = make_head("linear", options).bind(X.shape[1], 3)
    total = replace(sums(head, X, y), context=Context({}, ("a", "b", "c"), binding(head)))
    wide, Y = X.astype(np.longdouble), np.eye(3)[y]
    centred, mean = (wide - wide.mean(0)).astype(float), Y.mean(0)
    G = centred.T @ centred + float(options.get("ridge", 0)) * np.eye(X.shape[1])
    scores = mean + centred @ scipy.linalg.lstsq(G, centred.T @ (Y - mean))[0]
    return head, total, ((Y - scores) ** 2).sum() / len(y), scores.argmax(1)


@pytest.mark.parametrize("options", [{"intercept": True}, {"intercept": True, "standardise": True}])
@pytest.mark.parametrize("ratio", [1e3, 3e5, 6e5])
def test_a_training_error_is_right_up_to_the_bound(ratio, options):
    X, y = far_rows(ratio)
    head, total, error, classes = of_far_rows(X, y, ridge=1e-3, **options)
    found = absorb(head, total)
    assert report_of(found)["training_mse"] == pytest.approx(error, rel=0.005)
    assert (found.scores(X).argmax(1) == classes).mean() > 0.99


@pytest.mark.parametrize(
    ("ridge", "intercept"),
    [(0.0, True), (1e-3, True), ("auto", True), (0.0, False), (1e-3, False), ("1e-3:1:3", False)],
)
@pytest.mark.parametrize("ratio", [2e6, 7e6, 2e7])
def test_features_beyond_the_bound_are_refused(ratio, intercept, ridge):
    """The error was 0.129 where it is 0.273, with other classes in 7 % of the rows."""
    X, y = far_rows(ratio)
    for standardise in (False, True):
        given = {"ridge": ridge, "intercept": intercept, "standardise": standardise}
        head = make_head("linear", given).bind(X.shape[1], 3)
        total = replace(sums(head, X, y), context=Context({}, ("a", "b", "c"), binding(head)))
        with pytest.raises(NumericalError, match=r"feature \d lies too far from zero: its mean is"):
            absorb(head, total)


@pytest.mark.parametrize("constant", [0.1, 2024.7, 1e7, -3e6])
def test_a_constant_feature_is_not_too_far_from_zero(constant):
    X, y = far_rows(10.0, constant)
    _, _, error, classes = of_far_rows(X[:, 1:], y, ridge=1.0)
    head = make_head("linear", {"ridge": 1.0, "intercept": True}).bind(X.shape[1], 3)
    total = replace(sums(head, X, y), context=Context({}, ("a", "b", "c"), binding(head)))
    found = absorb(head, total)
    assert report_of(found)["training_mse"] == pytest.approx(error, rel=1e-4)
    assert (found.scores(X).argmax(1) == classes).mean() > 0.99


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ridge", ["auto", 1e-3])
def test_constant_features_whose_last_bits_differ_are_not_too_far_from_zero(intercept, ridge):
    """As a network's dead features are, whose products depend on the place in a batch."""
    X, y = far_rows(1.0)
    jitter = np.random.default_rng(0).integers(-2, 3, (len(X), 2)) * np.spacing(np.float32(0.12))
    more = np.column_stack([np.float32(0.12) + jitter, X]).astype(np.float32)
    assert (abs(more.mean(0) / more.std(0, dtype=np.float64))[:2] > 4e6).all(), "the premise"
    head = make_head("linear", {"ridge": ridge, "intercept": intercept}).bind(more.shape[1], 3)
    total = replace(sums(head, more, y), context=Context({}, ("a", "b", "c"), binding(head)))
    found = absorb(head, total)
    wide = np.column_stack([more, *([np.ones(len(y))] if intercept else [])]).astype(float)
    expected = scipy.linalg.lstsq(wide[:, 1:], np.eye(3)[y], cond=1e-6)[0]
    assert (found.scores(more).argmax(1) == (wide[:, 1:] @ expected).argmax(1)).mean() > 0.98


def test_the_ridge_that_auto_chooses_without_an_intercept_is_beyond_the_rounding():
    X, y = far_rows(7e6)
    head = make_head("linear", {"ridge": "auto"}).bind(X.shape[1], 3)
    found = absorb(head, sums(head, X, y))
    root = np.sqrt(report_of(found)["ridge"])
    rows = np.vstack([X.astype(float), root * np.eye(X.shape[1])])
    W = scipy.linalg.lstsq(rows, np.vstack([np.eye(3)[y], np.zeros((X.shape[1], 3))]))[0]
    np.testing.assert_allclose(found.scores(X), X @ W, atol=1e-5)


def test_one_far_feature_without_an_intercept_takes_its_place():
    X, y = far_rows(1.0)
    X[:, 0] += np.float32(1e7)
    head = make_head("linear", {"ridge": 0.0}).bind(X.shape[1], 3)
    found = absorb(head, sums(head, X, y))
    expected = scipy.linalg.lstsq(X.astype(float), np.eye(3)[y])[0]
    np.testing.assert_allclose(found.scores(X), X @ expected, atol=1e-6)


def test_a_large_ridge_makes_a_lost_deviation_harmless_and_noise_is_not_judged():
    X, y = far_rows(3e6)
    head, total, error, _ = of_far_rows(X, y, ridge=1e9, intercept=True)
    assert report_of(absorb(head, total))["training_mse"] == pytest.approx(error, rel=1e-6)
    near, y = far_rows(1.0)
    head, total, _, _ = of_far_rows(near, y, ridge=1e3, intercept=True)
    noisy = dict(total.arrays)
    noisy["cross"] = noisy["cross"] + 1e4  # a mean that no row has: the deviation is imaginary
    noise = replace(total.context, noise={"form": "total", "sigma": {}})
    absorb(head, replace(total, arrays=noisy, context=noise))
