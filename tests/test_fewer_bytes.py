"""The scripts that measure features of several nodes: each way against what it must equal."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from afltool.math.gram import FixedPoint, encode, real

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import fewer_bytes
import one_look
from one_head import Data, Road, started
from sweep import Sums
from sweep_rows import first_slices

sys.path.pop(0)


@pytest.fixture(scope="module")
def data():
    """400 digits of 40 + 24 columns, dealt to 12 clients of which two are held out."""
    x, y = load_digits(return_X_y=True)
    rows = FixedPoint(encode(x / 16, 9), 9)
    slices = [{"name": "a", "dim": 40}, {"name": "b", "dim": 24}]
    space = {"dim": 64, "dtype": "int16", "fraction_bits": 9, "slices": slices}
    apart = np.arange(12) >= 10
    return Data(
        rows[:400], y[:400], rows[400:900], y[400:900], space, tuple("0123456789"),
        np.arange(400) % 12, apart,
    )  # fmt: skip


def test_all_ranks_between_slices_are_the_exact_gram(data):
    exact = fewer_bytes.fitted(data)
    assert exact[1] > 0.8
    assert fewer_bytes.low_rank(data, 24)[:2] == exact[:2]
    nothing = fewer_bytes.low_rank(data, 0)
    assert nothing[2] < exact[2]
    assert nothing[1] < exact[1]


def test_the_first_nodes_alone_are_their_columns(data):
    one = first_slices(data, 1)
    assert np.array_equal(one.X.values, data.X.values[:, :40])
    assert np.array_equal(one.test.values, data.test.values[:, :40])
    assert one.space == {"dim": 40, "dtype": "int16", "fraction_bits": 9}
    assert first_slices(data, 2).space == data.space


def test_the_sums_of_those_who_stay_are_all_minus_the_held_out_ones(data):
    sums, head = Sums(), started(data, "linear", {"intercept": True})
    rows = ~data.held_out[data.client]
    kept, held, whole = sums.of(data, ["key"], head, 0)
    assert kept.digest() == Road(data, np.flatnonzero(rows)).statistics(head).digest()
    assert (kept + held).digest() == whole.digest()
    other = replace(data, held_out=np.arange(12) < 3)
    assert sums.of(other, ["key"], head, 1)[2] is whole, "gathered once for all seeds"
    assert sums.of(other, ["other key"], head, 1)[2] is not whole


def test_projections_are_orthonormal_and_whole_ones_lose_nothing(data):
    for kind in ("random", "leading"):
        P = fewer_bytes.directions(kind, real(data.X)[:, :40], 0.5)
        assert P.shape == (40, 20)
        assert np.allclose(P.T @ P, np.eye(20), atol=1e-12)
    # The leading directions keep the most variance that 20 can: that of the SVD's.
    R = real(data.X)[:, :40]
    s = np.linalg.svd(R - R.mean(axis=0), compute_uv=False)
    assert np.isclose(((R - R.mean(axis=0)) @ P).var(axis=0).sum() * len(R), (s[:20] ** 2).sum())
    whole = fewer_bytes.projected(data, "random", 1.0, 9)
    norms = [(real(one.X) ** 2).sum(axis=1) for one in (whole, data)]
    assert np.allclose(*norms, rtol=0.02)
    found, exact = fewer_bytes.fitted(whole), fewer_bytes.fitted(data)
    assert abs(found[1] - exact[1]) < 0.01
    assert fewer_bytes.fitted(fewer_bytes.projected(data, "random", 0.5, 9))[2] < exact[2]


def test_rows_weighed_by_one_are_the_head_itself(data):
    fitted = one_look.Fitted(data)
    for mine, wanted in zip(one_look.weighed(fitted, np.ones(10)), fitted.scores(), strict=True):
        assert np.allclose(mine, wanted, rtol=1e-6, atol=1e-8)
    # A class that weighs 2 is a class whose rows are there twice.
    again = np.concatenate([np.arange(400), np.flatnonzero(data.y == 3)])
    twice = replace(data, X=data.X[again], y=data.y[again], client=data.client[again])
    there = one_look.Fitted(twice)
    weights = np.where(np.arange(10) == 3, 2.0, 1.0)
    there.ridge = fitted.ridge
    _, mine = one_look.weighed(fitted, weights)
    _, wanted = one_look.weighed(there, np.ones(10))
    assert np.allclose(mine, wanted, rtol=1e-6, atol=1e-8)
