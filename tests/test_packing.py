"""Chunks that are filtered here are those that HDF5's own filters make and read."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
from damage import HEADER
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from afltool.errors import CorruptFileError
from afltool.files import hdf5, packing, schema

KINDS = ("<u1", "<i1", "<u2", "<i2", "<u4", "<i4", "<i8")


def written(path, values, name="arrays/counts"):
    hdf5.write_file(path, "statistics", HEADER, {name: values})
    return path


def stored_by_hdf5(data: bytes) -> bytes:
    """What the filter fletcher32 of HDF5 leaves on a file."""
    with h5py.File("memory", "w", driver="core", backing_store=False) as file:
        values = np.frombuffer(data, np.uint8)
        made = file.create_dataset("a", data=values, chunks=values.shape, fletcher32=True)
        return made.id.read_direct_chunk((0,))[1]


@settings(deadline=None, max_examples=40)
@given(st.binary(min_size=1, max_size=3000))
def test_the_checksum_is_hdf5s(data):
    assert stored_by_hdf5(data) == data + packing.checksum(data)


@pytest.mark.parametrize("size", [2**17 - 1, 2**17, 2**17 + 1, 700_001])
@pytest.mark.parametrize("byte", [0, 255, None])
def test_the_checksum_of_many_bytes_is_hdf5s(size, byte):
    data = bytes([byte]) * size if byte is not None else np.random.default_rng(0).bytes(size)
    assert stored_by_hdf5(data)[-4:] == packing.checksum(data)


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
        assert packing.pays(values) is packed
        path = written(tmp_path / f"{high}.h5", values)
        assert (path.stat().st_size < 0.6 * values.nbytes) is packed
        assert np.array_equal(hdf5.read_file(path, "statistics")[1]["arrays/counts"], values)
    assert not packing.pays(np.zeros((10, 10)))
    assert packing.pays(np.zeros((10, 10), "<u1"))


def test_runs_are_worth_more_than_strings_to_counts():
    """The premise of the module: counts of pairs by zlib's two strategies."""
    import zlib

    counts = np.random.default_rng(0).poisson(0.15, (64, 64, 32)).astype(np.uint8)
    assert len(packing.deflated(counts)) < 0.85 * len(zlib.compress(counts.tobytes(), 1))


def test_an_altered_byte_of_a_packed_chunk_is_found(tmp_path):
    values = np.random.default_rng(0).integers(0, 9, (500, 99)).astype(np.uint8)
    path = written(tmp_path / "c.h5", values)
    with h5py.File(path) as file:
        info = file["arrays/counts"].id.get_chunk_info(0)
    data = bytearray(path.read_bytes())
    data[info.byte_offset + info.size // 2] ^= 16
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match="is damaged"):
        hdf5.read_file(path, "statistics")


def test_other_arrays_are_not_packed_and_must_not_be(tmp_path):
    values = np.zeros(1000, "<i8")
    path = written(tmp_path / "c.h5", values, schema.CLASS_COUNTS)
    assert path.stat().st_size > values.nbytes
    with h5py.File(path, "r+") as file:
        del file[schema.CLASS_COUNTS]
        file.create_dataset(schema.CLASS_COUNTS, data=values, compression="gzip", fletcher32=True)
    with pytest.raises(CorruptFileError, match="not a plain"):
        hdf5.read_file(path, "statistics")
