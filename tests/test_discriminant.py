"""One-shot classifiers from class sums, against scikit-learn and SciPy on the pooled rows.

Each rule without shrinkage is beside NumPy and scikit-learn in test_scales.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from problems import far_rows, nearly_constant, trained
from scipy.stats import multivariate_normal
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge

from afltool.errors import NumericalError
from afltool.heads import make_head
from afltool.heads.options import RULES
from afltool.math.gram import FixedPoint, real

BITS = 9


def rows(n=400, d=6, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    mixing = rng.normal(size=(d, d))
    x = rng.normal(size=(n, d)) @ mixing + 2 * rng.normal(size=(classes, d))[y]
    return FixedPoint(np.rint(x * 2**BITS).astype(np.int16), BITS), y


def solved(rule, X, y, classes=4, **options):
    head = make_head("discriminant", {"rule": rule, **options}).bind(X.shape[1], classes)
    return trained(head, X, y)


def differences(scores):
    """Scores up to a constant of the row."""
    return scores - scores[:, :1]


@pytest.mark.parametrize("shrinkage", [0.05, 0.7])
def test_lda_with_shrinkage_is_scikit_learns(shrinkage):
    X, y = rows()
    found = differences(solved("lda", X, y, shrinkage=shrinkage).decision_function(X))
    theirs = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(real(X), y)
    wanted = differences(theirs.decision_function(real(X)))
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)


def test_qda_with_shrinkage_is_the_normal_density():
    X, y = rows()
    scores = solved("qda", X, y, shrinkage=0.3).decision_function(X)
    wanted = []
    for c in range(4):
        own = real(X)[y == c]
        covariance = np.cov(own.T, bias=True)
        mean = np.trace(covariance) / len(covariance)
        covariance = 0.7 * covariance + 0.3 * mean * np.eye(len(covariance))
        density = multivariate_normal(own.mean(0), covariance).logpdf(real(X))
        wanted.append(density + np.log(len(own) / len(y)))
    np.testing.assert_allclose(differences(scores), differences(np.array(wanted).T), atol=1e-9)


def test_fed3r_before_its_normalisation_is_ridge():
    X, y = rows()
    wide = np.hstack([real(X), np.ones((len(y), 1))])
    W = Ridge(alpha=0.5, fit_intercept=False).fit(wide, np.eye(4)[y]).coef_.T
    head = solved("fed3r", X, y, ridge=0.5)
    wanted = W / np.linalg.norm(W[:-1], axis=0)
    np.testing.assert_allclose(head.weights, wanted, rtol=1e-9, atol=1e-12)
    assert make_head("discriminant", {"rule": "fed3r"}).options.ridge is None


def test_fedcgs_predicts_as_lda_for_two_balanced_classes_and_not_for_three():
    rng = np.random.default_rng(2)
    for classes, same in ((2, True), (3, False)):
        y = np.repeat(np.arange(classes), 300)
        centres = np.array([[0, 0, 0], [2, 1, 0], [0, 3, 1]])[:classes]
        x = rng.normal(size=(len(y), 3)) * [0.3, 2, 1] + centres[y]
        X = FixedPoint(np.rint(x * 2**BITS).astype(np.int16), BITS)
        cgs, lda = (
            solved(rule, X, y, classes).decision_function(X).argmax(1) for rule in ("fedcgs", "lda")
        )
        assert (cgs == lda).all() == same


# ------------------------------------------------------------ edges


@pytest.mark.parametrize("rule", RULES)
def test_a_class_without_rows_is_never_predicted(rule):
    X, y = rows()
    y = np.where(y == 2, 3, y)
    scores = solved(rule, X, y).decision_function(X)
    assert np.isneginf(scores[:, 2]).all()
    assert np.isfinite(np.delete(scores, 2, axis=1)).all()
    assert set(scores.argmax(1)) <= {0, 1, 3}


@pytest.mark.parametrize("rule", ["lda", "fedcgs", "qda"])
def test_a_singular_covariance_is_refused_with_its_remedy(rule):
    X, y = rows(n=12, d=20)
    with pytest.raises(NumericalError, match="--shrinkage"):
        solved(rule, X, y)
    assert np.isfinite(solved(rule, X, y, shrinkage=0.1).decision_function(X)).all()


@pytest.mark.parametrize("rule", RULES)
def test_features_too_far_from_zero_are_refused_and_constant_ones_are_not(rule):
    near, y = far_rows(1.0)
    expected = solved(rule, near, y, 3).decision_function(near).argmax(1)
    for ratio in (1e3, 2e5) if rule != "fed3r" else ():  # whose ridge is on the constant, too
        far = near + np.float32(1.4 * ratio)
        assert (solved(rule, far, y, 3).decision_function(far).argmax(1) == expected).mean() > 0.98
    with pytest.raises(NumericalError, match=r"from zero.*sites agree on before import"):
        solved(rule, *far_rows(2e7), 3)
    if rule == "fedcgs":
        return
    more = np.column_stack([nearly_constant(len(near), 1), near]).astype(np.float32)
    options = {"shrinkage": 0.01} if rule in ("lda", "qda") else {}
    plain = solved(rule, near, y, 3, **options).decision_function(near).argmax(1)
    assert (
        solved(rule, more, y, 3, **options).decision_function(more).argmax(1) == plain
    ).mean() > 0.97


def test_naive_bayes_has_one_variance_of_a_constant_feature():
    """What rounding left of it was another variance in each class, and chose the class."""
    X, y = far_rows(1.0, n=20_011)
    plain = differences(solved("naive-bayes", X, y, 3).decision_function(X))
    for constant in (0.1, 2024.7, 12345.678, 1e7 / 3):
        more = np.column_stack([np.full(len(y), constant), X]).astype(np.float64)
        found = solved("naive-bayes", more, y, 3)
        np.testing.assert_allclose(found.variances[0], found.variances[0, 0])
        np.testing.assert_allclose(differences(found.decision_function(more)), plain, atol=1e-6)
