"""Figures of scored rows are scikit-learn's; intervals cover; McNemar's test is exact."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import sklearn.metrics as theirs
from scipy.stats import binom
from sklearn.calibration import calibration_curve

from afltool.errors import UsageError
from afltool.math.metrics.figures import (
    BINS,
    FIGURES,
    POINTS,
    Scored,
    areas,
    mcnemar,
    resampled,
    roc,
    summary,
)
from afltool.stages.evaluate import figure_names


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
    assert one.of(Scored.joined(parts), np.ones(50)) == one.of(rows, np.ones(50))
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
    first, again, other = (list(resampled(50, 3, seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    assert all(w.sum() == 50 for w in first)
    assert summary(scored(n=50), ["f1"], 0, 0)["f1"].keys() == {"value"}


def test_groups_are_drawn_whole_and_their_intervals_are_wider():
    groups = np.repeat(np.arange(20), 20)
    one = np.eye(2)[groups % 2]  # a patient's rows are all right or all wrong
    rows = Scored.of(one, one, np.zeros(400, np.int64))
    for w in resampled(400, 5, 3, groups):
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
