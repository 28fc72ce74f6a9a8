"""Images in tar files and in parquet: the same rows as in folders, and what is wrong with them."""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from helpers_images import write_imagefolder, write_tar
from PIL import Image
from pyarrow import parquet

import afltool
from afltool.errors import CorruptFileError, InputError, InvalidDataError
from afltool.files.features import open_features
from afltool.sources.images import open_dataset
from afltool.sources.images.base import CorruptImageError
from afltool.sources.images.pixels import decode

SMALL = {"weights": "random", "image_size": 32, "batch_size": 8, "engine": "torch"}
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


@pytest.mark.parametrize("ending", ["cls", "json"])
def test_shards_of_webdataset_itself_are_read(images, tmp_path, ending):
    """By its own writer, whose members have times, owners and a mode."""
    writer = pytest.importorskip("webdataset").TarWriter
    with writer(str(tmp_path / "train-000.tar")) as tar:
        for i, (data, name) in enumerate(listed(images)):
            label = CLASSES.index(name) if ending == "cls" else {"label": name}
            tar.write({"__key__": f"deep/{i:05d}", "png": data, ending: label})
    found = open_dataset(f"webdataset:{tmp_path}", "train")
    theirs = open_dataset(f"imagefolder:{images}", "train")
    same(found, replace(theirs, classes=("0", "1", "2")) if ending == "cls" else theirs)


def write_parquet(path, rows, names=CLASSES, **columns):
    """Row groups of two, with the metadata that Hugging Face's library writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "image": pa.array(
            [{"bytes": data, "path": f"{i}.png"} for i, (data, _) in enumerate(rows)]
        ),
        "label": [names.index(name) if names else name for _, name in rows],
        **columns,
    }
    features = {"image": {"_type": "Image"}, "label": {"dtype": "string", "_type": "Value"}}
    if names:
        features["label"] = {"names": list(names), "_type": "ClassLabel"}
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


@pytest.mark.parametrize("label", ["cls", "json"])
def test_samples_of_tar_files_are_the_rows_of_a_folder(images, tmp_path, label):
    for split in ("train", "test"):
        write_shards(tmp_path, listed(images, split), split, label)
        ours = open_dataset(f"webdataset:{tmp_path}", split)
        same(ours, open_dataset(f"imagefolder:{images}", split))
        assert ours.row_ids[5] == f"{split}-001/a.b/00005".encode()
        assert ours.describe(5) == f"a.b/00005 of {tmp_path / f'{split}-001.tar'}"
        braces = open_dataset(f"webdataset:{tmp_path}/{split}-{{000..002}}.tar", split)
        assert braces.row_ids.tolist() == ours.row_ids.tolist()
        assert len(open_dataset(f"webdataset:{tmp_path}/*-00[01].tar", split)) == 10
        bare = open_dataset(f"webdataset:{tmp_path}", split, unlabelled=True)
        assert bare.row_ids.tolist() == ours.row_ids.tolist()
    if label == "json":
        other = open_dataset(f"webdataset:{tmp_path}", "train", label_column="number")
        assert other.classes == ("0", "1")


@pytest.mark.parametrize("names", [CLASSES, ()])
def test_rows_of_parquet_are_those_of_a_folder(images, tmp_path, names):
    rows = listed(images)
    write_parquet(tmp_path / "data" / "train-00000-of-00002.parquet", rows[:7], names)
    write_parquet(tmp_path / "data" / "train-00001-of-00002.parquet", rows[7:], names)
    write_parquet(tmp_path / "data" / "test-00000-of-00001.parquet", listed(images, "test"), names)
    for split in ("train", "test"):
        ours = open_dataset(f"parquet:{tmp_path}", split)
        same(ours, open_dataset(f"imagefolder:{images}", split))
    train = open_dataset(f"parquet:{tmp_path}/data/train-*.parquet", "train")
    assert train.row_ids[[0, 11]].tolist() == [b"train-00000-of-00002/0", b"train-00001-of-00002/4"]
    last = tmp_path / "data" / "train-00001-of-00002.parquet"
    assert train.describe(11) == f"4 of {last}"
    bare = open_dataset(f"parquet:{last}", "train", unlabelled=True)
    assert np.array_equal(np.asarray(bare.load(4)), np.asarray(train.load(11)))


@pytest.mark.parametrize("kind", ["saved", "named"])
def test_rows_of_hugging_face_are_those_of_a_folder(images, tmp_path, kind, cli, monkeypatch):
    """A folder that was saved, and what the library reads by name: here without the Hub."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    parts = {"train": listed(images), "test": listed(images, "test")}
    files = {k: str(write_parquet(Path(f"named/{k}-0.parquet"), v)) for k, v in parts.items()}
    how = {"data_root": tmp_path / "cache"}
    if kind == "saved":
        read = datasets.load_dataset("parquet", data_files=files, cache_dir=str(tmp_path / "c"))
        read.save_to_disk("saved")
    spec = {"saved": "hf:./saved", "named": "hf:named"}[kind]
    for split in parts:
        ours = open_dataset(spec, split, **how)
        same(ours, open_dataset(f"imagefolder:{images}", split))
        assert ours.row_ids[1] == f"{split}/{1:0{len(str(len(ours)))}d}".encode()
    bare = open_dataset(spec, "test", unlabelled=True, **how)
    assert (bare.labels, bare.classes) == (None, ())
    assert bare.fingerprint != open_dataset(spec, "train", unlabelled=True, **how).fingerprint
    given = ["--backbone", "resnet18", "--weights", "random", "--image-size", "32"]
    done = cli("extract", *given, "--data", spec, "--data-root", "cache", "-o", "t.h5")
    assert done.exit_code == 0, done.stderr
    if kind == "saved":
        read["train"].save_to_disk("one")
        with pytest.raises(InvalidDataError, match="expected the split test, found train"):
            open_dataset("hf:./one", "test")
        with pytest.raises(InvalidDataError, match="expected a column kind and one of images"):
            open_dataset(spec, "train", label_column="kind")
    monkeypatch.setitem(vars(datasets.config), "HF_HUB_OFFLINE", True)
    for absent in ("hf:./nothing", "hf:nobody/nothing"):
        done = cli("extract", *given, "--data", absent, "-o", "n.h5")
        assert (done.exit_code, absent in done.stderr) == (3, True), done.stderr


