"""On the way in nothing is skipped, guessed or dropped without being counted and named."""

from __future__ import annotations

import io
import json
import tarfile
import unicodedata

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers_images import write_tar
from PIL import Image
from pyarrow import parquet

import afltool
from afltool.datasets import open_dataset, read_classes
from afltool.datasets.from_paths import read_named
from afltool.errors import InvalidDataError, MismatchError, UsageError
from afltool.files.features import open_features
from afltool.files.tables import csv_lines, csv_of_frame, read_columns, values_by_row

NFC, NFD = (unicodedata.normalize(form, "Käse") for form in ("NFC", "NFD"))


@pytest.fixture(autouse=True)
def told(caplog):
    caplog.set_level("INFO", logger="afltool")
    return caplog


def png(value=0):
    place = io.BytesIO()
    Image.new("L", (4, 4), value).save(place, "PNG")
    return place.getvalue()


def pictures(folder, names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(png())


# ---------------------------------------------------------------- WebDataset


def samples(*keys, label="cls"):
    return [
        part
        for i, key in enumerate(keys)
        for part in ((f"{key}.png", png()), (f"{key}.{label}", b"%d" % (i % 2)))
    ]


@pytest.mark.parametrize("unlabeled", [False, True])
def test_members_that_are_no_sample_are_counted_and_named(tmp_path, told, unlabeled):
    """Names of samples may have dots; links are no images."""
    keys = ["a", "img.v2.07", "d.e/img.v2.08", "d.e/b"]
    write_tar(tmp_path / "good" / "s.tar", samples(*keys))
    found = open_dataset(f"webdataset:{tmp_path / 'good'}", "train", unlabeled=unlabeled)
    assert found.row_ids.tolist() == [f"s/{key}".encode() for key in keys]
    assert "left out" not in told.text
    assert unlabeled or found.labels.tolist() == [0, 1, 0, 1]
    more = [("a.seg.png", png()), ("b.seg.png", png()), ("a.txt", b"x"), ("README", b"x"),
            ("a.meta.json", b"{}"), ("stats.json", b"{}"), ("._a.png", b"x")]  # fmt: skip
    for i in range(2):
        write_tar(tmp_path / "odd" / f"s{i}.tar", [*samples("a", "b"), *more])
    assert len(open_dataset(f"webdataset:{tmp_path / 'odd'}", "train", unlabeled=unlabeled)) == 4
    assert "left out 14 members that are no image and no label: .seg.png (4)" in told.text
    assert "and 1 more" in told.text
    path = write_tar(tmp_path / "links" / "s.tar", samples("a", "b"))
    with tarfile.open(path, "a") as file:
        for name in ("c.png", "c.cls"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.LNKTYPE, "a.png"
            file.addfile(link)
    assert len(open_dataset(f"webdataset:{path}", "train", unlabeled=unlabeled)) == 2
    assert "left out 2 members that are no image and no label: .png (1), .cls (1)" in told.text


def test_files_of_no_split_are_counted_and_named(tmp_path, told):
    for name in ("train-0.tar", "val-0.tar", "Test/0.tar"):
        write_tar(tmp_path / name, samples("a", "b"))
    (tmp_path / "train-1.tar.gz").write_bytes(b"")
    for split in ("train", "test"):
        assert len(open_dataset(f"webdataset:{tmp_path}", split)) == 2
    said = "left out 2 files that are no .tar files of a split: train-1.tar.gz, val-0.tar"
    assert told.text.count(said) == 2
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.tgz").write_bytes(b"")
    with pytest.raises(InvalidDataError, match=r"found none among 1 \(a\.tgz\)"):
        open_dataset(f"webdataset:{tmp_path / 'sub'}", "train")


# ---------------------------------------------------------------- labels that mean none


def of_each_kind(at, labels):
    """The same labels as a table, in tar files, and in parquet."""
    pictures(at, [f"{i}.png" for i in range(len(labels))])
    rows = pd.DataFrame({"path": [f"{i}.png" for i in range(len(labels))], "label": labels})
    rows.to_csv(at / "t.csv", index=False)
    rows.to_parquet(at / "t.parquet")
    write_tar(at / "tar" / "s.tar", [
        (f"{i}.{end}", data)
        for i, label in enumerate(labels)
        for end, data in (("png", png()), ("json", json.dumps({"label": label}).encode()))
    ])  # fmt: skip
    (at / "hf").mkdir()
    parquet.write_table(pa.table({"image": [png()] * len(labels), "label": labels}),
                        at / "hf" / "s.parquet")  # fmt: skip
    tables = (f"table:{at / name}" for name in ("t.csv", "t.parquet"))
    return [*tables, f"webdataset:{at / 'tar'}", f"parquet:{at / 'hf'}"]


def test_labels_that_mean_none_are_refused_unless_they_are_listed(tmp_path):
    for number, none in enumerate(["-1", "nan", "None", "<NA>", " "]):
        at = tmp_path / str(number)
        for spec in of_each_kind(at, ["a", none, "b", none]):
            with pytest.raises(InvalidDataError, match=f"2 of 4 rows have the label '{none}'"):
                open_dataset(spec, "train")
            found = open_dataset(spec, "train", classes=("b", none, "a"))
            assert sorted(found.labels.tolist()) == [0, 1, 1, 2]
            assert len(open_dataset(spec, "train", unlabeled=True)) == 4
        np.savez(at / "x.npz", x=np.eye(4), y=np.array(["a", none, "b", none]))
        with pytest.raises(InvalidDataError, match=f"2 of 4 rows have the label '{none}'"):
            afltool.import_embeddings(at / "x.npz", at / "x.h5")
        afltool.import_embeddings(at / "x.npz", at / "y.h5", classes=("b", none, "a"))


def test_texts_that_only_look_like_something_else_are_classes(tmp_path, told):
    for spec in of_each_kind(tmp_path, ["NA", "01", "1", "cat", "Cat", "cat ", NFC, NFD]):
        assert len(open_dataset(spec, "train").classes) == 8
        assert "classes look alike but are classes apart: 'Cat' (1 rows) and 'cat' (1" in told.text
        assert f"{NFD!r} (1 rows) and {NFC!r} (1 rows)" in told.text
        told.clear()
        merged = open_dataset(spec, "train", classes=("NA", "01", "1", "cat", "Cat", "cat ", NFC))
        assert np.bincount(merged.labels).tolist() == [1, 1, 1, 1, 1, 1, 2]
    with pytest.raises(UsageError, match="twice"):
        open_dataset(spec, "train", classes=(NFC, NFD))


def test_the_column_of_splits_is_read_in_any_case_and_others_are_counted(tmp_path, told):
    splits = ["train", "Train ", "val", "test", "TEST", ""]
    pictures(tmp_path, [f"{i}.png" for i in range(6)])
    rows = {"path": [f"{i}.png" for i in range(6)], "label": list("ababab")}
    pd.DataFrame({**rows, "split": splits}).to_csv(tmp_path / "t.csv", index=False)
    for split in ("train", "test"):
        assert len(open_dataset(f"table:{tmp_path / 't.csv'}", split)) == 2
    said = "left out rows whose split is neither train nor test: (empty) (1 rows), val (1 rows)"
    assert told.text.count(said) == 2


# ---------------------------------------------------------------- letters


def test_names_are_found_whatever_form_a_table_has(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    on_disk = [f"{NFC}/{NFD} 1.png", f"{NFC}/{NFD} 2.png", f"{NFD}3.png", f"{NFC}4.png"]
    pictures(tmp_path, on_disk)
    for form in ("NFC", "NFD"):
        paths = [unicodedata.normalize(form, name) for name in on_disk]
        rows = {"path": paths, "label": ["a", "b"] * 2, "site": ["x", "y", "z", "w"]}
        pd.DataFrame(rows).to_csv("t.csv", index=False)
        found = open_dataset("table:t.csv", "train")
        assert {i.decode() for i in found.row_ids} == set(on_disk)
        assert all(found.load(i).size == (4, 4) for i in range(4))
        sites = dict(zip(on_disk, rows["site"], strict=True))
        expected = [sites[i.decode()] for i in found.row_ids]
        pd.DataFrame({"path": paths, "site": rows["site"]}).to_csv("s.csv", index=False)
        assert values_by_row(tmp_path / "s.csv", "site", found.row_ids) == expected
        (images,) = read_named(["t.csv"], io.StringIO())
        assert [images.load(i).size for i in range(4)] == [(4, 4)] * 4
        absolute = [str(tmp_path / path) for path in paths]
        pd.DataFrame({"path": absolute}).to_csv("abs.csv", index=False)
        (images,) = read_named(["abs.csv"], io.StringIO())
        assert images.load(3).size == (4, 4)
    pd.DataFrame({"path": [NFC, NFD], "label": ["a", "b"]}).to_csv("two.csv", index=False)
    with pytest.raises(InvalidDataError, match="1 paths are named more than once"):
        open_dataset("table:two.csv", "train")


def test_a_table_that_has_both_forms_keeps_them_apart(tmp_path, told):
    ids = np.array([NFC.encode(), NFD.encode()])
    pd.DataFrame({"row": [NFD, NFC], "n": ["d", "c"]}).to_csv(tmp_path / "t.csv", index=False)
    assert values_by_row(tmp_path / "t.csv", "n", ids) == ["c", "d"]
    pd.DataFrame({"path": [NFD, NFC, "more"], "n": list("dcm")}).to_csv(
        tmp_path / "t.csv", index=False
    )
    assert values_by_row(tmp_path / "t.csv", "n", ids) == ["c", "d"]
    assert "1 rows are not among the 2 asked for" in told.text
    pd.DataFrame({"row": [NFD, NFD], "n": ["d", "c"]}).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(InvalidDataError, match="more than once"):
        values_by_row(tmp_path / "t.csv", "n", ids)


def test_classes_are_found_whatever_form_the_list_has(tmp_path):
    pictures(tmp_path / "d", [f"{NFD}/1.png", "fox/1.png"])
    found = open_dataset(f"imagefolder:{tmp_path / 'd'}", "train", classes=("fox", NFC))
    assert (found.classes, sorted(found.labels.tolist())) == (("fox", NFC), [0, 1])
    np.savez(tmp_path / "x.npz", x=np.eye(3), y=np.array([NFD, "fox", NFC]))
    path = afltool.import_embeddings(tmp_path / "x.npz", tmp_path / "x.h5", classes=("fox", NFC))
    with open_features(path) as rows:
        assert rows.labels.tolist() == [1, 0, 1]
    path = afltool.import_embeddings(tmp_path / "x.npz", tmp_path / "own.h5")
    with open_features(path) as rows:
        assert rows.labels.tolist() == [0, 2, 1]


# ---------------------------------------------------------------- classes of both splits


def test_a_class_that_one_split_lacks_is_named_and_is_a_class_of_both(tmp_path, told):
    names = {"train": ["fox", "hare"], "test": ["fox", "mole"]}
    for split, classes in names.items():
        pictures(tmp_path / split, [f"{name}/{i}.png" for name in classes for i in range(2)])
    spec = f"imagefolder:{tmp_path}"
    for split, lacks, counts in (("train", "mole", [2, 2, 0]), ("test", "hare", [2, 0, 2])):
        told.clear()
        found = open_dataset(spec, split)
        assert found.classes == ("fox", "hare", "mole")
        assert np.bincount(found.labels, minlength=3).tolist() == counts
        assert f"the split {split} has no rows of 1 of 3 classes: {lacks}" in told.text
    told.clear()
    assert len(open_dataset(spec, "test", classes=("mole", "hare", "fox", "owl"))) == 4
    assert not told.text, "a list says that it may have more"


# ---------------------------------------------------------------- texts


def test_a_label_has_the_line_of_its_row(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(4))

    def labels(text):
        (tmp_path / "y.txt").write_bytes(text.encode())
        path = afltool.import_embeddings(
            tmp_path / "x.npy", tmp_path / "x.h5", labels=tmp_path / "y.txt", overwrite=True
        )
        with open_features(path) as rows:
            return [rows.classes[i] for i in rows.labels]

    assert labels("a\nb\na\nb") == labels("\ufeffa\r\nb \r\n\ta\r\nb\r\n") == ["a", "b", "a", "b"]
    assert labels("a\x85b\nc\u2028d\na\x85b\ne\rf\n") == ["a\x85b", "c\u2028d", "a\x85b", "e\rf"]
    assert labels("01\n1\n01\n2\n") == ["01", "1", "01", "2"], "no number is guessed"
    assert labels("0\n1\n2\n1\n") == ["0", "1", "2", "1"]
    for text, line in (("a\n\nb\na\nb\n", 2), ("\na\nb\na\nb\n", 1), ("s\na\nb\na\n\n", 5),
                       ("a\nb\n \t\nb\n", 3)):  # fmt: skip
        with pytest.raises(InvalidDataError, match=rf"y\.txt: line {line} is empty"):
            labels(text)


def test_a_class_has_the_line_of_its_number(tmp_path):
    path = tmp_path / "c.txt"
    path.write_bytes("\ufeffa b\r\n\tc\u2028d \r\ne\x85f\x0cg\r\n\r\n".encode())
    assert read_classes(path) == ("a b", "c\u2028d", "e\x85f\x0cg")
    for text, line in (("a\n\nb\n", 2), ("\na\nb\n", 1), ("a\n \t\nb", 2)):
        path.write_text(text)
        with pytest.raises(InvalidDataError, match=rf"c\.txt: line {line} is empty"):
            read_classes(path)
    path.write_text(" \n\n")
    with pytest.raises(UsageError, match="found none"):
        read_classes(path)


ODD = [
    "cat\rbig",
    "cat\nbig",
    "cat\r\n",
    "\ra",
    "tab\there",
    "a\x1b[31m",
    "a\x85b",
    "a\u2028b",
    'a"b',
    "a,b",
]


def test_csv_keeps_every_text(tmp_path):
    """pandas and Python's own reader get the cells that were written, a row each."""
    for text in (csv_lines([["n", "m"], *([one, "x"] for one in ODD)]),
                 csv_of_frame(pd.DataFrame({"n": ODD, "m": "x"}), index=False)):  # fmt: skip
        (tmp_path / "t.csv").write_bytes(text.encode())
        assert read_columns(tmp_path / "t.csv", ["n"])["n"] == ODD
        assert pd.read_csv(tmp_path / "t.csv").n.tolist() == ODD
        assert text.startswith("n,m\n")


# ---------------------------------------------------------------- columns of tables of features


def frame(**more):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.normal(size=20), "b": rng.normal(size=20),
                         "y": np.arange(20) % 2, **more})  # fmt: skip


def test_an_index_of_pandas_is_no_feature(tmp_path, told):
    for number, index in enumerate((
        pd.Index(range(3, 23), name="patient"),
        pd.Index([f"p{i}" for i in range(20)]),
        pd.Index(np.arange(20) / 2, name="age"),
        pd.MultiIndex.from_arrays([np.arange(20), np.arange(20) % 3], names=["site", None]),
        pd.RangeIndex(20, 40),
    )):  # fmt: skip
        table = tmp_path / f"{number}.parquet"
        frame().set_index(index).to_parquet(table)
        path = afltool.import_embeddings(table, tmp_path / f"{number}.h5")
        assert afltool.info(path)["dim"] == 2
        for name in parquet.read_schema(table).names:
            assert name in "aby" or f"{name} (index of pandas)" in told.text
        assert f"{number}.parquet: 2 features" in told.text


def test_a_column_named_like_an_id_is_left_out(tmp_path, told):
    for name in ("id", "PatientID", "patientId", "Subject ID", "scan-id", "index", "Unnamed: 0",
                 "level_0", "__index_level_0__"):  # fmt: skip
        at = tmp_path / name
        at.mkdir()
        table = frame(**{name: np.arange(20) + 4711})
        table.to_parquet(at / "t.parquet", index=False)
        path = afltool.import_embeddings(at / "t.parquet", at / "t.h5")
        assert afltool.info(path)["dim"] == 2
        numbers = name[:5] in ("index", "Unnam", "level", "__ind")  # pandas has written them
        left = f"left out: {name} (numbers of rows); row ids: row/N"
        assert f"2 features; {left if numbers else f'row ids: {name}'}" in told.text
        table.assign(**{name: 1}).to_parquet(at / "same.parquet", index=False)
        afltool.import_embeddings(at / "same.parquet", at / "same.h5")
        assert f"same.parquet: 2 features; left out: {name}" in told.text
        path = afltool.import_embeddings(at / "t.parquet", at / "i.h5", row_ids=name)
        with open_features(path) as rows:
            assert rows.row_ids[0] == b"4711"
    told.clear()
    others = {name: np.arange(20.0) for name in ("acid", "amino_acid", "indexed", "width", "grid")}
    frame(**others, mrn=np.arange(20) + 11).to_parquet(tmp_path / "t.parquet", index=False)
    assert (
        afltool.info(afltool.import_embeddings(tmp_path / "t.parquet", tmp_path / "t.h5"))["dim"]
        == 8
    )


def test_columns_that_are_no_numbers_are_named_with_their_kind(tmp_path, told):
    more = {
        "sex": ["m", "f"] * 10,
        "ward": pd.Categorical(["x", "y"] * 10),
        "day": pd.date_range("2026-01-01", periods=20),
        "smoker": [True, False] * 10,
        "label": np.arange(20),
        "path": np.arange(20),
        "row": np.arange(20),
    }
    frame(**more).to_parquet(tmp_path / "t.parquet", index=False)
    afltool.import_embeddings(tmp_path / "t.parquet", tmp_path / "t.h5")
    assert (
        "2 features; left out: sex (text), ward (dictionary), day (timestamp), smoker (bool), "
        "label, path; row ids: row"
    ) in told.text
    told.clear()
    parquet.write_table(
        pa.table({"x": [[1.0], [2.0]], "age": [3, 4], "y": [0, 1]}), tmp_path / "l.parquet"
    )
    afltool.import_embeddings(tmp_path / "l.parquet", tmp_path / "l.h5")
    assert "1 features; left out: age; row ids: row/N" in told.text
    np.savez(tmp_path / "z.npz", x=np.eye(2), y=[0, 1], z=[1, 2])
    afltool.import_embeddings(tmp_path / "z.npz", tmp_path / "z.h5")
    assert "2 features; left out: z; row ids: row/N" in told.text


def test_sites_with_other_classes_are_told_of_the_list(tmp_path, cli):
    for number, (ours, theirs, said) in enumerate((
        (["1", "10", "2"], ["1", "2", "10"], "the same in another order"),
        (["a", "b"], ["a", "b", "c"], "'c' only in"),
    )):  # fmt: skip
        at = tmp_path / str(number)
        at.mkdir()
        for seed, (name, classes) in enumerate((("north", ours), ("south", theirs))):
            x = np.random.default_rng(seed).normal(size=(20, 3))
            np.savez(at / f"{name}.npz", x=x, y=np.array(classes)[np.arange(20) % 2])
            rows = afltool.import_embeddings(at / f"{name}.npz", at / f"{name}.h5", classes=classes)
            afltool.local_stats(rows, "linear", at / "sums", client=name)
        done = cli("aggregate", at / "sums", "-o", at / "t.h5")
        assert done.exit_code == MismatchError.exit_code
        assert said in done.stderr
        assert "Give extract or import of all sites one list, --classes FILE" in done.stderr
