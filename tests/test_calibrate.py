"""Probabilities and sets of classes from counts alone, in predict and the estimator."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from conftest import counts_of_heads
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import betabinom, binom
from sklearn.base import clone
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import afltool
from afltool.errors import InvalidDataError, MismatchError, UsageError
from afltool.files.features import open_features
from afltool.files.heads import load_solved_head
from afltool.heads import calibration as cal
from afltool.heads.calibration import CalibratedHead
from afltool.heads.checks import compute_reported_scores
from afltool.math.metrics import counting
from afltool.math.metrics import from_counts as fc
from afltool.values.ridge_spec import parse_bins

PROBABILITIES, SCORES = parse_bins("0:1:240"), parse_bins("-0.5:1.5:240")
METHODS = ("platt", "temperature", "isotonic")
EDGES = np.array(SCORES.edges)
NAMES = list("0123456789")
MIDDLES = (EDGES[:-1] + EDGES[1:]) / 2


def counted(S, y):
    """The scores (C, 2, B) of rows, in bins."""
    found = {k: np.zeros(s, int) for k, s in counting.shapes(S.shape[1], SCORES).items()}
    counting.count(found, S, S, y, SCORES)
    return found[counting.SCORES]


def error_of(P, y):
    """The calibration error of probabilities P (n, C) in 15 bins."""
    bins = np.minimum((P.max(axis=1) * 15).astype(int), 14)
    return np.abs(np.bincount(bins, P.max(axis=1) - (P.argmax(axis=1) == y))).sum() / len(y)


@pytest.fixture(scope="module")
def scored(digits):
    """A linear head on 600 digits, with scores and labels of the 1,197 others."""
    X, y = digits
    found = afltool.AnalyticClassifier(ridge=1.0).fit(X[:600], y[:600])
    return found, found.head_.decision_function(X[600:]), y[600:]


@pytest.fixture(scope="module")
def at(road, tmp_path_factory):
    """Counts of a head at two sites and their sum, and its calibrations."""
    folder = tmp_path_factory.mktemp("calibrated")
    parts = afltool.partition(road.test, folder / "p.h5", alpha=0.5, clients=2)
    afltool.counts(road.head, road.test, folder / "stats", partition=parts)
    afltool.aggregate([folder / "stats"], folder / "sum.h5")
    for method in METHODS:
        afltool.calibrate(road.head, folder / "sum.h5", folder / f"{method}.h5", method=method)
    return folder


# ------------------------------------------------------------ maps and sets


def test_platt_is_logistic_regression_on_smoothed_targets(scored):
    _, S, y = scored
    for counts in counted(S, y)[:4]:
        a, b = cal.platt(MIDDLES, counts)
        n = counts.sum(axis=1)
        targets = np.array([1 / (n[0] + 2), (n[1] + 1) / (n[1] + 2)])
        hits, rows = targets @ counts, counts.sum(axis=0)
        theirs = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000).fit(
            np.r_[MIDDLES, MIDDLES][:, None], np.repeat([1, 0], len(MIDDLES)),
            sample_weight=np.r_[hits, rows - hits],
        )  # fmt: skip
        np.testing.assert_allclose([a, b], [theirs.coef_[0, 0], theirs.intercept_[0]], rtol=1e-4)
        p = 1 / (1 + np.exp(-(a * MIDDLES + b)))
        assert abs((rows * p - hits).sum()) < 1e-6
        assert abs((MIDDLES * (rows * p - hits)).sum()) < 1e-6


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=20))
def test_isotonic_has_the_levels_of_scikit_learn_and_rises_between_them(pairs):
    counts, x = np.array(pairs).T, np.arange(len(pairs)) / 7
    if not counts.any():
        return
    rows = counts.sum(axis=0)
    knots, levels = cal.isotonic(x, counts)
    known, near = rows > 0, 1 / (rows.sum() + 2)
    theirs = IsotonicRegression().fit_transform(
        x[known], counts[1, known] / rows[known], sample_weight=rows[known]
    )
    wanted = np.unique(np.clip(np.round(theirs, 12), near, 1 - near))
    np.testing.assert_allclose(np.unique(np.round(levels, 12)), wanted, atol=1e-9)
    assert (np.diff(knots) > 0).all()
    assert (np.diff(levels) >= 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_the_calibration_error_falls_on_rows_that_were_not_counted(scored, method):
    found, S, y = scored
    half = np.arange(len(y)) % 2 == 0
    head = CalibratedHead.of(found.head_, NAMES, counted(S[half], y[half]), EDGES, method)
    after = compute_reported_scores(head, head.calibrate_values(S[~half]))
    np.testing.assert_allclose(after.sum(axis=1), 1)
    assert error_of(after, y[~half]) < 0.04  # before: 0.24
    if method == "temperature":
        np.testing.assert_array_equal(after.argmax(axis=1), S[~half].argmax(axis=1))


@pytest.mark.slow
@pytest.mark.parametrize("per_class", [False, True])
def test_law_coverage_over_200_splits(scored, per_class):
    """Rows covered follow a beta-binomial law (Vovk, 2012) where no two scores are equal. Bins make
    some equal: what is kept begins with a whole bin, so that its other rows of test come in, too.
    """
    (found, S, y), wanted = scored, 0.9
    rng, outside, splits = np.random.default_rng(1), 0, 200
    cells = np.ceil(S[np.arange(len(y)), y] * SCORES.per).astype(int)
    for _ in range(splits):
        first = rng.permutation(len(y)) < len(y) // 2
        head = CalibratedHead.of(
            found.head_, NAMES, counted(S[first], y[first]), EDGES, "temperature"
        )
        kept = head.prediction_sets(S[~first], wanted, per_class)[
            np.arange((~first).sum()), y[~first]
        ]
        groups = [y == c for c in range(10)] if per_class else [y >= 0]
        of = groups[int(rng.integers(len(groups)))]
        n, m = int((first & of).sum()), int((~first & of).sum())
        k = int(np.ceil((n + 1) * wanted - 1e-9))
        law = betabinom(m, k, n + 1 - k)
        ranked = np.sort(cells[first & of])[::-1]
        tied = int((cells[~first & of] == ranked[k - 1]).sum()) if k <= n else 0
        outside += not law.ppf(0.005) <= kept[of[~first]].sum() <= law.ppf(0.995) + tied
    assert outside <= binom(splits, 0.01).ppf(0.999)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.floats(0.01, 0.99))
def test_the_bin_to_keep_is_the_last_with_enough_rows_above(own, coverage):
    own = np.array(own)
    at, wanted = cal.bin_to_keep(own, coverage), np.ceil((own.sum() + 1) * coverage - 1e-9)
    assert own[at:].sum() >= wanted or at == 0
    assert own[at + 1 :].sum() < wanted
    assert cal.bin_to_keep(np.array([0, 3, 1]), 0.95) == 0, "a set of few rows has every class"


# ------------------------------------------------------------ the road of files


def test_predict_gives_probabilities_sets_and_abstains(road, at, tmp_path, cli):
    out = tmp_path / "p.csv"
    words = ["--coverage", 0.9, "--min-confidence", 0.8, "--scores", "-o", out]
    done = cli("predict", at / "platt.h5", road.test, *words)
    assert done.exit_code == 0, done.stderr
    table, head = pd.read_csv(out), load_solved_head(at / "platt.h5").head
    with open_features(road.test) as rows:
        V, labels, names = head.values(rows.rows(0, len(rows))), rows.labels, rows.classes
    P = compute_reported_scores(head, head.calibrate_values(V))
    np.testing.assert_allclose(table[[f"score:{c}" for c in names]], P, rtol=1e-12)
    sure = P.max(axis=1) >= 0.8
    assert table["predicted"].isna().tolist() == (~sure).tolist()
    assert set(table["error"][~sure]) <= {"below --min-confidence 0.8"}
    sets, kept = [json.loads(one) for one in table["set"]], head.prediction_sets(V, 0.9, False)
    assert [{names.index(c) for c in one} for one in sets] == [set(np.flatnonzero(k)) for k in kept]
    covered = np.mean([names[y] in one for y, one in zip(labels, sets, strict=True)])
    assert covered >= 0.9  # of the rows that were counted
    by_class = cli("predict", at / "platt.h5", road.test, "--coverage", 0.9, "--class-conditional")
    assert by_class.exit_code == 0


def test_counts_before_and_after_have_an_error_each(road, at, tmp_path, cli):
    total = counts_of_heads([road.head, at / "platt.h5"], road.test, tmp_path / "c")
    heads = afltool.read_counts(total).heads
    before, after = (fc.ece(head.confidence, head.edges) for head in heads)
    assert before.least > after.most
    first, second = (one["metrics"].get("ece") for one in afltool.info(total)["evaluations"])
    assert first is None
    assert (second["least"], second["most"]) == pytest.approx((after.least, after.most))
    one = afltool.counts(at / "platt.h5", road.test, tmp_path / "one", client="one")
    assert cli("plot", "reliability", one, "-o", tmp_path / "r.svg").exit_code == 0


def test_a_calibration_does_not_depend_on_the_partition(road, at, tmp_path):
    pooled = afltool.counts(road.head, road.test, tmp_path / "one", client="one")
    again = afltool.calibrate(road.head, pooled, tmp_path / "again.h5")
    assert afltool.info(again)["digest"] == afltool.info(at / "platt.h5")["digest"]
    assert afltool.verify(again)["intact"]


def test_what_does_not_belong_together_is_refused(road, at, tmp_path, cli):
    other = afltool.solve(road.total, tmp_path / "other.h5", head_options={"ridge": 50.0})
    with pytest.raises(MismatchError, match="counts other heads or classes"):
        afltool.calibrate(other, at / "sum.h5", tmp_path / "no.h5")
    with pytest.raises(UsageError, match="is calibrated already"):
        afltool.calibrate(at / "platt.h5", at / "sum.h5", tmp_path / "no.h5")
    with pytest.raises(UsageError, match="no counts"):
        afltool.calibrate(road.head, road.total, tmp_path / "no.h5")
    with pytest.raises(UsageError, match="not solved yet"):
        afltool.calibrate(road.head0, at / "sum.h5", tmp_path / "no.h5")
    for words in (["--coverage", 0.9], ["--min-confidence", 0.5]):
        refused = cli("predict", road.head, road.test, *words)
        assert "needs a head that was calibrated" in refused.stderr
    alone = cli("predict", at / "platt.h5", road.test, "--class-conditional")
    assert "--class-conditional is used only with --coverage" in alone.stderr
    head = load_solved_head(at / "platt.h5").head
    changed = {**head.state_dict(), "of-weights": 2 * head.state_dict()["of-weights"]}
    damaged = CalibratedHead.begin(head.options).restore(None, changed)
    with pytest.raises(InvalidDataError, match="another digest than its options say"):
        damaged.bind(head.dim, head.classes)


def test_scores_beyond_the_bins_are_no_base_of_a_map(road, tmp_path):
    """Nearest-mean's lie far outside −0.5 to 1.5: a map of the end bins took its accuracy away."""
    how = {"client": "a", "sum": True, "head_options": {"rule": "nearest-mean"}}
    total = afltool.local_stats(road.train, "discriminant", tmp_path / "t.h5", **how)
    far, out = afltool.solve(total, tmp_path / "far.h5"), tmp_path / "made.h5"
    narrow = afltool.counts(far, road.test, tmp_path / "c", client="a")
    with pytest.raises(InvalidDataError, match=r"end of -0\.5 to 1\.5, or beyond.*wider bins"):
        afltool.calibrate(far, narrow, out)
    wide = afltool.counts(far, road.test, tmp_path / "w", client="a", bins="-400:400:12000")
    infos = (afltool.info(one)["evaluations"][0]["at_ends"] for one in (narrow, wide))
    assert list(infos) == [1.0, 0.0]
    for method in ("platt", "isotonic"):
        with pytest.raises(UsageError, match=f"{method}.*choose the method temperature"):
            afltool.calibrate(far, wide, out, method=method)
    assert not out.exists()
    made = afltool.calibrate(far, wide, out, method="temperature")
    before, after = (afltool.evaluate(one, road.test)["top1"] for one in (far, made))
    assert after == before


