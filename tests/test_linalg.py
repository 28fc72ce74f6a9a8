"""The numeric core against NumPy and SciPy in float64, and against identities."""

from __future__ import annotations

import itertools
from functools import reduce

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import known_problem, row_sets
from threadpoolctl import threadpool_limits

from afltool.errors import InvalidDataError, NumericalError
from afltool.heads.least_squares import Problem, solve
from afltool.math import blas as triangle
from afltool.math import pairwise, ridge
from afltool.math.gram import (
    FixedPoint,
    Products,
    add_product,
    check_int64,
    encode,
    gram_and_cross,
    product,
    real,
    real_cross,
    real_gram,
    together,
)
from afltool.math.ridge_choice import Choice, SpectralSystem, choose

fast = settings(max_examples=40, deadline=None, derandomize=True)


# ---------------------------------------------------------------- triangle, fixed point


@given(st.integers(0, 40), st.integers(0, 99))
@fast
def test_a_triangle_comes_back_as_its_matrix(d, seed):
    G = np.random.default_rng(seed).normal(size=(d, d))
    G = G + G.T
    packed = triangle.pack(G)
    assert packed.shape == (triangle.length(d),)
    assert np.array_equal(triangle.unpack(packed), G)


def test_the_triangle_of_a_large_matrix_is_mirrored_across_blocks():
    G = np.random.default_rng(0).normal(size=(700, 700))
    assert np.array_equal(triangle.unpack(triangle.pack(G + G.T)), G + G.T)


def test_a_length_that_is_no_triangle_is_refused():
    with pytest.raises(InvalidDataError, match="5 is no such number"):
        triangle.side(5)


def test_encode_rounds_to_the_nearest_step():
    x = np.random.default_rng(0).uniform(-60, 60, size=(50, 7))
    values = encode(x, 9)
    assert np.abs(real(FixedPoint(values, 9)) - x).max() <= 2.0**-10


@pytest.mark.parametrize(("value", "bits"), [(64.0, 8), (100.0, 8), (1e4, 1), (32767.0, 0)])
def test_a_value_beyond_the_range_names_row_value_and_the_bits_that_fit(value, bits):
    x = np.zeros((4, 3))
    x[2, 1] = value
    said = rf"row 12, feature 1 .*--fraction-bits {bits} "
    with pytest.raises(InvalidDataError, match=said):
        encode(x, 9, first_row=10)
    assert encode(x, bits)[2, 1] == round(value * 2**bits)


