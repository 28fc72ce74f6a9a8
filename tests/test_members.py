"""What a hostile HDF5 file can ask for: other files, pipes that hang, gigabytes; none is given."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import installed
from damage import forge, thinned

from afltool.errors import CorruptFileError
from afltool.files import hdf5, schema
from afltool.files.arrays import put_array, writing
from afltool.files.hdf5 import put_header, read_header, verify
from afltool.files.statistics import load_statistics

INPUT = 3
PROMISED = 1000  # MB of any command


def ways_out(elsewhere):
    """How a file is changed so that some of it lies elsewhere."""

    def link(name):
        def make(file):
            del file[name]
            file[name] = h5py.ExternalLink(str(elsewhere), "/" + name)

        return make

    def soft(file):
        del file["class_counts"]
        file["class_counts"] = h5py.SoftLink("/arrays/gram")

    def virtual(file):
        shape = file["arrays/gram"].shape
        del file["arrays/gram"]
        layout = h5py.VirtualLayout(shape=shape, dtype="<i4", maxshape=(None,))
        source = h5py.VirtualSource(str(elsewhere), "arrays/gram", shape=shape, maxshape=(None,))
        layout[: h5py.h5s.UNLIMITED : 1] = source[: h5py.h5s.UNLIMITED : 1]
        file.create_virtual_dataset("arrays/gram", layout)

    def raw(file):
        shape = file["arrays/gram"].shape
        del file["arrays/gram"]
        size = 4 * shape[0]
        file.create_dataset("arrays/gram", shape, "<i4", external=[(str(elsewhere), 0, size)])

    def reference(file):
        region = file["arrays/gram"].regionref[:3]
        del file["class_counts"]
        file.create_dataset("class_counts", data=[region], dtype=h5py.regionref_dtype)

    def more(file):
        file["more"] = h5py.ExternalLink(str(elsewhere), "/")

    return {
        "linked dataset": link("class_counts"), "linked group": link("arrays"),
        "linked array": link("arrays/gram"), "soft": soft, "virtual": virtual, "raw": raw,
        "reference": reference, "unused link": more,
    }  # fmt: skip


@pytest.fixture
def outward(road, tmp_path):
    """Statistics that point to another file, or to a pipe, in every way that HDF5 has."""
    other, pipe = tmp_path / "other.h5", tmp_path / "pipe.h5"
    other.write_bytes(road.total.read_bytes())
    os.mkfifo(pipe)
    made = []
    for elsewhere in (other, pipe):
        for way, make in ways_out(elsewhere).items():
            path = tmp_path / f"{way} to {elsewhere.name}"
            path.write_bytes(road.total.read_bytes())
            with h5py.File(path, "r+", locking=False) as file:
                make(file)
            made.append(path)
    return made


def test_nothing_outside_the_file_is_read(outward, tmp_path, cli):
    """The pipe would hang the command; nobody writes into it."""
    before = (tmp_path / "other.h5").stat().st_atime_ns
    done = installed("verify", "--keep-going", *outward)
    assert done.returncode == INPUT
    assert done.stderr.count("is damaged") == len(outward) == 16
    assert done.stdout == ""
    out = tmp_path / "out.h5"
    for path in outward:
        for args in (["aggregate", path, "-o", out], ["solve", path, "-o", out], ["info", path]):
            found = cli(*args)
            assert found.exit_code == INPUT, args
            assert f"{path} is damaged" in found.stderr
    assert not out.exists()
    assert (tmp_path / "other.h5").stat().st_atime_ns == before


def test_a_hard_link_cycle_ends(road, tmp_path):
    path = tmp_path / "f.h5"
    path.write_bytes(road.total.read_bytes())
    with h5py.File(path, "r+", locking=False) as file:
        file["arrays/again"] = file["/"]
    with pytest.raises(CorruptFileError, match="again"):
        verify(path)


def test_what_no_file_of_its_kind_holds_is_refused(road, tmp_path):
    for kind, path in road.of_each_kind().items():
        forged = forge(path, tmp_path / f"{kind}.h5", more=np.arange(10))
        with pytest.raises(CorruptFileError, match=f"no {kind} file holds /more"):
            hdf5.read_file(forged, kind)


def test_other_filters_and_oversized_chunks_are_refused(road, tmp_path):
    """A chunk is unpacked whole, so one of gigabytes in a small dataset is a bomb too."""
    with h5py.File(road.total) as file:
        gram = file["arrays/gram"][()]
    makers = {
        "lzf": {"compression": "lzf"},
        "unshuffled": {"compression": "gzip"},
        "huge chunk": {"maxshape": (None,), "chunks": (1 << 20,), "shuffle": True,
                       "compression": "gzip"},
    }  # fmt: skip
    for name, options in makers.items():
        path = tmp_path / f"{name}.h5"
        path.write_bytes(road.total.read_bytes())
        with h5py.File(path, "r+", locking=False) as file:
            del file["arrays/gram"]
            file.create_dataset("arrays/gram", data=gram, fletcher32=True, **options)
        with pytest.raises(CorruptFileError, match="not a plain, checksummed dataset"):
            load_statistics(path)


# ---------------------------------------------------------------- bombs


def limited(*args):
    """The installed command with a gigabyte of memory and no more: exit code and stderr."""
    limit = PROMISED * 10**6
    done = installed(
        *args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    )
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def zeros(road, tmp_path_factory):
    """400 million zeros in less than half a megabyte, every checksum right."""
    path = tmp_path_factory.mktemp("bomb") / "bomb.h5"
    header = read_header(road.total)
    header.pop("kind")
    count = 400_000_000
    with writing(path, "statistics") as file:
        rows = 50_000_000
        data = file.create_dataset(
            "arrays/gram", (count,), "|u1", chunks=(rows,), shuffle=True, compression="gzip",
            compression_opts=1, fletcher32=True,
        )  # fmt: skip
        data[:rows] = 0
        _, chunk = data.id.read_direct_chunk((0,))
        for start in range(rows, count, rows):
            data.id.write_direct_chunk((start,), chunk)
        put_array(file, "arrays/cross", np.zeros((8, 4), np.int8))
        put_array(file, "class_counts", np.zeros(4, "<i8"))
        put_header(file, "statistics", header)
    assert path.stat().st_size < 2_000_000
    return path


@pytest.mark.parametrize("command", ["aggregate", "info"])
def test_a_file_that_claims_gigabytes_of_zeros(command, zeros, tmp_path):
    out = [] if command == "info" else ["-o", tmp_path / "out.h5"]
    code, said = limited(command, zeros, *out)
    assert code == INPUT, said
    assert "not plausible" in said


def test_many_arrays_each_of_them_small_are_counted_together(road, tmp_path):
    arrays = {f"arrays__more{k}": np.zeros(30_000_000, np.uint8) for k in range(2)}
    path = forge(road.total, tmp_path / "f.h5", **arrays)
    with pytest.raises(CorruptFileError, match="not plausible"):
        load_statistics(path)


def test_a_sparse_array_that_claims_gigabytes(road, tmp_path):
    values = np.zeros(1 << 22, np.uint8)
    values[:3] = 1
    path = thinned(forge(road.total, tmp_path / "f.h5", arrays__gram=values), "gram")
    with h5py.File(path, "r+", locking=False) as file:
        file["sparse/gram/shape"][...] = [1 << 40]
    with pytest.raises(CorruptFileError, match="not plausible"):
        load_statistics(path)


def test_a_header_of_millions_of_empty_lists(road, tmp_path):
    header = read_header(road.total)
    header.pop("kind")
    text = json.dumps(header)[:-1] + ',"more":[' + ",".join(["[]"] * 1_000_000) + "]}"
    path = tmp_path / "f.h5"
    with_header(road.total, path, text.encode())
    code, said = limited("info", path)
    assert code == INPUT
    assert "lists and objects" in said


def test_a_header_of_nested_lists_and_endless_digits(road, tmp_path):
    for text in (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"a":' + b"1" * 5000 + b"}"):
        path = tmp_path / "f.h5"
        with_header(road.total, path, text)
        with pytest.raises(CorruptFileError, match="is damaged"):
            read_header(path)


def with_header(source: Path, target: Path, data: bytes) -> None:
    """A copy with other bytes in its header, whose checksum is right."""
    import hashlib

    target.write_bytes(source.read_bytes())
    with h5py.File(target, "r+", locking=False) as file:
        put_array(file, schema.HEADER, np.frombuffer(data, np.uint8))
        file.attrs[schema.HEADER_SHA256] = np.bytes_(hashlib.sha256(data).hexdigest().encode())