def test_columns_of_parquet_have_other_names(images, tmp_path):
    rows = listed(images)
    more = {"mask": [data for data, _ in rows[::-1]], "sick": [i % 2 for i in range(len(rows))]}
    path = write_parquet(tmp_path / "x.parquet", rows, **more)
    with pytest.raises(InvalidDataError, match=r"--path-column; found .* of images image, mask$"):
        open_dataset(f"parquet:{path}", "train")
    chosen = {"path_column": "mask", "label_column": "sick"}
    found = open_dataset(f"parquet:{path}", "train", **chosen)
    theirs = open_dataset(f"imagefolder:{images}", "train")
    assert np.array_equal(np.asarray(found.load(0)), np.asarray(theirs.load(11)))
    assert found.classes == ("0", "1")
    image = open_dataset(f"parquet:{path}", "train", path_column="image")
    assert image.fingerprint != found.fingerprint
    with pytest.raises(InvalidDataError, match="expected a column kind and one of images"):
        open_dataset(f"parquet:{path}", "train", path_column="image", label_column="kind")


def test_features_are_those_of_a_folder_whole_and_in_shards(images, tmp_path, cli):
    def values(spec, name, **options):
        path = afltool.extract(
            backbone="resnet18", data=spec, split="train", out=tmp_path / name, **SMALL, **options
        )
        with open_features(path) as found:
            return found.stored(0, len(found)), found.labels.tolist(), found.row_ids.tolist()

    expected, labels, _ = values(f"imagefolder:{images}", "folder.h5")
    write_shards(tmp_path / "tar", listed(images))
    write_parquet(tmp_path / "parquet" / "all.parquet", listed(images))
    for kind, place in (("webdataset", "tar"), ("parquet", "parquet")):
        found, theirs, ids = values(f"{kind}:{tmp_path / place}", f"{kind}.h5")
        assert np.array_equal(found, expected)
        assert theirs == labels
    values(f"webdataset:{tmp_path / 'tar'}", "0.h5", shard="0/2")
    values(f"webdataset:{tmp_path / 'tar'}", "1.h5", shard="1/2")
    done = cli("merge", tmp_path / "0.h5", tmp_path / "1.h5", "-o", tmp_path / "both.h5")
    assert done.exit_code == 0, done.stderr
    assert afltool.info(tmp_path / "both.h5")["rows"] == len(ids)
    with open_features(tmp_path / "both.h5") as found:
        assert np.array_equal(found.stored(0, len(found)), expected)


