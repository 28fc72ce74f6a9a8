"""The counting kernel against an explicit one-hot matrix."""

from __future__ import annotations

import numpy as np
import pytest

from afltool.errors import CorruptFileError
from afltool.linalg import counts as ct
from afltool.store import hdf5


def random_codes(groups, rows, size, seed=0):
    kind = np.uint8 if size <= 256 else np.uint16
    return np.random.default_rng(seed).integers(0, size, (groups, rows)).astype(kind)


def one_hot(codes, size):
    """Φ (n, E·V)."""
    groups, rows = codes.shape
    return np.eye(size, dtype=np.int64)[codes].transpose(1, 0, 2).reshape(rows, groups * size)


def counted(codes, size):
    pairs = np.zeros((ct.pair_count(len(codes)), size, size), np.int64)
    ct.add_pairs(codes, size, pairs)
    return pairs


@pytest.mark.parametrize("size", [2, 8, 32, 300])
@pytest.mark.parametrize("groups", [1, 2, 5, 9])
@pytest.mark.parametrize("rows", [0, 1, 50, 5000])
def test_pairs_are_the_blocks_of_the_gram(size, groups, rows):
    if size == 300 and rows == 5000:
        rows = 500
    codes = random_codes(groups, rows, size)
    phi = one_hot(codes, size)
    gram = (phi.T.astype(float) @ phi).reshape(groups, size, groups, size)
    pairs = counted(codes, size)
    for j in range(groups):
        for other in range(j):
            assert np.array_equal(pairs[ct.pair_count(j) + other], gram[j, :, other])


@pytest.mark.parametrize("cells", [16, 4096])
@pytest.mark.parametrize("keys", [7, 2**16])
def test_the_sizes_of_the_kernel_change_nothing(monkeypatch, cells, keys):
    codes = random_codes(7, 1000, 4)
    expected = counted(codes, 4)
    monkeypatch.setattr(ct, "CELLS", cells)
    monkeypatch.setattr(ct, "KEYS", keys)
    assert np.array_equal(counted(codes, 4), expected)


def test_counts_add_up_in_place():
    codes = random_codes(4, 60, 8)
    pairs = np.zeros((6, 8, 8), np.int64)
    for part in (codes[:, :13], codes[:, 13:13], codes[:, 13:]):
        ct.add_pairs(part, 8, pairs)
    assert np.array_equal(pairs, counted(codes, 8))


def test_labels_sums_matrix_and_quadratic_form():
    codes, size, rng = random_codes(4, 200, 8), 8, np.random.default_rng(1)
    y, x = rng.integers(0, 3, 200), rng.integers(-999, 999, (200, 5))
    phi = one_hot(codes, size)
    labels, sums = np.zeros((4, 8, 3), np.int64), np.zeros((4, 8, 5), np.int64)
    ct.add_labels(codes, y, labels)
    ct.add_sums(codes, x, sums)
    assert np.array_equal(labels.reshape(-1, 3), phi.T @ np.eye(3, dtype=int)[y])
    ct.add_sums(codes, x.astype(np.int32), sums)
    assert np.array_equal(sums.reshape(-1, 5), phi.T @ x * 2)
    matrix, pairs = np.zeros((32, 32)), counted(codes, size)
    ct.fill_lower(labels, pairs, matrix)
    assert np.array_equal(matrix, np.tril(phi.T @ phi))
    W = rng.normal(size=(32, 3))
    assert np.isclose(ct.quadratic(labels, pairs, W), ((phi @ W) ** 2).sum())


# ---------------------------------------------------------------- counts in files


def written(path, values):
    hdf5.write_file(path, "statistics", {"digest": "x"}, {"arrays/counts": values})
    return path


@pytest.mark.parametrize("high", [1, 2, 256])
def test_counts_come_back_from_compressed_files(tmp_path, high):
    values = np.random.default_rng(0).integers(0, high, (2000, 32, 32)).astype(np.uint8)
    path = written(tmp_path / "c.h5", values)
    assert np.array_equal(hdf5.read_file(path, "statistics")[1]["arrays/counts"], values)
    assert path.stat().st_size < {1: 0.01, 2: 0.25, 256: 1.01}[high] * values.nbytes + 20_000


def test_a_file_that_claims_more_than_deflate_can_hold_is_refused(tmp_path, monkeypatch):
    path = written(tmp_path / "c.h5", np.zeros((2000, 32, 32), np.uint8))
    monkeypatch.setattr(hdf5.schema, "DEFLATE_RATIO", 10)
    with pytest.raises(CorruptFileError, match="claims the shape"):
        hdf5.read_file(path, "statistics")


def test_a_compressed_array_beyond_the_memory_is_refused(tmp_path, monkeypatch):
    path = written(tmp_path / "c.h5", np.zeros((2000, 32, 32), np.uint8))
    monkeypatch.setattr("os.sysconf", lambda name: 1)
    with pytest.raises(CorruptFileError, match="more than the memory"):
        hdf5.read_file(path, "statistics")
