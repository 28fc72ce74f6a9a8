"""The numeric core against NumPy and SciPy in float64, and against identities."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import known_problem, row_sets

from afltool import parallel
from afltool.errors import InvalidDataError, NumericalError
from afltool.math import blas as triangle
from afltool.math import ridge
from afltool.math import ridge_choice as rc
from afltool.math.gram import (
    FixedPoint,
    Products,
    add_product,
    encode,
    gram_and_cross,
    product,
    real,
    real_cross,
    real_gram,
    rows_per_product,
)

fast = settings(max_examples=40, deadline=None, derandomize=True)


# ---------------------------------------------------------------- triangle, fixed point


@given(st.integers(0, 40), st.integers(0, 99))
@fast
def test_a_triangle_comes_back_as_its_matrix(d, seed):
    d = 700 if seed == 0 else d  # mirrored across blocks
    G = np.random.default_rng(seed).normal(size=(d, d))
    G = G + G.T
    packed = triangle.pack(G)
    assert packed.shape == (triangle.length(d),)
    assert np.array_equal(triangle.unpack(packed), G)
    with pytest.raises(InvalidDataError, match="5 is no such number"):
        triangle.side(5)


def test_encode_rounds_to_the_nearest_step_and_names_what_it_refuses():
    x = np.random.default_rng(0).uniform(-60, 60, size=(50, 7))
    assert np.abs(real(FixedPoint(encode(x, 9), 9)) - x).max() <= 2.0**-10
    for value, bits in ((64.0, 8), (1e4, 1), (32767.0, 0)):
        x = np.zeros((4, 3))
        x[2, 1] = value
        said = rf"row 12, feature 1 .*--fraction-bits {bits} would hold"
        with pytest.raises(InvalidDataError, match=said):
            encode(x, 9, first_row=10)
        assert encode(x, bits)[2, 1] == round(value * 2**bits)
    for value in (np.nan, np.inf, -np.inf):
        x[2, 1] = value
        with pytest.raises(InvalidDataError, match=r"row 7, feature 1"):
            encode(x, 9, first_row=5)


# ---------------------------------------------------------------- gram


def gram(X):
    return gram_and_cross(X, np.zeros(len(X), np.int64), 1)[0]


def integer_gram(X):
    wide = X.astype(object)  # Python integers: no overflow, no rounding
    return np.array([[int(v) for v in row] for row in wide.T @ wide], dtype=object)


@fast
@given(row_sets(), st.booleans())
def test_gram_and_cross_are_the_exact_integers(rows, intercept):
    X, y, classes = rows
    G, H = Products.like(FixedPoint(X, 9), classes, intercept).add(FixedPoint(X, 9), y).taken()
    full = np.hstack([X, np.full((len(X), 1), 512, np.int16)]) if intercept else X
    expected = integer_gram(full)
    assert [int(v) for v in G] == [int(v) for v in triangle.pack(expected)]
    assert np.array_equal(H, full.astype(np.int64).T @ np.eye(classes, dtype=np.int64)[y])


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_triangle_in_tiles_is_the_whole_product(order, monkeypatch):
    """Tiles of 7 rows: one, a full one, one row more, several; added to what is there."""
    monkeypatch.setattr(triangle, "TILE", 7)
    for d in (1, 6, 7, 8, 23):
        X = np.random.default_rng(d).integers(-(2**15), 2**15, size=(300, d)).astype(np.int16)
        whole, expected = np.ones(triangle.length(d), np.int64), triangle.pack(integer_gram(X))
        triangle.add_gram(np.asarray(X, np.float64, order=order), whole)
        assert [int(v) - 1 for v in whole] == list(expected)
        wide = np.asarray(np.repeat(X, 2, axis=1), np.float64, order=order)[
            :, ::2
        ]  # no BLAS layout
        assert [int(v) for v in real_gram(wide)] == list(expected)
        rough = real_gram(np.asarray(X, np.float32, order=order))
        assert np.allclose(rough, expected.astype(float), rtol=1e-5, atol=1e5)


@pytest.mark.parametrize("limit", [1, 3000, 2**23])
@pytest.mark.parametrize("intercept", [False, True])
def test_sums_over_blocks_are_those_of_the_pooled_rows(monkeypatch, limit, intercept):
    """Blocks of growing and shrinking size, an empty one, and a triangle that moves in between.

    Products are of so many rows at the most; really of 2^23.
    """
    monkeypatch.setattr("afltool.math.gram.rows_per_product", lambda width: limit)
    rng = np.random.default_rng(0)
    n = 2500 if limit > 1 else 60
    X, y = rng.integers(-(2**15), 2**15, size=(n, 5)).astype(np.int16), rng.integers(0, 4, n)
    sums, reals = Products(5, 4, 9, intercept), Products(5, 4, None, intercept)
    for start, stop in itertools.pairwise((0, 0, 7, n // 2, n // 2 + 3, n)):
        sums.add(FixedPoint(X[start:stop], 9), y[start:stop])
        reals.add(X[start:stop] / 512, y[start:stop])
    assert sums.rows == n
    G, H = sums.taken()
    assert sums.rows == 0
    full = np.hstack([X, np.full((n, 1), 512, np.int16)]) if intercept else X
    assert [int(v) for v in G] == [int(v) for v in triangle.pack(integer_gram(full))]
    assert np.array_equal(H, full.astype(np.int64).T @ np.eye(4, dtype=np.int64)[y])
    theirs = reals.taken()
    assert np.allclose(theirs[0], G / 512**2, rtol=1e-12)
    assert np.allclose(theirs[1], H / 512, rtol=1e-12)


def test_the_int64_bound_and_labels_are_checked_before_the_product():
    assert rows_per_product(1) * 2**30 <= 2**53
    X, y = FixedPoint(np.zeros((3, 2), np.int16), 9), np.zeros(3, np.int64)
    sums = Products(2, 2, 9)
    sums.rows = 2**33 - 4
    sums.add(X, y)
    with pytest.raises(NumericalError, match="beyond the int64 limit"):
        sums.add(X, y)
    with pytest.raises(InvalidDataError, match=r"row 1 has label 5; with 2 classes"):
        gram_and_cross(X, np.array([0, 5, 1]), 2)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_products_of_real_rows_whatever_the_memory_layout(kind):
    rng, near = np.random.default_rng(0), {"rtol": 1e-5 if kind == "float32" else 1e-13}
    target, A, B = (rng.normal(size=s).astype(kind) for s in ((10, 4), (10, 3), (4, 3)))
    for cut in (slice(None), slice(0, None, 2)):
        view, expected = target[cut], target[cut] + A[cut] @ B.T
        add_product(view, A[cut], B)
        assert np.allclose(target[cut], expected, **near)
        add_product(view[:0], A[:0], B)
    X, y = rng.normal(size=(30, 7)).astype(kind), np.arange(30) % 3
    assert real_gram(X).dtype == real_cross(X, y, 3).dtype == np.float64
    assert np.allclose(triangle.unpack(real_gram(X)), X.T @ X, **near, atol=1e-5)
    assert np.allclose(real_cross(X, y, 3), X.T @ np.eye(3)[y], rtol=1e-4, atol=1e-5)
    turned = product(np.asfortranarray(X), X.T)
    assert turned.dtype == kind
    assert turned.flags.c_contiguous
    assert np.allclose(turned, X @ X.T, **near, atol=1e-5)
    assert not real_gram(X[:0]).any()


# ---------------------------------------------------------------- ridge


@pytest.mark.parametrize("value", [0.0, 0.01, 0.03])
def test_a_large_system_is_judged_without_its_eigenvalues(value):
    """LAPACK's estimate of the condition in the 1-norm is a bound from below, and close to it."""
    p = known_problem(900, 300, 3, 50.0, seed=6)
    W, condition, degrees = ridge.solve_wide(p.G, p.H, value)
    assert np.array_equal(W, ridge.cholesky_solve(p.G, p.H, value))
    assert np.isclose(degrees, ridge.degrees_of_freedom(ridge.eigenvalues(p.G), value), rtol=1e-10)
    exact = np.linalg.cond(p.G + value * np.eye(300), 1)
    assert exact / 3 <= condition <= exact * (1 + 1e-9)


