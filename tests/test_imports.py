"""import, convert and split: the same features from every format, in blocks and in other number
formats; columns by name, in one order at all sites; and files that do not hold usable rows."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from conftest import embeddings
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from safetensors.numpy import save_file

import afltool
from afltool.errors import (
    CorruptFileError,
    InvalidDataError,
    MismatchError,
    OutputExistsError,
    UsageError,
)
from afltool.exporting import build
from afltool.files.features import features_digest, open_features
from afltool.files.hdf5 import read_header
from afltool.files.heads import load_solved_head
from afltool.math.gram import real
from afltool.partitions import groups_for_testing, rows_for_testing
from afltool.values.names import ROW_IDS

ROWS, DIM = 1000, 6


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, DIM)).astype(np.float32), rng.integers(0, 3, ROWS)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """37 rows of float32: no divisor of anything."""
    monkeypatch.setattr("afltool.embeddings.BLOCK_BYTES", 37 * DIM * 4)


def frame_of(x, y):
    return pd.DataFrame({**{f"f{i}": column for i, column in enumerate(x.T)}, "label": y})


def lists(x, kind):
    return pa.array(list(x), type=kind)


WRITERS = {
    "a.npz": lambda p, x, y: np.savez(p, x=x, y=y),
    "packed.npz": lambda p, x, y: np.savez_compressed(p, x=x, y=y),
    "big-endian.npz": lambda p, x, y: np.savez(p, x=np.asfortranarray(x.astype(">f8")), y=y),
    "a.safetensors": lambda p, x, y: save_file({"x": x, "y": y}, p),
    "lists.parquet": lambda p, x, y: parquet.write_table(
        pa.table({"x": lists(x, pa.list_(pa.float32())), "y": y}), p, row_group_size=100
    ),
    "fixed.parquet": lambda p, x, y: parquet.write_table(
        pa.table({"x": lists(x, pa.list_(pa.float32(), DIM)), "y": y}), p
    ),
    "columns.parquet": lambda p, x, y: frame_of(x, y).to_parquet(p),
    "a.feather": lambda p, x, y: frame_of(x, y).to_feather(p),
    "a.csv": lambda p, x, y: frame_of(x, y).to_csv(p, index=False),
    "a.tsv": lambda p, x, y: frame_of(x, y).to_csv(p, index=False, sep="\t"),
    "clip.npz": lambda p, x, y: np.savez(p, embeddings=x, label=y),
    "scikit-learn.npz": lambda p, x, y: np.savez(p, data=x, target=y, x_ray=y),
    "words.safetensors": lambda p, x, y: save_file({"features": x, "labels": y}, p),
}


def test_every_format_gives_the_same_features(tmp_path, rows):
    x, y = rows
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    plain = afltool.import_embeddings(tmp_path / "x.npy", tmp_path / "plain.h5",
                                      labels=tmp_path / "y.npy")  # fmt: skip
    np.testing.assert_array_equal(stored(plain), np.rint(x.astype(np.float64) * 512))
    for name, write in WRITERS.items():
        write(tmp_path / name, x, y)
        other = afltool.import_embeddings(tmp_path / name, tmp_path / f"{name}.h5")
        assert afltool.info(other)["digest"] == afltool.info(plain)["digest"], name
    with open_features(other) as features:
        assert features.labels.tolist() == y.tolist()
    np.savez(tmp_path / "bare.npz", x=x)
    beside = afltool.import_embeddings(tmp_path / "bare.npz", tmp_path / "bare.h5",
                                       labels=tmp_path / "y.npy")  # fmt: skip
    assert afltool.info(beside)["digest"] == afltool.info(plain)["digest"]


def stored(path):
    with open_features(path) as rows:
        return rows.read_stored(0, len(rows))


# ---------------------------------------------------------------- labels and row ids


@pytest.mark.parametrize("name", ROW_IDS[1:3])
def test_row_ids_have_one_rule_in_imports_and_in_tables(tmp_path, rows, cli, name):
    x, y = rows
    ids, labels = np.array([f"a/{i}" for i in range(ROWS)]), np.array(["cat", "dog", "emu"])[y]
    np.savez(tmp_path / "t.npz", x=x, y=labels, **{name: ids})
    frame = pd.DataFrame({"u": x[:, 0], "v": x[:, 1], "y": labels, name: ids})
    frame.to_parquet(tmp_path / "t.parquet")
    for source in ("t.npz", "t.parquet"):
        path = afltool.import_embeddings(tmp_path / source, tmp_path / f"{source}.h5")
        with open_features(path) as features:
            assert features.row_ids[:2].tolist() == [b"a/0", b"a/1"]
            assert features.classes == ("cat", "dog", "emu")
            assert features.labels.tolist() == y.tolist()
    sites = pd.DataFrame({name: ids, "site": np.arange(ROWS) % 10})
    sites.to_csv(tmp_path / "sites.csv", index=False)
    made = cli("split", tmp_path / "t.npz.h5", "--group", f"{tmp_path}/sites.csv:site",
               "--test-size", 0.5, "-o", tmp_path / "cut")  # fmt: skip
    assert made.exit_code == 0, made.stderr


def test_the_column_of_row_ids_can_be_named(tmp_path, rows, cli):
    x, y = rows
    ids = np.arange(ROWS) + 100
    np.savez(tmp_path / "t.npz", x=x, y=y, scan=ids, path=np.zeros(ROWS, int))
    save_file({"x": x, "y": y, "scan": ids}, tmp_path / "t.safetensors")
    pd.DataFrame({"u": x[:, 0], "y": y, "scan": ids}).to_parquet(tmp_path / "t.parquet")
    for source in ("t.npz", "t.safetensors", "t.parquet"):
        out = tmp_path / f"{source}.h5"
        assert cli("import", tmp_path / source, "--row-ids", "scan", "-o", out).exit_code == 0
        with open_features(out) as features:
            assert features.row_ids[:2].tolist() == [b"100", b"101"]
            assert features.dim == (1 if source == "t.parquet" else x.shape[1])
    refused = cli("import", tmp_path / "t.npz", "-o", tmp_path / "no.h5")
    assert refused.exit_code == 3
    assert "repeat another. Name the column that holds them by --row-ids" in refused.stderr
    other = cli("import", tmp_path / "t.npz", "--row-ids", "id", "-o", tmp_path / "no.h5")
    assert (
        "has the arrays x, y, scan, path; expected x (n, d) and y (n,), and optionally id (n,)"
        in other.stderr
    )


def test_labels_beside_a_file_that_has_none(tmp_path, rows):
    x, y = rows
    save_file({"x": x}, tmp_path / "x.safetensors")
    (tmp_path / "y.txt").write_text("".join(f"{label}\n" for label in y))
    with pytest.raises(UsageError, match="has no labels: give --labels"):
        afltool.import_embeddings(tmp_path / "x.safetensors", tmp_path / "a.h5")
    afltool.import_embeddings(tmp_path / "x.safetensors", tmp_path / "a.h5",
                              labels=tmp_path / "y.txt")  # fmt: skip
    save_file({"x": x, "y": y}, tmp_path / "xy.safetensors")
    with pytest.raises(UsageError, match="holds its own"):
        afltool.import_embeddings(tmp_path / "xy.safetensors", tmp_path / "b.h5",
                                  labels=tmp_path / "y.txt")  # fmt: skip


def test_labels_beyond_the_classes_are_refused_in_any_integer_type(tmp_path, rows):
    for kind in ("i1", "<u8"):
        np.savez(tmp_path / "e.npz", x=rows[0][:3], y=np.array([0, 1, 5], kind))
        with pytest.raises(InvalidDataError, match="row 2 has the label 5"):
            afltool.import_embeddings(tmp_path / "e.npz", tmp_path / "a.h5", classes=list("abc"))


def test_labels_that_are_places_and_names_are_refused(tmp_path, rows):
    def labeled(name, y, classes):
        np.savez(tmp_path / f"{name}.npz", x=rows[0][: len(y)], y=y)
        path = afltool.import_embeddings(
            tmp_path / f"{name}.npz", tmp_path / f"{name}.h5", classes=classes
        )
        with open_features(path) as features:
            return features.labels.tolist()

    for classes, labels, message in (
        (["2", "0", "1"], [0, 1, 2], "the label 0 .* named '0' is at place 1"),
        (["01", "02"], [1, 2], "the label 1 .* named '01' is at place 0"),
        (["-1", "1"], [-1, 1], "the label -1 .* named '-1' is at place 0"),
    ):
        with pytest.raises(InvalidDataError, match=message):
            labeled("int", np.array(labels), classes)
        named = labeled(f"names{classes[0]}", np.array(classes), classes)
        assert named == [*range(len(classes))], "texts are names"
    for number, classes in enumerate((["0", "1", "2"], ["cat", "1", "10"], ["20", "50", "100"])):
        assert labeled(str(number), rows[1], classes) == rows[1].tolist(), "places alone are read"


NAMED = {
    "a.npz": lambda p, x, y: np.savez(p, emb=x, diagnosis=y, x=x[:, :1], y=y),
    "a.safetensors": lambda p, x, y: save_file({"emb": x, "diagnosis": y, "y": y}, p),
    "a.parquet": lambda p, x, y: parquet.write_table(
        pa.table({"emb": lists(x, pa.list_(pa.float32())), "age": y, "diagnosis": y}), p
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_arrays_of_other_names(tmp_path, rows, name, cli):
    x, y = rows
    np.savez(tmp_path / "plain.npz", x=x, y=y)
    plain = afltool.import_embeddings(tmp_path / "plain.npz", tmp_path / "plain.h5")
    NAMED[name](tmp_path / name, x, y)
    out = tmp_path / "o.h5"
    asked = ["import", tmp_path / name, "--x", "emb", "--y", "diagnosis", "-o", out]
    assert cli(*asked).stdout == f"{out}\n"
    assert afltool.info(out)["digest"] == afltool.info(plain)["digest"]
    assert cli(*asked).exit_code == 0, "up to date"
    said = r"no column 'age2': its columns are emb" if name == "a.parquet" else "emb .* and age2"
    with pytest.raises(InvalidDataError, match=said):
        afltool.import_embeddings(tmp_path / name, tmp_path / "p.h5", x="emb", y="age2")
    if name != "a.parquet":
        with pytest.raises(OutputExistsError, match="made differently"):
            afltool.import_embeddings(
                tmp_path / name, out, x="x" if name == "a.npz" else "emb", y="y"
            )


def test_a_column_of_features_is_one_of_lists(tmp_path, rows):
    x, y = rows
    place = tmp_path / "t.parquet"
    pd.DataFrame({"x": x[:, 0], "age": x[:, 1], "y": y, "diagnosis": y}).to_parquet(place)
    with pytest.raises(InvalidDataError, match="a column of lists of numbers; age holds float"):
        afltool.import_embeddings(place, tmp_path / "o.h5", x="age")
    both = afltool.import_embeddings(place, tmp_path / "o.h5", y="diagnosis")
    assert afltool.info(both)["dim"] == 2, "the column of labels is no feature"
    pd.DataFrame({"x": x[:, 0], "y": y}).to_parquet(tmp_path / "one.parquet")
    one = afltool.import_embeddings(tmp_path / "one.parquet", tmp_path / "one.h5")
    assert afltool.info(one)["dim"] == 1, "a single column of numbers that is called x"
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(UsageError, match="leave --x out"):
        afltool.import_embeddings(tmp_path / "x.npy", tmp_path / "n.h5", x="emb")


def test_a_text_among_the_numbers_of_a_column_is_named(tmp_path, cli):
    for rows, said, code in (
        (400, "the column 'b' is left out: row 390 has '<5' among numbers", 0),
        (90_000, "column 'b', row 89990 has '<5' among numbers; correct it", 3),  # behind 1 MB
    ):
        frame = pd.DataFrame({"a": np.arange(rows) / 7, "b": np.arange(rows).astype(str)})
        frame.loc[rows - 10, "b"] = "<5"
        frame.assign(ward="w7", y=frame.index % 3).to_csv(tmp_path / "t.csv", index=False)
        done = cli("import", tmp_path / "t.csv", "-o", tmp_path / f"{rows}.h5", "--allow-constant")
        assert done.exit_code == code
        assert said in done.stderr
        assert "'ward'" not in done.stderr
        done = cli("import", tmp_path / "t.csv", "--feature-columns", "b", "-o", tmp_path / "b.h5")
        assert done.exit_code == 3
        assert f"column 'b', row {rows - 10} has '<5'" in done.stderr


def ragged(p):
    parquet.write_table(pa.table({"x": [[1.0, 2.0], [1.0, 2.0], [3.0]], "y": [0, 1, 1]}), p)


def empty_cell(p):
    parquet.write_table(pa.table({"a": [1.0, None, 3.0], "y": [0, 1, 1]}), p)


def no_label(p):
    parquet.write_table(pa.table({"a": [1.0, 2.0, 3.0], "y": [0, None, 1]}), p)


def halves(p):
    """Only PyTorch writes bf16, and it takes a second to load."""
    x = {"dtype": "BF16", "shape": [3, 2], "data_offsets": [0, 12]}
    head = json.dumps({"x": x, "y": {"dtype": "U8", "shape": [3], "data_offsets": [12, 15]}})
    p.write_bytes(len(head).to_bytes(8, "little") + head.encode() + bytes(15))


UNUSABLE = [
    ("a.parquet", ragged, InvalidDataError, "expected lists of 2 numbers in x, found lengths"),
    ("b.parquet", empty_cell, InvalidDataError, "column 'a', row 1, feature 0 is nan"),
    ("c.parquet", no_label, InvalidDataError, r"c\.parquet: row \d+ has no y \(1 of \d+"),
    ("d.parquet", lambda p: p.write_bytes(b"PAR1"), CorruptFileError, "cannot be read as"),
    ("e.safetensors", lambda p: p.write_bytes(b"\xff" * 99), CorruptFileError, "cannot be"),
    ("f.safetensors", halves, InvalidDataError, "x is in bf16"),
    ("h.txt", lambda p: p.write_text("1,2"), UsageError, "embeddings come as"),
    ("i.csv", lambda p: p.write_text("a,b\nx,z\n"), InvalidDataError, "expected a column x of"),
    ("j.csv", lambda p: p.write_text("a,y\n1,2\n1,2,3\n"), CorruptFileError, "Expected 2 col"),
    ("k.tsv", lambda p: p.write_text("a\ty\n1\tb\n\t\n"), InvalidDataError, "1 of 2 rows have"),
]


def test_files_without_usable_embeddings_say_why(tmp_path):
    for name, write, error, message in UNUSABLE:
        write(tmp_path / name)
        with pytest.raises(error, match=message):
            afltool.import_embeddings(tmp_path / name, tmp_path / "o.h5")
        assert not (tmp_path / "o.h5").exists()


PEAK = """
import re, sys, afltool
labels = sys.argv[3] if len(sys.argv) > 3 else None
afltool.import_embeddings(sys.argv[1], sys.argv[2], labels=labels)
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows_of_a_npy_file(tmp_path):
    """200 MB of numbers more may cost what labels and row ids take."""
    peaks = []
    for n in (5_000, 105_000):
        x = np.random.default_rng(n).normal(size=(n, 512)).astype(np.float32)
        path, labels = tmp_path / f"{n}.npy", tmp_path / "y.npy"
        np.save(path, x)
        np.save(labels, np.arange(n) % 7)
        done = subprocess.run(
            [sys.executable, "-c", PEAK, path, path.with_suffix(".h5"), labels],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        peaks.append(float(done.stdout))
    assert peaks[1] - peaks[0] < 60, f"{peaks} MB"


# ---------------------------------------------------------------- convert


def values(path):
    with open_features(path) as rows:
        return real(rows.rows(0, len(rows)))


def test_converting_from_float32_is_extracting_so(tmp_path):
    raw = embeddings(tmp_path / "x.npz", 300)
    single = afltool.import_embeddings(raw, tmp_path / "float32.h5", dtype="float32")
    for bits in (0, 9):
        direct = afltool.import_embeddings(raw, tmp_path / f"{bits}.h5", fraction_bits=bits)
        converted = afltool.convert(single, tmp_path / f"c{bits}.h5", fraction_bits=bits)
        assert afltool.verify(converted)["digest"] == afltool.verify(direct)["digest"]
        assert afltool.info(converted)["space"] == afltool.info(direct)["space"]


def test_fewer_bits_are_the_nearest_multiples_and_more_are_the_same(road, tmp_path):
    before = values(road.train)
    fewer = afltool.convert(road.train, tmp_path / "3.h5", fraction_bits=3)
    assert np.array_equal(values(fewer), np.rint(before * 8) / 8)
    assert not np.array_equal(values(fewer), before)
    more = afltool.convert(road.train, tmp_path / "11.h5", fraction_bits=11)
    floats = afltool.convert(road.train, tmp_path / "f.h5", dtype="float32")
    assert np.array_equal(values(more), before)
    assert np.array_equal(values(floats), before)
    back = afltool.convert(floats, tmp_path / "back.h5")
    assert afltool.verify(back)["digest"] == afltool.verify(road.train)["digest"]


def test_rows_classes_and_partition_stay_and_the_origin_is_recorded(road, tmp_path, cli):
    out = tmp_path / "3.h5"
    for _ in range(2):  # the command again is up to date
        done = cli("convert", road.train, "--fraction-bits", 3, "-o", out)
        assert (done.exit_code, done.stdout) == (0, f"{out}\n")
        os.utime(out, ns=(10**18, 10**18))
    assert out.stat().st_mtime_ns == 10**18
    with pytest.raises(OutputExistsError, match="fraction_bits"):
        afltool.convert(road.train, out, fraction_bits=4)
    with open_features(out) as ours, open_features(road.train) as theirs:
        assert np.array_equal(ours.row_ids, theirs.row_ids)
        assert np.array_equal(ours.labels, theirs.labels)
        assert ours.classes == theirs.classes
        before = {"digest": theirs.header["digest"], "dtype": "int16", "fraction_bits": 9}
        assert ours.header["source"]["converted_from"] == before
    one = {"partition": road.clients}
    parts = afltool.aggregate(
        [afltool.local_stats(out, road.head0, tmp_path / "s", **one)], tmp_path / "parts.h5"
    )
    whole = afltool.local_stats(out, "linear", tmp_path / "whole.h5", sum=True, **one)
    assert afltool.info(parts)["digest"] == afltool.info(whole)["digest"]
    with pytest.raises(MismatchError, match="fraction_bits"):
        afltool.aggregate([road.total, parts], tmp_path / "no.h5")


def test_what_does_not_fit_is_refused_and_nothing_is_left(road, tmp_path):
    largest = np.abs(values(road.train)).max()
    assert 1 < largest < 16, "the premise"
    with pytest.raises(InvalidDataError, match=r"train\.h5: row .* --fraction-bits 11 would hold"):
        afltool.convert(road.train, tmp_path / "14.h5", fraction_bits=14)
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="it would be lost"):
        afltool.convert(road.train, road.train, fraction_bits=3, overwrite=True)
    with pytest.raises(UsageError, match="0 to 15"):
        afltool.convert(road.train, tmp_path / "16.h5", fraction_bits=16)