def test_a_value_beyond_every_range_is_told_so():
    with pytest.raises(InvalidDataError, match="no number of fraction bits holds it"):
        encode(np.array([[40000.0]]), 0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_with_its_place(value):
    x = np.zeros((3, 3))
    x[1, 2] = value
    with pytest.raises(InvalidDataError, match=r"row 6, feature 2"):
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


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_integers_do_not_depend_on_threads_or_library(threads, library):
    rng = np.random.default_rng(3)
    X = rng.integers(-(2**15) + 1, 2**15, size=(3000, 130)).astype(np.int16)
    reference = integer_gram(X[:50]), gram(FixedPoint(X, 9))
    assert [int(v) for v in gram(FixedPoint(X[:50], 9))] == list(triangle.pack(reference[0]))
    with threadpool_limits(threads):
        if library == "torch":
            import torch

            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            T = torch.from_numpy(X).double()
            product = (T.T @ T).numpy()
            torch.set_num_threads(before)
        else:
            product = X.T.astype(float) @ X.astype(float)
        assert np.array_equal(triangle.pack(product).astype(np.int64), reference[1])
        assert np.array_equal(gram(FixedPoint(X, 9)), reference[1])


@pytest.mark.parametrize("d", [1, 6, 7, 8, 23])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_triangle_in_tiles_is_the_whole_product(d, order, monkeypatch):
    """Tiles of 7 rows: one, a full one, one row more, several; added to what is there."""
    monkeypatch.setattr(triangle, "TILE", 7)
    X = np.random.default_rng(d).integers(-(2**15), 2**15, size=(300, d)).astype(np.int16)
    whole, expected = np.ones(triangle.length(d), np.int64), triangle.pack(integer_gram(X))
    triangle.add_gram(np.asarray(X, np.float64, order=order), whole)
    assert [int(v) - 1 for v in whole] == list(expected)
    wide = np.asarray(np.repeat(X, 2, axis=1), np.float64, order=order)[:, ::2]  # no BLAS layout
    assert [int(v) for v in real_gram(wide)] == list(expected)
    rough = real_gram(np.asarray(X, np.float32, order=order))
    assert np.allclose(rough, expected.astype(float), rtol=1e-5, atol=1e5)
    assert [int(v) for v in gram(FixedPoint(X, 9))] == list(expected)


@pytest.fixture
def few_exact(monkeypatch):
    """``few_exact(n)``: products are of n rows at the most; really of 2^23."""
    return lambda limit: monkeypatch.setattr("afltool.math.gram.together", lambda width: limit)


def test_blocks_keep_the_product_exact_where_one_product_would_not_be(few_exact):
    X = np.full((5000, 3), 2**15 - 1, np.int16)
    X[::2] -= 1
    few_exact(7)
    assert [int(v) for v in gram(FixedPoint(X, 9))] == list(triangle.pack(integer_gram(X)))


@pytest.mark.parametrize("limit", [1, 3000, 2**23])
@pytest.mark.parametrize("intercept", [False, True])
def test_sums_over_blocks_are_those_of_the_pooled_rows(few_exact, limit, intercept):
    """Blocks of growing and shrinking size, an empty one, and a triangle that moves in between."""
    few_exact(limit)
    rng = np.random.default_rng(0)
    n = 2500 if limit > 1 else 60
    X, y = rng.integers(-(2**15), 2**15, size=(n, 5)).astype(np.int16), rng.integers(0, 4, n)
    sums = Products(5, 4, 9, intercept)
    for start, stop in itertools.pairwise((0, 0, 7, n // 2, n // 2 + 3, n)):
        sums.add(FixedPoint(X[start:stop], 9), y[start:stop])
    assert sums.rows == n
    G, H = sums.taken()
    assert sums.rows == 0
    full = np.hstack([X, np.full((n, 1), 512, np.int16)]) if intercept else X
    assert [int(v) for v in G] == [int(v) for v in triangle.pack(integer_gram(full))]
    assert np.array_equal(H, full.astype(np.int64).T @ np.eye(4, dtype=np.int64)[y])


def test_sums_of_real_rows_are_those_of_the_pooled_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2000, 6)), rng.integers(0, 3, 2000)
    sums = Products.like(X, 3, intercept=True)
    for start in range(0, 2000, 700):
        sums.add(X[start : start + 700], y[start : start + 700])
    full = np.hstack([X, np.ones((2000, 1))])
    G, H = sums.taken()
    assert np.allclose(triangle.unpack(G), full.T @ full, rtol=1e-12, atol=1e-9)
    assert np.allclose(H, full.T @ np.eye(3)[y], rtol=1e-12, atol=1e-9)


def test_the_int64_bound_is_checked_from_the_data_before_the_product():
    assert together(1) * 2**30 <= 2**53
    check_int64(2**33 - 1)
    with pytest.raises(NumericalError, match="beyond the int64 limit"):
        check_int64(2**33)


def test_a_label_out_of_range_is_refused_with_its_row():
    X = FixedPoint(np.zeros((3, 2), np.int16), 9)
    with pytest.raises(InvalidDataError, match=r"row 1 has label 5; with 2 classes"):
        gram_and_cross(X, np.array([0, 5, 1]), 2)


# ---------------------------------------------------------------- ridge


@pytest.mark.parametrize("condition", [1.0, 10.0, 100.0])
def test_the_known_solution_is_found(condition):
    p = known_problem(200, 30, 4, condition, seed=1)
    assert np.allclose(ridge.cholesky_solve(p.G, p.H, 0.0), p.W, rtol=1e-9, atol=1e-9)


def test_stacking_the_rows_twice_doubles_the_ridge():
    p = known_problem(100, 20, 3, 50.0, seed=2)
    once = ridge.cholesky_solve(p.G, p.H, 0.3)
    assert np.allclose(ridge.cholesky_solve(2 * p.G, 2 * p.H, 0.6), once, rtol=1e-12)


def test_one_eigendecomposition_gives_every_ridge():
    p = known_problem(100, 20, 3, 50.0, seed=3)
    spectral = ridge.Spectral.of(p.G, p.H)
    for value in (1e-6, 1e-2, 1.0, 1e3):
        expected = scipy.linalg.solve(p.G + value * np.eye(20), p.H, assume_a="pos")
        assert np.allclose(spectral.weights(value), expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(("n", "d"), [(10, 25), (60, 25)])
def test_minimum_norm_is_scipys_lstsq(n, d):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, 8)) @ rng.normal(size=(8, d))
    Y = np.eye(3)[rng.integers(0, 3, n)]
    spectral = ridge.Spectral.of(X.T @ X, X.T @ Y)
    assert spectral.conditioning.rank == 8
    expected = scipy.linalg.lstsq(X, Y, cond=1e-7)[0]
    assert np.allclose(spectral.weights(0.0), expected, atol=1e-9)


