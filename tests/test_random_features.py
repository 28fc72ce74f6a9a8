"""One wide layer of random features: the linear head on [σ(XA), X]."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from problems import sums
from rounds_of_heads import absorb, report_of
from sklearn.linear_model import Ridge

from afltool.heads import make_head
from afltool.heads.projections import projection
from afltool.math.blas import unpack
from afltool.math.gram import FixedPoint, encode
from afltool.values.statistics import Context

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
    return absorb(head, replace(sums(head, X, y), context=Context({"fraction_bits": None})))


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
    assert report_of(head)["ridge_by"] == "generalised cross-validation"
    assert report_of(head)["rank"] == WIDTH


def test_it_sees_what_a_linear_head_cannot():
    (X, y), (T, t) = rows(2000), rows(2000, seed=1)
    linear = make_head("linear").bind(D, C)
    linear = absorb(linear, sums(linear, X, y))

    def accuracy(head):
        return (head.scores(T).argmax(1) == t).mean()

    assert accuracy(solved(X, y, width=300)) > accuracy(linear) + 0.05


def test_float32_products_agree_with_float64_ones():
    X, y = rows()
    single, double = solved(X, y, ridge=1.0, compute="float32"), solved(X, y, ridge=1.0)
    assert np.allclose(single.weights, double.weights, rtol=1e-3, atol=1e-5)
    assert not np.array_equal(single.weights, double.weights)


# ---------------------------------------------------------------- in fixed point


def fixed_rows(n=300, seed=0, bits=9):
    X, y = rows(n, seed)
    return FixedPoint(encode(X, bits), bits), y


@pytest.mark.parametrize("with_linear", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_fixed_sums_are_the_integers_of_the_rounded_features(with_linear, intercept):
    X, y = fixed_rows()
    options = {"with_linear": with_linear, "intercept": intercept, "compute": "fixed"}
    head = make_head("random-features", {"width": WIDTH, **options}).bind(D, C)
    found = sums(head, X, y)
    float_options = {**options, "compute": "float64", "width": WIDTH}
    Phi = make_head("random-features", float_options).bind(D, C).lift(X)
    rounded = np.rint(head.lift(X) * 2**9).astype(np.int64)
    assert np.abs(rounded * 2.0**-9 - Phi).max() < 0.6 * 2.0**-9  # σ is rounded, and its argument
    assert np.array_equal(unpack(found.arrays["gram"]), rounded.T @ rounded)
    assert np.array_equal(found.arrays["cross"], rounded.T @ np.eye(C, dtype=int)[y])
    assert found.exact


def test_a_fixed_solve_is_close_to_a_real_one():
    (X, y), (T, t) = fixed_rows(2000), fixed_rows(2000, seed=1)
    found = []
    for compute in ("fixed", "float64"):
        head = make_head("random-features", {"width": 200, "compute": compute, "ridge": 1e-2})
        head = head.bind(D, C)
        context = Context({"fraction_bits": 9})
        head = absorb(head, replace(sums(head, X, y), context=context))
        found.append(head.scores(T))
        again = head.restore(None, head.arrays())
        assert np.array_equal(again.scores(T), found[-1])
    accuracies = [(s.argmax(axis=1) == t).mean() for s in found]
    assert abs(accuracies[0] - accuracies[1]) < 0.01
    assert np.abs(found[0] - found[1]).max() < 0.2
