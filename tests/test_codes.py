"""Features → thresholds → digits → codes → counts: by definition, and against one-hot matrices."""

from __future__ import annotations

import numpy as np
import pytest

import afltool
from afltool import parallel
from afltool.errors import InvalidDataError
from afltool.math import codes as cd
from afltool.math import counts as ct
from afltool.math.codes import one_hot
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
    dealt = cd.assign_digits(5 * (1 if bucketing == "integer" else buckets), 7, 3, seed=1)
    coder = cd.coder(thresholds, bucketing, buckets, dealt)
    digits = digits_by_definition(real(X), thresholds, bucketing, buckets)
    radix = buckets if bucketing == "integer" else 2
    powers = radix ** np.arange(3)
    found = coder.codes(X if exact else real(X))
    assert coder.size == radix**3
    assert np.array_equal(found, (digits[:, dealt] * powers).sum(axis=2).T)


def test_wide_codes_and_the_extremes_of_fixed_point():
    coder = cd.coder(np.zeros((10, 1)), "overlap", 1, np.arange(10)[None])
    found = coder.codes(np.ones((1, 10)))
    assert found.dtype == np.uint16
    assert found.tolist() == [[1023]]
    X = FixedPoint(np.array([[32767], [-32767], [0]], np.int16), 9)
    places = {1e9: [0, 0, 0], -1e9: [1, 1, 1], 0.0: [1, 0, 0], -1e-9: [1, 0, 1]}
    for cut, expected in places.items():
        coder = cd.coder(np.array([[cut]]), "overlap", 1, np.zeros((1, 1), np.int64))
        assert coder.codes(X).tolist() == [expected]


def test_every_digit_is_dealt_once_and_again_by_fresh_shuffles_the_same_everywhere():
    once, more = cd.assign_digits(12, 4, 3, seed=0), cd.assign_digits(12, 10, 3, seed=0)
    assert sorted(once.ravel()) == sorted(more[4:8].ravel()) == list(range(12))
    assert np.array_equal(more[:4], once)
    assert not np.array_equal(more[4:8], once)
    assert np.array_equal(cd.assign_digits(12, 2, 3, seed=0), once[:2])
    assert cd.assign_digits(8, 2, 4, seed=7).tolist() == [[2, 5, 0, 6], [3, 1, 4, 7]]


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


def test_bad_features_are_refused():
    with pytest.raises(InvalidDataError, match="row 1, feature 0 is nan"):
        cd.histogram(np.array([[0.0], [np.nan]]))
    with pytest.raises(InvalidDataError, match=r"row 0, feature 1 is 1e\+06, beyond"):
        cd.histogram(np.array([[0.0, 1e6]]))
    coder = cd.coder(np.zeros((1, 1)), "overlap", 1, np.zeros((1, 1), np.int64))
    with pytest.raises(InvalidDataError, match="is inf"):
        coder.codes(np.array([[np.inf]]))


# ---------------------------------------------------------------- the counting kernel


def random_codes(groups, rows, size, seed=0):
    kind = np.uint8 if size <= 256 else np.uint16
    return np.random.default_rng(seed).integers(0, size, (groups, rows)).astype(kind)


def counted(codes, size):
    """Pairs, and the labels of rows that are all of one class."""
    pairs = np.zeros((ct.pair_count(len(codes)), size - 1, size - 1), np.int64)
    ct.add_pairs(codes, size, pairs)
    labels = np.zeros((len(codes), size, 1), np.int64)
    ct.add_labels(codes, np.zeros(codes.shape[1], np.int64), labels)
    return pairs, labels


SHAPES = [(e, v, 500 if v == 300 else 5000) for e in (1, 2, 5, 9) for v in (2, 8, 32, 300)]