# ---------------------------------------------------------------- which files


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
@pytest.mark.parametrize("cut", [10, 40, -40])
def test_16_bits_that_are_cut_off_are_refused(tmp_path, kind, cut):
    """Before the header ends, in the header, in the pixels."""
    grey = np.random.default_rng(0).integers(0, 2**16, (32, 32), dtype=np.uint16)
    place = io.BytesIO()
    Image.fromarray(grey).save(place, kind)
    data = place.getvalue()
    decode(data, "whole")
    with pytest.raises(CorruptImageError, match="cannot use the image cut"):
        decode(data[:cut], "cut")


def test_files_are_chosen_by_the_words_of_their_names(images, tmp_path):
    rows = listed(images)
    folder = write_shards(tmp_path / "test" / "all", rows, "part")  # the folder above is no split
    assert len(open_dataset(f"webdataset:{folder}", "train")) == 12
    assert len(open_dataset(f"webdataset:{folder}/part-*.tar", "train")) == 12
    assert len(open_dataset(f"webdataset:{folder}/part-000.tar", "train")) == 5
    with pytest.raises(InvalidDataError, match=r"split test, found none among 3 \(part-000\.tar"):
        open_dataset(f"webdataset:{folder}", "test")
    write_shards(folder / "more" / "test", rows, "part")
    assert len(open_dataset(f"webdataset:{folder}", "test")) == 12
    with pytest.raises(InvalidDataError, match="found none among 6"):
        open_dataset(f"webdataset:{folder}", "train")
    write_shards(folder / "again" / "test", rows, "part")
    with pytest.raises(InvalidDataError, match=r"6 files are of one name.*: part-000"):
        open_dataset(f"webdataset:{folder}", "test")


def test_a_shard_that_is_not_there_is_named(images, tmp_path, cli):
    write_shards(tmp_path, listed(images))
    for end, name in (("{000..004}.tar", "train-003.tar"), ("{000,7}.tar", "train-7.tar"),
                      ("x*.tar", r"train-x\*.tar")):  # fmt: skip
        with pytest.raises(InputError, match=f"there is nothing at .*{name}"):
            open_dataset(f"webdataset:{tmp_path}/train-{end}", "train")
    done = cli("extract", "--backbone", "resnet18", "--weights", "random", "--data",
               f"webdataset:{tmp_path}/{{000..001}}.tar", "-o", tmp_path / "o.h5")  # fmt: skip
    assert done.exit_code == 3
    assert "000.tar" in done.stderr


# ---------------------------------------------------------------- damage


def damaged_tar(images, tmp_path, change):
    path = write_shards(tmp_path, listed(images)[:5]) / "train-000.tar"
    path.write_bytes(change(path.read_bytes()))
    return path


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda b: b[:3000], "unexpected end of data"),
        (lambda b: b[:300], "truncated header"),
        (lambda b: b"", "empty file"),
        (lambda b: b"\x1f\x8b" + b[2:], "no uncompressed tar file"),
        (lambda b: b.replace(b"./a.b/00002.png", b"\xff" * 15), "expected a header at byte"),
        (lambda b: b"no tar file at all" * 100, "train-000.tar is damaged"),
    ],
)
def test_a_damaged_tar_file_is_named(images, tmp_path, change, reason):
    path = damaged_tar(images, tmp_path, change)
    with pytest.raises(CorruptFileError, match=reason) as caught:
        open_dataset(f"webdataset:{path}", "train")
    assert str(path) in str(caught.value)