# ---------------------------------------------------------------- split


SHARES = st.floats(0.01, 0.99)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=300), SHARES, st.integers(0, 99))
def test_rows_are_drawn_in_proportion_within_each_class(labels, share, seed):
    y = np.array(labels)
    chosen = rows_for_testing(y, share, seed)
    assert chosen.sum() == round(share * len(y))
    taken, rows = np.bincount(y[chosen], minlength=6), np.bincount(y, minlength=6)
    assert (np.abs(taken - share * rows) < 1).all()


@given(st.lists(st.integers(1, 20), min_size=2, max_size=60), SHARES, st.integers(0, 99))
def test_groups_are_whole_and_the_share_is_as_near_as_half_a_group(sizes, share, seed):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    chosen = groups_for_testing(np.zeros(len(groups), int), groups, share, seed)
    for group in range(len(sizes)):
        assert len(set(chosen[groups == group])) == 1
    assert abs(chosen.sum() - share * len(groups)) <= max(sizes) / 2 + 1e-9


def test_groups_keep_the_classes_in_proportion():
    """300 patients of one class each: either class is cut at 20 %, over many seeds."""
    rng = np.random.default_rng(0)
    sizes, sick = rng.integers(1, 12, 300), rng.random(300) < 0.25
    groups = np.repeat(np.arange(300), sizes)
    y = sick[groups].astype(int)
    shares = np.array(
        [[groups_for_testing(y, groups, 0.2, seed)[y == k].mean() for k in (0, 1)]
         for seed in range(20)]
    )  # fmt: skip
    assert np.abs(shares - 0.2).max() < 0.02
    one, other = (groups_for_testing(y, groups, 0.2, seed) for seed in (1, 2))
    assert (one != other).any()


