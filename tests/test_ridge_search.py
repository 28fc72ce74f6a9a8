"""The Cholesky factorisation in place, and the walk to a good ridge."""

from __future__ import annotations

import numpy as np
import pytest
from problems import known_problem

from afltool.errors import NumericalError
from afltool.linalg import ridge_search as rs


def system(p, rows=200):
    """Y has the norm of its fit, so that a small ridge is best."""
    target = float((p.W * p.H).sum())
    return rs.System(p.G.copy, p.H, target, rows, lambda ridge: np.full(len(p.H), ridge))


@pytest.mark.parametrize("block", [1, 7, 16, 1024])
def test_the_factor_in_place_is_lapacks(monkeypatch, block):
    monkeypatch.setattr(rs, "BLOCK", block)
    G = known_problem(50, 20, 2, 100.0, seed=0).G
    A = np.tril(G)
    rs.cholesky_in_place(A)
    assert np.allclose(np.tril(A), np.linalg.cholesky(G), rtol=1e-10, atol=1e-12)
    assert not np.triu(A[:-1, 1:], block).any()


def test_one_ridge_is_the_solution_with_its_error_and_degrees_of_freedom():
    p = known_problem(50, 20, 3, 100.0, seed=1)
    found = rs.solve_at(system(p, 50), 0.1)
    A = p.G + 0.1 * np.eye(20)
    assert np.allclose(found.W, np.linalg.solve(A, p.H))
    fit = ((p.X @ (p.W - found.W)) ** 2).sum()
    assert np.isclose(found.point["training_mse"] * 50, fit)
    assert np.isclose(found.point["degrees_of_freedom"], np.trace(np.linalg.solve(A, p.G)))


def test_a_matrix_that_is_not_positive_definite_is_refused():
    p = known_problem(5, 20, 3, 10.0, seed=1)
    negative = rs.System(lambda: -p.G, p.H, 1.0, 5, lambda ridge: np.full(20, ridge))
    with pytest.raises(NumericalError, match=r"\(20 × 20\) is not positive definite"):
        rs.solve_at(negative, 1e-3)


@pytest.mark.parametrize("least", [1e-3, 0.5, 1.0, 2e3])
def test_the_search_walks_to_the_least_from_either_side(least):
    def at(ridge):
        return rs.Found(np.zeros((1, 1)), {"ridge": ridge, "gcv": abs(np.log(ridge / least))})

    best, path = rs.search(at, 1.0, "gcv")
    assert abs(np.log10(best.point["ridge"] / least)) <= 0.25 + 1e-9
    ridges = [point["ridge"] for point in path]
    assert ridges == sorted(ridges)
    assert len(ridges) <= rs.MOST
    assert rs.best_of(map(at, ridges), "gcv")[0].point == best.point
