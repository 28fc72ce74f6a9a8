"""AFL's head against scikit-learn and SciPy; every option of its solve; the pairwise law."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
from conftest import embeddings
from damage import forge
from problems import absorb, clouds, far_rows, gathered, nearly_constant, report_of
from sklearn.linear_model import Ridge

import afltool
from afltool.errors import MismatchError, NumericalError, UsageError
from afltool.files.hdf5 import read_header
from afltool.files.heads import load_head
from afltool.files.partitions import load_partition
from afltool.files.statistics import load_statistics
from afltool.heads import make_head
from afltool.math.gram import FixedPoint, real
from afltool.values.statistics import Client, ClientId


def rows(n=300, seed=0):
    return clouds(n, 16, 4, seed)


def collected(X, y, classes=4, gamma=0.0, clients=1, **options):
    """The head and the total of ``clients`` clients."""
    head = make_head("linear", {"ridge": 0, "gamma": gamma, **options}).bind(X.shape[1], classes)
    who = {ClientId(str(k)): Client(0, gamma) for k in range(clients)}
    return head, replace(gathered(head, X, y), clients=who)


def solved(X, y, **options):
    head, total = collected(X, y, **options)
    return absorb(head, total)


def test_least_squares_is_scipys():
    X, y = rows()
    expected = scipy.linalg.lstsq(real(X), np.eye(4)[y])[0]
    assert np.allclose(solved(X, y).weights, expected, rtol=1e-9, atol=1e-12)


def uneven():
    """Features whose scales differ by powers of two, and one that is always 2."""
    X, y = rows()
    values = X.values.astype(np.int64) >> np.arange(16) % 5
    values[:, 3] = 1024
    return FixedPoint(values.astype(np.int16), 9), y


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_ridge_is_scikit_learns(intercept, standardize):
    """Standardised is a penalty of each feature's variance; a constant one is weighed as it is."""
    X, y = uneven()
    R, Y = real(X), np.eye(4)[y]
    spread = np.where(R.std(axis=0) > 0, R.std(axis=0), 1.0) if standardize else np.ones(16)
    for ridge in (0.5, 30.0, 1e4):
        oracle = Ridge(alpha=ridge, fit_intercept=intercept, solver="cholesky").fit(R / spread, Y)
        head = solved(X, y, ridge=ridge, intercept=intercept, standardize=standardize)
        assert np.allclose(
            head.weights[:16], oracle.coef_.T / spread[:, None], rtol=1e-8, atol=1e-11
        )
        expected = oracle.predict(R / spread)
        assert np.allclose(head.decision_function(X), expected, rtol=1e-8, atol=1e-9)
        error = ((Y - expected) ** 2).sum() / len(y)
        assert np.isclose(report_of(head)["training_mse"], error, rtol=1e-9)
        if intercept:
            offset = oracle.predict(np.zeros((1, 16)))[0]
            assert np.allclose(head.weights[16], offset, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("gamma", [0.1, 100.0])
def test_gamma_changes_nothing_after_its_removal(gamma):
    """Left in it is a ridge of Kγ."""
    X, y = rows()
    assert np.array_equal(solved(X, y, gamma=gamma, clients=50).weights, solved(X, y).weights)
    kept = solved(X, y, gamma=gamma, clients=50, keep_gamma=True)
    assert np.allclose(kept.weights, solved(X, y, ridge=50 * gamma).weights, rtol=1e-12)
    assert report_of(kept)["kept_gamma"] == 50 * gamma
    plain = make_head("linear")
    assert make_head("linear", {"gamma": gamma}).digest() == plain.digest()
    assert make_head("linear", {"ridge": 1.0}).digest() != plain.digest()


def test_an_undetermined_system_is_refused_with_numbers_and_remedies():
    X, y = rows()
    X.values[:, 10:] = 0
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


@pytest.mark.parametrize("intercept", [False, True])
def test_held_out_clients_choose_the_ridge_by_their_squared_error(intercept):
    (X, y), (V, v) = rows(n=40), rows(n=200, seed=7)
    head, total = collected(X, y, ridge="1e-2:1e3:9", intercept=intercept)
    report = report_of(absorb(head, total, collected(V, v, intercept=intercept)[1]))
    path, errors = report["ridge_path"], []
    for point in path:
        fixed = solved(X, y, ridge=point["ridge"], intercept=intercept)
        errors.append(((np.eye(4)[v] - fixed.decision_function(V)) ** 2).sum(1).mean())
    assert np.allclose([p["validation_mse"] for p in path], errors)
    assert report["ridge"] == path[int(np.argmin(errors))]["ridge"]


# ---------------------------------------------------------------- features far from zero


def far_total(X, y, **options):
    return collected(X, y, classes=3, **options)


def centred_fit(X, y, ridge):
    """The training error and the classes of centred rows in long double."""
    wide, Y = X.astype(np.longdouble), np.eye(3)[y]
    centred, mean = (wide - wide.mean(0)).astype(float), Y.mean(0)
    G = centred.T @ centred + ridge * np.eye(X.shape[1])
    scores = mean + centred @ scipy.linalg.lstsq(G, centred.T @ (Y - mean))[0]
    return ((Y - scores) ** 2).sum() / len(y), scores.argmax(1)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("ratio", [1e3, 3e5, 6e5])
def test_a_training_error_is_right_up_to_the_bound(ratio, standardize):
    X, y = far_rows(ratio)
    error, classes = centred_fit(X, y, 1e-3)
    found = absorb(*far_total(X, y, ridge=1e-3, intercept=True, standardize=standardize))
    assert report_of(found)["training_mse"] == pytest.approx(error, rel=0.005)
    assert (found.decision_function(X).argmax(1) == classes).mean() > 0.99


@pytest.mark.parametrize("ratio", [2e6, 7e6, 2e7])
def test_features_beyond_the_bound_are_refused(ratio):
    """The error was 0.129 where it is 0.273, with other classes in 7 % of the rows."""
    X, y = far_rows(ratio)
    with_intercept = [(ridge, True) for ridge in (0.0, 1e-3, "auto")]
    for ridge, intercept in [*with_intercept, (0.0, False), (1e-3, False), ("1e-3:1:3", False)]:
        for standardize in (False, True):
            given = {"ridge": ridge, "intercept": intercept, "standardize": standardize}
            with pytest.raises(NumericalError, match=r"feature \d lies too far from zero: its mea"):
                absorb(*far_total(X, y, **given))


def test_a_constant_feature_is_not_too_far_from_zero():
    X, y = far_rows(10.0)
    error, classes = centred_fit(X, y, 1.0)
    for constant in (0.1, 2024.7, 1e7, -3e6):
        more = np.column_stack([np.full(len(X), constant), X])
        found = absorb(*far_total(more, y, ridge=1.0, intercept=True))
        assert report_of(found)["training_mse"] == pytest.approx(error, rel=1e-4)
        assert (found.decision_function(more).argmax(1) == classes).mean() > 0.99


def test_constant_features_whose_last_bits_differ_are_not_too_far_from_zero():
    X, y = far_rows(1.0)
    more = np.column_stack([nearly_constant(len(X), 2), X]).astype(np.float32)
    assert (abs(more.mean(0) / more.std(0, dtype=np.float64))[:2] > 4e6).all(), "the premise"
    for ridge, intercept in (("auto", True), ("auto", False), (1e-3, True), (1e-3, False)):
        found = absorb(*far_total(more, y, ridge=ridge, intercept=intercept))
        wide = np.column_stack([more, *([np.ones(len(y))] if intercept else [])]).astype(float)
        expected = wide[:, 1:] @ scipy.linalg.lstsq(wide[:, 1:], np.eye(3)[y], cond=1e-6)[0]
        assert (found.decision_function(more).argmax(1) == expected.argmax(1)).mean() > 0.98


def test_without_an_intercept_far_features_take_its_place():
    X, y = far_rows(7e6)  # the ridge that auto chooses is beyond the rounding
    found = absorb(*far_total(X, y, ridge="auto"))
    root = np.sqrt(report_of(found)["ridge"]) * np.eye(X.shape[1])
    both = np.vstack([X.astype(float), root]), np.vstack([np.eye(3)[y], 0 * root[:, :3]])
    np.testing.assert_allclose(
        found.decision_function(X), X @ scipy.linalg.lstsq(*both)[0], atol=1e-5
    )
    X, y = far_rows(1.0)
    X[:, 0] += np.float32(1e7)
    expected = scipy.linalg.lstsq(X.astype(float), np.eye(3)[y])[0]
    found = absorb(*far_total(X, y))
    np.testing.assert_allclose(found.decision_function(X), X @ expected, atol=1e-6)


def test_a_large_ridge_makes_a_lost_deviation_harmless_and_noise_is_not_judged():
    X, y = far_rows(3e6)
    found = absorb(*far_total(X, y, ridge=1e9, intercept=True))
    assert report_of(found)["training_mse"] == pytest.approx(centred_fit(X, y, 1e9)[0], rel=1e-6)
    head, total = far_total(*far_rows(1.0), ridge=1e3, intercept=True)
    noisy = dict(total.arrays)
    noisy["cross"] = noisy["cross"] + 1e4  # a mean that no row has: the deviation is imaginary
    noise = replace(total.context, noise={"form": "total", "sigma": {}})
    absorb(head, replace(total, arrays=noisy, context=noise))


# ---------------------------------------------------------------- the pairwise law on files


@pytest.fixture(scope="module")
def dealt(tmp_path_factory):
    """100 rows of 8 features and 4 classes over 20 clients: 5 rows each, fewer than features."""
    at = tmp_path_factory.mktemp("dealt")
    rows = afltool.import_embeddings(embeddings(at / "x.npz", 100), at / "x.h5")
    return rows, afltool.partition(rows, at / "c.h5", scheme="iid", clients=20)


def stats(dealt, out, head="linear", law="sum", **options):
    given = {"ridge": 0, **options} if head == "linear" else {}
    return afltool.local_stats(dealt[0], head, out, partition=dealt[1], head_options=given, law=law)


def weights(total, folder, name, **options):
    return load_head(afltool.solve(total, folder / f"{name}.h5", head_options=options))[0].weights


@pytest.mark.parametrize("gamma", [0.1, 100.0])
def test_both_laws_give_the_same_head_whatever_gamma(dealt, tmp_path, gamma):
    each = stats(dealt, tmp_path / "s", gamma=gamma)
    by_sum = afltool.aggregate([each], tmp_path / "sum.h5")
    folded = afltool.aggregate([each], tmp_path / "pairwise.h5", law="pairwise")
    a, b = weights(by_sum, tmp_path, "a"), weights(folded, tmp_path, "b")
    assert np.abs(a - b).sum() < 1e-8
    assert afltool.info(folded)["gammas"] == {f"{gamma:g}": 20}
    assert afltool.info(folded)["class_counts"] == afltool.info(by_sum)["class_counts"]
    kept = weights(by_sum, tmp_path, "k", keep_gamma=True)
    expected = weights(by_sum, tmp_path, "r", ridge=20 * gamma)
    assert np.allclose(kept, expected, rtol=1e-12)
    assert np.abs(kept - a).max() > 1e-4  # 1e4 times what the law may cost
    with pytest.raises(MismatchError, match="do not belong to the others: arrays"):
        afltool.aggregate([folded, min(each.iterdir())], tmp_path / "t.h5", allow_repeats=True)


def test_a_client_uploads_its_weights_as_the_paper_has_it(dealt, tmp_path):
    """(13) and (15) by NumPy alone; folded in two orders and solved: the head of the sums."""
    files = stats(dealt, tmp_path / "up", law="pairwise", gamma=2.0)
    sums = afltool.aggregate([stats(dealt, tmp_path / "s", gamma=2.0)], tmp_path / "sum.h5")
    with afltool.open_features(dealt[0]) as rows:
        X, Y = rows.to_numpy(), np.eye(4)[rows.labels]
        client = load_partition(dealt[1]).client
    for k in (0, 17):
        sent = load_statistics(files / f"client-{k:02d}.h5").arrays
        C = X[client == k].T @ X[client == k] + 2.0 * np.eye(8)
        np.testing.assert_allclose(sent["regularized-gram"], C[np.tril_indices(8)], rtol=1e-13)
        W = np.linalg.inv(C) @ X[client == k].T @ Y[client == k]
        np.testing.assert_allclose(sent["local-weights"], W, rtol=1e-10, atol=1e-13)
    paths = sorted(files.glob("*.h5"))
    wanted = weights(sums, tmp_path, "wanted")
    for name, order in {"up": paths, "down": paths[::-1]}.items():
        total = afltool.aggregate(order, tmp_path / f"{name}.h5", law="pairwise")
        assert np.abs(weights(total, tmp_path, f"h-{name}") - wanted).sum() < 1e-8


def test_what_the_pairwise_law_does_not_take(dealt, tmp_path):
    """Singular clients, weights as if they were sums, other heads; and only sums are subtracted."""
    each = stats(dealt, tmp_path / "singular")
    files = stats(dealt, tmp_path / "up", law="pairwise", gamma=1.0)
    out = tmp_path / "t.h5"
    with pytest.raises(NumericalError, match="--gamma > 0 in the head; or use --law sum"):
        afltool.aggregate([each], out, law="pairwise")
    with pytest.raises(UsageError, match="only with --law sum"):
        afltool.aggregate([each], out, subtract=[each], law="pairwise")
    with pytest.raises(MismatchError, match="aggregate --law pairwise"):
        afltool.aggregate([files], out)
    with pytest.raises(MismatchError, match="phase 'pairwise'"):
        afltool.solve(files / "client-00.h5", out)
    with pytest.raises(UsageError, match="--law is not used with --sum"):
        afltool.local_stats(*dealt[:1], "linear", out, partition=dealt[1], sum=True, law="pairwise")
    with pytest.raises(UsageError, match="phases with gram and cross"):
        stats(dealt, tmp_path / "codes", "safle", "pairwise")
    assert not out.exists()
    assert not list((tmp_path / "codes").glob("*.h5"))


# ---------------------------------------------------------------- what solve says and refuses


@pytest.mark.parametrize("intercept", [False, True])
def test_features_that_say_nothing_choose_no_ridge(tmp_path, intercept, cli):
    np.savez(tmp_path / "zero.npz", x=np.zeros((40, 6)), y=np.arange(40) % 3)
    zero = afltool.import_embeddings(tmp_path / "zero.npz", tmp_path / "zero.h5")
    how = {"client": "a", "sum": True, "head_options": {"intercept": intercept}}
    total = afltool.local_stats(zero, "linear", tmp_path / "total.h5", **how)
    done = cli("solve", total, "-o", tmp_path / "head.h5", "--ridge", "auto")
    assert done.exit_code == 5
    assert "in all 40 rows, so that no ridge can be chosen: look at the features" in " ".join(
        done.stderr.split()
    )
    assert not (tmp_path / "head.h5").exists()


def test_a_head_with_numbers_that_are_none_or_a_class_twice_is_refused(road, tmp_path, cli):
    head, names = load_head(road.head)[0], read_header(road.head)["classes"]
    bad = head.weights.copy()
    bad[1, 1] = np.nan
    digest = head.restore(None, {"weights": bad}).digest()
    forged = forge(road.head, tmp_path / "nan.h5", {"digest": digest}, arrays__weights=bad)
    for words in (["evaluate", forged, road.test], ["verify", forged]):
        done = cli(*words)
        assert done.exit_code == 3
        assert "has NaN or infinite entries" in done.stderr
    for number, path in enumerate((road.head, road.test)):
        twice = forge(path, tmp_path / f"{number}.h5", {"classes": [names[0], *names[:-1]]})
        done = cli("evaluate", *((twice, road.test) if path is road.head else (road.head, twice)))
        assert done.exit_code == 3
        assert "not a list of different entries" in done.stderr