def read(path):
    with open_features(path) as rows:
        values = rows.read_stored(0, len(rows))
        return values, rows.labels, rows.row_ids, rows.header


def pooled(parts):
    """Digest of the rows of some files together, in the order of their ids."""
    values, labels, ids = (np.concatenate([read(p)[k] for p in parts]) for k in range(3))
    order = np.argsort(ids)
    return features_digest(values[order], labels[order], ids[order])


@pytest.fixture
def patients(road, tmp_path):
    """A table that gives every training row a patient, five rows each."""
    table = tmp_path / "patients.csv"
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "patient"])
        ids = read(road.train)[2]
        writer.writerows([name.decode(), f"p{k % 120}"] for k, name in enumerate(ids))
    return table


@pytest.mark.parametrize("grouped", [False, True])
def test_both_parts_together_are_the_file(road, patients, tmp_path, cli, grouped):
    more = ["--group", f"{patients}:patient"] if grouped else []
    done = cli("split", road.train, "--test-size", 0.3, *more, "-o", tmp_path)
    parts = [tmp_path / "train-train.h5", tmp_path / "train-test.h5"]
    assert done.stdout.split() == list(map(str, parts))
    assert pooled(parts) == pooled([road.train])
    train, test = (read(part) for part in parts)
    assert len(test[1]) == pytest.approx(0.3 * 600, abs=3 if grouped else 0)
    assert all(afltool.verify(part)["intact"] for part in parts)
    origin = afltool.info(road.train)["digest"]
    was = {"digest": origin, "part": "test", "test": 0.3, "seed": 0}
    assert afltool.info(parts[1])["source"]["split_from"] == was
    if grouped:
        patient = dict(csv.reader(patients.read_text().splitlines()))
        sides = [{patient[name.decode()] for name in part[2]} for part in (train, test)]
        assert not sides[0] & sides[1]
        assert len(sides[0] | sides[1]) == 120
        patients.write_text(patients.read_text().replace("p7\n", "p8\n"))
        with pytest.raises(OutputExistsError, match="made differently"):
            afltool.split(road.train, tmp_path, test_size=0.3, group=f"{patients}:patient")
        return
    stats = [afltool.local_stats(p, "linear", tmp_path / "s", client=p.stem) for p in parts]
    total = afltool.aggregate(stats, tmp_path / "total.h5")
    assert afltool.info(total)["digest"] == afltool.info(road.total)["digest"]


