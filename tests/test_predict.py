"""predict: the classes that a head gives, equal to evaluate's, for any input, refused."""

from __future__ import annotations

import csv
import json
import os
import shutil

import numpy as np
import pytest
from damage import forge
from helpers_images import narrow, write_imagefolder  # noqa: F401

import afltool
from afltool.datasets.from_paths import NamedImages
from afltool.errors import (
    InputError,
    InvalidDataError,
    MismatchError,
    OutputExistsError,
    UsageError,
)
from afltool.extraction.network import Batch
from afltool.extraction.scoring import image_source
from afltool.files.features import open_features
from afltool.files.hdf5 import read_header
from afltool.files.heads import load_head

HOW = {"weights": "random", "engine": "torch"}
SHELL = ("--weights", "random", "--engine", "torch")


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


# ---------------------------------------------------------------- every head, from feature files

HEADS = {
    "linear": {"ridge": 1.0},
    "safle": {"group_size": 2, "thresholds": "range:-8:8"},
    "softmax": {"rounds": 2},
    "discriminant": {"rule": "lda", "shrinkage": 0.1},
}


def solved(name, road, folder):
    """A head after all its rounds, from the statistics of all rows."""
    if name == "network":
        run = afltool.baseline("fedavg", road.train, folder / "run", partition=road.clients,
                               test=road.test, settings={"rounds": 3, "hidden": 8})  # fmt: skip
        return run / "head.h5"
    head = afltool.head(name, folder / "0.h5", head_options=HEADS[name])
    for k in range(1, 20):
        total = afltool.local_stats(road.train, head, folder / f"t{k}.h5", client="a", sum=True)
        head = afltool.solve(total, folder / f"{k}.h5", head=head)
        if read_header(head)["phase"] is None:
            return head
    raise AssertionError("it is never solved")


@pytest.mark.parametrize("name", [*HEADS, "network"])
def test_joined_with_the_labels_it_is_what_evaluate_says(name, road, tmp_path):
    head = solved(name, road, tmp_path)
    out = tmp_path / "p.csv"
    said = afltool.predict(head, road.test, out, scores=True, top=3)
    rows, found = table(out), afltool.evaluate(head, road.test)
    with open_features(road.test) as test:
        truth = {i.decode(): test.classes[y] for i, y in zip(test.row_ids, test.labels)}  # noqa: B905
        scores = load_head(head)[0].decision_function(test.rows(0, len(test)))
    right = [row["predicted"] == truth[row["path"]] for row in rows]
    assert sum(right) / len(right) == found["top1"]
    assert [row["path"] for row in rows] == list(truth)
    columns = [f"score:{c}" for c in test.classes]
    values = np.array([[float(row[c]) for c in columns] for row in rows])
    assert [float(row["score"]) for row in rows] == values.max(axis=1).tolist()
    assert [float(row["score_2"]) for row in rows] == np.sort(values)[:, -2].tolist()
    if load_head(head)[0].log_probabilities:
        exp = np.exp(scores - scores.max(axis=1, keepdims=True))
        np.testing.assert_allclose(values, exp / exp.sum(axis=1, keepdims=True), atol=1e-15)
    else:
        assert np.array_equal(values, scores)
    assert said["rows"] == len(rows) == sum(said["predicted"].values())
    assert said["errors"] == 0


