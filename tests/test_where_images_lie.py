"""Images in tar files, in parquet and in tables: the same rows as in folders, with labels and
without, and what is wrong with them."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from helpers_images import narrow, values, write_imagefolder, write_tar  # noqa: F401
from pyarrow import parquet

import afltool
from afltool.datasets import open_dataset
from afltool.datasets.base import CorruptImageError
from afltool.errors import (
    CorruptFileError,
    InputError,
    InvalidDataError,
    MismatchError,
    UsageError,
)
from afltool.files.features import open_features
from afltool.files.tables import values_by_row
from afltool.runs.config import RunConfig

CLASSES = ("circle", "line", "square")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_imagefolder(tmp_path_factory.mktemp("images"), CLASSES, per_class=4)


def listed(images, split="train"):
    """(bytes, class) of each image, in the order of an image folder."""
    files = sorted((images / split).rglob("*.png"))
    return [(path.read_bytes(), path.parent.name) for path in files]


def write_shards(folder, rows, split="train", label="cls"):
    """Shards of five samples."""
    for start in range(0, len(rows), 5):
        members = {}
        for i, (data, name) in enumerate(rows[start : start + 5], start):
            about = json.dumps({"label": name, "number": i % 2, "patient": "P"})
            members[f"./a.b/{i:05d}.png"] = data
            members[f"./a.b/{i:05d}.{label}"] = (name if label == "cls" else about).encode()
        write_tar(folder / f"{split}-{start // 5:03d}.tar", members)
    return folder


def write_parquet(path, rows, names=CLASSES, y="label", **columns):
    """Row groups of two, with the metadata that Hugging Face's library writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "image": pa.array(
            [{"bytes": data, "path": f"{i}.png"} for i, (data, _) in enumerate(rows)]
        ),
        y: [names.index(name) if names else name for _, name in rows],
        **columns,
    }
    features = {"image": {"_type": "Image"}, y: {"dtype": "string", "_type": "Value"}}
    if names:
        features[y] = {"names": list(names), "_type": "ClassLabel"}
    table = pa.table(content).replace_schema_metadata(
        {"huggingface": json.dumps({"info": {"features": features}})}
    )
    parquet.write_table(table, path, row_group_size=2, write_page_checksum=True)
    return path


def same(ours, theirs):
    assert ours.classes == theirs.classes
    assert ours.labels.tolist() == theirs.labels.tolist()
    with ThreadPoolExecutor(4) as pool:
        for one, other in zip(pool.map(ours.load, range(len(ours))),
                              map(theirs.load, range(len(theirs))), strict=True):  # fmt: skip
            assert np.array_equal(np.asarray(one), np.asarray(other))


def of_kind(kind, at, images):
    """The same images in another place; the spec, and what is said of row 5 of train."""
    parts = {split: listed(images, split) for split in ("train", "test")}
    if kind in ("cls", "json"):
        for split, rows in parts.items():
            write_shards(at, rows, split, kind)
        shard = at / "train-001.tar"
        return f"webdataset:{at}", b"train-001/a.b/00005", f"a.b/00005 of {shard}"
    if kind.startswith("packed"):
        names = CLASSES if kind == "packed numbers" else ()
        for split, rows in parts.items():
            write_parquet(at / "data" / f"{split}-00000-of-00002.parquet", rows[:7], names)
            write_parquet(at / "data" / f"{split}-00001-of-00002.parquet", rows[7:], names)
        file = at / "data" / "train-00000-of-00002.parquet"
        return f"parquet:{at}", b"train-00000-of-00002/5", f"5 of {file}"
    if kind.startswith("hf"):
        datasets = pytest.importorskip("datasets")
        files = {k: str(write_parquet(Path(f"named/{k}-0.parquet"), v)) for k, v in parts.items()}
        read = datasets.load_dataset("parquet", data_files=files, cache_dir=str(at / "c"))
        read.save_to_disk("saved")
        return kind, b"train/05", f"row 5 of {kind}, train split"
    name = listed_files(images)[5]
    return f"table:{write(at / kind, rows_of(images))}", name.encode(), str(images / name)