def test_a_cut_depends_on_ids_and_labels_and_not_on_features_or_order(road, tmp_path):
    """Another backbone's features of the same rows, in another order, are cut alike."""
    held = dict(np.load(road.embeddings))
    ids = np.array([name.decode() for name in read(road.train)[2]])
    order = np.random.default_rng(0).permutation(600)
    np.savez(tmp_path / "other.npz", x=np.sin(held["x"][order]), y=held["y"][order],
             row_ids=ids[order])  # fmt: skip
    other = afltool.import_embeddings(tmp_path / "other.npz", tmp_path / "other.h5")
    first, second = (afltool.split(p, tmp_path / "parts", seed=3) for p in (road.train, other))
    for one, again in zip(first, second, strict=True):
        assert set(read(one)[2].tolist()) == set(read(again)[2].tolist())
    assert not np.array_equal(np.sort(read(second[0])[2]), read(second[0])[2]), "the file's order"


def test_running_again_is_up_to_date_and_another_cut_is_refused(road, tmp_path, cli):
    train, test = afltool.split(road.train, tmp_path)
    before = train.stat().st_mtime_ns, test.read_bytes()
    test.unlink()
    afltool.split(road.train, tmp_path)
    assert train.stat().st_mtime_ns == before[0], "it was whole"
    for more in (["--seed", 1], ["--test-size", 0.3]):
        done = cli("split", road.train, *more, "-o", tmp_path)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "made differently" in done.stderr
    assert len(test.read_bytes()) == len(before[1])
    done = cli("split", road.train, "--seed", 1, "-o", tmp_path, "--overwrite")
    made = [afltool.info(path)["source"]["split"] for path in done.stdout.split()]
    assert made == ["train", "test"]


