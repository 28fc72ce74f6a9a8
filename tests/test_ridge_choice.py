"""One way to choose a ridge, over both systems; and the Cholesky factorisation in place."""

from __future__ import annotations

import numpy as np
import pytest
from problems import known_problem

from afltool.errors import NumericalError
from afltool.math import blas
from afltool.math import ridge_choice as rc
from afltool.math.ridge import Spectral, centred, cholesky_solve

RIDGES = np.geomspace(1e-3, 1e3, 13)


def target(p):
    """‖Y‖² of the fit and of noise beside it."""
    return 2.0 * float((p.W * p.H).sum())


def factored(p, rows=200, start=1.0):
    penalty = np.ones(len(p.H))
    return rc.FactoredSystem(p.G.copy, p.H, target(p), rows, lambda r: r * penalty, start)


def spectral(p, rows=200, outside=0.0):
    return rc.SpectralSystem(Spectral.of(p.G, p.H), target(p), rows, outside)


@pytest.mark.parametrize("side", [20, blas.BLOCK, blas.BLOCK + 7])
def test_the_factor_in_place_is_lapacks(side):
    X = np.random.default_rng(0).normal(size=(side + 30, side))
    G = X.T @ X
    A = np.tril(G)
    blas.cholesky_in_place(A)
    assert np.allclose(np.tril(A), np.linalg.cholesky(G), rtol=1e-10, atol=1e-12)
    assert not np.triu(A[:-1, 1:], blas.BLOCK).any()