def test_formats_hold_the_same_rows(road, tmp_path, cli):
    outs = [tmp_path / f"p.{kind}" for kind in ("csv", "jsonl", "parquet")]
    for out in outs:
        assert cli("predict", road.head, road.test, "-o", out, "--scores").stdout == f"{out}\n"
    rows = table(outs[0])
    lines = [json.loads(line) for line in outs[1].read_text().splitlines()]
    import pyarrow.parquet

    cells = pyarrow.parquet.read_table(outs[2]).to_pylist()
    assert cells == lines
    assert [{k: "" if v is None else str(v) for k, v in one.items()} for one in lines] == rows
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.csv", "p.jsonl", "p.parquet"]
    shown = cli("predict", road.head, road.test, "--scores")
    assert shown.stdout == outs[0].read_text()
    assert cli("predict", road.head, road.test, "--scores", "--json").stdout == outs[1].read_text()
    counted = json.loads(cli("predict", road.head, road.test, "-o", outs[0], "--overwrite",
                             "--json", "--top", 50).stdout)  # fmt: skip
    assert counted["rows"] == 200 == sum(counted["predicted"].values())
    assert [*table(outs[0])[0]][-1] == "score_4", "as many as there are"


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_running_again_is_success_and_another_table_is_refused(kind, road, tmp_path):
    out = tmp_path / f"p.{kind}"
    afltool.predict(road.head, road.test, out)
    before = out.read_bytes()
    afltool.predict(road.head, road.test, out)
    assert out.read_bytes() == before
    for other in ({"top": 2}, {"scores": True}):
        with pytest.raises(OutputExistsError, match=r"holds something else.*--overwrite"):
            afltool.predict(road.head, road.test, out, **other)
    with pytest.raises(OutputExistsError):
        afltool.predict(road.head, [road.test, road.test], out)
    with pytest.raises(OutputExistsError):
        afltool.predict(road.head, road.train, out)
    assert out.read_bytes() == before
    afltool.predict(road.head, road.train, out, overwrite=True)
    assert out.read_bytes() != before
    assert [p.name for p in tmp_path.iterdir()] == [out.name]


