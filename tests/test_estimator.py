"""`AnalyticClassifier`: scikit-learn's own checks, sums of estimators, unlearning, head files."""

from __future__ import annotations

import json
import pickle
from contextlib import suppress
from unittest import SkipTest

import numpy as np
import pandas as pd
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import estimator_checks_generator

import afltool
from afltool import AnalyticClassifier
from afltool.errors import InvalidDataError, MismatchError, UsageError
from afltool.math.gram import encode

LDA = AnalyticClassifier("discriminant", options={"rule": "lda", "shrinkage": 0.1})
ROUNDS = AnalyticClassifier("softmax", options={"rounds": 30})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "estimator", [AnalyticClassifier(), LDA, pytest.param(ROUNDS, marks=pytest.mark.slow)]
)
def test_scikit_learns_own_checks(estimator):
    for one, check in estimator_checks_generator(estimator):
        with suppress(SkipTest):
            check(one)


def test_it_is_scikit_learns_ridge_on_one_hot_labels(digits):
    """With its coefficients, where scores are linear."""
    X, y = digits
    ours, theirs = AnalyticClassifier(ridge=2.0), Ridge(alpha=2.0).fit(X, np.eye(10)[y])
    assert not hasattr(ours, "coef_"), "before fit"
    ours.fit(X, y)
    np.testing.assert_allclose(ours.decision_function(X), theirs.predict(X), atol=1e-9)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-9)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-9)
    frame = pd.DataFrame(X, columns=[f"pixel {(7 * i) % 64}" for i in range(64)])
    for head, options in (("linear", {}), ("discriminant", {"shrinkage": 0.1})):
        two = AnalyticClassifier(head, options=options).fit(frame, y > 4)
        assert (two.coef_.shape, two.intercept_.shape) == ((1, 64), (1,))
        scores = (X @ two.coef_.T + two.intercept_)[:, 0]
        np.testing.assert_allclose(two.decision_function(frame), scores, atol=1e-9)
    for head, options in (("random-features", {"width": 8}), ("discriminant", {"rule": "qda"})):
        curved = AnalyticClassifier(head, options=options).fit(noisy(X[:, 20:36]), y)
        assert not hasattr(curved, "coef_")
        assert not hasattr(curved, "intercept_")


def test_rounds_are_counted_where_there_are_several_and_have_no_partial_fit(digits):
    X, y = digits[0][:400], digits[1][:400]
    assert not hasattr(AnalyticClassifier("softmax"), "n_iter_")
    fitted = AnalyticClassifier("softmax", options={"rounds": 2}).fit(X, y)
    assert fitted.n_iter_ == 3, "the sums for the start, then two gradients"
    assert fitted.statistics_ is None
    with pytest.raises(UsageError, match="several"):
        fitted + fitted
    assert not hasattr(fitted.set_params(head="linear", options=None).fit(X, y), "n_iter_")
    for head, options in (("safle", {"experts": 8}), ("deepafl", {"layers": 1, "width": 16})):
        assert not hasattr(AnalyticClassifier(head, options=options), "partial_fit")


ONE_ROUND = [
    ("linear", {}),
    ("random-features", {"width": 64, "compute": "float64"}),
    ("discriminant", {"shrinkage": 0.1}),
    ("discriminant", {"rule": "qda", "shrinkage": 0.1}),
    ("discriminant", {"rule": "naive-bayes"}),
    ("safle", {"experts": 8, "thresholds": "range:0:1"}),
    ("deepafl", {"layers": 0, "width": 32}),
    ("deepafl", {"layers": 0, "width": 32, "compute": "fixed"}),
    ("random-features", {"width": 64, "compute": "fixed"}),
]


def noisy(X):
    """Pixels that are never dark have a variance, which QDA and naive Bayes need."""
    return X + np.random.default_rng(0).normal(size=X.shape) / 8


