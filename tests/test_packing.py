"""Chunks that are deflated here are those that HDF5 reads; thin arrays of 0.3 are read, too."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from damage import HEADER, thinned
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from afltool.errors import CorruptFileError
from afltool.files import hdf5, schema
from afltool.files.arrays import describe_additive, pays
from afltool.files.statistics import load_statistics

KINDS = ("<u1", "<i1", "<u2", "<i2", "<u4", "<i4", "<i8")


def written(path, values, name="arrays/counts"):
    hdf5.write_file(path, "statistics", HEADER, {name: values})
    return path


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(KINDS).flatmap(
        lambda kind: arrays(
            kind, st.tuples(st.integers(1, 9), st.integers(1, 5)), elements=st.integers(0, 100)
        )
    ),
    st.integers(1, 64),
)
def test_what_is_packed_comes_back(tmp_path_factory, values, chunk_bytes):
    path = tmp_path_factory.mktemp("packed") / "a.h5"
    before, schema.CHUNK_BYTES = schema.CHUNK_BYTES, chunk_bytes  # many chunks, the last not full
    try:
        written(path, values)
    finally:
        schema.CHUNK_BYTES = before
    found = hdf5.read_file(path, "statistics")[1]["arrays/counts"]
    assert found.dtype == values.dtype
    assert np.array_equal(found, values)


def test_wide_integers_are_packed_when_it_halves_them(tmp_path):
    rng = np.random.default_rng(0)
    for high, packed in ((2**10, True), (2**28, False)):
        values = rng.integers(0, high, (300, 200)).astype("<u4")
        assert pays("arrays/a", values) is packed
        path = written(tmp_path / f"{high}.h5", values)
        assert (path.stat().st_size < 0.6 * values.nbytes) is packed
        assert np.array_equal(hdf5.read_file(path, "statistics")[1]["arrays/counts"], values)
    assert not pays("arrays/a", np.zeros((10, 10)))
    assert pays("arrays/a", np.zeros((10, 10), "<u1"))


# ---------------------------------------------------------------- thin arrays of 0.3


def test_a_file_of_0_3_with_a_bitmap_is_read():
    """Made by 0.3's local-stats; the digest is what it said."""
    path = Path(__file__).parent / "golden" / "sparse-0.3.h5"
    with h5py.File(path) as file:
        assert "sparse/pairs/kept" in file
    found = load_statistics(path)
    assert found.digest() == "e16ab58a06642edda9052c7594243018a6ce959fca1394e588ad8a89337d36f1"
    assert found.arrays["pairs"].shape == (780, 15, 15)
    assert found.arrays["pairs"].sum() == 14369


def thin(shape, share, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.integers(1, 9, shape) * (rng.random(shape) < share)).astype(np.uint8)


def read(path):
    return hdf5.read_file(path, "statistics")[1]


@pytest.mark.parametrize("shape", [(300, 31, 31), (70,), (5, 1 << 16)])
def test_a_bitmap_and_its_values_are_the_array(tmp_path, shape):
    value = thin(shape, 0.05)
    path = thinned(written(tmp_path / "a.h5", value), "counts")
    with h5py.File(path) as file:
        facts = describe_additive(path, file)["counts"]
    assert facts["shape"] == list(shape)
    assert facts["bytes"] == value.nbytes
    assert 0 < facts["stored_bytes"] < value.nbytes
    assert np.array_equal(read(path)["arrays/counts"], value)
    assert set(read(path)) == {"arrays/counts"}


def changed(path, name, value):
    with h5py.File(path, "r+") as file:
        del file[name]
        file.create_dataset(name, data=value, fletcher32=True, chunks=value.shape)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("arrays/counts", np.ones(7, np.uint8), "is damaged"),
        ("sparse/counts/kept", np.ones(9, np.uint8), "is not a bitmap"),
        ("sparse/counts/kept", np.ones(2**14, np.float32), "is not a bitmap"),
        ("sparse/counts/kept", np.ones((2**14, 1), np.uint8), "is not a bitmap"),
        ("sparse/counts/shape", np.array([-1, 5]), "is not a shape"),
        ("sparse/counts/shape", np.array([1.5]), "is not a shape"),
        ("sparse/counts/shape", np.array([[1]]), "is not a shape"),
        ("sparse/counts/shape", np.array([2**40, 2**20]), "not plausible"),
    ],
)
def test_parts_that_do_not_fit_are_refused(tmp_path, name, value, words):
    path = thinned(written(tmp_path / "a.h5", thin((1 << 17,), 0.05)), "counts")
    changed(path, name, value)
    with pytest.raises(CorruptFileError, match=words):
        read(path)


def test_all_zeros_and_no_numbers_come_back(tmp_path):
    for number, value in enumerate((np.zeros(1 << 17, np.uint8), np.zeros((0, 3), np.uint8))):
        path = written(tmp_path / f"{number}.h5", value)
        assert np.array_equal(read(path)["arrays/counts"], value)
        assert read(path)["arrays/counts"].shape == value.shape