def test_squared_error_and_degrees_of_freedom_are_those_of_the_rows():
    rng = np.random.default_rng(5)
    X, Y = rng.normal(size=(80, 12)), np.eye(4)[rng.integers(0, 4, 80)]
    spectral = ridge.Spectral.of(X.T @ X, X.T @ Y)
    for value in (0.0, 0.5, 20.0):
        W = spectral.weights(value)
        error = ((Y - X @ W) ** 2).sum()
        assert np.isclose(spectral.squared_error(value, 80.0), error, rtol=1e-10)
        assert np.isclose(ridge.squared_error(W, X.T @ X, X.T @ Y, 80.0), error, rtol=1e-10)
        hat = X @ np.linalg.solve(X.T @ X + value * np.eye(12), X.T)
        assert np.isclose(spectral.degrees_of_freedom(value), np.trace(hat), rtol=1e-10)
        point = choose(SpectralSystem(spectral, 80.0, 80), [value]).point
        assert np.isclose(point["gcv"], 80 * error / (80 - np.trace(hat)) ** 2, rtol=1e-10)


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


@pytest.mark.parametrize("value", [0.0, 0.03])
def test_the_report_of_a_large_head_is_that_of_its_eigenvalues(value, monkeypatch):
    X = known_problem(80, 60, 3, 50.0, seed=7).X
    Y = np.eye(4)[np.arange(80) % 4]
    problem = Problem(X.T @ X, X.T @ Y, 80, Y.sum(axis=0), intercept=False)
    W, report = solve(problem, Choice(value))
    monkeypatch.setattr(ridge, "WIDE", 60)
    wide, found = solve(problem, Choice(value))
    assert np.array_equal(W, wide)
    assert found["degrees_of_freedom"] == pytest.approx(report["degrees_of_freedom"], rel=1e-9)
    name = "condition_with_ridge" if value else "condition"
    assert report[name] / 60 <= found[name] <= 60 * report[name]
    assert found.get("rank") == (None if value else report["rank"])


def test_a_matrix_that_is_not_positive_definite_is_refused_with_the_remedy():
    with pytest.raises(NumericalError, match=r"not positive definite.*--ridge"):
        ridge.cholesky_solve(np.diag([1.0, -1.0]), np.ones((2, 1)), 0.0)


# ---------------------------------------------------------------- the pairwise law