def test_the_estimator_has_probabilities_once_it_is_calibrated(digits, tmp_path):
    X, y = digits
    found = afltool.AnalyticClassifier(ridge=1.0).fit(X[:600], y[:600])
    assert not hasattr(found, "predict_proba")
    found.calibrate(X[600:1200], y[600:1200])
    P = found.predict_proba(X[1200:])
    np.testing.assert_allclose(P.sum(axis=1), 1)
    again = afltool.AnalyticClassifier.load(found.save(tmp_path / "h.h5"))
    np.testing.assert_allclose(again.predict_proba(X[1200:]), P, rtol=1e-12)
    assert not hasattr(clone(again).fit(X[:600], y[:600]), "predict_proba")


@pytest.mark.parametrize(
    ("head", "options"),
    [
        ("random-features", {"width": 256}), ("safle", {"thresholds": "range:0:1"}),
        ("deepafl", {"layers": 2, "width": 64}), ("softmax", {}),
        ("discriminant", {"rule": "fed3r"}), ("discriminant", {"rule": "lda", "shrinkage": 0.05}),
    ],
)  # fmt: skip
def test_every_head_can_be_calibrated(digits, head, options):
    X, y = digits
    found = afltool.AnalyticClassifier(head, options=options).fit(X[:600], y[:600])
    found.calibrate(X[600:1200], y[600:1200])
    assert error_of(found.predict_proba(X[1200:]), y[1200:]) < 0.08


