"""The store: whole files or none, resumed features, every altered byte noticed, golden digests;
and what a hostile HDF5 file can ask for: other files, pipes that hang, gigabytes. None is given."""

from __future__ import annotations

import hashlib
import json
import os
import random
import tracemalloc
from contextlib import contextmanager, suppress
from pathlib import Path

import h5py
import numpy as np
import pytest
from damage import cut, flip, forge, middle_of, outward_ways, with_header
from hypothesis import given, settings
from hypothesis import strategies as st

import afltool
from afltool.errors import AflError, CorruptFileError, InputError, InvalidDataError
from afltool.files import hdf5, outputs, schema
from afltool.files.features import open_features, writing_features
from afltool.files.hdf5 import put_array, verify, writing
from afltool.files.heads import load_head, save_head
from afltool.files.partitions import load_partition, save_partition
from afltool.files.statistics import load_statistics, save_statistics
from afltool.heads import make_head
from afltool.math.blas import pack
from afltool.partitions import Partition
from afltool.values.names import Phase
from afltool.values.statistics import Client, ClientId, Context, Statistics

D = 5


def rows(n, seed=0):
    """Real features that fixed point holds exactly, with labels and row ids."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-1000, 1000, (n, D)) / 512
    return x, rng.integers(0, 3, n), np.array([f"row/{i:05d}".encode() for i in range(n)])


def header(dtype="int16"):
    bits = 9 if dtype == "int16" else None
    return {
        "recipe": {"stage": "test", "options": {}, "inputs": {}},
        "provenance": {},
        "space": {"backbone": "test", "dim": D, "dtype": dtype, "fraction_bits": bits},
        "classes": ["a", "b", "c"],
        "source": {},
    }


def write(path, n=700, dtype="int16", key="", step=100, stop=None, commit=True):
    """A feature file written in steps; with ``stop`` it is given up after so many rows."""
    x, y, ids = rows(n)
    begun = None
    with writing_features(path, header(dtype)["space"], key) as writer:
        begun = writer.rows
        for start in range(writer.rows, n, step):
            if stop is not None and start >= stop:
                raise KeyboardInterrupt
            writer.append(x[start : start + step])
            if commit:
                writer.commit({"at": start})
        writer.finish(y, ids, header(dtype))
    return begun


@contextmanager
def abandoned(path, key="k"):
    """A writer that is given up at the end of the block."""
    with suppress(KeyboardInterrupt), writing_features(path, header()["space"], key) as writer:
        yield writer
        raise KeyboardInterrupt


def given_up(path, **options):
    with pytest.raises(KeyboardInterrupt):
        write(path, **options)
    assert not path.exists()
    return outputs.partial_path(path)


# ---------------------------------------------------------------- writing and going on


def test_the_state_of_the_last_commit_comes_back(tmp_path):
    given_up(tmp_path / "f.h5", key="k", stop=300)
    with abandoned(tmp_path / "f.h5") as writer:
        assert (writer.rows, writer.state) == (300, {"at": 200})
        writer.commit({"many": "x" * 200_000})  # more than an object header holds
    with abandoned(tmp_path / "f.h5") as writer:
        assert (writer.rows, len(writer.state["many"])) == (300, 200_000)


def uncommitted(path, partial):
    with abandoned(path) as writer:
        writer.append(rows(700)[0][:177])  # other rows, never committed


def finished(path, partial):
    x, y, ids = rows(700)
    with abandoned(path) as writer:
        writer.append(x[300:])
        writer.commit(None)
        writer.finish(y[::-1], ids, header())


def lost(path, partial):
    with h5py.File(partial, "r+") as file:  # rows that are counted and never written
        file["features"].resize(100, axis=0)
        file["features"].resize(300, axis=0)


#: What happens to a partial file of 300 rows, the key of the next writer, how many rows it keeps.
BETWEEN = {
    "nothing": (lambda path, partial: None, "k", 300),
    "uncommitted rows": (uncommitted, "k", 300),
    "a stop at the end": (finished, "k", 700),
    "another key": (lambda path, partial: None, "other", 0),
    "no key": (lambda path, partial: None, "", 0),
    "flipped": (lambda _, p: flip(p, p, middle_of(p, "features")), "k", 0),
    "cut": (lambda _, p: cut(p, p, -1), "k", 0),
    "emptied": (lambda _, p: cut(p, p, 0), "k", 0),
    "text": (lambda _, p: p.write_text("not HDF5"), "k", 0),
    "lost chunk": (lost, "k", 0),
}


def test_what_a_partial_file_keeps(tmp_path):
    write(tmp_path / "whole.h5")
    for how, (happens, key, kept) in BETWEEN.items():
        path = tmp_path / f"{how}.h5"
        happens(path, given_up(path, key="k", stop=300))
        assert write(path, key=key) == kept, how
        assert verify(path)["digest"] == verify(tmp_path / "whole.h5")["digest"], how
        assert not outputs.partial_path(path).exists()
        with h5py.File(path, "r") as file:
            assert not {schema.PROGRESS, schema.RESUME_KEY} & set(file.attrs)
    assert not given_up(tmp_path / "other.h5", stop=300).exists(), "without a key nothing stays"


def test_a_bad_row_is_named_by_its_number_in_the_file(tmp_path):
    x, _, _ = rows(700)
    with writing_features(tmp_path / "f.h5", header("float32")["space"], "k") as writer:
        writer.append(x[:300])
        x[320, 2] = np.nan
        with pytest.raises(InvalidDataError, match="row 320, feature 2 is nan"):
            writer.append(x[300:])
        assert writer.rows == 300
        writer.finish(np.zeros(300, int), rows(300)[2], header("float32"))
    assert afltool.info(tmp_path / "f.h5")["rows"] == 300


def test_two_writers_at_once_are_refused(tmp_path):
    path = tmp_path / "f.h5"
    x, y, ids = rows(300)
    with writing_features(path, header()["space"], "k") as writer:
        writer.append(x)
        for key in ("k", "other", ""):
            with pytest.raises(InputError, match="another process is writing it; wait"):
                write(path, key=key)
        writer.finish(y, ids, header())
    assert verify(path)["digest"]
    assert write(tmp_path / "f.h5", key="k") == 0  # the lock has gone with its holder


def test_a_file_takes_its_name_only_when_it_is_whole(road, tmp_path):
    path = tmp_path / "f.h5"
    with writing(path, "statistics") as file:
        put_array(file, "class_counts", np.zeros(3, "<i8"))
        assert not path.exists()
        assert outputs.partial_path(path).exists()
    assert [p.name for p in tmp_path.iterdir()] == ["f.h5"]
    path.write_bytes(road.total.read_bytes())
    with suppress(KeyboardInterrupt), writing(path, "statistics") as file:
        put_array(file, "class_counts", np.zeros(3))
        raise KeyboardInterrupt
    assert path.read_bytes() == road.total.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["f.h5"]


def test_a_header_that_no_reader_would_take_is_not_written(road, tmp_path, monkeypatch):
    """At the limit a file is written and read; a byte beyond it there is none."""
    total, made_by = load_statistics(road.total), hdf5.read_header(road.total)["recipe"]
    with h5py.File(save_statistics(tmp_path / "s.h5", total, made_by)) as file:
        size = len(file[schema.HEADER])
    (tmp_path / "s.h5").unlink()
    for limit in (size - 1, size):
        monkeypatch.setattr(schema, "HEADER_LIMIT", limit)
        if limit < size:
            with pytest.raises(InvalidDataError, match="header of this statistics file would have"):
                save_statistics(tmp_path / "s.h5", total, made_by)
            assert list(tmp_path.iterdir()) == []
    found = load_statistics(save_statistics(tmp_path / "s.h5", total, made_by))
    assert found.clients == total.clients


# ---------------------------------------------------------------- every altered byte


def whole_features(path):
    with open_features(path) as f:
        blocks = [b for _, b in f.iter_stored()]
        return np.concatenate(blocks).tobytes() + f.labels.tobytes(), f.header["space"]


USES = {
    "features": whole_features,
    "partition": lambda path: load_partition(path).digest(),
    "statistics": lambda path: (load_statistics(path).digest(), load_statistics(path).clients),
    "head": lambda path: load_head(path)[0].digest(),
    "counts": lambda path: load_statistics(path).digest(),
}


@pytest.fixture
def files(road, tmp_path):
    """One file of every kind, and statistics whose counts are compressed."""
    numbers = np.random.default_rng(0).integers(0, 200, 3000)
    save_statistics(tmp_path / "counts.h5", statistics({"counts": numbers}, [3, 4]), MADE_BY)
    with h5py.File(tmp_path / "counts.h5", "r") as file:
        assert file["arrays/counts"].compression == "gzip"
    return {**road.of_each_kind(), "counts": tmp_path / "counts.h5"}


@pytest.mark.parametrize("kind", USES)
def test_no_altered_byte_passes_unnoticed(kind, files, tmp_path):
    """Anywhere in the file: either it is refused, or what is read is what was written."""
    source, use = files[kind], USES[kind]
    expected = use(source)
    size, draw, path = source.stat().st_size, random.Random(kind), tmp_path / "f.h5"
    refused = 0
    for _ in range(80):
        flip(source, path, draw.randrange(size), draw.randrange(1, 256))
        try:
            assert use(path) == expected
        except AflError:
            refused += 1
    assert refused > 12, "the premise: many of the flips do hit something"


def test_swapped_chunks_and_zeros_are_noticed_before_a_result(tmp_path):
    """Both keep every checksum of HDF5: fletcher32 of zeros is zero."""
    path = tmp_path / "f.h5"
    write(path, n=700)
    with h5py.File(path, "r") as file:
        data = file["features"].id
        first, second = (data.get_chunk_info(i) for i in (0, 1))
    whole = bytearray(path.read_bytes())
    a = slice(first.byte_offset, first.byte_offset + first.size)
    b = slice(second.byte_offset, second.byte_offset + second.size)
    assert whole[a] != whole[b]
    swapped, zeroed = bytearray(whole), bytearray(whole)
    swapped[a], swapped[b] = whole[b], whole[a]
    zeroed[a] = bytes(first.size)
    for name, content in (("swapped", swapped), ("zeroed", zeroed)):
        bad = tmp_path / f"{name}.h5"
        bad.write_bytes(content)
        with open_features(bad) as f:
            f.read_stored(0, 700)  # to HDF5 nothing is wrong
        for read in (verify, whole_features):
            with pytest.raises(CorruptFileError, match="its content has the digest"):
                read(bad)
        with pytest.raises(CorruptFileError, match="its content has the digest"):
            afltool.local_stats(bad, "linear", tmp_path / "s.h5", client="a", sum=True)
        assert not (tmp_path / "s.h5").exists()


# ---------------------------------------------------------------- strangers' files


def changed(source, path, make):
    """A copy in which ``make(file)`` has changed something."""
    path.write_bytes(source.read_bytes())
    with h5py.File(path, "r+", locking=False) as file:
        make(file)
    return path


def instead(name, **how):
    """Another dataset of that name."""

    def make(file):
        del file[name]
        file.create_dataset(name, **how)

    return make


PLAIN = {"chunks": (700,), "fletcher32": True}
# A chunk is unpacked whole, so one of gigabytes in a small dataset is a bomb too.
HUGE = {"maxshape": (None,), "chunks": (1 << 20,), "shuffle": True, "compression": "gzip"}
#: What is wrong with a feature file of 700 rows, and what is said of it.
NOT_OURS = [
    (instead("labels", data=np.zeros(700, "<f8"), **PLAIN), "has the type <f8"),
    (instead("labels", data=np.zeros(699, "<i8"), fletcher32=True), "699 labels"),
    (instead("labels", data=np.full(700, -1), **PLAIN), "labels run from -1 to -1"),
    (instead("labels", data=np.full(700, 3), **PLAIN), "labels run from 3 to 3, with 3 classes"),
    (instead("features", data=np.zeros((700, D), "<f4"), fletcher32=True), "do not fit together"),
    (instead("labels", data=np.zeros(700, "<i8")), "its content has the digest"),
    (instead("labels", data=np.zeros(700, "<i8"), compression="gzip", **PLAIN), "not a plain"),
    (instead("labels", data=["a"] * 700, chunks=(700,)), "/labels is missing, or not a plain"),
    (lambda file: file.__delitem__("labels"), "classes and no /labels"),
    (lambda file: file.attrs.__setitem__(schema.FORMAT, "features"), "its kind is None"),
]
OF_SUMS = [
    (instead("arrays/gram", data=np.zeros(36, "<i4"), fletcher32=True, compression="lzf"), "plain"),
    (instead("arrays/gram", data=np.zeros(36, "<i4"), compression="lzf"), "not a plain"),
    (instead("arrays/gram", data=np.zeros(36, "<i4"), compression="gzip"), "content has the dig"),
    (instead("arrays/gram", data=np.zeros(36, "<i4"), fletcher32=True, **HUGE), "not a plain"),
    (lambda file: file.__setitem__("arrays/again", file["/"]), "again"),
]  # fmt: skip


def test_what_is_no_dataset_of_ours_is_refused(road, tmp_path):
    """Other types and shapes, compression, texts of any length, a link, members of no kind."""
    write(tmp_path / "f.h5")
    cases = [(tmp_path / "f.h5", *one) for one in NOT_OURS]
    for number, (source, make, said) in enumerate([*cases, *((road.total, *o) for o in OF_SUMS)]):
        path = changed(source, tmp_path / f"{number}.h5", make)
        with pytest.raises(CorruptFileError, match=said):
            verify(path)
    for kind, path in road.of_each_kind().items():
        forged = forge(path, tmp_path / f"{kind}.h5", more=np.arange(10))
        with pytest.raises(CorruptFileError, match=f"no {kind} file holds /more"):
            hdf5.read_file(forged, kind)


def test_nothing_outside_the_file_is_read(road, tmp_path, cli):
    """Statistics that point to another file, or to a pipe, in every way that HDF5 has."""
    other, pipe, out = (tmp_path / name for name in ("other.h5", "pipe.h5", "out.h5"))
    other.write_bytes(road.total.read_bytes())
    os.mkfifo(pipe)  # it would hang the command; nobody writes into it
    before = other.stat().st_atime_ns
    for elsewhere in (other, pipe):
        for way, make in outward_ways(elsewhere).items():
            path = changed(road.total, tmp_path / f"{way} to {elsewhere.name}", make)
            for args in (["aggregate", path, "-o", out], ["info", path], ["verify", path]):
                found = cli(*args)
                assert (found.exit_code, found.stdout) == (3, ""), args
                assert f"{path} is damaged" in found.stderr
                assert ("is a link" in found.stderr) == ("link" in way or way == "soft")
    assert not out.exists()
    assert other.stat().st_atime_ns == before


def zeros(road, path, *counts):
    """Less than 2 MB with arrays of so many zeros, every checksum right."""
    head = {k: v for k, v in hdf5.read_header(road.total).items() if k != "kind"}
    how = {"shuffle": True, "compression": "gzip", "compression_opts": 1, "fletcher32": True}
    rows = 10_000_000
    with writing(path, "statistics") as file:
        for number, count in enumerate(counts):
            data = file.create_dataset(f"arrays/a{number}", (count,), "|u1", chunks=(rows,), **how)
            data[:rows] = 0
            _, chunk = data.id.read_direct_chunk((0,))
            for start in range(rows, count, rows):
                data.id.write_direct_chunk((start,), chunk)
        put_array(file, "class_counts", np.zeros(4, "<i8"))
        hdf5.put_header(file, "statistics", head)
    assert path.stat().st_size < 2_000_000
    return path


def test_claims_that_the_file_does_not_back_are_refused(road, tmp_path, monkeypatch):
    """One array; many small ones; beyond what deflate can hold; headers of lists, depth, digits."""
    one = zeros(road, tmp_path / "one.h5", 400_000_000)
    for path in (one, zeros(road, tmp_path / "two.h5", 30_000_000, 30_000_000)):
        tracemalloc.start()
        with pytest.raises(CorruptFileError, match="not plausible"):
            load_statistics(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10_000_000, "nothing is read"
    texts = {
        b'{"a":[' + b"[]," * 999_999 + b"[]]}": "lists and objects",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}": "is damaged",
        b'{"a":' + b"1" * 5000 + b"}": "is damaged",
    }
    for text, said in texts.items():
        with_header(road.total, tmp_path / "h.h5", text)
        with pytest.raises(CorruptFileError, match=said):
            hdf5.read_header(tmp_path / "h.h5")
    monkeypatch.setattr(schema, "DEFLATE_RATIO", 10)
    packed = forge(road.total, tmp_path / "p.h5", arrays__more=np.zeros(2_000_000, np.uint8))
    with pytest.raises(CorruptFileError, match="claims the shape"):
        hdf5.read_file(packed, "statistics")


@pytest.mark.parametrize("more", [',"digest":"00"}', ',"note":{"a":1,"a":2}}', ',"note":NaN}'])
def test_a_header_that_two_readers_would_read_differently_is_refused(road, tmp_path, more):
    """A key twice, at any depth; NaN, which reports of old heads have, is null there."""
    for kind in ("total", "head"):
        source, path = getattr(road, kind), tmp_path / f"{kind}.h5"
        with h5py.File(source) as file:
            text = file["header"][()].tobytes()[:-1] + more.encode()
        with_header(source, path, text)
        if kind == "head" and "NaN" in more:
            assert hdf5.read_header(path)["note"] is None
            continue
        what = "NaN is not" if "NaN" in more else "the key '.*' occurs twice"
        with pytest.raises(CorruptFileError, match=rf"{path.name} is damaged: its header .*{what}"):
            hdf5.read_header(path)


# ---------------------------------------------------------------- round trips


def statistics(arrays, counts, clients=None):
    context = Context({"dim": 3, "fraction_bits": 9}, ("a", "b"), {"name": "linear"})
    return Statistics(
        Phase("gram"), arrays, np.array(counts, dtype=np.int64), context, clients or {}
    )


integers = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30)
edges = st.sampled_from([0, 1, 127, 128, -128, -129, 32767, 32768, -32769, 2**31 - 1, 2**31,
                         -(2**31), -(2**31) - 1, 2**63 - 1, -(2**63)])  # fmt: skip


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    integers | st.lists(edges, min_size=1, max_size=4) | st.lists(st.integers(0, 100), min_size=1),
    st.lists(st.floats(-1e100, 1e100), max_size=20), st.integers(1, 64),
)  # fmt: skip
def test_statistics_come_back_from_their_narrowest_type(tmp_path_factory, numbers, reals, chunk):
    """Also packed in many chunks, the last not full."""
    path = tmp_path_factory.mktemp("s") / "s.h5"
    arrays = {"gram": np.array(numbers, np.int64), "loss": np.array(reals, np.float64)}
    arrays["thin"] = np.outer(numbers, [1, 0, 0])
    rows = 2**40 + 3  # as many as values up to 2^63 need
    who = {
        ClientId("é ü/1", "p"): Client(rows, 0.1, "source", "rows", True),
        ClientId("b"): Client(0),
    }
    s = statistics(arrays, [3, 2**40], who)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "CHUNK_BYTES", chunk)
        save_statistics(path, s, {"stage": "test", "options": {}, "inputs": {}})
    found = load_statistics(path)
    for name in ("gram", "thin"):
        assert found.arrays[name].dtype == np.int64
        assert np.array_equal(found.arrays[name], arrays[name])
    assert found.arrays["loss"].tobytes() == arrays["loss"].tobytes()
    assert (found.clients, found.context, found.phase) == (s.clients, s.context, "gram")
    assert found.digest() == s.digest() == hdf5.read_header(path)["digest"]
    low, high = min(numbers), max(numbers)
    kinds = ("u1", "i1", "u2", "i2", "u4", "i4", "i8")
    fitting = [t for t in kinds if np.iinfo(t).min <= low <= high <= np.iinfo(t).max]
    assert afltool.info(path)["arrays"]["gram"]["type"].endswith(fitting[0])


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(1, 600), st.integers(1, 12), st.sampled_from(["int16", "float32"]))
def test_features_of_any_shape_come_back(tmp_path_factory, n, d, dtype):
    path = tmp_path_factory.mktemp("f") / "f.h5"
    x = np.random.default_rng(n * d).integers(-(2**15) + 1, 2**15, (n, d)) / 512
    y, ids = np.arange(n) % 3, np.array([b"\xff%d.png" % i for i in range(n)])
    space = {**header(dtype)["space"], "dim": d}
    with writing_features(path, space) as writer:
        writer.append(x)
        writer.finish(y, ids, {**header(dtype), "space": space})
    with open_features(path) as f:
        assert (len(f), f.dim, f.classes) == (n, d, ("a", "b", "c"))
        assert f.data.dtype == schema.FEATURE_TYPES[dtype]
        assert np.array_equal(f.data[()] * 2.0 ** -(space["fraction_bits"] or 0), x)
        assert np.array_equal(f.labels, y)
        assert np.array_equal(f.row_ids, ids)
    assert verify(path)["digest"] == f.header["digest"]


SPARSE = Path(__file__).parent / "golden" / "sparse-0.3.h5"


def test_a_file_of_0_3_with_a_bitmap_is_read_if_that_fits(tmp_path):
    """Made by 0.3's local-stats; the digest is what it said."""
    with h5py.File(SPARSE) as file:
        assert "sparse/pairs/kept" in file
    found = load_statistics(SPARSE)
    assert found.digest() == "e16ab58a06642edda9052c7594243018a6ce959fca1394e588ad8a89337d36f1"
    assert found.arrays["pairs"].shape == (780, 15, 15)
    assert found.arrays["pairs"].sum() == 14369
    for name, other, words in (
        ("arrays/pairs", np.ones(7, np.uint8), "is damaged"),
        ("sparse/pairs/kept", np.ones(9, np.uint8), "is not a bitmap"),
        ("sparse/pairs/shape", np.array([-1, 5]), "is not a shape"),
        ("sparse/pairs/shape", np.array([1 << 40]), "not plausible"),
    ):
        make = instead(name, data=other, fletcher32=True, chunks=other.shape)
        with pytest.raises(CorruptFileError, match=words):
            load_statistics(changed(SPARSE, tmp_path / "b.h5", make))


