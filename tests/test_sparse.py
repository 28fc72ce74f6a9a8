"""Sparse or dense block by block: what comes back, what it saves, what is refused."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from damage import HEADER
from hypothesis import given, settings
from hypothesis import strategies as st

from afltool.errors import CorruptFileError
from afltool.files import hdf5, packing
from afltool.files.arrays import describe_additive

N = 2048


@pytest.fixture
def small(monkeypatch):
    """Blocks of 2,048 numbers, so that a few thousand make several."""
    for name, value in (("BLOCK", N), ("TRIED", N), ("LEAST", 1)):
        monkeypatch.setattr(packing, name, value)


def thin(shape, share, seed=0, kind=np.uint8):
    rng = np.random.default_rng(seed)
    return (rng.integers(1, 9, shape) * (rng.random(shape) < share)).astype(kind)


def written(path, values):
    hdf5.write_file(path, "statistics", HEADER, {"arrays/counts": values})
    return path


def read(path):
    return hdf5.read_file(path, "statistics")[1]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([0.0, 0.02, 0.3, 1.0]), min_size=1, max_size=6),
    st.integers(0, 70),
    st.sampled_from(["<u1", "<u2", "<i4"]),
)
def test_blocks_of_every_kind_come_back(shares, more, kind):
    parts = [thin(N, share, i, kind) for i, share in enumerate(shares)] + [thin(more, 0.1)]
    value = np.concatenate(parts).astype(kind)
    before = packing.BLOCK, packing.TRIED, packing.LEAST
    packing.BLOCK, packing.TRIED, packing.LEAST = N, N, 1
    try:
        found = packing.split(value)
    finally:
        packing.BLOCK, packing.TRIED, packing.LEAST = before
    if found is not None:
        back = packing.joined(*found, value.shape)
        assert back.dtype == value.dtype
        assert np.array_equal(back, value)


def test_a_dense_block_among_sparse_ones_keeps_its_zeros(small):
    value = np.concatenate([thin(N, 0.05), thin(N, 0.9), thin(N, 0.05, 2)])
    value[N : 2 * N] = np.random.default_rng(1).integers(0, 256, N)
    value[N + 70] = 0
    kept, values = packing.split(value)
    bits = np.unpackbits(kept)
    assert bits[N : 2 * N].all()
    assert len(values) == N + np.count_nonzero(value[:N]) + np.count_nonzero(value[2 * N :])


def test_arrays_without_a_sparse_block_and_short_ones_are_left():
    rng = np.random.default_rng(0)
    assert packing.split(rng.integers(0, 256, 1 << 18).astype(np.uint8)) is None
    assert packing.split(np.zeros(packing.LEAST - 1, np.uint8)) is None


@pytest.mark.parametrize("shape", [(300, 31, 31), (1 << 21,), (5, 1 << 16)])
def test_files_hold_them_and_are_smaller(tmp_path, shape):
    value = thin(shape, 0.05)
    path = written(tmp_path / "a.h5", value)
    with h5py.File(path) as file:
        assert "sparse/counts/kept" in file
        facts = describe_additive(path, file)["counts"]
    assert facts["shape"] == list(shape)
    assert facts["bytes"] == value.nbytes
    assert np.array_equal(read(path)["arrays/counts"], value)
    assert set(read(path)) == {"arrays/counts"}
    dense = len(packing.deflated(value))
    assert facts["stored_bytes"] < 0.95 * dense
    assert path.stat().st_size < dense + 20_000


def test_all_zeros_and_no_numbers_come_back(tmp_path):
    for number, value in enumerate((np.zeros(1 << 17, np.uint8), np.zeros((0, 3), np.uint8))):
        path = written(tmp_path / f"{number}.h5", value)
        assert np.array_equal(read(path)["arrays/counts"], value)
        assert read(path)["arrays/counts"].shape == value.shape


def changed(path, name, value):
    with h5py.File(path, "r+") as file:
        del file[name]
        file.create_dataset(name, data=value, fletcher32=True, chunks=value.shape)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("arrays/counts", np.ones(7, np.uint8), "7 values are kept and"),
        ("sparse/counts/kept", np.ones(9, np.uint8), "a bitmap of 9 bytes"),
        ("sparse/counts/kept", np.ones(2**14, np.float32), "is not a bitmap"),
        ("sparse/counts/kept", np.ones((2**14, 1), np.uint8), "is not a bitmap"),
        ("sparse/counts/shape", np.array([-1, 5]), "is not a shape"),
        ("sparse/counts/shape", np.array([1.5]), "is not a shape"),
        ("sparse/counts/shape", np.array([[1]]), "is not a shape"),
        ("sparse/counts/shape", np.array([2**40, 2**20]), "not plausible"),
    ],
)
def test_parts_that_do_not_fit_are_refused(tmp_path, name, value, words):
    path = written(tmp_path / "a.h5", thin((1 << 17,), 0.05))
    changed(path, name, value)
    with pytest.raises(CorruptFileError, match=words):
        read(path)


def test_a_bitmap_that_is_gone_or_alone_is_refused(tmp_path):
    path = written(tmp_path / "a.h5", thin((1 << 17,), 0.05))
    with h5py.File(path, "r+") as file:
        del file["sparse/counts/kept"]
    with pytest.raises(CorruptFileError, match=r"the dataset .* is missing"):
        read(path)
