"""import: the same features from every format, in blocks, and files that do not hold them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import afltool
from afltool.errors import CorruptFileError, InvalidDataError, OutputExistsError, UsageError
from afltool.files.features import open_features
from afltool.sources import embeddings
from afltool.values.names import ROW_IDS

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
save_file = pytest.importorskip("safetensors.numpy").save_file

ROWS, DIM = 1000, 6


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, DIM)).astype(np.float32), rng.integers(0, 3, ROWS)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """37 rows of float32: no divisor of anything."""
    monkeypatch.setattr(embeddings, "BLOCK_BYTES", 37 * DIM * 4)


def frame_of(x, y):
    return pd.DataFrame({**{f"f{i}": column for i, column in enumerate(x.T)}, "label": y})


def lists(x, kind):
    return pa.array(list(x), type=kind)


WRITERS = {
    "a.npz": lambda p, x, y: np.savez(p, x=x, y=y),
    "packed.npz": lambda p, x, y: np.savez_compressed(p, x=x, y=y),
    "columns.npz": lambda p, x, y: np.savez(p, x=np.asfortranarray(x), y=y),
    "big-endian.npz": lambda p, x, y: np.savez(p, x=x.astype(">f8"), y=y),
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
    "capital.npz": lambda p, x, y: np.savez(p, X=x, y=y),
    "words.safetensors": lambda p, x, y: save_file({"features": x, "labels": y}, p),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_features(tmp_path, rows, name):
    x, y = rows
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    plain = afltool.import_embeddings(tmp_path / "x.npy", tmp_path / "a.h5",
                                      labels=tmp_path / "y.npy")  # fmt: skip
    WRITERS[name](tmp_path / name, x, y)
    other = afltool.import_embeddings(tmp_path / name, tmp_path / "b.h5")
    assert afltool.info(other)["digest"] == afltool.info(plain)["digest"]
    with open_features(other) as features:
        stored = features.stored(0, ROWS)
        assert features.labels.tolist() == y.tolist()
    np.testing.assert_array_equal(stored, np.rint(x.astype(np.float64) * 512))


def test_names_as_labels_and_row_ids_come_from_columns(tmp_path, rows):
    x, y = rows
    names = np.array(["cat", "dog", "emu"])[y]
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": names, "row_id": np.arange(ROWS)})
    frame.to_parquet(tmp_path / "t.parquet")
    path = afltool.import_embeddings(tmp_path / "t.parquet", tmp_path / "t.h5")
    with open_features(path) as features:
        assert (features.dim, features.classes) == (2, ("cat", "dog", "emu"))
        assert features.labels.tolist() == y.tolist()
        assert features.row_ids[:2].tolist() == [b"0", b"1"]


@pytest.mark.parametrize("name", ROW_IDS)
def test_row_ids_have_one_rule_in_imports_and_in_tables(tmp_path, rows, cli, name):
    x, y = rows
    ids = np.array([f"a/{i}" for i in range(ROWS)])
    np.savez(tmp_path / "t.npz", x=x, y=y, **{name: ids})
    frame = pd.DataFrame({"u": x[:, 0], "v": x[:, 1], "y": y, name: ids})
    frame.to_parquet(tmp_path / "t.parquet")
    for source in ("t.npz", "t.parquet"):
        path = afltool.import_embeddings(tmp_path / source, tmp_path / f"{source}.h5")
        with open_features(path) as features:
            assert features.row_ids[:2].tolist() == [b"a/0", b"a/1"]
    pd.DataFrame({name: ids, "site": np.arange(ROWS) % 10}).to_csv(
        tmp_path / "sites.csv", index=False
    )
    made = cli("split", tmp_path / "t.npz.h5", "--group", f"{tmp_path}/sites.csv:site", "--test",
               0.5, "-o", tmp_path / "cut")  # fmt: skip
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


@pytest.mark.parametrize("kind", ["u1", "i1", "<i8", "<u8"])
def test_labels_beyond_the_classes_are_refused_in_any_integer_type(tmp_path, rows, kind):
    np.savez(tmp_path / "e.npz", x=rows[0][:3], y=np.array([0, 1, 5], kind))
    with pytest.raises(InvalidDataError, match="row 2 has the label 5"):
        afltool.import_embeddings(tmp_path / "e.npz", tmp_path / "a.h5", classes=["a", "b", "c"])


@pytest.mark.parametrize(
    ("classes", "labels", "message"),
    [
        (["2", "0", "1"], [0, 1, 2], "the label 0 .* named '0' is at place 1"),
        (["0", "2", "1"], [0, 1, 0], "the label 1 .* named '1' is at place 2"),
        (["5", "7"], [5, 7], "the label 5 .* named '5' is at place 0"),
        (["01", "02"], ["01", "02"], "the label 1 .* named '01' is at place 0"),
        (["-1", "1"], [-1, 1], "the label -1 .* named '-1' is at place 0"),
    ],
)
def test_labels_that_are_places_and_names_are_refused(tmp_path, rows, classes, labels, message):
    x = rows[0][: len(labels)]
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "y.txt").write_text("".join(f"{label}\n" for label in labels))
    beside = {"labels": tmp_path / "y.txt", "classes": classes}
    if labels[0] == "01":  # a text file says what is a name: a number has no zero before it
        named = afltool.import_embeddings(tmp_path / "x.npy", tmp_path / "a.h5", **beside)
        with open_features(named) as features:
            assert [classes[i] for i in features.labels] == labels
    else:
        with pytest.raises(InvalidDataError, match=message):
            afltool.import_embeddings(tmp_path / "x.npy", tmp_path / "a.h5", **beside)
    np.savez(tmp_path / "x.npz", x=x, y=np.array(labels, dtype=int))
    with pytest.raises(InvalidDataError, match=message):
        afltool.import_embeddings(tmp_path / "x.npz", tmp_path / "a.h5", classes=classes)
    np.savez(tmp_path / "s.npz", x=x, y=np.array(labels, dtype=str))
    named = afltool.import_embeddings(tmp_path / "s.npz", tmp_path / "s.h5", classes=classes)
    with open_features(named) as features:
        assert [classes[i] for i in features.labels] == [str(label) for label in labels]


@pytest.mark.parametrize("classes", [["0", "1", "2"], ["cat", "1", "10"], ["20", "50", "100"]])
def test_labels_that_are_places_alone_are_read(tmp_path, rows, classes):
    x, y = rows
    np.savez(tmp_path / "e.npz", x=x, y=y)
    path = afltool.import_embeddings(tmp_path / "e.npz", tmp_path / "e.h5", classes=classes)
    with open_features(path) as features:
        assert features.labels.tolist() == y.tolist()


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
    y = (y + 1) % 3
    np.savez(tmp_path / "plain.npz", x=x, y=y)
    plain = afltool.import_embeddings(tmp_path / "plain.npz", tmp_path / "plain.h5")
    NAMED[name](tmp_path / name, x, y)
    out = tmp_path / "o.h5"
    asked = ["import", tmp_path / name, "--x", "emb", "--y", "diagnosis", "-o", out]
    assert cli(*asked).stdout == f"{out}\n"
    assert afltool.info(out)["digest"] == afltool.info(plain)["digest"]
    assert cli(*asked).exit_code == 0, "up to date"
    with pytest.raises(InvalidDataError, match=r"diagnosis.*expected emb \(n, d\) and age2"):
        afltool.import_embeddings(tmp_path / name, tmp_path / "p.h5", x="emb", y="age2")


def test_other_names_are_another_recipe(tmp_path, rows):
    """One file, two arrays: the second import is not the first one, up to date."""
    x, y = rows
    np.savez(tmp_path / "a.npz", x=x, emb=x[:, :2], y=y)
    out = afltool.import_embeddings(tmp_path / "a.npz", tmp_path / "o.h5")
    with pytest.raises(OutputExistsError, match="made differently"):
        afltool.import_embeddings(tmp_path / "a.npz", out, x="emb")
    again = afltool.import_embeddings(tmp_path / "a.npz", tmp_path / "p.h5", x="emb")
    assert afltool.info(again)["dim"] == 2


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
    with pytest.raises(UsageError, match="one array without a name"):
        afltool.import_embeddings(tmp_path / "x.npy", tmp_path / "n.h5", x="emb")


def test_an_archive_without_labels_takes_them_from_a_file(tmp_path, rows):
    x, y = rows
    np.savez(tmp_path / "x.npz", x=x)
    np.savez(tmp_path / "xy.npz", x=x, y=y)
    np.save(tmp_path / "y.npy", y)
    beside = afltool.import_embeddings(
        tmp_path / "x.npz", tmp_path / "a.h5", labels=tmp_path / "y.npy"
    )
    inside = afltool.import_embeddings(tmp_path / "xy.npz", tmp_path / "b.h5")
    assert afltool.info(beside)["digest"] == afltool.info(inside)["digest"]


def ragged(p):
    parquet.write_table(pa.table({"x": [[1.0, 2.0], [1.0, 2.0], [3.0]], "y": [0, 1, 1]}), p)


def empty_cell(p):
    parquet.write_table(pa.table({"a": [1.0, None, 3.0], "y": [0, 1, 1]}), p)


def no_label(p):
    parquet.write_table(pa.table({"a": [1.0, 2.0, 3.0], "y": [0, None, 1]}), p)


def halves(p):
    import torch
    from safetensors.torch import save_file as save_torch

    save_torch({"x": torch.ones(3, 2).bfloat16(), "y": torch.arange(3)}, p)


@pytest.mark.parametrize(
    ("name", "write", "error", "message"),
    [
        ("a.parquet", ragged, InvalidDataError, "expected lists of 2 numbers in x, found lengths"),
        ("b.parquet", empty_cell, InvalidDataError, "column 'a', row 1, feature 0 is nan"),
        ("c.parquet", no_label, InvalidDataError, r"c\.parquet: row \d+ has no y \(1 of \d+"),
        ("d.parquet", lambda p: p.write_bytes(b"PAR1"), CorruptFileError, "cannot be read as"),
        ("e.safetensors", lambda p: p.write_bytes(b"\xff" * 99), CorruptFileError, "cannot be"),
        ("f.safetensors", halves, InvalidDataError, "x is in bf16"),
        ("g.npz", lambda p: np.savez(p, x=np.array([{}, {}]), y=[0, 1]), CorruptFileError,
         "Object arrays cannot be loaded"),
        ("h.txt", lambda p: p.write_text("1,2"), UsageError, "embeddings come as"),
        ("i.csv", lambda p: p.write_text("a,b\nx,z\n"), InvalidDataError, "expected a column x of"),
        ("j.csv", lambda p: p.write_text("a,y\n1,2\n1,2,3\n"), CorruptFileError, "Expected 2 col"),
        ("k.tsv", lambda p: p.write_text("a\ty\n1\tb\n\t\n"), InvalidDataError, "1 of 2 rows have"),
    ],
)  # fmt: skip
def test_files_without_usable_embeddings_say_why(tmp_path, name, write, error, message):
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
