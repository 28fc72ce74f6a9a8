"""One wide layer of random features: the linear head on [σ(XA), X]."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from afltool import memory
from afltool.errors import NumericalError, UsageError
from afltool.heads import make_head
from afltool.heads.random import projection
from afltool.statistics import Context

C, D, WIDTH = 3, 5, 20


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D))
    return X, (np.sin(2 * X).sum(1) > 0).astype(np.int64) + (X[:, 0] > 1)


def lifted(X, with_linear=False):
    made = projection("linear-uniform", 0, 0, D, WIDTH)
    random = np.tanh(X @ made.A.astype(float) + made.a)
    return np.hstack([random, X]) if with_linear else random


def solved(X, y, **options):
    options = {"width": WIDTH, "compute": "float64", **options}
    head = make_head("random-features", options).bind(D, C)
    return head.absorb(replace(head.statistics(X, y), context=Context({"fraction_bits": None})))


@pytest.mark.parametrize("with_linear", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_it_is_a_ridge_on_the_random_features(with_linear, intercept):
    X, y = rows()
    head = solved(X, y, ridge=2.0, with_linear=with_linear, intercept=intercept)
    Phi = lifted(X, with_linear)
    oracle = Ridge(alpha=2.0, fit_intercept=intercept, solver="cholesky").fit(Phi, np.eye(C)[y])
    assert np.allclose(head.scores(X), oracle.predict(Phi), rtol=1e-8, atol=1e-9)
    assert head.dim == D


def test_its_ridge_is_chosen_by_default_and_the_choice_is_kept():
    X, y = rows()
    head = solved(X, y)
    assert head.report["ridge_by"] == "generalised cross-validation"
    assert head.report["rank"] == WIDTH


def test_it_sees_what_a_linear_head_cannot():
    (X, y), (T, t) = rows(2000), rows(2000, seed=1)
    linear = make_head("linear").bind(D, C)
    linear = linear.absorb(linear.statistics(X, y))

    def accuracy(head):
        return (head.scores(T).argmax(1) == t).mean()

    assert accuracy(solved(X, y, width=300)) > accuracy(linear) + 0.05


def test_float32_products_agree_with_float64_ones():
    X, y = rows()
    single, double = solved(X, y, ridge=1.0, compute="float32"), solved(X, y, ridge=1.0)
    assert np.allclose(single.weights, double.weights, rtol=1e-3, atol=1e-5)
    assert not np.array_equal(single.weights, double.weights)


def test_it_comes_back_from_its_arrays():
    X, y = rows()
    head = solved(X, y, intercept=True)
    again = make_head("random-features", head.options.as_dict()).restore(None, head.arrays())
    assert again.digest() == head.digest()
    assert np.array_equal(again.scores(X), head.scores(X))
    assert make_head("random-features").restore("gram", {}).phase() == "gram"


def test_a_solve_that_does_not_fit_is_refused(monkeypatch):
    X, y = rows()
    monkeypatch.setattr(memory, "available", lambda: 1000)
    with pytest.raises(NumericalError, match="20 random features needs about"):
        solved(X, y)


def test_it_needs_to_know_its_sizes():
    X, y = rows()
    head = make_head("random-features", {"width": WIDTH})
    with pytest.raises(UsageError, match="number of classes first"):
        head.statistics(X, y)
    total = head.bind(D, C).statistics(X, y)
    with pytest.raises(UsageError, match="number of features first"):
        head.absorb(total)
    with pytest.raises(UsageError, match="not solved"):
        head.scores(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "--width is a whole number ≥ 1"),
        ({"activation": "sine"}, "--activation is one of"),
        ({"ridge": "-2"}, "a ridge is"),
        ({"compute": "float16"}, "--compute is one of"),
    ],
)
def test_options_that_are_wrong_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        make_head("random-features", options)
