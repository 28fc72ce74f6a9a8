"""extract --unlabelled: feature files without labels, and who takes them."""

from __future__ import annotations

import shutil

import h5py
import numpy as np
import pytest
from helpers_images import write_imagefolder

import afltool
from afltool.errors import CorruptFileError, InputError, InvalidDataError, UsageError
from afltool.files.features import open_features
from afltool.sources.images import open_dataset

SMALL = {"weights": "random", "image_size": 32, "batch_size": 8}


def extract(images, out, **more):
    data = f"imagefolder:{images}"
    return afltool.extract(backbone="resnet18", data=data, split="test", out=out, **SMALL, **more)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_imagefolder(tmp_path_factory.mktemp("images"), per_class=7)


@pytest.fixture(scope="module")
def files(images, tmp_path_factory):
    """The same rows with labels and without."""
    folder = tmp_path_factory.mktemp("features")
    return [extract(images, folder / f"{u}.h5", unlabelled=u) for u in (False, True)]


def test_the_rows_are_those_with_labels(files):
    with open_features(files[0]) as with_, open_features(files[1], labelled=False) as without:
        assert without.row_ids.tolist() == with_.row_ids.tolist()
        assert np.array_equal(without.stored(0, len(without)), with_.stored(0, len(with_)))
        assert without.header["space"] == with_.header["space"]
        assert without.classes == ()
        with pytest.raises(UsageError, match="has no labels"):
            _ = without.labels
    with h5py.File(files[1]) as file:
        assert "labels" not in file
    assert len({afltool.info(path)["digest"] for path in files}) == 2


def test_what_needs_labels_refuses_the_file_by_name(files, tmp_path, cli):
    bare, whole, out = str(files[1]), str(files[0]), tmp_path / "out.h5"
    total = afltool.local_stats(whole, "linear", tmp_path / "t.h5", client="a", sum=True)
    head = afltool.solve(total, tmp_path / "h.h5", head_options={"ridge": 1.0})
    for line in (
        ["partition", bare, "--scheme", "iid", "--clients", 2, "-o", out],
        ["local-stats", bare, "--client", "a", "--head", "linear", "--sum", "-o", out],
        ["evaluate", head, bare],
    ):
        done = cli(*line)
        assert done.exit_code == 2, line
        assert "True.h5 has no labels (made with --unlabelled)" in done.stderr
        assert not out.exists()


def test_what_needs_none_takes_it(files, tmp_path, images, cli):
    shards = [
        extract(images, tmp_path / "s" / f"{i}.h5", unlabelled=True, shard=f"{i}/2")
        for i in range(2)
    ]
    merged = afltool.merge(shards, tmp_path / "m.h5")
    assert afltool.info(merged)["digest"] == afltool.info(files[1])["digest"]
    assert afltool.info(merged)["classes"] == []
    small = afltool.convert(merged, tmp_path / "c.h5", fraction_bits=3)
    assert cli("verify", small).exit_code == 0
    with open_features(small, labelled=False) as rows:
        assert rows.given_labels is None
    assert cli("head", "safle", "--thresholds", merged, "-o", tmp_path / "h0.h5").exit_code == 0


def test_a_file_that_lost_its_labels_is_damaged(files, tmp_path):
    path = shutil.copy(files[0], tmp_path / "a.h5")
    with h5py.File(path, "r+") as file:
        del file["labels"]
    with pytest.raises(CorruptFileError, match="classes and no /labels"), open_features(path):
        pass


def test_folders_are_read_at_any_depth(tmp_path):
    images = write_imagefolder(tmp_path / "a", per_class=3, splits=("train",))
    deep = tmp_path / "b"
    for i, path in enumerate(sorted(images.rglob("*.png"))):
        to = deep.joinpath(*["x"] * (i % 3), f"{i}.png")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    (deep / "notes.txt").write_text("no image")
    found = open_dataset(f"imagefolder:{deep}", "train", unlabelled=True)
    assert len(found) == 9
    assert found.row_ids.tolist() == sorted(found.row_ids.tolist())
    assert found.row_ids[0] == b"0.png"
    assert found.labels is None
    cut = open_dataset(f"imagefolder:{images}", "train", unlabelled=True)
    assert cut.row_ids[0].startswith(b"train/")
    with pytest.raises(InputError, match="test"):
        open_dataset(f"imagefolder:{images}", "test", unlabelled=True)
    spread = cut.limited(4)
    assert [cut.row_ids.tolist().index(one) for one in spread.row_ids.tolist()] == [0, 2, 4, 6]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InvalidDataError, match=r"found no images.*\.jpg"):
        open_dataset(f"imagefolder:{empty}", "train", unlabelled=True)


def test_tables_need_no_label(tmp_path):
    images = write_imagefolder(tmp_path / "a", per_class=2, splits=("train",))
    names = [p.relative_to(images).as_posix() for p in sorted(images.rglob("*.png"))]
    (images / "t.csv").write_text("path\n" + "\n".join(names) + "\n")
    found = open_dataset(f"table:{images / 't.csv'}", "train", unlabelled=True)
    assert found.row_ids.tolist() == sorted(name.encode() for name in names)
    with pytest.raises(InvalidDataError, match="no label"):
        open_dataset(f"table:{images / 't.csv'}", "train")
    whole, bare = (open_dataset("digits", "test", unlabelled=u) for u in (False, True))
    assert (bare.labels, bare.row_ids.tolist()) == (None, whole.row_ids.tolist())
    assert bare.fingerprint != whole.fingerprint
    with pytest.raises(UsageError, match="--classes is not used with --unlabelled"):
        afltool.extract(backbone="resnet18", data="digits", unlabelled=True, classes=("a", "b"))


def test_embeddings_without_labels_are_predicted_as_those_with_them(tmp_path, cli):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 5)).astype(np.float32), np.arange(40) % 3
    np.savez(tmp_path / "with.npz", x=x, y=y)
    np.save(tmp_path / "bare.npy", x)
    whole = afltool.import_embeddings(tmp_path / "with.npz", tmp_path / "with.h5")
    for name in ("bare.npy", "with.npz"):
        out = tmp_path / f"{name}.h5"
        done = cli("import", tmp_path / name, "--unlabelled", "-o", out)
        assert done.exit_code == 0, done.stderr
        with open_features(out, labelled=False) as bare, open_features(whole) as rows:
            assert bare.given_labels is None
            assert np.array_equal(bare.stored(0, 40), rows.stored(0, 40))
            assert bare.row_ids.tolist() == rows.row_ids.tolist()
            assert bare.header["space"] == rows.header["space"]
    total = afltool.local_stats(whole, "linear", tmp_path / "t.h5", client="a", sum=True)
    head = afltool.solve(total, tmp_path / "h.h5", head_options={"ridge": 1.0})
    told = [cli("predict", head, tmp_path / name).stdout for name in ("with.h5", "bare.npy.h5")]
    assert told[0] == told[1]
    assert len(told[0].splitlines()) == 41
    done = cli("import", tmp_path / "bare.npy", "-o", tmp_path / "x.h5")
    assert "--unlabelled for rows to predict" in done.stderr
    for more in (["--y", "y"], ["--labels", tmp_path / "y.npy"], ["--classes", tmp_path / "c"]):
        done = cli("import", tmp_path / "bare.npy", "--unlabelled", "-o", tmp_path / "x.h5", *more)
        assert done.exit_code == 2
        assert f"{more[0]} is not used with --unlabelled" in done.stderr
    assert not (tmp_path / "x.h5").exists()