@pytest.mark.parametrize("side", [40, blas.BLOCK + 70])
def test_columns_that_depend_on_earlier_ones_are_left_out_and_give_the_null_space(side):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(side, side))
    dependent = np.array([5, side - 20, side - 1])
    for i in dependent:
        X[:, i] = X[:, i - 3] - X[:, i // 3]
    G, B = X.T @ X, rng.normal(size=(side, 2))
    A, floor = np.tril(G), side * np.finfo(float).eps * np.diag(G).max()
    factor = blas.Cholesky(A, floor)
    assert np.array_equal(factor.left_out, dependent)
    W = factor.solve(G @ B)
    assert not W[dependent].any()
    assert np.allclose(X @ W, X @ B, atol=1e-8)
    Z = factor.null_space(dependent)
    assert np.allclose(X @ Z, 0.0, atol=1e-8)
    assert np.array_equal(Z[dependent].diagonal(), np.ones(3))


def test_one_ridge_is_the_solution_with_its_error_and_degrees_of_freedom():
    p = known_problem(50, 20, 3, 100.0, seed=1)
    found = factored(p, 50).fit(0.1)
    A = p.G + 0.1 * np.eye(20)
    assert np.allclose(found.weights(), np.linalg.solve(A, p.H))
    fit = ((p.X @ (p.W - found.weights())) ** 2).sum()
    assert np.isclose(found.squared_error, fit + 0.5 * target(p))
    assert np.isclose(found.degrees_of_freedom, np.trace(np.linalg.solve(A, p.G)))


@pytest.mark.parametrize("held", [None, lambda W: abs(float(np.abs(W).sum()) - 2.0)])
def test_both_systems_choose_alike(held):
    """Equal paths and weights, by cross-validation and by held-out rows."""
    p = known_problem(50, 20, 3, 100.0, seed=1)
    one, other = (rc.choose(s, RIDGES, held) for s in (factored(p), spectral(p)))
    assert one.ridge == other.ridge
    assert one.by == other.by == ("held-out clients" if held else "generalised cross-validation")
    assert np.allclose(one.weights(), other.weights(), rtol=1e-9)
    for a, b in zip(one.path, other.path, strict=True):
        assert a.keys() == b.keys()
        assert np.allclose(list(a.values()), list(b.values()), rtol=1e-8)
    measure = "validation_mse" if held else "gcv"
    assert one.point[measure] == min(point[measure] for point in one.path)
    assert one.report()["ridge_path"] == list(one.path)


def test_cross_validation_is_the_formula_and_none_where_no_parameter_is_left():
    fit = rc.Fit(8.0, 3.0, lambda: np.zeros((1, 1)))
    assert rc.gcv(fit, 10, 2.0) == 10 * 8.0 / (10 - 3 - 2) ** 2
    assert rc.gcv(fit, 3) is None
    p = known_problem(20, 20, 3, 10.0, seed=1)
    chosen = rc.choose(spectral(p, rows=20), [0.0, 1.0])
    assert [point["gcv"] is None for point in chosen.path] == [True, False]
    assert chosen.ridge == 1.0


def test_a_single_ridge_is_the_given_one():
    p = known_problem(50, 20, 3, 100.0, seed=1)
    chosen = rc.choose(factored(p), [0.5])
    assert (chosen.ridge, chosen.by, len(chosen.path)) == (0.5, "given", 1)
    assert chosen.report() == {"ridge": 0.5, "ridge_by": "given"}


def test_a_matrix_that_is_not_positive_definite_is_refused():
    p = known_problem(5, 20, 3, 10.0, seed=1)
    penalty = np.ones(20)
    negative = rc.FactoredSystem(lambda: -p.G, p.H, 1.0, 5, lambda r: r * penalty, 1.0)
    with pytest.raises(NumericalError, match=r"\(20 × 20\) is not positive definite"):
        negative.fit(1e-3)


@pytest.mark.parametrize("least", [1e-3, 0.5, 1.0, 2e3])
def test_the_search_walks_to_the_least_from_either_side(least):
    tried = {}

    def better(ridge):
        value = abs(np.log(ridge / least))
        found = value < min(tried.values(), default=np.inf)
        tried[ridge] = value
        return found

    factored(known_problem(50, 20, 3, 100.0, seed=1)).search(better)
    best = min(tried, key=tried.get)
    assert abs(np.log10(best / least)) <= 0.25 + 1e-9
    assert len(tried) <= rc.MOST


def test_the_search_ends_where_nothing_is_best():
    tried = []
    factored(known_problem(50, 20, 3, 100.0, seed=1)).search(lambda r: tried.append(r) or True)
    assert len(tried) == rc.MOST


def test_of_equals_the_largest_ridge_is_taken():
    p = known_problem(50, 20, 3, 100.0, seed=1)
    for order in (RIDGES, RIDGES[::-1]):
        assert rc.choose(spectral(p), order, lambda W: 1.0).ridge == RIDGES[-1]


def hard_problem(seed):
    """G, H, ‖Y‖² and rows of a badly conditioned total, in one of several ways."""
    rng = np.random.default_rng(seed)
    d, rows = int(rng.integers(1, 25)), int(rng.integers(2, 60))
    X = rng.normal(size=(rows, d))
    if seed % 2:  # of lower rank
        rank = int(rng.integers(1, d + 1))
        X = X[:, :rank] @ rng.normal(size=(rank, d))
    X += 10.0 ** rng.uniform(0, 8) * (seed % 5 == 0)  # far from 0
    X *= 10.0 ** (rng.uniform(-12, 12, size=d) if seed % 3 == 0 else rng.uniform(-150, 140))
    X, Y = np.hstack([X, np.ones((rows, 1))]), np.eye(3)[rng.integers(0, 3, rows)]
    G, H = X.T @ X, X.T @ Y
    if seed % 4 < 2:  # centred: what is left of large means is rounding
        G, H, _, _ = centred(G, H, rows)
        return G, H, rows - float((Y.sum(axis=0) ** 2).sum()) / rows, rows
    return G[:-1, :-1], H[:-1], float(rows), rows


def test_every_candidate_is_a_ridge_that_the_solver_takes():
    """Also the smallest one, which would be chosen where it were the best; or there is none."""
    refused = []
    for seed in range(300):
        G, H, error, rows = hard_problem(seed)
        if not G.any():
            continue
        system = rc.SpectralSystem(Spectral.of(G, H), error, rows)
        try:
            chosen = rc.choose(system, None)
        except NumericalError as told:
            refused.append(str(told))
            continue
        cholesky_solve(G, H, min(point["ridge"] for point in chosen.path))
        cholesky_solve(G, H, chosen.ridge)
        assert np.isfinite([point["training_mse"] for point in chosen.path]).all()
    assert len(refused) < 10
    assert all("is not positive definite to working precision" in one for one in refused)


def test_a_ridge_of_a_path_that_cannot_be_solved_is_left_out():
    """For both systems; where there is no other, the largest one's message is said."""
    p = known_problem(50, 20, 3, 100.0, seed=1)
    G = p.G - 1.0 * np.eye(20)  # the least eigenvalue is below 0, as rounding makes it
    least = float(np.linalg.eigvalsh(G)[0])
    assert least < 0
    one = rc.SpectralSystem(Spectral.of(G, p.H), target(p), 200)
    other = rc.FactoredSystem(G.copy, p.H, target(p), 200, lambda r: np.full(20, r), 1.0)
    ridges = [-0.5 * least, -2 * least, -20 * least]
    for system in (one, other):
        chosen = rc.choose(system, ridges)
        assert [point["ridge"] for point in chosen.path] == ridges[1:]
        for none in (ridges[:1], [ridges[0], ridges[0] / 2]):
            with pytest.raises(NumericalError, match=rf"{ridges[0]:g}·I .* is not positive"):
                rc.choose(system, none)