def parties(K, n, d, gamma, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.multinomial(n, np.ones(K) / K)
    X, Y = rng.normal(size=(n, d)), np.eye(3)[rng.integers(0, 3, n)]
    ends = np.cumsum(sizes)[:-1]
    split = zip(np.split(X, ends), np.split(Y, ends), strict=True)
    return X, Y, [pairwise.party(x.T @ x, x.T @ y, gamma) for x, y in split]


def merge_printed(u, v):
    """The law as printed, signs corrected: W = 𝒲_u W_u + 𝒲_v W_v, with explicit inverses."""
    R_u, R_v, R = np.linalg.inv(u.C), np.linalg.inv(v.C), np.linalg.inv(u.C + v.C)
    one = np.eye(len(R))
    A, B = R_u @ v.C, R_v @ u.C
    weight_u = one - A + A @ R @ v.C
    weight_v = one - B + B @ R @ u.C
    return pairwise.Party(u.C + v.C, weight_u @ u.W + weight_v @ v.W, u.gamma + v.gamma)


def test_the_erratum_with_scalars():
    """𝒲_u = 1/3 and 𝒲_v = 2/3 for C_u = 1, C_v = 2; the signs as printed give −7/3."""
    u = pairwise.Party(np.array([[1.0]]), np.array([[1.0]]))
    v = pairwise.Party(np.array([[2.0]]), np.array([[0.0]]))
    for merge in (pairwise.merge, merge_printed):
        assert np.isclose(merge(u, v).W[0, 0], 1 / 3)
        assert np.isclose(merge(v, u).W[0, 0], 1 / 3)
        swapped = pairwise.Party(v.C, np.array([[1.0]]))
        assert np.isclose(merge(pairwise.Party(u.C, np.array([[0.0]])), swapped).W[0, 0], 2 / 3)


@pytest.mark.parametrize("K", [2, 5])
def test_both_forms_of_the_law_agree_and_equal_the_pooled_fit(K):
    X, Y, clients = parties(K, 300, 12, 0.0)
    expected = scipy.linalg.lstsq(X, Y)[0]
    for found in (pairwise.fold(clients), reduce(merge_printed, clients)):
        assert np.allclose(found.W, expected, atol=1e-11)


@pytest.mark.parametrize("gamma", [0.1, 1.0, 10.0, 100.0])
def test_removing_gamma_gives_the_same_whatever_it_was(gamma):
    X, Y, clients = parties(40, 300, 20, gamma)  # 7 or 8 rows each: fewer than features
    G, H = pairwise.without_gamma(pairwise.fold(clients))
    W = ridge.cholesky_solve(G, H, 0.0)
    expected = scipy.linalg.lstsq(X, Y)[0]
    assert np.abs(W - expected).sum() < 1e-8
    left_in = pairwise.fold(clients).W
    assert np.abs(left_in - expected).max() > 1e-3


def test_the_order_of_clients_does_not_matter():
    _, _, clients = parties(6, 300, 12, 1.0)
    assert np.allclose(pairwise.fold(clients).W, pairwise.fold(clients[::-1]).W, atol=1e-12)


def test_a_singular_client_without_gamma_is_refused_with_the_remedy():
    with pytest.raises(NumericalError, match=r"--gamma > 0"):
        pairwise.party(np.zeros((3, 3)), np.zeros((3, 2)), 0.0)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("cut", [slice(None), slice(0, None, 2)])
def test_add_product_is_in_place_whatever_the_memory_layout(kind, cut):
    rng = np.random.default_rng(0)
    target, A, B = (rng.normal(size=s).astype(kind) for s in ((10, 4), (10, 3), (4, 3)))
    view, expected = target[cut], target[cut] + A[cut] @ B.T
    add_product(view, A[cut], B)
    assert np.allclose(target[cut], expected, rtol=1e-5 if kind == "float32" else 1e-13)
    add_product(view[:0], A[:0], B)


def test_the_product_of_real_rows_is_their_gram():
    X = np.random.default_rng(0).normal(size=(30, 7))
    y = np.arange(30) % 3
    for kind, tolerance in (("float64", 1e-13), ("float32", 1e-5)):
        rows = X.astype(kind)
        assert real_gram(rows).dtype == real_cross(rows, y, 3).dtype == np.float64
        assert np.allclose(triangle.unpack(real_gram(rows)), X.T @ X, rtol=tolerance, atol=1e-5)
        assert np.allclose(real_cross(rows, y, 3), X.T @ np.eye(3)[y], rtol=1e-4, atol=1e-5)
        turned = product(np.asfortranarray(rows), rows.T)
        assert turned.dtype == kind
        assert turned.flags.c_contiguous
        assert np.allclose(turned, X @ X.T, rtol=tolerance, atol=1e-5)
    assert not real_gram(X[:0]).any()