@pytest.mark.parametrize(("head", "options", "bits"), [
    *((head, options, 9) for head, options in ONE_ROUND), ("linear", {}, None),
])  # fmt: skip
def test_adding_is_pooling_and_subtracting_unlearns(digits, head, options, bits):
    X, y = noisy(digits[0][:, 20:36]), digits[1]

    def made():
        return AnalyticClassifier(head, fraction_bits=bits, options=options)

    def learn(*parts):
        found = made()
        for rows in parts:
            found.partial_fit(X[rows], y[rows], classes=range(10))
        return found

    parts = slice(0, 900), slice(900, None)
    first, second = map(learn, parts)
    both, pooled, whole = first + second, learn(slice(None)), made().fit(X, y)
    again, summed = both - second, sum([first, second])
    assert whole.statistics_ is not None, "the premise: one round"
    real = head in ("random-features", "deepafl") and options.get("compute") != "fixed"
    assert first.statistics_.exact == (bits is not None and not real), "what the docstring says"
    pairs = [(one, pooled) for one in (both, summed, whole, learn(*parts))] + [(again, first)]
    for one, other in pairs:
        assert (one.predict(X) == other.predict(X)).mean() > 0.999
        if first.statistics_.exact:
            assert one.statistics_.digest() == other.statistics_.digest()
            assert one.head_.digest() == other.head_.digest()
        elif head == "linear":
            np.testing.assert_allclose(one.decision_function(X), other.decision_function(X))


def test_class_sums_are_scikit_learns_classifiers_and_probabilities_only_where_defined(digits):
    X, y = noisy(digits[0]), digits[1]
    for options, theirs in (
        ({}, LinearDiscriminantAnalysis(solver="lsqr")),
        ({"rule": "naive-bayes"}, GaussianNB(var_smoothing=0)),
    ):
        P = AnalyticClassifier("discriminant", options=options).fit(X, y).predict_proba(X)
        np.testing.assert_allclose(P, theirs.fit(X, y).predict_proba(X), atol=1e-8)
    none = [AnalyticClassifier(), AnalyticClassifier("discriminant", options={"rule": "fed3r"})]
    none += [AnalyticClassifier("nonsense"), AnalyticClassifier(options={"nonsense": 1})]
    for one in none:
        assert not hasattr(one, "predict_proba"), one
    P = AnalyticClassifier("softmax", options={"rounds": 5}).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(P.sum(axis=1), 1)


def test_a_ridge_is_handed_on_where_the_head_takes_it(digits):
    X, y = digits
    fed3r = AnalyticClassifier("discriminant", ridge=2.0, options={"rule": "fed3r"}).fit(X, y)
    assert fed3r.head_.options.as_dict()["ridge"] == 2.0
    assert AnalyticClassifier("discriminant", options={"rule": "fed3r"}).fit(X, y).score(X, y) > 0.8
    plain = AnalyticClassifier(ridge=5.0, intercept=False).fit(X, y)
    assert (plain.report_["ridge"], plain.head_.options.intercept) == (5.0, False)
    rounded = encode(X, 4) / 2**4
    ours = AnalyticClassifier(ridge=1.0, fraction_bits=4).fit(X, y).decision_function(X)
    theirs = AnalyticClassifier(ridge=1.0).fit(rounded, y).decision_function(rounded)
    np.testing.assert_allclose(ours, theirs)


def test_names_of_columns_stay_with_sums(digits):
    X, y = digits
    frame = pd.DataFrame(X, columns=[f"pixel {i}" for i in range(64)])

    def learn(rows, columns=frame.columns):
        made = AnalyticClassifier(ridge=1.0)
        return made.partial_fit(frame.iloc[rows][columns], y[rows], classes=range(10))

    both = learn(slice(0, 900)) + learn(slice(900, None))
    assert list(both.feature_names_in_) == list(frame.columns)
    both.predict(frame)  # a warning would be an error here
    turned = learn(slice(0, 900)) + learn(slice(900, None), columns=frame.columns[::-1])
    assert turned.head_.digest() == both.head_.digest()
    with pytest.raises(MismatchError, match="'pixel 0' only in the others"):
        learn(slice(0, 900)) + learn(slice(900, None), columns=frame.columns[1:])
    with pytest.raises(TypeError):
        both + 1
    with pytest.raises(TypeError):
        both - "rows"