def test_a_damaged_image_in_a_tar_file_is_named_with_its_member(images, tmp_path):
    rows = listed(images)[:5]
    rows[2] = (rows[2][0][:60], "line")
    path = write_shards(tmp_path, rows) / "train-000.tar"
    found = open_dataset(f"webdataset:{path}", "train")
    with pytest.raises(CorruptImageError) as caught:
        found.load(2)
    assert caught.value.where == f"a.b/00002 of {path}"
    assert found.load(3).size == (32, 32)
    path.unlink()
    with pytest.raises(InputError, match=r"00003 of .*No such file") as caught:
        found.load(3)
    assert not isinstance(caught.value, CorruptImageError), "--skip-corrupt would lose it"


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"1.cls": b"0"}, r"1 samples are not whole: 1 \(no image\)"),
        ({"c.v1.cls": b"1"}, r"1 samples are not whole: c\.v1 \(no image"),
        ({"c.v1.png": b""}, r"1 samples are not whole: c\.v1 \(no label"),
        ({"1.png": b"", "1.cls": b" \n"}, r"1 \(no label"),
        ([("1.png", b""), ("1.cls", b"0"), ("1.cls", b"1")], r"sample 1 has two \.cls"),
        ([("1.png", b""), ("1.png", b""), ("1.cls", b"1")], "sample 1 has two images"),
        ({"1.png": b""}, r"1 \(no label in \.cls or \.json\)"),
        ({"1.png": b"", "1.json": b'{"kind": 3}'}, "no label"),
        ({"1.png": b"", "1.json": b'{"label": [3]}'}, r"label is \[3\], expected a number"),
        ({"1.png": b"", "1.json": b'{"label": '}, r"1\.json of .*shard\.tar is not JSON"),
        ({"1.png": b"", "1.cls": b"\xff"}, r"1\.cls of .*is not UTF-8"),
        ({"1.png": b"", "1.cls": b"1" * 2_000_000}, "2,000,000 bytes"),
        ({"1.png": b"", "1.jpg": b"", "1.cls": b"0"}, r"sample 1 has two images"),
    ],
)
def test_odd_samples_are_named(images, tmp_path, members, reason):
    data = listed(images)[0][0]
    good = {
        "a.png": data,
        "a.cls": b"0",
        "b.png": data,
        "b.cls": b"1",
        "readme": b"x",
        "c.txt": b"x",
    }
    path = write_tar(tmp_path / "shard.tar", good)
    assert len(open_dataset(f"webdataset:{path}", "train")) == 2
    more = members if isinstance(members, list) else members.items()
    write_tar(path, [*good.items(), *more])
    with pytest.raises(InputError, match=reason) as caught:
        open_dataset(f"webdataset:{path}", "train")
    assert str(path) in str(caught.value)


def test_damaged_parquet_is_named_with_its_row(images, tmp_path):
    rows = listed(images)
    rows[3] = (rows[3][0][:60], "line")
    path = write_parquet(tmp_path / "x.parquet", rows)
    found = open_dataset(f"parquet:{path}", "train")
    with pytest.raises(CorruptImageError) as caught:
        found.load(3)
    assert caught.value.where == f"03 of {path}"

    content = bytearray(path.read_bytes())
    at = content.index(rows[6][0][-40:])
    content[at] ^= 1  # only the checksum of the page can tell
    path.write_bytes(content)
    with pytest.raises(CorruptImageError, match="CRC") as caught:
        open_dataset(f"parquet:{path}", "train").load(6)
    assert caught.value.where == f"06 of {path}"

    path.write_bytes(content[:-100])
    with pytest.raises(CorruptFileError, match=r"x\.parquet cannot be read as parquet"):
        open_dataset(f"parquet:{path}", "train")
    path.unlink()
    with pytest.raises(InputError, match="no such file") as caught:
        found.load(0)
    assert not isinstance(caught.value, CorruptFileError | CorruptImageError)


def test_what_parquet_lacks_is_said(images, tmp_path):
    rows = listed(images)
    path = write_parquet(tmp_path / "x.parquet", [(None, "line"), *rows])
    with pytest.raises(CorruptImageError, match=r"00 of .*a path alone is not"):
        open_dataset(f"parquet:{path}", "train").load(0)
    write_parquet(path, rows, label=[0, 1, -1] * 4)
    with pytest.raises(InvalidDataError, match="row 2 has the label -1, expected 0 to 2, of 3"):
        open_dataset(f"parquet:{path}", "train")
    assert len(open_dataset(f"parquet:{path}", "train", unlabelled=True)) == 12
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
    parquet.write_table(pa.table({"label": [1, 2]}), path)
    with pytest.raises(InvalidDataError, match="of images none"):
        open_dataset(f"parquet:{path}", "train")
