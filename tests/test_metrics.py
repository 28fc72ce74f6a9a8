"""Figures of scored rows are scikit-learn's; intervals cover; McNemar's test is exact."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import sklearn.metrics as theirs
from problems import HEADS, trained
from scipy.spatial.distance import pdist
from scipy.stats import binom
from sklearn.calibration import calibration_curve
from sklearn.metrics import calinski_harabasz_score

import afltool
from afltool.errors import UsageError
from afltool.files.features import open_features
from afltool.files.heads import load_head
from afltool.heads import make_head
from afltool.heads.scoring import Separability
from afltool.math.gram import real
from afltool.math.metrics.figures import (
    BINS,
    FIGURES,
    POINTS,
    Scored,
    areas,
    draw_resample,
    mcnemar,
    roc,
    summary,
)
from afltool.stages.evaluate import figure_names
from afltool.values.names import MEASURES


def scored(n=200, classes=3, seed=0, probabilities=True, ties=False):
    rng = np.random.default_rng([seed, n, classes])
    y = np.r_[np.arange(classes), rng.integers(0, classes, n - classes)]
    raw = rng.normal(size=(n, classes)) + 1.5 * np.eye(classes)[y]
    if ties:
        raw = np.round(raw)
    scores = np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True) if probabilities else raw
    return Scored.of(raw, scores, y)


def weights(rows, seed=1):
    return np.random.default_rng(seed).integers(0, 4, len(rows.y)).astype(float)


def their_auc(rows, w):
    each = [
        theirs.roc_auc_score(rows.y == k, rows.scores[:, k], sample_weight=w)
        for k in range(rows.classes)
    ]
    return np.mean(each) if rows.positive is None else each[rows.positive]


def their_recall(rows, w, of_others, macro=False):
    def recall(k):
        y, predicted = (rows.y == k), (rows.predicted == k)
        if of_others:
            y, predicted = ~y, ~predicted
        return theirs.recall_score(y, predicted, sample_weight=w)

    if macro:
        return np.mean([recall(k) for k in range(rows.classes)])
    return recall(rows.positive)


def their_ece(rows, w):
    """From scikit-learn's calibration curve, which has no weights: rows are repeated."""
    again = np.repeat(np.arange(len(rows.y)), w.astype(int))
    sure, right = rows.confidence[again], (rows.y == rows.predicted)[again]
    share, confidence = calibration_curve(right, sure, n_bins=BINS)
    filled = np.histogram(sure, bins=np.linspace(0, 1, BINS + 1))[0]
    filled = filled[filled > 0]
    return float((filled * np.abs(share - confidence)).sum() / filled.sum())