def listed_files(images):
    files = (images / "train").rglob("*.png")
    return sorted(path.relative_to(images).as_posix() for path in files)


KINDS = ("cls", "json", "packed numbers", "packed texts", "hf:./saved", "hf:named", "images.csv",
         "images.parquet")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_gives_the_rows_of_a_folder(images, tmp_path, kind, monkeypatch):
    """Classes, labels and pixels, with labels and without; `hf:named` is read without the Hub."""
    monkeypatch.chdir(tmp_path)
    spec, row, where = of_kind(kind, tmp_path, images)
    more = {"data_root": images} if kind.startswith("images") else {}
    for split in ("train", "test"):
        ours = open_dataset(spec, split, **more)
        same(ours, open_dataset(f"imagefolder:{images}", split))
        bare = open_dataset(spec, split, unlabeled=True, **more)
        assert bare.row_ids.tolist() == ours.row_ids.tolist()
        assert (bare.labels, bare.classes) == (None, ())
        assert np.array_equal(np.asarray(bare.load(4)), np.asarray(ours.load(4)))
        if split == "train":
            assert (ours.row_ids[5], ours.describe(5)) == (row, where)
            first = bare.fingerprint
    assert bare.fingerprint != first


@pytest.mark.parametrize("kind", ["packed", "hf:./saved", "images.csv"])
def test_y_names_the_column_of_labels(images, tmp_path, kind, monkeypatch):
    """Beside a column label, which is another; of what has no columns it is refused."""
    monkeypatch.chdir(tmp_path)
    rows, more = listed(images), {}
    other = ["x", "y"] * (len(rows) // 2)
    if kind == "images.csv":
        of_files = [{**row, "grade": row["label"], "label": "x"} for row in rows_of(images)]
        spec, more = f"table:{write(tmp_path / kind, of_files)}", {"data_root": images}
    else:
        path = write_parquet(tmp_path / "a" / "all.parquet", rows, y="grade", label=other)
        spec = f"parquet:{path}" if kind == "packed" else kind
    if kind.startswith("hf"):
        datasets = pytest.importorskip("datasets")
        datasets.Dataset.from_parquet(str(path), cache_dir=str(tmp_path)).save_to_disk("saved")
    found = open_dataset(spec, "train", y="grade", **more)
    same(found, open_dataset(f"imagefolder:{images}", "train"))
    if kind != "images.csv":
        assert open_dataset(spec, "train", y="label").classes == ("x", "y")
        with pytest.raises(
            InvalidDataError, match="expected a column stage of labels \\(--y names"
        ):
            open_dataset(spec, "train", y="stage")
    with pytest.raises(
        UsageError, match="column of labels of table:FILE, parquet:PATTERN, hf:NAME"
    ):
        open_dataset(f"imagefolder:{images}", "train", y="grade")


def test_y_of_a_run_is_that_of_its_images_or_of_its_table():
    of_images = RunConfig(data="hf:x", backbone="resnet18", y="grade")
    of_tables = RunConfig(train_features=Path("a.csv"), test_features=Path("b.csv"), y="grade")
    assert (of_images.extract.y, of_images.table.y) == ("grade", None)
    assert (of_tables.extract, of_tables.table.y) == (None, "grade")
    assert of_images.given_options()["y"] == of_tables.given_options()["y"] == "grade"


def test_what_a_data_set_of_hugging_face_lacks_is_said(images, tmp_path, cli, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    of_kind("hf:./saved", tmp_path, images)
    datasets.load_from_disk("saved")["train"].save_to_disk("one")
    with pytest.raises(InvalidDataError, match="expected the split test, found train"):
        open_dataset("hf:./one", "test")
    monkeypatch.setitem(vars(datasets.config), "HF_HUB_OFFLINE", True)
    given = ["--backbone", "resnet18", "--weights", "random", "--image-size", "32"]
    for absent in ("hf:./nothing", "hf:nobody/nothing"):
        done = cli("extract", *given, "--data", absent, "-o", "n.h5")
        assert (done.exit_code, absent in done.stderr) == (3, True), done.stderr


def test_rows_without_labels_serve_what_needs_none_and_nothing_else(images, tmp_path, cli):
    """Shards of tar files without labels put together have the features of the folder."""
    small = {"backbone": "narrow", "split": "train", "weights": "random", "image_size": 32,
             "engine": "torch"}  # fmt: skip
    folder = afltool.extract(data=f"imagefolder:{images}", out=tmp_path / "folder.h5", **small)
    given = {**small, "data": f"webdataset:{write_shards(tmp_path / 'tar', listed(images))}"}
    parts = [afltool.extract(out=tmp_path / f"{i}.h5", shard=f"{i}/2", unlabeled=True, **given)
             for i in range(2)]  # fmt: skip
    bare = afltool.merge(parts, tmp_path / "bare.h5")
    with open_features(bare) as found:
        assert found.given_labels is None
        assert np.array_equal(found.read_stored(0, len(found)), values(folder))
    assert afltool.info(bare)["classes"] == []
    fewer = afltool.convert(bare, tmp_path / "c.h5", fraction_bits=3)
    assert cli("verify", fewer).exit_code == 0
    with open_features(fewer) as found:
        assert found.given_labels is None
    total = afltool.local_stats(folder, "linear", tmp_path / "t.h5", client="a", sum=True)
    head = afltool.solve(total, tmp_path / "h.h5", head_options={"ridge": 1.0})
    out = tmp_path / "out.h5"
    for line in (
        ["partition", bare, "--scheme", "iid", "--clients", 2, "-o", out],
        ["local-stats", bare, "--client", "a", "--head", "linear", "--sum", "-o", out],
        ["evaluate", head, bare],
    ):
        done = cli(*line)
        assert done.exit_code == 2, line
        assert "bare.h5 has no labels (made with --unlabeled)" in done.stderr
        assert not out.exists()
    for name, value in (("classes", ("a", "b")), ("y", "grade")):
        with pytest.raises(UsageError, match=f"--{name} is not used with --unlabeled"):
            afltool.extract(backbone="narrow", unlabeled=True, **{name: value})


# ---------------------------------------------------------------- which files


#: Tar files of two samples each, what is opened of them, and how many rows a split has or why not.
FILES = [
    ("part-0 part-1", "", "train", 4),
    ("part-0 part-1", "/part-*.tar", "train", 4),
    ("part-0 part-1", "/part-[0].tar", "train", 2),
    ("part-000 part-001", "/part-{000..001}.tar", "train", 4),
    ("part-0 part-1", "/part-1.tar", "train", 2),
    ("part-0 part-1", "", "test", r"split test, found none among 2 \(part-0\.tar"),
    ("part-0 more/test/part-1", "", "test", 2),
    ("part-0 more/test/part-1", "", "train", "found none among 2"),
    ("test/part-0 again/test/part-0", "", "test", "2 files are of one name.*: part-0"),
    ("train/test-1", "", "train", r"named like both splits: test-1\.tar"),
    ("training-0 validation-0", "", "train", r"like splits: training-0\.tar, validation-0\.tar"),
    ("training-0 validation-0", "/training-*.tar", "train", 2),
    (
        "train-000 train-001",
        "/train-{000..002}.tar",
        "train",
        r"nothing at .*train-002\.tar",
    ),
    ("train-000", "/train-{000,7}.tar", "train", r"there is nothing at .*train-7\.tar"),
    ("train-000", "/x*.tar", "train", r"there is nothing at .*x\*\.tar"),
]


@pytest.mark.parametrize(("names", "part", "split", "found"), FILES)
def test_files_are_of_a_split_by_the_words_of_their_names(
    images, tmp_path, names, part, split, found
):
    at = tmp_path / "test" / "all"  # the folder above is no split
    for name in names.split():
        data, label = listed(images)[0]
        other = [("b.png", data), ("b.cls", b"other")]
        write_tar(at / f"{name}.tar", [("a.png", data), ("a.cls", label.encode()), *other])
    if isinstance(found, int):
        rows = open_dataset(f"webdataset:{at}{part}", split).row_ids.tolist()
        assert (len(rows), rows) == (found, sorted(rows))
        return
    with pytest.raises(InputError, match=found):
        open_dataset(f"webdataset:{at}{part}", split)


def test_folders_are_read_at_any_depth(tmp_path):
    images = write_imagefolder(tmp_path / "a", per_class=3, splits=("train",))
    deep = tmp_path / "b"
    for i, path in enumerate(sorted(images.rglob("*.png"))):
        to = deep.joinpath(*["x"] * (i % 3), f"{i}.png")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    (deep / "notes.txt").write_text("no image")
    found = open_dataset(f"imagefolder:{deep}", "train", unlabeled=True)
    assert len(found) == 9
    assert found.row_ids.tolist() == sorted(found.row_ids.tolist())
    assert found.row_ids[0] == b"0.png"
    assert found.labels is None
    cut = open_dataset(f"imagefolder:{images}", "train", unlabeled=True)
    assert cut.row_ids[0].startswith(b"train/")
    with pytest.raises(InputError, match="test"):
        open_dataset(f"imagefolder:{images}", "test", unlabeled=True)
    spread = cut.limited(4)
    assert [cut.row_ids.tolist().index(one) for one in spread.row_ids.tolist()] == [0, 2, 4, 6]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InvalidDataError, match="in the split train, found none"):
        open_dataset(f"imagefolder:{empty}", "train", unlabeled=True)


# ---------------------------------------------------------------- damage


def test_a_damaged_tar_file_is_named(images, tmp_path):
    path = write_shards(tmp_path, listed(images)[:5]) / "train-000.tar"
    whole = path.read_bytes()
    for content, reason in (
        (whole[:3000], "unexpected end of data"),
        (b"\x1f\x8b" + whole[2:], "no uncompressed tar file"),
        (whole.replace(b"./a.b/00002.png", b"\xff" * 15), "expected a header at byte"),
        (b"no tar file at all" * 100, "train-000.tar is damaged"),
    ):
        path.write_bytes(content)
        with pytest.raises(CorruptFileError, match=reason) as caught:
            open_dataset(f"webdataset:{path}", "train")
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", ["webdataset", "parquet"])
def test_a_damaged_image_in_a_packed_file_is_named_with_its_place(images, tmp_path, kind):
    """A file that is gone is no such image: --skip-corrupt would lose it."""
    rows = listed(images)[:5]
    rows[2] = (rows[2][0][:60], "line")
    if kind == "parquet":
        path, key, gone = write_parquet(tmp_path / "x.parquet", rows), "2", "no such file"
    else:
        path, key = write_shards(tmp_path, rows) / "train-000.tar", "a.b/00002"
        gone = r"00004 of .*No such file"
    found = open_dataset(f"{kind}:{path}", "train")
    with pytest.raises(CorruptImageError) as caught:
        found.load(2)
    assert caught.value.where == f"{key} of {path}"
    assert found.load(3).size == (32, 32)
    path.unlink()
    with pytest.raises(InputError, match=gone) as caught:
        found.load(4)
    assert not isinstance(caught.value, CorruptFileError | CorruptImageError)


ODD = [
    ({"1.cls": b"0"}, r"1 samples are not whole: 1 \(no image\)"),
    ({"c.v1.png": b""}, r"1 samples are not whole: c\.v1 \(no label"),
    ({"1.png": b"", "1.cls": b" \n"}, r"1 \(no label"),
    ([("1.png", b""), ("1.cls", b"0"), ("1.cls", b"1")], r"sample 1 has two \.cls"),
    ({"1.png": b"", "1.jpg": b"", "1.cls": b"0"}, r"sample 1 has two images"),
    ({"1.png": b"", "1.json": b'{"label": [3]}'}, r"label is \[3\], expected a number"),
    ({"1.png": b"", "1.json": b'{"label": '}, r"1\.json of .*shard\.tar is not JSON"),
    ({"1.png": b"", "1.cls": b"\xff"}, r"1\.cls of .*is not UTF-8"),
    ({"1.png": b"", "1.cls": b"1" * 2_000_000}, "2,000,000 bytes"),
]


def test_odd_samples_are_named(images, tmp_path):
    data = listed(images)[0][0]
    good = [("a.png", data), ("a.cls", b"0"), ("b.png", data), ("b.cls", b"1"), ("readme", b"x"),
            ("c.txt", b"x")]  # fmt: skip
    path = write_tar(tmp_path / "shard.tar", good)
    assert len(open_dataset(f"webdataset:{path}", "train")) == 2
    for members, reason in ODD:
        more = members if isinstance(members, list) else members.items()
        write_tar(path, [*good, *more])
        with pytest.raises(InputError, match=reason) as caught:
            open_dataset(f"webdataset:{path}", "train")
        assert str(path) in str(caught.value)


def test_parquet_whose_bytes_have_changed_is_named(images, tmp_path):
    rows = listed(images)
    path = write_parquet(tmp_path / "x.parquet", rows)
    content = bytearray(path.read_bytes())
    content[content.index(rows[6][0][-40:])] ^= 1  # only the checksum of the page can tell
    path.write_bytes(content)
    with pytest.raises(CorruptImageError, match="CRC") as caught:
        open_dataset(f"parquet:{path}", "train").load(6)
    assert caught.value.where == f"06 of {path}"
    path.write_bytes(content[:-100])
    with pytest.raises(CorruptFileError, match=r"x\.parquet cannot be read as parquet"):
        open_dataset(f"parquet:{path}", "train")


def test_what_parquet_lacks_is_said(images, tmp_path):
    rows = listed(images)
    path = write_parquet(tmp_path / "x.parquet", [(None, "line"), *rows])
    with pytest.raises(CorruptImageError, match=r"00 of .*a path alone is not"):
        open_dataset(f"parquet:{path}", "train").load(0)
    write_parquet(path, rows, label=[0, 1, -1] * 4)
    with pytest.raises(InvalidDataError, match="row 2 has the label -1, expected 0 to 2, of 3"):
        open_dataset(f"parquet:{path}", "train")
    assert len(open_dataset(f"parquet:{path}", "train", unlabeled=True)) == 12
    write_parquet(path, rows, (), label=["a", None, "b"] * 4)
    with pytest.raises(InvalidDataError, match="row 1 has the label None, expected one"):
        open_dataset(f"parquet:{path}", "train")
    write_parquet(path, rows, ("a", *CLASSES, "a"))
    with pytest.raises(InvalidDataError, match="names a class twice"):
        open_dataset(f"parquet:{path}", "train")
    write_parquet(path, rows)
    write_parquet(tmp_path / "y.parquet", rows, CLASSES[::-1])
    with pytest.raises(InvalidDataError, match="the 2 files differ"):
        open_dataset(f"parquet:{tmp_path}", "train")
    for odd, found in (
        ({"label": [1, 2]}, "none"),
        ({"a": [b""], "b": [b""], "label": [1]}, "a, b"),
    ):
        parquet.write_table(pa.table(odd), path)
        with pytest.raises(InvalidDataError, match=f"of images {found}: rename or leave out"):
            open_dataset(f"parquet:{path}", "train")


# ---------------------------------------------------------------- tables


def rows_of(folder):
    """One row an image, in no order; the site is the image's number modulo 3."""
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*.png")]
    random.Random(0).shuffle(files)
    return [
        {
            "site": f"site-{int(name[-8:-4]) % 3}",
            "path": name,
            "label": name.split("/")[1],
            "split": name.split("/")[0],
        }
        for name in files
    ]


def write(place, rows):
    if place.suffix == ".parquet":
        pd.DataFrame(rows).to_parquet(place)
        return place
    with place.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return place


@pytest.fixture
def folder(tmp_path):
    return write_imagefolder(tmp_path / "images", per_class=6)


def test_a_table_in_any_order_is_one_data_set_until_an_image_changes(folder, tmp_path):
    table = write(folder / "images.csv", rows_of(folder))
    turned = write(folder / "turned.csv", rows_of(folder)[::-1])
    first = open_dataset(f"table:{table}", "train")
    assert open_dataset(f"table:{turned}", "train").fingerprint == first.fingerprint
    os.utime(folder / first.row_ids[0].decode(), (1, 1))
    assert open_dataset(f"table:{table}", "train").fingerprint != first.fingerprint, "touched"
    elsewhere = write(tmp_path / "images.csv", rows_of(folder))
    with pytest.raises(InputError, match=r"images\.\w+ names .*--data-root"):
        open_dataset(f"table:{elsewhere}", "train")
    bare = write(folder / "bare.csv", [{"path": one["path"]} for one in rows_of(folder)])
    assert len(open_dataset(f"table:{bare}", "train", unlabeled=True)) == 36
    with pytest.raises(InvalidDataError, match="no label"):
        open_dataset(f"table:{bare}", "train")
    with pytest.raises(InvalidDataError, match="no row has 'test' in its column split"):
        open_dataset(f"table:{write(tmp_path / 'n.csv', [{'path': 'a', 'label': 'b'}])}", "test")


def test_whole_numbers_as_labels_count_as_numbers_and_splits_share_the_classes(folder):
    rows = rows_of(folder)
    for row in rows:
        row["label"] = {"circle": 10, "line": 9, "square": 0}[row["label"]]
    rows = [row for row in rows if not (row["split"] == "test" and row["label"] == 9)]
    table = write(folder / "numbers.parquet", rows)
    for split in ("train", "test"):
        assert open_dataset(f"table:{table}", split).classes == ("0", "9", "10")
    wanted = ("10", "0", "9")
    assert open_dataset(f"table:{table}", "train", classes=wanted).classes == wanted


def changed(**cells):
    return lambda rows: [{**rows[0], **cells}, *rows[1:]]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_row_ids_are_in_a_column_row_or_path(tmp_path, suffix):
    """A table of images may have rows that nobody asks for; each that is stands once."""
    ids, table = np.array([b"a/1.jpg", b"a/2.jpg", b"b/3.jpg"]), tmp_path / f"images{suffix}"
    rows = [{"path": f"{name}.jpg", "site": site, "n": "1"} for name, site in
            (("b/3", "x"), ("a/2", "y"), ("a/1", "z"), ("c/9", "w"))]  # fmt: skip
    write(table, rows)
    assert values_by_row(table, "site", ids) == ["z", "y", "x"]
    for wrong, error, said in (
        (rows[1:], MismatchError, r"missing: 1, such as 'b/3\.jpg'"),
        ([*rows, rows[0]], InvalidDataError, "more than once"),
        ([{**rows[0], "site": ""}, *rows[1:]], InvalidDataError, r"row 'b/3\.jpg' has no 'site'"),
        ([{"file": one["path"], "site": "x"} for one in rows], InvalidDataError, "rename the one"),
        ([{"row": one["path"], "site": "x"} for one in rows], MismatchError, "the features: 1"),
    ):
        write(table, wrong)
        with pytest.raises(error, match=said):
            values_by_row(table, "site", ids)


USELESS = [
    (lambda rows: [{"file": "a"}], "expected the columns path and label, found no path and no"),
    (changed(label=""), "row 1 below the header has no label"),
    (changed(path="/data/a.png"), "1 paths are absolute"),
    (lambda rows: [*rows, {**rows[0], "path": f"./{rows[0]['path']}"}], "1 paths are named more"),
    (lambda rows: [{**r, "split": "val"} for r in rows], r"no row has 'train'.*val \(36 rows"),
    (lambda rows: [{**r, "label": "x"} for r in rows], "at least two classes"),
]


def test_tables_that_cannot_be_used_say_why(folder):
    for change, message in USELESS:
        table = write(folder / "odd.csv", change(rows_of(folder)))
        with pytest.raises(InvalidDataError, match=message):
            open_dataset(f"table:{table}", "train")
    with pytest.raises(UsageError, match=r"a \.csv or \.parquet file"):
        open_dataset("table:images.xlsx", "train")
    with pytest.raises(InputError, match="there is no such file"):
        open_dataset(f"table:{folder / 'none.csv'}", "train")
    for name, data in (("a.csv", b"path,label\n\xff,a\n"), ("b.csv", b"path,label\na\n"),
                       ("c.csv", b'path,label\n"a'), ("d.parquet", b"PAR1 not")):  # fmt: skip
        (folder / name).write_bytes(data)
        with pytest.raises(CorruptFileError, match=name):
            open_dataset(f"table:{folder / name}", "train")