def test_what_does_not_fit_is_refused_by_the_field_that_differs(road, tmp_path):
    out = tmp_path / "p.csv"
    other = afltool.convert(road.test, tmp_path / "other.h5", fraction_bits=3)
    with pytest.raises(MismatchError, match=r"fraction_bits is 3 in .*other\.h5, 9 in .*head"):
        afltool.predict(road.head, other, out)
    classes = read_header(road.test)["classes"]
    turned = forge(road.test, tmp_path / "turned.h5", {"classes": classes[::-1]})
    with pytest.raises(MismatchError, match="the same in another order"):
        afltool.predict(road.head, turned, out)
    with pytest.raises(UsageError, match=r"is not solved yet.*next phase"):
        afltool.predict(road.head0, road.test, out)
    with pytest.raises(UsageError, match=r"is a statistics file; expected a features file"):
        afltool.predict(road.head, road.total, out)
    with pytest.raises(UsageError, match=r"\.csv or \.jsonl or \.parquet"):
        afltool.predict(road.head, road.test, tmp_path / "p.txt")
    images = write_imagefolder(tmp_path / "images", per_class=1, splits=("test",))
    with pytest.raises(UsageError, match=r"were imported.*feature file"):
        afltool.predict(road.head, images, out)
    out.write_text("mine")
    with pytest.raises(OutputExistsError, match="--overwrite"):
        afltool.predict(road.head, road.test, out)
    assert out.read_text() == "mine"
    names = ["images", "other.h5", "p.csv", "turned.h5"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names


# ---------------------------------------------------------------- images


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Images, their features, and a head: 36 images of three classes for the test."""
    at = tmp_path_factory.mktemp("photos")
    images = write_imagefolder(at / "images", per_class=12)
    for split in ("train", "test"):  # nobody says again which nodes, views and means these are of
        afltool.extract(
            backbone="narrow", data=f"imagefolder:{images}", split=split, out=at / f"{split}.h5",
            image_size=32, node=("layer3:max*0.5", "penultimate"), views="flip",
            preprocess="paper", **HOW,
        )  # fmt: skip
    total = afltool.local_stats(at / "train.h5", "linear", at / "t.h5", client="a", sum=True)
    # so strong a ridge that some rows are wrong: an accuracy of 1 would prove little
    afltool.solve(total, at / "head.h5", head_options={"ridge": 1e8})
    return at


def copied(photos, tmp_path):
    return shutil.copytree(photos / "images" / "test", tmp_path / "photos")


def test_images_get_the_scores_of_their_stored_features(photos, tmp_path):
    head, test = photos / "head.h5", photos / "test.h5"
    afltool.predict(head, test, tmp_path / "a.csv", scores=True)
    afltool.predict(head, photos / "images" / "test", tmp_path / "b.csv", scores=True, **HOW)
    a, b = table(tmp_path / "a.csv"), table(tmp_path / "b.csv")
    assert [one["predicted"] for one in a] == [one["predicted"] for one in b]
    for one, other in zip(a, b, strict=True):
        assert other["path"] == str(photos / "images" / one["path"])
        np.testing.assert_allclose(float(one["score"]), float(other["score"]), rtol=1e-12)
    right = [one["predicted"] == one["path"].split("/")[1] for one in a]
    assert sum(right) / len(right) == afltool.evaluate(head, test)["top1"] < 1


def test_every_way_to_name_images_names_the_same(photos, tmp_path, cli, monkeypatch):
    folder = copied(photos, tmp_path)
    (folder / "line" / "readme.txt").write_text("passed over")
    files = sorted(folder.rglob("*.png"))
    names = [f.relative_to(tmp_path).as_posix() for f in files]
    (tmp_path / "list.csv").write_text("path,site\n" + "".join(f"{n},a\n" for n in names))
    monkeypatch.chdir(tmp_path)
    outs = []
    for i, (named, said) in enumerate(
        [(["photos"], None), (names, None), (["list.csv"], None), (["-"], "\n".join(names)),
         (["photos/circle", "-"], "photos/line\nphotos/square\n"),
         (["photos/circle/0000.png", str(photos / "test.h5")], None)]
    ):  # fmt: skip
        done = cli("predict", photos / "head.h5", *named, "-o", f"{i}.csv", *SHELL, input=said)
        assert done.exit_code == 0, done.stderr
        outs.append(table(f"{i}.csv"))
    assert outs[0] == outs[1] == outs[2] == outs[3] == outs[4]
    assert [row["path"] for row in outs[0]] == names
    mixed = outs[5]
    assert float(mixed[0]["score"]) == pytest.approx(float(outs[0][0]["score"]), rel=1e-12)
    assert mixed[0]["path"] == outs[0][0]["path"]
    assert [row["predicted"] for row in mixed[1:]] == [row["predicted"] for row in outs[0]]
    (tmp_path / "elsewhere").mkdir()
    shutil.move("list.csv", "elsewhere/list.csv")
    done = cli("predict", photos / "head.h5", "elsewhere/list.csv", "--data-root", ".", *SHELL)
    assert done.stdout == (tmp_path / "0.csv").read_text()
    shutil.copy("elsewhere/list.csv", "named.csv")
    before = (tmp_path / "named.csv").read_text()
    done = cli("predict", photos / "head.h5", "named.csv", "-o", "named.csv", "--overwrite", *SHELL)
    assert done.exit_code == 2
    assert "is a file that this command reads" in done.stderr
    assert (tmp_path / "named.csv").read_text() == before


def test_a_corrupt_image_ends_it(photos, tmp_path):
    folder, head, out = copied(photos, tmp_path), photos / "head.h5", tmp_path / "p.csv"
    (folder / "line" / "0003.png").write_bytes(b"no picture")
    with pytest.raises(InvalidDataError, match=r"0003\.png: expected one of.*leave it out"):
        afltool.predict(head, folder, out, **HOW)
    assert not out.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["photos"]


def test_files_that_are_no_images_or_not_there(photos, tmp_path, cli):
    head, out = photos / "head.h5", tmp_path / "p.csv"
    (tmp_path / "notes.txt").write_text("no picture")
    good = photos / "images" / "test" / "line" / "0000.png"
    (tmp_path / "empty").mkdir()
    for named, code, words in (
        (tmp_path / "notes.txt", 3, "notes.txt: expected one of the formats"),
        (tmp_path / "gone.png", 3, "gone.png"),
        (tmp_path / "empty", 3, "holds no images, at any depth"),
    ):
        done = cli("predict", head, named, "-o", out, *SHELL)
        assert (done.exit_code, out.exists()) == (code, False)
        assert words in done.stderr
    lines = f"{tmp_path / 'gone.png'}\n{good}\n{tmp_path / 'notes.txt'}\n"
    done = cli("predict", head, "-", "-o", out, *SHELL, input=lines)
    assert done.exit_code == 3
    assert "gone.png: there is no such file" in done.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"notes.txt", "empty"}


def test_another_network_is_refused_before_any_image_is_read(photos, tmp_path):
    head, images = photos / "head.h5", tmp_path / "images"
    images.mkdir()
    (images / "a.png").write_bytes(b"who reads this complains")
    with pytest.raises(MismatchError, match=r"weights is '.*--weights FILE, or --weights random"):
        afltool.predict(head, images, tmp_path / "p.csv", seed=1, **HOW)
    space = read_header(head)["space"]
    for change, words in (
        (
            {"slices": space["slices"][:1]},
            "dim is 32 in this network, 96 in the head",
        ),
        ({"preprocessing": {**space["preprocessing"], "fingerprint": "0"}}, "preprocessing.finger"),
        (
            {"unknown to this version": 2},
            "unknown to this version is None in this network, 2 in the head",
        ),
    ):
        other = forge(head, tmp_path / "other.h5", {"space": {**space, **change}})
        with pytest.raises(MismatchError, match=words):
            afltool.predict(other, images, tmp_path / "p.csv", **HOW)
    for broken in ({"preprocessing": {"crop": 3}}, {"node": None, "precision": 3}):
        other = forge(head, tmp_path / "other.h5", {"space": {**space, **broken}})
        with pytest.raises((InputError, UsageError)):
            afltool.predict(other, images, tmp_path / "p.csv", **HOW)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["images", "other.h5"]


# ---------------------------------------------------------------- interruptions


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_stopped_or_killed_command_leaves_no_table_and_makes_it_from_the_start(
    kind, road, tmp_path, watched
):
    whole, out = tmp_path / f"whole.{kind}", tmp_path / f"p.{kind}"
    afltool.predict(road.head, road.test, whole, scores=True)
    for broken in (watched.stopped_at, watched.killed_at):
        with broken(200):
            afltool.predict(road.head, road.test, out, scores=True)
        assert not out.exists()
    afltool.predict(road.head, road.test, out, scores=True)
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([out.name, whole.name])


class Rows:
    """In place of a network: features that are known."""

    rows = np.array([[1, 2], [100, 0]], np.float32)

    def decode(self, pictures, index):
        raise AssertionError("nothing is decoded")

    def features(self, decode, indices, skip):
        yield Batch(indices, {}), self.rows


def test_values_that_the_format_cannot_hold_are_refused():
    images, space = NamedImages([b"a", b"b"], [b"a", b"b"]), {"fraction_bits": 9}
    with pytest.raises(InvalidDataError, match="image b: feature 0 is 100"):
        list(image_source(images, Rows(), space).blocks())


def test_names_are_written_so_that_they_come_back(photos, tmp_path):
    odd = tmp_path / 'a "b", c\nd'
    odd.mkdir()
    source = photos / "images" / "test" / "line" / "0000.png"
    shutil.copy(source, odd / "x.png")
    shutil.copy(source, os.fsencode(odd) + b"/\xff.png")
    for kind in ("csv", "jsonl"):
        afltool.predict(photos / "head.h5", odd, tmp_path / f"p.{kind}", **HOW)
    first, second = (row["path"] for row in table(tmp_path / "p.csv"))
    assert first == str(odd / "x.png")
    assert second == str(odd) + "/\\udcff.png"
    lines = (tmp_path / "p.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["path"] == first
