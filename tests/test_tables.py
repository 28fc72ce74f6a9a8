"""Tables of image paths and labels: rows, classes, splits, clients, and what is wrong with them."""

from __future__ import annotations

import csv
import json
import os
import random

import numpy as np
import pandas as pd
import pytest
from helpers_images import write_imagefolder

import afltool
from afltool.errors import (
    CorruptFileError,
    InputError,
    InvalidDataError,
    MismatchError,
    UsageError,
)
from afltool.files.partitions import load_partition
from afltool.files.tables import values_by_row
from afltool.sources.images import open_dataset

SMALL = {"weights": "random", "image_size": 32, "batch_size": 8}


@pytest.fixture
def folder(tmp_path):
    return write_imagefolder(tmp_path / "images", per_class=6)


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


@pytest.mark.parametrize("name", ["images.csv", "images.parquet"])
def test_a_table_gives_the_rows_of_the_folder_that_it_describes(folder, name):
    table = write(folder / name, rows_of(folder))
    for split in ("train", "test"):
        ours = open_dataset(f"table:{table}", split)
        theirs = open_dataset(f"imagefolder:{folder}", split)
        assert ours.row_ids.tolist() == theirs.row_ids.tolist()
        assert ours.labels.tolist() == theirs.labels.tolist()
        assert ours.classes == theirs.classes == ("circle", "line", "square")
        assert ours.describe(4) == theirs.describe(4)


def test_the_order_of_the_table_changes_nothing_and_a_touched_image_does(folder):
    rows = rows_of(folder)
    first = open_dataset(f"table:{write(folder / 'a.csv', rows)}", "train")
    again = open_dataset(f"table:{write(folder / 'b.csv', rows[::-1])}", "train")
    assert first.fingerprint == again.fingerprint
    os.utime(folder / first.row_ids[0].decode(), (1, 1))
    assert open_dataset(f"table:{folder / 'a.csv'}", "train").fingerprint != first.fingerprint


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


def test_a_table_elsewhere_has_paths_below_the_data_root(folder, tmp_path):
    table = write(tmp_path / "list.csv", rows_of(folder))
    dataset = open_dataset(f"table:{table}", "train", data_root=folder)
    assert dataset.load(0).size == (32, 32)
    with pytest.raises(InputError, match=r"list\.csv names .*--data-root"):
        open_dataset(f"table:{table}", "train")


def test_a_table_without_splits_is_for_training_only(folder):
    rows = [{"path": row["path"], "label": row["label"]} for row in rows_of(folder)]
    table = write(folder / "all.csv", rows)
    assert len(open_dataset(f"table:{table}", "train")) == 36
    with pytest.raises(InvalidDataError, match="no row has 'test' in its column split"):
        open_dataset(f"table:{table}", "test")


@pytest.mark.slow
def test_the_clients_of_a_table_own_their_images(folder, tmp_path):
    table = write(folder / "images.csv", rows_of(folder))
    train = afltool.extract(
        backbone="resnet18", data=f"table:{table}", split="train", out=tmp_path / "t.h5", **SMALL
    )
    dealt = afltool.partition(
        train, tmp_path / "c.h5", scheme="by-attribute", table=table, column="site"
    )
    p = load_partition(dealt)
    assert p.names == ("site-0", "site-1", "site-2")
    owners = {row["path"]: row["site"] for row in rows_of(folder)}
    assert [p.names[c] for c in p.client] == [owners[i.decode()] for i in p.row_ids]
    pd.DataFrame(rows_of(folder)[:3]).to_csv(folder / "few.csv")
    with pytest.raises(afltool.errors.MismatchError, match="missing: "):
        afltool.partition(
            train, tmp_path / "d.h5", scheme="by-attribute", table=folder / "few.csv", column="site"
        )


def changed(**cells):
    return lambda rows: [{**rows[0], **cells}, *rows[1:]]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".json"])
def test_row_ids_are_in_a_column_row_or_path(tmp_path, suffix):
    """A table of images may have rows that nobody asks for; each that is stands once."""
    ids = np.array([b"a/1.jpg", b"a/2.jpg", b"b/3.jpg"])
    rows = [{"path": f"{name}.jpg", "site": site, "n": "1"} for name, site in
            (("b/3", "x"), ("a/2", "y"), ("a/1", "z"), ("c/9", "w"))]  # fmt: skip
    table = tmp_path / f"images{suffix}"
    json_or_table(table, rows)
    assert values_by_row(table, "site", ids) == ["z", "y", "x"]
    for wrong, error, said in (
        (rows[1:], MismatchError, r"missing: 1, such as 'b/3\.jpg'"),
        ([*rows, rows[0]], InvalidDataError, "more than once"),
        ([{**rows[0], "site": ""}, *rows[1:]], InvalidDataError, r"row 'b/3\.jpg' has no 'site'"),
        ([{"file": one["path"], "site": "x"} for one in rows], InvalidDataError, "rename the one"),
    ):
        json_or_table(table, wrong)
        with pytest.raises(error, match=said):
            values_by_row(table, "site", ids)


def json_or_table(place, rows):
    if place.suffix == ".json":
        place.write_text(json.dumps(rows))
    else:
        write(place, rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: [{"file": "a"}], "expected the columns path and label, found no path and no"),
        (changed(path=""), r"row 1 below the header has no path"),
        (changed(label=""), "row 1 below the header has no label"),
        (changed(path="/data/a.png"), "1 paths are absolute"),
        (lambda rows: [*rows, rows[0]], "1 paths are named more than once"),
        (
            lambda rows: [*rows, {**rows[0], "path": f"./{rows[0]['path']}"}],
            "1 paths are named more than once",
        ),
        (lambda rows: [{**r, "split": "val"} for r in rows], r"no row has 'train'.*val \(36 rows"),
        (lambda rows: [{**r, "label": "x"} for r in rows], "at least two classes"),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_that_cannot_be_used_say_why(folder, suffix, change, message):
    table = write(folder / f"odd{suffix}", change(rows_of(folder)))
    with pytest.raises(InvalidDataError, match=message):
        open_dataset(f"table:{table}", "train")


def test_files_that_are_no_tables_are_refused(folder):
    with pytest.raises(UsageError, match=r"a \.csv, \.parquet or \.json file"):
        open_dataset("table:images.xlsx", "train")
    with pytest.raises(InputError, match="there is no such file"):
        open_dataset(f"table:{folder / 'none.csv'}", "train")
    for name, data in (("a.csv", b"path,label\n\xff,a\n"), ("b.csv", b"path,label\na\n"),
                       ("c.csv", b'path,label\n"a'), ("d.parquet", b"PAR1 not")):  # fmt: skip
        (folder / name).write_bytes(data)
        with pytest.raises(CorruptFileError, match=name):
            open_dataset(f"table:{folder / name}", "train")