def test_maps_of_classes_say_what_they_change_and_need_rows_of_each(
    digits, road, at, tmp_path, cli
):
    """By the words of the command; a class without rows is named, by the estimator as well."""
    words = ["calibrate", road.head, at / "sum.h5", "-o"]
    with open_features(road.test) as test:
        rows = np.bincount(test.labels)
    for method in METHODS:
        done = cli(*words, tmp_path / f"{method}.h5", "--method", method)
        told = " ".join(done.stderr.split())
        assert ("predicted classes can change" in told) == (method != "temperature")
        right = afltool.read_counts(at / "sum.h5").heads[0].right
        fewest = f"the fewest rows, {rows.min()}, are of {rows.argmin()})"
        assert (fewest in told) == (method != "temperature")
        assert (f"predicted {right} of 200 counted rows right" in told) == (method != "temperature")
    X, y = digits
    found, few = afltool.AnalyticClassifier(ridge=1.0).fit(X[:600], y[:600]), y != 3
    for method in ("platt", "isotonic"):
        with pytest.raises(InvalidDataError, match="Rows of 1 of 10 classes were not counted: 3"):
            found.calibrate(X[few], y[few], method)
    before = found.predict(X)
    found.calibrate(X[few], y[few], "temperature")
    assert found.predict(X).tolist() == before.tolist()