# ---------------------------------------------------------------- golden digests


MADE_BY = {"stage": "test", "options": {}, "inputs": {}}


def tiny(kind, path):
    """One small fixed file of each kind."""
    if kind == "features":
        x, y, ids = (
            np.array([[0.5, -1], [63.998046875, 0]]),
            np.array([1, 0]),
            np.array([b"b", b"a"]),
        )
        space = {"dim": 2, "dtype": "int16", "fraction_bits": 9}
        with writing_features(path, space) as writer:
            writer.append(x)
            writer.finish(y, ids, {**header(), "space": space})
    elif kind == "partition":
        y = np.array([0, 1, 1])
        p = Partition(
            row_ids=np.array([b"a", b"b", b"c"]), labels=y, effective_labels=np.array([0, 1, 0]),
            client=np.array([1, 0, 1], "<i4"), names=("0", "1"), held_out=np.array([True, False]),
            classes=("x", "y"), scheme={"scheme": "test"},
        )  # fmt: skip
        save_partition(path, p, MADE_BY)
    elif kind == "statistics":
        gram = pack(np.array([[4, -2], [-2, 2**40]]))
        s = statistics({"gram": gram, "cross": np.array([[1, 0], [-300, 7]])}, [1, 2])
        save_statistics(path, s, MADE_BY)
    else:
        head = make_head("linear").restore(None, {"weights": np.array([[0.5, -1.0], [3, 1e-9]])})
        save_head(path, head.bind(2, 2), MADE_BY, Context({"dim": 2}, ("x", "y"), {}))
    return path