@pytest.mark.parametrize(
    ("head", "options"),
    [
        ("linear", {}),
        ("deepafl", {"layers": 2, "width": 64}),
        ("random-features", {"width": 128, "compute": "float64"}),
        ("safle", {"experts": 40, "thresholds": "range:0:1"}),
        ("softmax", {"rounds": 5}),
        ("discriminant", {"rule": "nearest-mean"}),
    ],
)
def test_every_head_learns_and_goes_through_a_file(digits, head, options, tmp_path):
    """Without fraction bits it takes imported rows of any number format."""
    X, y = digits
    fitted = AnalyticClassifier(head, options=options, fraction_bits=9).fit(X[:1200], y[:1200])
    assert fitted.score(X[1200:], y[1200:]) > 0.8
    saved = fitted.save(tmp_path / "head.h5")
    for again in (AnalyticClassifier.load(saved), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
        assert again.classes_.dtype == fitted.classes_.dtype
        assert again.head_.digest() == fitted.head_.digest()
    loaded = AnalyticClassifier.load(saved)
    with pytest.raises(UsageError, match="holds no statistics"):
        loaded + fitted
    if fitted.statistics_ is not None:
        with pytest.raises(UsageError, match="holds no statistics"):
            loaded.partial_fit(X, y)
    np.savez(tmp_path / "rows.npz", x=X[1200:], y=y[1200:])
    plain = AnalyticClassifier(head, options=options).fit(X[:1200], y[:1200])
    wanted, plain = plain.score(X[1200:], y[1200:]), plain.save(tmp_path / "plain.h5")
    for kind in ("int16", "float32"):
        rows = afltool.import_embeddings(tmp_path / "rows.npz", tmp_path / f"{kind}.h5", dtype=kind)
        assert afltool.evaluate(plain, rows)["top1"] == pytest.approx(wanted, abs=0.01)
    with pytest.raises(MismatchError, match=r"space\.dtype"):
        afltool.evaluate(saved, rows)


def test_a_head_file_of_the_command_line_and_of_the_estimator_agree(road, tmp_path, cli):
    with np.load(road.embeddings) as held:
        X, y = held["x"], held["y"]
    how = {"client": "all", "sum": True, "head_options": {"ridge": 1.0, "intercept": True}}
    total = afltool.local_stats(road.train, "linear", tmp_path / "total.h5", **how)
    theirs = AnalyticClassifier.load(afltool.solve(total, tmp_path / "head.h5"))
    ours = AnalyticClassifier(ridge=1.0, fraction_bits=9).fit(X, y)
    assert ours.head_.digest() == theirs.head_.digest()
    saved = ours.save(tmp_path / "ours.h5")
    assert afltool.evaluate(saved, road.train)["top1"] == ours.score(X, y)
    free = AnalyticClassifier(ridge=1.0).fit(X, y).save(tmp_path / "free.h5")
    assert "any number format" in cli("info", free).stdout


def test_parameters_that_are_numbers_of_numpy_are_saved_as_others(digits, tmp_path):
    """As `GridSearchCV` takes them out of np.arange and np.logspace."""
    X, y = digits
    plain = {"ridge": 2.0, "fraction_bits": 9, "options": {"width": 8}}
    numpy = {"ridge": np.float32(2), "fraction_bits": np.int64(9), "options": {"width": np.int8(8)}}
    saved = [
        AnalyticClassifier("random-features", **p).fit(X[:300], y[:300]).save(tmp_path / name)
        for p, name in ((plain, "p.h5"), (numpy, "n.h5"))
    ]
    told = [afltool.info(path) for path in saved]
    for one in told:
        del one["path"], one["provenance"]["time"]
    assert json.dumps(told[0]) == json.dumps(told[1]), "2 is not 2.0"


LABELS = {
    "bool": np.array([False, True]),
    "whole": np.array([-3, 200], dtype=np.int16),
    "unsigned": np.array([3, 2**63 + 5], dtype=np.uint64),
    "real": np.array([1.0, 3.0], dtype=np.float32),
    "days": np.array(["2020-01-31", "2021-02-01"], dtype="M8[D]"),
    "nanoseconds": np.array(["2020-01-31T00:00:00.000000001", "2021-02-01"], dtype="M8[ns]"),
    "texts": np.array(["benign", "a much longer name"]),
    "objects": np.array(["benign", "malignant"], dtype=object),
}


def test_labels_come_back_from_a_file_as_they_were_or_are_refused(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 3))
    for kind, labels in LABELS.items():
        y = labels[np.arange(40) % 2]
        fitted = AnalyticClassifier(fraction_bits=9).fit(X, y)
        loaded = AnalyticClassifier.load(fitted.save(tmp_path / f"{kind}.h5"))
        assert loaded.classes_.dtype == fitted.classes_.dtype == y.dtype, kind
        np.testing.assert_array_equal(loaded.predict(X), fitted.predict(X))
        assert loaded.score(X, y) == fitted.score(X, y)
    fitted = AnalyticClassifier().fit(X, (np.arange(40) % 2).astype("m8[h]"))
    with pytest.raises(UsageError, match=r"timedelta64\[h\].*fit with y.astype\(str\)"):
        fitted.save(tmp_path / "head.h5")
    assert not (tmp_path / "head.h5").exists()


