"""Features → thresholds → digits → codes, each against its definition."""

from __future__ import annotations

import numpy as np
import pytest

from afltool.errors import InvalidDataError
from afltool.math import codes as cd
from afltool.math.gram import FixedPoint, real


def features(n=300, d=5, seed=0, scale=1.0):
    x = np.random.default_rng(seed).normal(size=(n, d)) * scale
    return FixedPoint(np.rint(x * 512).astype(np.int16), 9)


def digits_by_definition(x, thresholds, bucketing, buckets):
    """(n, d·L), one digit after another, straight from the table of bucketings."""
    above = x[:, :, None] > thresholds[None]
    if bucketing == "overlap":
        return above.reshape(len(x), -1).astype(int)
    bucket = above.sum(axis=2)
    if bucketing == "integer":
        return bucket
    return np.eye(buckets, dtype=int)[bucket].reshape(len(x), -1)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("bucketing", ["integer", "onehot", "overlap"])
def test_codes_are_digits_in_base_k(bucketing, exact):
    X, buckets = features(), 4
    thresholds = np.quantile(real(X), cd.levels(bucketing, buckets), axis=0).T
    dealt = cd.deal(5 * cd.digits_per_feature(bucketing, buckets), 7, 3, seed=1)
    coder = cd.coder(thresholds, bucketing, buckets, dealt)
    digits = digits_by_definition(real(X), thresholds, bucketing, buckets)
    radix = buckets if bucketing == "integer" else 2
    powers = radix ** np.arange(3)
    found = coder.codes(X if exact else real(X))
    assert coder.size == radix**3
    assert np.array_equal(found, (digits[:, dealt] * powers).sum(axis=2).T)


def test_a_toy_of_three_numbers():
    thresholds = np.array([[0.5, 1.5]])
    for bucketing, expected in (("integer", [0, 1, 2]), ("overlap", [0, 1, 3])):
        buckets = 3 if bucketing == "integer" else 2
        dealt = np.arange(cd.digits_per_feature(bucketing, buckets))[None]
        coder = cd.coder(thresholds, bucketing, buckets, dealt)
        assert coder.codes(np.array([[0.0], [1.0], [2.0]])).tolist() == [expected]
    one_hot = cd.coder(thresholds, "onehot", 3, np.arange(3)[None])
    assert one_hot.codes(np.array([[0.0], [1.0], [2.0]])).tolist() == [[1, 2, 4]]


def test_codes_wider_than_a_byte():
    coder = cd.coder(np.zeros((10, 1)), "overlap", 1, np.arange(10)[None])
    found = coder.codes(np.ones((1, 10)))
    assert found.dtype == np.uint16
    assert found.tolist() == [[1023]]


def test_the_extremes_of_fixed_point_and_thresholds_beyond_it():
    X = FixedPoint(np.array([[32767], [-32767], [0]], np.int16), 9)
    for cut, expected in (
        (1e9, [0, 0, 0]),
        (-1e9, [1, 1, 1]),
        (0.0, [1, 0, 0]),
        (-1e-9, [1, 0, 1]),
    ):
        coder = cd.coder(np.array([[cut]]), "overlap", 1, np.zeros((1, 1), np.int64))
        assert coder.codes(X).tolist() == [expected]


def test_every_digit_is_dealt_once_and_again_by_fresh_shuffles():
    once = cd.deal(12, 4, 3, seed=0)
    assert sorted(once.ravel()) == list(range(12))
    more = cd.deal(12, 10, 3, seed=0)
    assert np.array_equal(more[:4], once)
    assert sorted(more[4:8].ravel()) == list(range(12))
    assert not np.array_equal(more[4:8], once)
    assert np.array_equal(cd.deal(12, 2, 3, seed=0), once[:2])
    assert not np.array_equal(cd.deal(12, 4, 3, seed=1), once)


def test_the_shuffle_is_the_same_everywhere():
    assert cd.deal(8, 2, 4, seed=7).tolist() == [[2, 5, 0, 6], [3, 1, 4, 7]]


@pytest.mark.parametrize("scale", [0.01, 1.0, 12.0])
@pytest.mark.parametrize("exact", [True, False])
def test_quantiles_from_a_histogram_are_numpys_within_a_grid_step(exact, scale):
    X, shares = features(scale=scale), cd.levels("overlap", 8)
    rows = X if exact else real(X)
    grid = cd.grid(9 if exact else None)
    found = cd.quantiles(cd.histogram(rows), shares, grid)
    expected = np.quantile(real(X), shares, axis=0, method="inverted_cdf").T
    above = np.searchsorted(grid, expected)
    assert np.array_equal(found, grid[above])  # the next edge, or the value itself
    assert (found - expected <= np.maximum(np.abs(expected) / 16, 2.0**-9)).all()


def test_histograms_add_up_and_hold_every_row():
    X = features(n=50)
    parts = cd.histogram(X[:20]) + cd.histogram(X[20:])
    assert np.array_equal(parts, cd.histogram(X))
    assert (parts.sum(axis=1) == 50).all()


def test_bad_features_are_refused():
    with pytest.raises(InvalidDataError, match="row 1, feature 0 is nan"):
        cd.histogram(np.array([[0.0], [np.nan]]))
    with pytest.raises(InvalidDataError, match=r"row 0, feature 1 is 1e\+06, beyond"):
        cd.histogram(np.array([[0.0, 1e6]]))
    coder = cd.coder(np.zeros((1, 1)), "overlap", 1, np.zeros((1, 1), np.int64))
    with pytest.raises(InvalidDataError, match="is inf"):
        coder.codes(np.array([[np.inf]]))