def test_what_cannot_be_cut_is_refused(road, patients, tmp_path, cli):
    def refused(match, error, **options):
        with pytest.raises(error, match=match):
            afltool.split(road.train, tmp_path / "none", **options)
        assert not (tmp_path / "none").exists()

    one = tmp_path / "one.csv"
    lines = [line.split(",")[0] + ",a" for line in patients.read_text().splitlines()[1:]]
    one.write_text("\n".join(["row,patient", *lines]))
    refused("none of the 600 rows in 1 groups", InvalidDataError, group=f"{one}:patient")
    refused("for testing would have none", InvalidDataError, test_size=1e-6)
    refused("for training would have none", InvalidDataError, test_size=1 - 1e-6)
    refused("TABLE:COLUMN", UsageError, group=str(one))
    one.write_text("\n".join(["row,patient", *lines[:-1]]))
    refused("missing: 1", MismatchError, group=f"{one}:patient")
    done = cli("split", road.total, "-o", tmp_path / "none")
    assert done.exit_code == 2
    assert "expected a features file" in done.stderr


# ---------------------------------------------------------------- names of columns


NAMES = ["sepal length", "sepal width", "petal length", "petal width"]


@pytest.fixture
def frame():
    rng = np.random.default_rng(5)
    y = np.arange(150) % 3
    return pd.DataFrame(
        rng.normal(size=(150, 4)) + np.outer(y, [1, 0, 2, -1]), columns=NAMES
    ).assign(y=y)