@pytest.mark.parametrize(("given", "said"), [
    ({"head": "softmax", "ridge": 1.0}, "has no ridge"),
    ({"head": "discriminant", "ridge": 2.0}, "takes no --ridge"),
    ({"options": {"ridge": 5.0}}, "give ridge=5.0 beside options"),
    *(({"fraction_bits": bits}, "fraction-bits") for bits in (-1, 16, 9.0, True)),
])  # fmt: skip
def test_parameters_that_no_head_takes_are_refused(digits, given, said):
    X, y = digits
    with pytest.raises(UsageError, match=said):
        AnalyticClassifier(**given).fit(X, y)
    if "fraction_bits" in given:
        with pytest.raises(UsageError, match=said):
            AnalyticClassifier(**given).partial_fit(X, y, classes=range(10))


def test_mistakes_have_messages(digits):
    X, y = digits
    with pytest.raises(ValueError, match="classes="):
        AnalyticClassifier().partial_fit(X, y)
    with pytest.raises(ValueError, match="is not in the classes"):
        AnalyticClassifier().partial_fit(X, y, classes=range(9))
    of_ten, of_five = (AnalyticClassifier().fit(X[rows], y[rows]) for rows in (y < 10, y < 5))
    with pytest.raises(MismatchError, match="have different classes"):
        of_ten + of_five
    few, many = (AnalyticClassifier(fraction_bits=9).fit(X[:n], y[:n]) for n in (300, 900))
    with pytest.raises((MismatchError, ValueError), match="rows"):
        few - many
    fitted = AnalyticClassifier().partial_fit(X[:100], y[:100], classes=range(10))
    fitted.partial_fit(X[100:200], y[100:200], classes=range(10)).partial_fit(X[200:], y[200:])
    with pytest.raises(ValueError, match=r"the first call .* had the classes .* this one has"):
        fitted.partial_fit(X[:10], y[:10], classes=range(11))
    assert fitted.statistics_.rows == len(X)


def test_features_beyond_float32_are_refused_as_feature_files_refuse_them():
    """Their products would overflow; warnings are errors here."""
    X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
    for head, options in (("linear", {}), ("discriminant", {"rule": "qda"}),
                          ("deepafl", {"layers": 1, "width": 8}), ("safle", {})):  # fmt: skip
        fitted = AnalyticClassifier(head, options=options).fit(X, y)
        for size in (1e40, 1e300):
            for use in (lambda: fitted.fit(size * X, y), lambda: fitted.predict(size * X)):  # noqa: B023
                with pytest.raises(InvalidDataError, match=r"row 0, feature 0 .* beyond the range"):
                    use()