def test_where_only_eigenvalues_tell_a_large_system_is_left_to_them():
    X = known_problem(80, 60, 3, 50.0, seed=7).X[:40]
    H = X.T @ np.ones((40, 1))
    assert ridge.solve_wide(X.T @ X, H, 0.0) is None
    assert ridge.solve_wide(X.T @ X, H, 1e-3) is not None
    with pytest.raises(NumericalError, match="use a larger --ridge"):
        ridge.solve_wide(X.T @ X, H, 1e-30)


@pytest.mark.parametrize("side", [1, 20, triangle.BLOCK, triangle.BLOCK + 7])
def test_the_factor_in_place_is_lapacks_with_the_same_bits_for_any_number_of_threads(side):
    X = np.random.default_rng(0).normal(size=(side + 30, side))
    G, found = X.T @ X, []
    for threads in (1, 3):
        A = np.tril(G)
        with parallel.thread_limit(threads):
            triangle.cholesky_in_place(A)
        assert not np.triu(A[:-1, 1:], triangle.BLOCK).any()
        found.append(np.tril(A))
    assert np.array_equal(*found)
    assert np.allclose(found[0], np.linalg.cholesky(G), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("side", [40, triangle.BLOCK + 70])
def test_columns_that_depend_on_earlier_ones_are_left_out_and_give_the_null_space(side):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(side, side))
    dependent = np.array([5, side - 20, side - 1])
    for i in dependent:
        X[:, i] = X[:, i - 3] - X[:, i // 3]
    G, B = X.T @ X, rng.normal(size=(side, 2))
    A, floor = np.tril(G), side * np.finfo(float).eps * np.diag(G).max()
    factor = triangle.Cholesky(A, floor)
    assert np.array_equal(factor.left_out, dependent)
    W = factor.solve(G @ B)
    assert not W[dependent].any()
    assert np.allclose(X @ W, X @ B, atol=1e-8)
    Z = factor.null_space(dependent)
    assert np.allclose(X @ Z, 0.0, atol=1e-8)
    assert np.array_equal(Z[dependent].diagonal(), np.ones(3))


# ---------------------------------------------------------------- the choice of a ridge


RIDGES = np.geomspace(1e-3, 1e3, 13)


def target(p):
    """‖Y‖² of the fit and of noise beside it."""
    return 2.0 * float((p.W * p.H).sum())


def factored(p, rows=200, start=1.0):
    penalty = np.ones(len(p.H))
    return rc.FactoredSystem(p.G.copy, p.H, target(p), rows, lambda r: r * penalty, start)


def spectral(p, rows=200, outside=0.0):
    return rc.SpectralSystem(ridge.Spectral.of(p.G, p.H), target(p), rows, outside)


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


def test_there_is_no_estimate_where_the_data_leave_no_freedom_and_a_single_ridge_is_given():
    p = known_problem(20, 20, 3, 10.0, seed=1)
    chosen = rc.choose(spectral(p, rows=20), [0.0, 1.0])
    assert [point["gcv"] is None for point in chosen.path] == [True, False]
    assert chosen.ridge == 1.0
    assert rc.choose(factored(p), [0.5]).report() == {"ridge": 0.5, "ridge_by": "given"}


@pytest.mark.parametrize("least", [1e-3, 0.5, 2e3, None])
def test_the_search_walks_to_the_least_from_either_side(least):
    """Or ends where nothing is best."""
    tried = {}

    def better(ridge):
        value = -len(tried) if least is None else abs(np.log(ridge / least))
        found = value < min(tried.values(), default=np.inf)
        tried[ridge] = value
        return found

    factored(known_problem(50, 20, 3, 100.0, seed=1)).search(better)
    assert len(tried) <= rc.MOST
    if least is None:
        assert len(tried) == rc.MOST
    else:
        assert abs(np.log10(min(tried, key=tried.get) / least)) <= 0.25 + 1e-9


def test_of_equals_the_largest_ridge_is_taken_and_indefinite_matrices_are_refused():
    p = known_problem(50, 20, 3, 100.0, seed=1)
    for order in (RIDGES, RIDGES[::-1]):
        assert rc.choose(spectral(p), order, lambda W: 1.0).ridge == RIDGES[-1]
    with pytest.raises(NumericalError, match=r"not positive definite.*--ridge"):
        ridge.cholesky_solve(np.diag([1.0, -1.0]), np.ones((2, 1)), 0.0)
    negative = rc.FactoredSystem(lambda: -p.G, p.H, 1.0, 5, lambda r: r * np.ones(20), 1.0)
    with pytest.raises(NumericalError, match=r"\(20 × 20\) is not positive definite"):
        negative.fit(1e-3)


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
        G, H, _, _ = ridge.centered(G, H, rows)
        return G, H, rows - float((Y.sum(axis=0) ** 2).sum()) / rows, rows
    return G[:-1, :-1], H[:-1], float(rows), rows


def test_every_candidate_is_a_ridge_that_the_solver_takes():
    """Also the smallest one, which would be chosen where it were the best; or there is none."""
    refused = []
    for seed in range(150):
        G, H, error, rows = hard_problem(seed)
        if not G.any():
            continue
        system = rc.SpectralSystem(ridge.Spectral.of(G, H), error, rows)
        try:
            chosen = rc.choose(system, None)
        except NumericalError as told:
            refused.append(str(told))
            continue
        ridge.cholesky_solve(G, H, min(point["ridge"] for point in chosen.path))
        ridge.cholesky_solve(G, H, chosen.ridge)
        assert np.isfinite([point["training_mse"] for point in chosen.path]).all()
    assert len(refused) < 6
    assert all("is not positive definite to working precision" in one for one in refused)


def test_a_ridge_of_a_path_that_cannot_be_solved_is_left_out():
    """For both systems; where there is no other, the largest one's message is said."""
    p = known_problem(50, 20, 3, 100.0, seed=1)
    G = p.G - 1.0 * np.eye(20)  # the least eigenvalue is below 0, as rounding makes it
    least = float(np.linalg.eigvalsh(G)[0])
    assert least < 0
    one = rc.SpectralSystem(ridge.Spectral.of(G, p.H), target(p), 200)
    other = rc.FactoredSystem(G.copy, p.H, target(p), 200, lambda r: np.full(20, r), 1.0)
    ridges = [-0.5 * least, -2 * least, -20 * least]
    for system in (one, other):
        chosen = rc.choose(system, ridges)
        assert [point["ridge"] for point in chosen.path] == ridges[1:]
        for none in (ridges[:1], [ridges[0], ridges[0] / 2]):
            with pytest.raises(NumericalError, match=rf"{ridges[0]:g}·I .* is not positive"):
                rc.choose(system, none)