@pytest.mark.parametrize("threads", [1, 3])
def test_pairs_are_the_blocks_of_the_gram(threads):
    # the last shapes are more than the kernel counts at a time, by rows and by cells
    for groups, size, rows in [*SHAPES, (5, 8, 0), (5, 8, 1), (9, 4, 40_000), (40, 8, 5000)]:
        codes = random_codes(groups, rows, size)
        phi = one_hot(codes, size)
        gram = (phi.T @ phi).reshape(groups, size, groups, size)
        with parallel.thread_limit(threads):
            pairs, labels = counted(codes, size)
        for j in range(groups):
            whole = ct.with_margins(labels, pairs, j)
            for other in range(j):
                assert np.array_equal(pairs[ct.pair_count(j) + other], gram[j, 1:, other, 1:])
                assert np.array_equal(whole[other], gram[j, :, other])


def test_counts_add_up_in_place_and_codes_beyond_their_tables_are_refused():
    codes = random_codes(4, 60, 8)
    pairs = np.zeros((6, 7, 7), np.int64)
    for part in (codes[:, :13], codes[:, 13:13], codes[:, 13:]):
        ct.add_pairs(part, 8, pairs)
    assert np.array_equal(pairs, counted(codes, 8)[0])
    with parallel.thread_limit(3), pytest.raises(ValueError, match=r"below 8; found 97"):
        counted(random_codes(23, 100, 8) + 90, 8)


def test_labels_sums_matrix_and_quadratic_form():
    codes, size, rng = random_codes(4, 200, 8), 8, np.random.default_rng(1)
    y, x = rng.integers(0, 3, 200), rng.integers(-999, 999, (200, 5))
    phi = one_hot(codes, size)
    labels, sums = np.zeros((4, 8, 3), np.int64), np.zeros((4, 7, 5), np.int64)
    ct.add_labels(codes, y, labels)
    ct.add_sums(codes, x, sums)
    assert np.array_equal(labels.reshape(-1, 3), phi.T @ np.eye(3)[y])
    ct.add_sums(codes, x.astype(np.int32), sums)
    assert np.array_equal(sums, (phi.T @ x * 2).reshape(4, 8, 5)[:, 1:])
    matrix, (pairs, _) = np.zeros((32, 32)), counted(codes, size)
    ct.fill_lower(labels, pairs, matrix)
    assert np.array_equal(matrix, np.tril(phi.T @ phi))
    W = rng.normal(size=(32, 3))
    assert np.isclose(ct.quadratic(labels, pairs, W), ((phi @ W) ** 2).sum())


def test_sums_of_more_indices_than_sparse_matrices_count(monkeypatch):
    codes, x = random_codes(9, 50, 4), np.arange(50)[:, None]
    expected, found = np.zeros((9, 3, 1), np.int64), np.zeros((9, 3, 1), np.int64)
    ct.add_sums(codes, x, expected)
    monkeypatch.setattr(ct, "INDICES", 120)  # two groups at a time
    ct.add_sums(codes, x, found)
    assert np.array_equal(found, expected)


@pytest.fixture(scope="module")
def dealt(tmp_path_factory):
    """Features like those behind a ReLU, 500 rows a client, dealt by Dirichlet(0.1)."""
    at = tmp_path_factory.mktemp("uploads")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 6000)
    x = np.maximum(rng.normal(size=(6000, 64)) + 0.7 * rng.normal(size=(10, 64))[y], 0)
    np.savez(at / "x.npz", x=x, y=y)
    rows = afltool.import_embeddings(at / "x.npz", at / "x.h5")
    return rows, afltool.partition(rows, at / "c.h5", alpha=0.1, clients=12)


# Mean bytes of these clients' files as 0.3 wrote them, arrays sparse where that was smaller; and
# how much more is allowed: without bitmaps the writer and its reader have half as many forms.
@pytest.mark.parametrize(("size", "before", "most"), [(8, 202_723, 1.03)])
def test_the_mean_upload_of_counts_stays_small(size, before, most, dealt, tmp_path):
    rows, clients = dealt
    group = size.bit_length() - 1
    options = {"experts": 128, "group_size": group}
    begun = afltool.head("safle", tmp_path / "h0.h5", head_options=options)
    total = afltool.local_stats(rows, begun, tmp_path / "t.h5", client="all", sum=True)
    head = afltool.solve(total, tmp_path / "h.h5", head=begun)
    stats = afltool.local_stats(rows, head, tmp_path / "stats", partition=clients)
    assert np.mean([path.stat().st_size for path in stats.iterdir()]) <= most * before