THEIRS = {
    "accuracy": lambda r, w: theirs.accuracy_score(r.y, r.predicted, sample_weight=w),
    "balanced-accuracy": lambda r, w: theirs.balanced_accuracy_score(
        r.y, r.predicted, sample_weight=w
    ),
    "f1": lambda r, w: theirs.f1_score(r.y, r.predicted, average="macro", sample_weight=w),
    "auc": their_auc,
    "sensitivity": lambda r, w: their_recall(r, w, of_others=False),
    "specificity": lambda r, w: their_recall(r, w, of_others=True),
    "macro-sensitivity": lambda r, w: their_recall(r, w, of_others=False, macro=True),
    "macro-specificity": lambda r, w: their_recall(r, w, of_others=True, macro=True),
    "log-loss": lambda r, w: theirs.log_loss(
        r.y, r.scores, sample_weight=w, labels=range(r.classes)
    ),
    "ece": their_ece,
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_scikit_learns_of_weighted_rows(name):
    one = FIGURES[name]
    for classes, ties in itertools.product((2, 3, 10), (False, True)):
        rows = scored(classes=classes, ties=ties)
        positives = (*([None] if one.mean or not one.one_class else []), 0, classes - 1)
        for positive, w in itertools.product(positives, (np.ones(len(rows.y)), weights(rows))):
            rows = replace(rows, positive=positive)
            assert one.of(rows, w) == pytest.approx(THEIRS[name](rows, w), abs=1e-12)
    rows = scored(n=50)
    parts = [
        Scored.of(rows.scores[part], rows.scores[part], rows.y[part])
        for part in (slice(0, 20), slice(20, 50))
    ]
    assert one.of(Scored.join(parts), np.ones(50)) == one.of(rows, np.ones(50))
    assert np.isnan(one.of(rows, np.zeros(50)))


def test_the_roc_curve_is_scikit_learns():
    rows = scored(n=150)
    curve = roc(rows, 1)
    false, true, _ = theirs.roc_curve(rows.y == 1, rows.scores[:, 1], drop_intermediate=False)
    np.testing.assert_allclose(curve["false_positive"], false)
    np.testing.assert_allclose(curve["true_positive"], true)
    thin = roc(scored(n=900), 1)
    assert len(thin["true_positive"]) == POINTS
    assert (thin["true_positive"][0], thin["true_positive"][-1]) == (0, 1)


def test_what_the_rows_do_not_determine_is_nan_and_minus_infinity_is_a_score():
    rows = scored(n=30)
    assert np.isnan(areas(rows, (rows.y == 0).astype(float))).all()
    S, y = np.array([[0, -np.inf], [0, -np.inf], [0, 1]]), np.array([0, 1, 1])
    assert areas(Scored.of(S, S, y), np.ones(3))[1] == (0.5 + 1) / 2


def ends(rows, samples, groups=None):
    found = summary(rows, ["accuracy"], samples, 0, groups)["accuracy"]
    assert found["low"] <= found["value"] <= found["high"]
    return found["low"], found["high"]


def test_intervals_of_rows_cover_and_shrink_with_the_rows():
    widths = [np.diff(ends(scored(n=n), 400))[0] for n in (400, 1600)]
    p = FIGURES["accuracy"].of(scored(n=400), np.ones(400))
    assert widths[0] == pytest.approx(2 * 1.96 * np.sqrt(p * (1 - p) / 400), rel=0.15)
    assert widths[1] < 0.65 * widths[0]
    first, again, other = (list(draw_resample(50, 3, seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    assert all(w.sum() == 50 for w in first)
    assert summary(scored(n=50), ["f1"], 0, 0)["f1"].keys() == {"value"}


def test_groups_are_drawn_whole_and_their_intervals_are_wider():
    groups = np.repeat(np.arange(20), 20)
    one = np.eye(2)[groups % 2]  # a patient's rows are all right or all wrong
    rows = Scored.of(one, one, np.zeros(400, np.int64))
    for w in draw_resample(400, 5, 3, groups):
        assert all(len(set(w[groups == g])) == 1 for g in range(20))
    (low, high), wide = ends(rows, 300), ends(rows, 300, groups)
    assert wide[1] - wide[0] > 3 * (high - low)


def test_mcnemar_is_the_exact_binomial_test():
    first = np.array([True] * 30 + [False] * 10)
    second = np.array([True] * 22 + [False] * 8 + [True] * 3 + [False] * 7)
    found = mcnemar(first, second)
    assert (found["only_this"], found["only_other"]) == (8, 3)
    assert found["p_value"] == pytest.approx(2 * binom.cdf(3, 11, 0.5))
    assert mcnemar(first, first)["p_value"] == 1


def test_names_of_figures():
    assert figure_names("auc, f1,auc") == ("auc", "f1")
    for text in ("top7", "", "f1,nonsense"):
        with pytest.raises(UsageError, match="balanced-accuracy"):
            figure_names(text)


# ---------------------------------------------------------------- separability: CSR, IFS and DM


def clouds(n=120, m=5, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    return rng.normal(size=(n, m)) + 2 * rng.normal(size=(classes, m))[y], y


def measured(X, y, classes, cuts=()):
    found = Separability(classes, X.shape[1])
    for part in np.split(np.arange(len(y)), cuts):
        found.add(X[part], y[part])
    return found.figures()


@pytest.mark.parametrize("h", [0.5, 3.0])
def test_two_pairs_of_points_on_a_line(h):
    """Classes at −1 and 1, rows h beside their mean: S = 4h², N = 4, C = 2, means 2 apart."""
    X = np.array([[-1 - h], [-1 + h], [1 - h], [1 + h]])
    found = measured(X, np.array([0, 0, 1, 1]), 2)
    assert found == pytest.approx({"csr": h**2 / 4, "ifs": 2 * h**2, "dm": h**2})


def test_the_definitions_are_those_of_other_programs():
    X, y = clouds()
    found, n, classes = measured(X, y, 4), len(y), 4
    means = np.stack([X[y == c].mean(axis=0) for c in range(4)])
    within = sum(((X[y == c] - means[c]) ** 2).sum() for c in range(4))
    assert found["csr"] == pytest.approx(within / n / pdist(means, "sqeuclidean").mean())
    assert found["ifs"] == pytest.approx(within / (n - classes) / means.var(axis=0).sum())
    ratio = calinski_harabasz_score(X, y)  # (B / (C − 1)) / (S / (N − C))
    assert found["dm"] == pytest.approx((n - classes) / (classes - 1) / ratio)
    Q = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]
    assert measured(3 * X @ Q - 7, y, 4) == pytest.approx(found)  # no shift, rotation or scale


@pytest.mark.parametrize("cuts", [[3, 3, 90], list(range(1, 120))])
def test_blocks_give_what_the_whole_gives_also_far_from_zero(cuts):
    X, y = clouds()
    whole, far = measured(X, y, 4), X + 1e6
    assert measured(X, y, 4, cuts) == pytest.approx(whole, rel=1e-12)
    assert measured(far, y, 4, cuts) == pytest.approx(whole, rel=1e-8)  # Σ‖x‖² would lose it


def test_what_the_rows_do_not_determine_is_none():
    X, y = clouds()
    none = dict.fromkeys(MEASURES)
    assert measured(X[:0], y[:0], 4) == measured(X, 0 * y, 4) == none
    assert measured(np.ones((6, 2)), np.arange(6) % 3, 3) == none
    one_each = measured(X[:3], np.arange(3), 3)
    assert (one_each["csr"], one_each["ifs"], one_each["dm"]) == (0, None, 0)
    assert measured(X, y, 4) == measured(X, 2 * y, 9)  # classes without rows are not counted


def weights_of(head, t, width):
    """What the scores are made of the features by, and what is added."""
    arrays = head.state_dict()
    if head.name == "deepafl":
        return arrays[f"weights-{t}"], 0.0
    if head.name == "safle":
        tables = arrays["tables"].reshape(-1, arrays["tables"].shape[-1])
        return np.vstack([arrays.get("linear", tables[:0]), tables]), 0.0
    W = arrays["weights"]
    return (W[:-1], W[-1]) if len(W) > width else (W, 0.0)  # the intercept is last


MADE_OF = "linear", "random-features", "safle range", "safle hybrid", "deepafl", "softmax random"


@pytest.mark.parametrize("case", [*MADE_OF, "discriminant lda"])
def test_the_features_are_what_the_scores_are_made_of(case):
    (X, y), name = clouds(90, 6, 3), case.split()[0]
    head = trained(make_head(name, HEADS[case]).bind(6, 3), X, y)
    scores = dict(head.round_scores(X))
    features = {phase: real(phi).copy() for phase, phi in head.features.each(X)}
    if name == "deepafl":
        assert list(features) == ["weights-0", "weights-1", "weights-2"]
    for t, (phase, phi) in enumerate(features.items()):
        if name == "discriminant":  # makes none of its own
            assert np.array_equal(phi, X)
            continue
        W, b = weights_of(head, t, phi.shape[1])
        assert np.allclose(phi @ W + b, scores[phase], rtol=1e-5, atol=1e-6)


def test_evaluate_measures_every_layer(road, tmp_path, cli):
    out = tmp_path / "RUN"
    done = cli(
        "run", "--train-features", road.train, "--test-features", road.test, "--partition",
        road.clients, "--head", "deepafl", "--layers", 2, "--width", 12, "--separability",
        "--train-accuracy", "--each-round", "-o", out,
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    summary = json.loads((out / "summary.json").read_text())
    last = [one for one in summary["rounds"] if "csr" in one]
    assert [one["phase"] for one in last] == ["weights-0", "weights-1", "weights-2"]
    head = max(out.glob("05-head*.h5"), key=lambda p: p.stat().st_mtime_ns)
    found = afltool.evaluate(head, road.test, separability=True)
    solved, _ = load_head(head)
    for split, start in ((road.test, ""), (road.train, "train_")):
        with open_features(split) as opened:
            X = np.vstack([real(block) for _, block in opened.blocks()])
            y = opened.labels
        for (_, phi), one in zip(solved.features.each(X), last, strict=True):
            wanted = measured(np.asarray(phi, dtype=np.float64), y, 4)
            got = {name: one[start + name] for name in MEASURES}
            assert got == pytest.approx(wanted, rel=1e-5)
    assert [one["csr"] for one in found["separability"]] == [one["csr"] for one in last]
    assert [one["width"] for one in found["separability"]] == [12] * 3
    assert summary["csr"] == last[-1]["csr"]
    assert summary["train_dm"] == last[-1]["train_dm"]
    assert "separability" not in afltool.evaluate(head, road.test)
    shown = cli("evaluate", head, road.test, "--separability").stdout
    assert "lower is better" in shown
    assert f"{summary['ifs']:.4g}" in shown