def items(*items):
    """SHA-256 of items as docs/format.md writes them: a line 'NAME KIND SHAPE', then the bytes."""
    sha = hashlib.sha256()
    for name, kind, value in items:
        if kind == "utf8":
            data, shape = value.encode(), len(value.encode())
        else:
            array = np.array(value, dtype=kind)
            data, shape = array.tobytes(), ",".join(str(n) for n in array.shape)
        sha.update(f"{name} {kind} {shape}\n".encode() + data)
    return sha.hexdigest()


BY_HAND = {
    "features": items(
        ("features", "<i2", [[256, -512], [32767, 0]]),
        ("labels", "<i8", [1, 0]),
        ("row_ids", "utf8", "b\na"),
    ),
    "partition": items(
        ("row_ids", "utf8", "a\nb\nc"),
        ("labels", "<i8", [0, 1, 1]),
        ("effective_labels", "<i8", [0, 1, 0]),
        ("client", "<i4", [1, 0, 1]),
        ("names", "utf8", '["0","1"]'),
        ("held_out", "utf8", "[0]"),
    ),
    "statistics": items(
        ("phase", "utf8", "gram"),
        ("cross", "<i8", [[1, 0], [-300, 7]]),
        ("gram", "<i8", [4, -2, 2**40]),
        ("class_counts", "<i8", [1, 2]),
    ),
    "head": items(
        ("name", "utf8", "linear"),
        ("phase", "utf8", "null"),
        ("weights", "<f8", [[0.5, -1.0], [3, 1e-9]]),
    ),
}


def test_digests_are_the_same_everywhere_and_in_every_release(tmp_path, monkeypatch):
    monkeypatch.setattr("afltool.heads.invariants.check", lambda _: None)  # chosen for their types
    for kind, digest in BY_HAND.items():
        assert verify(tiny(kind, tmp_path / f"{kind}.h5"))["digest"] == digest


def test_the_header_is_readable_by_anyone(road):
    """What docs/format.md requires of every file, with nothing but h5py and json."""
    for kind, path in road.of_each_kind().items():
        with h5py.File(path, "r") as file:
            text = file["header"][()].tobytes()
            assert file.attrs["afltool_format"] == kind.encode()
            assert (file.attrs["afltool_version"], file.attrs["complete"]) == (1, 1)
            assert file.attrs["header_sha256"] == hashlib.sha256(text).hexdigest().encode()
        found = json.loads(text)
        assert {"digest", "recipe", "provenance"} <= found.keys()
        assert found["recipe"].keys() == {"stage", "options", "inputs"}
        assert text.decode() == json.dumps(
            found, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
