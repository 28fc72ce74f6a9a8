"""The counting kernel against an explicit one-hot matrix."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from damage import HEADER

from afltool import cores
from afltool.errors import CorruptFileError
from afltool.files import hdf5
from afltool.math import counts as ct


def random_codes(groups, rows, size, seed=0):
    kind = np.uint8 if size <= 256 else np.uint16
    return np.random.default_rng(seed).integers(0, size, (groups, rows)).astype(kind)


def one_hot(codes, size):
    """Φ (n, E·V)."""
    groups, rows = codes.shape
    return np.eye(size, dtype=np.int64)[codes].transpose(1, 0, 2).reshape(rows, groups * size)


def counted(codes, size):
    pairs = np.zeros((ct.pair_count(len(codes)), size - 1, size - 1), np.int64)
    ct.add_pairs(codes, size, pairs)
    return pairs


def labelled(codes, size):
    """Rows by code, of one class."""
    labels = np.zeros((len(codes), size, 1), np.int64)
    ct.add_labels(codes, np.zeros(codes.shape[1], np.int64), labels)
    return labels


SHAPES = [(e, v, 500 if v == 300 else 5000) for e in (1, 2, 5, 9) for v in (2, 8, 32, 300)]


@pytest.mark.parametrize(
    ("groups", "size", "rows"),
    # the last ones are more than the kernel counts at a time, by rows and by cells
    [*SHAPES, (5, 8, 0), (5, 8, 1), (5, 32, 50), (9, 4, 40_000), (40, 8, 5000)],
)
def test_pairs_are_the_blocks_of_the_gram(groups, size, rows):
    codes = random_codes(groups, rows, size)
    phi = one_hot(codes, size)
    gram = (phi.T.astype(float) @ phi).reshape(groups, size, groups, size)
    pairs, labels = counted(codes, size), labelled(codes, size)
    for j in range(groups):
        whole = ct.with_margins(labels, pairs, j)
        for other in range(j):
            assert np.array_equal(pairs[ct.pair_count(j) + other], gram[j, 1:, other, 1:])
            assert np.array_equal(whole[other], gram[j, :, other])


@pytest.mark.parametrize("size", [3, 8, 32])
def test_law_threads_count_the_same(size):
    codes, found = random_codes(23, 3000, size), []
    for number in (1, 2, 5):
        with cores.using(number):
            found.append(counted(codes, size))
    assert all(np.array_equal(one, found[0]) for one in found)


def test_codes_beyond_their_tables_are_refused():
    with cores.using(3), pytest.raises(ValueError, match=r"below 8; found 97"):
        counted(random_codes(23, 100, 8) + 90, 8)


def test_a_few_rows_are_counted_without_pytorch():
    code = """
import sys, numpy as np
from afltool import cores
from afltool.math import counts as ct
codes = np.random.default_rng(0).integers(0, 8, (23, 300)).astype(np.uint8)
pairs = np.zeros((ct.pair_count(23), 7, 7), np.int64)
ct.add_pairs(codes, 8, pairs)
assert "torch" not in sys.modules
sys.stdout.buffer.write(pairs.tobytes())
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert done.stdout == counted(random_codes(23, 300, 8), 8).tobytes()


def test_counts_add_up_in_place():
    codes = random_codes(4, 60, 8)
    pairs = np.zeros((6, 7, 7), np.int64)
    for part in (codes[:, :13], codes[:, 13:13], codes[:, 13:]):
        ct.add_pairs(part, 8, pairs)
    assert np.array_equal(pairs, counted(codes, 8))


def test_labels_sums_matrix_and_quadratic_form():
    codes, size, rng = random_codes(4, 200, 8), 8, np.random.default_rng(1)
    y, x = rng.integers(0, 3, 200), rng.integers(-999, 999, (200, 5))
    phi = one_hot(codes, size)
    labels, sums = np.zeros((4, 8, 3), np.int64), np.zeros((4, 7, 5), np.int64)
    ct.add_labels(codes, y, labels)
    ct.add_sums(codes, x, sums)
    assert np.array_equal(labels.reshape(-1, 3), phi.T @ np.eye(3, dtype=int)[y])
    ct.add_sums(codes, x.astype(np.int32), sums)
    assert np.array_equal(sums, (phi.T @ x * 2).reshape(4, 8, 5)[:, 1:])
    matrix, pairs = np.zeros((32, 32)), counted(codes, size)
    ct.fill_lower(labels, pairs, matrix)
    assert np.array_equal(matrix, np.tril(phi.T @ phi))
    W = rng.normal(size=(32, 3))
    assert np.isclose(ct.quadratic(labels, pairs, W), ((phi @ W) ** 2).sum())


def test_sums_are_exact_at_the_ends_of_the_fixed_point_range():
    """2^16 rows of the largest feature with one code: what int32 holds, and no more."""
    rows = 2**16
    codes, sums = np.ones((2, rows), np.uint8), np.zeros((2, 1, 1), np.int64)
    for largest in (32767, -32767):
        sums[:] = 0
        ct.add_sums(codes, np.full((rows, 1), largest, np.int32), sums)
        assert (sums == rows * largest).all()


def test_sums_of_more_indices_than_sparse_matrices_count(monkeypatch):
    codes, x = random_codes(9, 50, 4), np.arange(50)[:, None]
    expected, found = np.zeros((9, 3, 1), np.int64), np.zeros((9, 3, 1), np.int64)
    ct.add_sums(codes, x, expected)
    monkeypatch.setattr(ct, "INDICES", 120)  # two groups at a time
    ct.add_sums(codes, x, found)
    assert np.array_equal(found, expected)


# ---------------------------------------------------------------- counts in files


def written(path, values):
    hdf5.write_file(path, "statistics", HEADER, {"arrays/counts": values})
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