@pytest.fixture
def site(tmp_path):
    """``site(name, frame)`` is the feature file of a table; with ``named=False`` of an array."""

    def made(name, table, named=True, **options):
        path = tmp_path / (f"{name}.parquet" if named else f"{name}.npz")
        if named:
            table.to_parquet(path, index=False)
        else:
            np.savez(path, x=table.drop(columns="y").to_numpy(), y=table["y"])
        return afltool.import_embeddings(path, tmp_path / f"{name}.h5", **options)

    return made


def refused(done, *fragments):
    assert (done.exit_code, "Traceback" in done.stderr) == (4, False), done.stderr
    message = " ".join(done.stderr.split())
    for fragment in fragments:
        assert fragment in message


def test_another_order_gives_equal_features(frame, site, cli):
    """Numbers in names count by their value, and accents are alike in either form."""
    one, turned = site("one", frame), site("turned", frame[[*NAMES[::-1], "y"]])
    assert read_header(one)["space"] == read_header(turned)["space"]
    assert afltool.info(one)["digest"] == afltool.info(turned)["digest"]
    np.testing.assert_array_equal(stored(one), np.rint(frame[sorted(NAMES)].to_numpy() * 512))
    said = cli("info", turned).stdout
    assert "columns 4: petal length, petal width, sepal length" in " ".join(said.split())
    names = ["f10", "f9", "f010", "e\u0301te\u0301"]
    table = frame.rename(columns=dict(zip(NAMES, names, strict=True)))
    composed = table.rename(columns={names[3]: "\xe9t\xe9"})[["\xe9t\xe9", *names[:3], "y"]]
    one, other = site("numbers", table), site("composed", composed)
    assert read_header(one)["space"]["columns"] == ["f9", "f010", "f10", "\xe9t\xe9"]
    assert afltool.info(one)["digest"] == afltool.info(other)["digest"]


