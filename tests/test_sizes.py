"""extract --image-size several times: a file each, as alone, and each image decoded once."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager

import pytest
from helpers_images import write_imagefolder
from PIL import Image

import afltool
from afltool.errors import UsageError

SMALL = {"weights": "random", "batch_size": 4, "engine": "torch", "plain": True}
SIZES = (32, 40)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """21 pictures of three classes: no multiple of a batch."""
    return write_imagefolder(tmp_path_factory.mktemp("images"), per_class=7, splits=("train",))


@pytest.fixture(scope="module")
def alone(images, tmp_path_factory):
    """The file of each size, made alone."""
    folder = tmp_path_factory.mktemp("alone")
    return {size: one(images, folder / f"{size}.h5", image_size=size) for size in SIZES}


def one(images, out, **options):
    return afltool.extract(
        "resnet18", f"imagefolder:{images}", "train", out, **{**SMALL, **options}
    )


def several(images, out, **options):
    return afltool.extract_sizes(
        "resnet18", f"imagefolder:{images}", "train", out,
        **{**SMALL, "image_size": SIZES, **options},
    )  # fmt: skip


def said(path):
    """All that a file says of itself but when and where it was made."""
    found = afltool.info(path)
    return [found[name] for name in ("digest", "recipe", "space", "classes", "source")]


_opened: list[Counter[str]] = []


@contextmanager
def opened():
    """How often each picture is opened in the block, by its path."""
    if not opened.__dict__.setdefault("heard", False):
        sys.addaudithook(_hear)  # there is no way to take one off
        opened.heard = True
    _opened.append(Counter())
    yield _opened[-1]
    _opened.pop()


def _hear(event, args):
    # The mode is None where the file itself is opened, by the `opener` of `open`.
    if _opened and event == "open" and args[1] is None and str(args[0]).endswith(".png"):
        _opened[-1][str(args[0])] += 1


def test_each_size_has_the_file_that_it_has_alone_and_each_image_is_decoded_once(
    images, alone, tmp_path, watched
):
    with opened() as count:
        paths = several(images, tmp_path / "a.h5")
    assert [path.name for path in paths] == ["a-32.h5", "a-40.h5"]
    assert [said(path) for path in paths] == [said(path) for path in alone.values()]
    assert said(paths[0])[0] != said(paths[1])[0]
    assert (len(count), set(count.values())) == (21, {1})
    assert watched.begun == [("extract", 42, 0)]
    assert several(images, tmp_path / "a.h5") == paths
    assert len(watched.begun) == 1, "nothing is extracted a second time"


def test_after_a_stop_each_size_goes_on_where_it_was(images, alone, tmp_path, watched):
    """One of them was 8 images ahead; images that both lack are decoded once."""
    with watched.stopped_at(8):
        one(images, tmp_path / "a-40.h5", image_size=40)
    with watched.stopped_at(8 + 12):
        several(images, tmp_path / "a.h5")
    assert watched.begun[-1] == ("extract", 42, 8)
    with opened() as count:
        paths = several(images, tmp_path / "a.h5")
    assert watched.begun[-1][2] >= 8 + 12
    assert 0 < len(count) < 21
    assert set(count.values()) == {1}
    assert [said(path) for path in paths] == [said(path) for path in alone.values()]


def test_sizes_in_the_store_are_those_of_single_calls(images, alone, tmp_path, watched):
    store = {"store": tmp_path / "store"}
    first = one(images, None, image_size=40, **store)
    with opened() as count:
        paths = several(images, None, **store)
    assert paths[1] == first
    assert watched.begun[-1] == ("extract", 21, 0), "one size only"
    assert set(count.values()) == {1}
    linked = several(images, tmp_path / "b.h5", **store)
    assert all(a.samefile(b) for a, b in zip(linked, paths, strict=True))
    assert one(images, None, image_size=32, **store) == paths[0]
    assert len(watched.begun) == 2, "nothing is extracted a second time"
    assert [said(path) for path in paths] == [said(path) for path in alone.values()]


@pytest.mark.slow
def test_an_image_that_one_size_cannot_have_is_left_out_of_that_one(tmp_path):
    """1 × 9000 pixels: 9 million at 32, a decompression bomb at 100."""
    images = write_imagefolder(tmp_path / "images", per_class=2, splits=("train",))
    Image.new("RGB", (1, 9000)).save(images / "train" / "line" / "long.png")
    (images / "train" / "line" / "damaged.png").write_bytes(b"no picture")
    paths = several(images, tmp_path / "a.h5", image_size=(32, 100), skip_corrupt=True)
    skipped = [[s["row"] for s in afltool.info(p)["source"]["skipped"]] for p in paths]
    damaged, long = "train/line/damaged.png", "train/line/long.png"
    assert skipped == [[damaged], [damaged, long]]
    (images / "train" / "line" / "damaged.png").unlink()
    with pytest.raises(afltool.errors.InvalidDataError, match=r"long\.png.*100"):
        several(images, tmp_path / "b.h5", image_size=(32, 100))
    assert not list(tmp_path.glob("b-*.h5"))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["torch", "onnxruntime", "openvino"])
def test_shards_of_several_sizes_in_each_engine_with_views(images, tmp_path, monkeypatch, engine):
    pytest.importorskip(engine)
    monkeypatch.setenv("AFLTOOL_STORE", str(tmp_path / "store"))  # of graphs, too
    how = {"engine": engine, "plain": False, "views": "flip+crops:2"}
    shards = [several(images, tmp_path / f"{i}.h5", shard=f"{i}/2", **how) for i in range(2)]
    for size, parts in zip(SIZES, zip(*shards, strict=True), strict=True):
        alone = one(images, None, image_size=size, **how)
        merged = afltool.merge(parts, tmp_path / f"{size}.h5")
        assert said(merged)[:4] == said(alone)[:4]


def test_who_makes_one_file_refuses_several_sizes(images, tmp_path, cli):
    sizes = ("--image-size", 32, "--image-size", 40)
    data = ("--data", f"imagefolder:{images}", "--backbone", "resnet18", "--weights", "random")
    out = ("-o", tmp_path / "out")
    for words in (
        ("extract", *data, *sizes, "--list-nodes"),
        ("backbone", "resnet18", "--weights", "random", *sizes, "-o", tmp_path / "net.afl"),
    ):
        found = cli(*words)
        assert (found.exit_code, "several --image-size (32, 40) are for" in found.stderr) == (2, 1)
    assert "give it once" in cli("extract", *data, *sizes[:2], *sizes[:2], *out).stderr
    assert "pixels; found 0" in cli("extract", *data, *sizes, "--image-size", 0, *out).stderr
    with pytest.raises(UsageError, match="are for extract"):
        one(images, tmp_path / "a.h5", image_size=SIZES)
    assert not list(tmp_path.iterdir())