def test_other_columns_are_refused_by_name_wherever_rows_come_in(frame, site, tmp_path, cli):
    north = site("north", frame[:90])
    south = site("south", frame[90:].rename(columns={NAMES[0]: "age"}))
    said, no = ["'age' only in", "'sepal length' only in"], tmp_path / "no.h5"
    sums = tmp_path / "sums"
    for client, rows in (("north", north), ("south", south)):
        cli("local-stats", rows, "--client", client, "--head", "linear", "-o", sums)
        cli("scale", rows, "-o", tmp_path / "scales")
    total = afltool.aggregate([sums / "client-north.h5"], tmp_path / "total.h5")
    head = afltool.solve(total, tmp_path / "head.h5")
    scales = afltool.aggregate([tmp_path / "scales" / "client-north.h5"], tmp_path / "scales.h5")
    by = afltool.solve(scales, tmp_path / "scaling.h5")
    real = afltool.convert(south, tmp_path / "real.h5", dtype="float32")
    for words in (
        ["aggregate", sums, "-o", no],
        ["aggregate", tmp_path / "scales", "-o", no],
        ["solve", total, "--validate", sums / "client-south.h5", "-o", no],
        *(["evaluate", head, rows] for rows in (south, real, *afltool.split(south, tmp_path))),
        ["predict", head, south, "-o", tmp_path / "no.csv"],
        ["import", tmp_path / "south.parquet", "--scale", by, "-o", no],
    ):
        refused(cli(*words), *said)
    for name, change, said in (
        ("less", frame.drop(columns=NAMES[3]), ["has 3 entries in", "'petal width' only in"]),
        ("more", frame.assign(age=frame.index % 7), ["has 5 entries in", "'age' only in"]),
    ):
        refused(cli("evaluate", head, site(name, change)), *said)
    bare = site("bare", frame[90:], named=False)  # its columns may stand in any order
    assert "columns" not in read_header(bare)["space"]
    cli("local-stats", bare, "--client", "bare", "--head", "linear", "-o", tmp_path / "s")
    sent = tmp_path / "s" / "client-bare.h5"
    refused(cli("aggregate", total, sent, "-o", no), "columns is None")
    refused(cli("evaluate", head, bare), "columns is")
    unnamed = afltool.solve(afltool.aggregate([sent], tmp_path / "b.h5"), tmp_path / "bh.h5")
    refused(cli("evaluate", unnamed, north), "columns is")


def test_columns_that_are_called_alike_are_refused(tmp_path, cli):
    for two in (["a", "a"], ["\xe9", "e\u0301"]):
        table = pa.Table.from_arrays([pa.array([1.0, 2.0])] * 3, names=[*two, "y"])
        parquet.write_table(table, tmp_path / "two.parquet")
        done = cli("import", tmp_path / "two.parquet", "-o", tmp_path / "no.h5")
        assert (done.exit_code, "two columns are called" in done.stderr) == (3, True)


def test_indicators_of_missing_values_have_names(frame, site, tmp_path):
    holes = frame.copy()
    holes.loc[3, NAMES[2]] = np.nan
    holes.to_parquet(tmp_path / "holes.parquet", index=False)
    sums = afltool.scale(tmp_path / "holes.parquet", tmp_path / "s")
    by = afltool.solve(afltool.aggregate([sums], tmp_path / "t.h5"), tmp_path / "scaling.h5")
    path = site("holes", holes, scale=by, missing="indicator")
    assert read_header(path)["space"]["columns"] == [*sorted(NAMES), "petal length is missing"]
    with open_features(path) as rows:
        assert rows.dim == 5
        assert np.flatnonzero(rows.read_stored(0, 150)[:, 4]).tolist() == [3]


def test_estimators_of_frames_go_by_names_into_files_and_sums(frame, site, tmp_path, cli):
    pytest.importorskip("sklearn")
    X, y, turned = frame[NAMES], frame["y"], frame[NAMES[::-1]]
    one = afltool.AnalyticClassifier(ridge=1.0, fraction_bits=9).fit(X, y)
    other = afltool.AnalyticClassifier(ridge=1.0, fraction_bits=9).fit(turned, y)
    assert one.head_.digest() == other.head_.digest()
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(turned))
    saved, rows = other.save(tmp_path / "head.h5"), site("rows", frame)
    assert afltool.evaluate(saved, rows)["top1"] == one.score(X, y)
    loaded = afltool.AnalyticClassifier.load(saved)
    assert list(loaded.feature_names_in_) == NAMES[::-1]
    np.testing.assert_array_equal(loaded.predict(turned), one.predict(X))
    age = frame.rename(columns={NAMES[0]: "age"})
    refused(cli("evaluate", saved, site("age", age)), "'age' only in", "'sepal length' only in")
    with pytest.raises(ValueError, match="age"):
        loaded.predict(age[["age", *NAMES[1:]]])


def test_exported_heads_say_the_order_of_their_columns(frame, site, tmp_path):
    rows = site("rows", frame)
    total = afltool.local_stats(rows, "linear", tmp_path / "t.h5", client="a", sum=True)
    head = load_solved_head(afltool.solve(total, tmp_path / "head.h5"))
    assert json.dumps(sorted(NAMES))[1:-1] in json.dumps(build.build_from_features(*head).metadata)
