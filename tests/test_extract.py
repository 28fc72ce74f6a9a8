"""extract and merge: the same features whatever the batch, the shards, the stops and the cache."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torchvision
from helpers_images import FAMILIES, Narrow, ids_of, narrow, values, write_imagefolder  # noqa: F401
from PIL import Image
from torchvision import transforms

import afltool
from afltool.backbones.preprocessing import paper_preprocessing
from afltool.datasets.base import CorruptImageError
from afltool.errors import (
    CorruptFileError,
    InputError,
    InvalidDataError,
    MismatchError,
    OutputExistsError,
    UsageError,
)
from afltool.extraction.network import Network
from afltool.extraction.request import ExtractionRequest, get_store_path
from afltool.files.recipes import Target, state
from afltool.options.features import ExtractOptions
from afltool.options.grammars import Views
from afltool.stages import extract as stage

SMALL = {"weights": "random", "image_size": 32, "preprocess": "paper", "engine": "torch"}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """45 pictures of three classes: no multiple of a batch."""
    return write_imagefolder(tmp_path_factory.mktemp("images"), per_class=15, splits=("train",))


@pytest.fixture(scope="module")
def whole(images, tmp_path_factory):
    """Their features, extracted at a time."""
    return extract(images, tmp_path_factory.mktemp("whole") / "whole.h5")


def extract(images, out, backbone="narrow", **options):
    how = {"data": f"imagefolder:{images}", "split": "train", "out": out, **SMALL, **options}
    return afltool.extract(backbone=backbone, **how)


def digest(path):
    return afltool.info(path)["digest"]


def damage(images, *names):
    """Empty files in place of some pictures."""
    for name in names:
        (images / "train" / f"{name}.png").write_bytes(b"")


def independent_loop(images, ids, size, batch):
    """torchvision and PyTorch alone: nothing of afltool, over the same batches."""
    torch.manual_seed(0)
    network = torchvision.models.resnet18(weights=None).eval()
    network.fc = torch.nn.Identity()
    half = [0.5] * 3
    prepare = transforms.Compose(
        [transforms.Resize(size), transforms.ToTensor(), transforms.Normalize(half, half)]
    )
    pixels = [prepare(Image.open(images / name.decode()).convert("RGB")) for name in ids]
    with torch.no_grad():
        parts = [network(torch.stack(pixels[k : k + batch])) for k in range(0, len(ids), batch)]
    return torch.cat(parts).numpy()


def test_features_are_those_of_an_independent_loop_over_the_same_batches(images, tmp_path):
    """float32 within rounding of a sum; fixed point within one step."""
    how = {"backbone": "resnet18", "image_size": 40, "limit": 32}
    path = extract(images, tmp_path / "f.h5", dtype="float32", **how)
    expected = independent_loop(images, ids_of(path), 40, 16)
    assert len(expected) % 16 == 0, "the premise: whole batches"
    np.testing.assert_allclose(values(path), expected, rtol=1e-5, atol=1e-6)
    fixed = values(extract(images, tmp_path / "i.h5", **how))
    assert np.abs(fixed / 512 - expected).max() <= 1 / 512
    assert fixed.std() > 10, "constant features would pass anything"


def test_shards_put_together_are_the_whole(images, whole, tmp_path):
    shards = [extract(images, tmp_path / "shards" / f"{i}.h5", shard=f"{i}/4") for i in range(4)]
    merged = afltool.merge([tmp_path / "shards"], tmp_path / "merged.h5")
    assert digest(merged) == digest(whole)
    assert state(Target(merged, afltool.info(whole)["recipe"]), every_byte=True).word == "done"
    other = extract(images, tmp_path / "other.h5", shard="2/4", fraction_bits=8)
    for given, error, message in (
        ([shards[0], shards[1], shards[3]], MismatchError, r"1 of 4 shards are missing: 2/4"),
        ([*shards, shards[1]], MismatchError, "shard 1/4 is given twice"),
        (
            [shards[0], shards[1], other, shards[3]],
            MismatchError,
            r"not of the same extraction.*fraction_bits",
        ),
        ([whole], UsageError, "is not a shard"),
    ):
        with pytest.raises(error, match=message):
            afltool.merge(given, tmp_path / "m.h5")
    assert not (tmp_path / "m.h5").exists()


def test_shards_without_images_are_empty_files_that_merge(tmp_path):
    images = write_imagefolder(tmp_path / "images", per_class=1, splits=("train",))
    whole, shards = extract(images, tmp_path / "whole.h5"), tmp_path / "shards"
    for i in range(5):
        extract(images, shards / f"{i}.h5", shard=f"{i}/5")
    rows = [len(values(shards / f"{i}.h5")) for i in range(5)]
    assert (sum(rows), min(rows)) == (3, 0)
    assert digest(afltool.merge([shards], tmp_path / "merged.h5")) == digest(whole)
    with pytest.raises(InvalidDataError, match="at least one byte string"):
        afltool.partition(shards / f"{rows.index(0)}.h5", tmp_path / "p.h5",
                          scheme="iid", clients=2)  # fmt: skip


def test_what_was_done_is_said_and_written_down(images, tmp_path, caplog):
    with caplog.at_level("INFO", logger="afltool"):
        found = afltool.info(extract(images, tmp_path / "a.h5"))
    what = r"narrow \(random:0\) of 32 × 32 pixels, mean 0\.5 0\.5 0\.5"
    line = rf"extract: {what}, on cpu \(.+\), in fp32, by torch [\d.]+\S*"
    assert any(re.fullmatch(line, one) for one in caplog.messages)
    assert json.dumps(found)
    space = found["space"]
    assert (space["backbone"], space["node"], space["dim"]) == ("narrow", "input of fc", 64)
    assert space["preprocessing"]["mean"] == [0.5, 0.5, 0.5]
    assert len(space["weights"]) == len(space["preprocessing"]["fingerprint"]) == 64
    assert found["provenance"]["batch_size"] == 16
    assert found["source"]["weights"] == "random:0"
    assert found["classes"] == ["circle", "line", "square"]


# --- stops and corrupt images ---------------------------------------------------------------------


def test_a_stop_keeps_what_is_done_and_the_next_run_goes_on(
    images, whole, tmp_path, watched, caplog
):
    out = tmp_path / "stopped.h5"
    with watched.stopped_at(32):
        extract(images, out)
    assert not out.exists()
    with caplog.at_level("INFO", logger="afltool"):
        extract(images, out)
    assert watched.begun[-1] == ("extract", 45, 32)
    assert "32 of 45 images are done" in caplog.text
    assert digest(out) == digest(whole)
    assert not out.with_name(out.name + ".partial").exists()


def test_a_corrupt_image_is_named_or_left_out_and_counted(tmp_path, cli):
    images = write_imagefolder(tmp_path / "images", per_class=6, splits=("train",))
    whole = extract(images, tmp_path / "whole.h5")
    ids = ids_of(whole)
    (images / "train" / "line" / "0002.png").write_bytes(b"not a picture")
    with pytest.raises(CorruptImageError, match=r"line/0002\.png.*--skip-corrupt"):
        extract(images, tmp_path / "a.h5")
    assert not (tmp_path / "a.h5").exists()
    kept = extract(images, tmp_path / "b.h5", skip_corrupt=True)
    lost = ids.index(b"train/line/0002.png")
    assert ids_of(kept) == ids[:lost] + ids[lost + 1 :]
    assert np.abs(values(kept).astype(int) - np.delete(values(whole), lost, 0)).max() <= 1
    skipped = afltool.info(kept)["source"]["skipped"]
    assert [s["row"] for s in skipped] == ["train/line/0002.png"]
    said = cli("info", tmp_path / "b.h5").stdout
    assert "1 images that cannot be read, such as train/line/0002.png" in said
    assert json.loads(cli("info", tmp_path / "b.h5", "--field", "source.skipped").stdout) == skipped


def test_rows_that_are_done_serve_with_skip_corrupt_and_without(tmp_path, watched):
    """A stop at a damaged picture, in a file of the user and in the store."""
    images, out = write_imagefolder(tmp_path / "i", per_class=10, splits=("train",)), tmp_path / "a"
    damage(images, "line/0009")
    whole = extract(images, tmp_path / "whole.h5", skip_corrupt=True)
    for where in ({}, {"store": tmp_path / "store"}):
        out.unlink(missing_ok=True)
        with pytest.raises(CorruptImageError, match=r"line/0009\.png"):
            extract(images, out, **where)
        extract(images, out, skip_corrupt=True, **where)
        assert watched.begun[-1] == ("extract", 30, 16)
        assert digest(out) == digest(whole)
        with pytest.raises(OutputExistsError, match="skip_corrupt"):
            extract(images, out, **where)


def test_an_image_that_was_left_out_is_not_left_out_without_the_option(tmp_path, watched):
    images = write_imagefolder(tmp_path / "images", per_class=10, splits=("train",))
    damage(images, "circle/0003")
    with watched.stopped_at(16):
        extract(images, tmp_path / "a.h5", skip_corrupt=True)
    with pytest.raises(InvalidDataError, match=r"circle/0003\.png.*remove .*a\.h5\.partial"):
        extract(images, tmp_path / "a.h5")
    extract(images, tmp_path / "a.h5", skip_corrupt=True)
    assert watched.begun[-1] == ("extract", 30, 16)


# --- the store ------------------------------------------------------------------------------------


def test_the_store_answers_the_second_time_and_knows_what_changes_a_feature(
    images, tmp_path, monkeypatch, watched
):
    monkeypatch.setenv("AFLTOOL_STORE", str(tmp_path / "store"))
    first = extract(images, None)
    before = first.stat().st_mtime_ns
    assert extract(images, None, threads=1) == first, "threads are recorded, not a key"
    assert first.stat().st_mtime_ns == before
    assert len(watched.begun) == 1, "nothing is extracted a second time"

    def place(**change):
        how = {"backbone": "narrow", "data": f"imagefolder:{images}", **SMALL, **change}
        return get_store_path(ExtractionRequest.of(ExtractOptions(**how)))[0]

    changes = (
        {"precision": "bf16"}, {"seed": 1}, {"fraction_bits": 8}, {"dtype": "float32"},
        {"limit": 30}, {"image_size": 40}, {"views": "flip"}, {"node": "layer3"},
        {"classes": ("square", "line", "circle")},
    )  # fmt: skip
    assert place() == first
    assert len({first, *(place(**change) for change in changes)}) == 1 + len(changes)


def test_a_file_beside_a_store_is_a_link_to_the_features_in_it(images, tmp_path, watched):
    store, file = tmp_path / "store", tmp_path / "new" / "a.h5"
    assert extract(images, file, store=store) == file
    kept = next(store.glob("*.h5"))
    assert kept.samefile(file)
    assert extract(images, tmp_path / "b.h5", store=store).samefile(kept)
    assert extract(images, file, store=store) == file
    assert len(watched.begun) == 1, "nothing is extracted a second time"
    with pytest.raises(OutputExistsError, match="made differently"):
        extract(images, file, store=store, seed=1)


def test_a_store_answers_for_the_same_weights_and_images(tmp_path):
    images = write_imagefolder(tmp_path / "images", per_class=2, splits=("train",))
    weights, store = tmp_path / "w.pth", tmp_path / "store"
    for seed in (0, 1):
        torch.manual_seed(seed)
        torch.save(Narrow().build(32).state_dict(), tmp_path / f"{seed}.pth")
    shutil.copy(tmp_path / "0.pth", weights)
    options = {"weights": str(weights), "store": store}
    first = extract(images, None, **options)
    assert extract(images, None, **options) == first
    times = weights.stat()
    weights.write_bytes((tmp_path / "1.pth").read_bytes())
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert weights.stat().st_size == times.st_size, "the premise: size and mtime are the same"
    other = extract(images, None, **options)
    assert other != first
    assert afltool.info(other)["space"]["weights"] != afltool.info(first)["space"]["weights"]
    Image.new("RGB", (32, 32), "red").save(images / "train" / "line" / "0000.png")
    assert extract(images, None, **options) != other


def test_a_lost_file_is_made_again_and_a_damaged_one_is_not_answered(images, whole, tmp_path):
    first = extract(images, None, store=tmp_path)
    first.unlink()
    assert extract(images, None, store=tmp_path) == first
    assert digest(first) == digest(whole)
    place = first.read_bytes().index(values(first)[:1].tobytes())
    with first.open("r+b") as file:
        file.seek(place)
        file.write(b"damage")
    with pytest.raises(CorruptFileError, match="not usable"):
        extract(images, None, store=tmp_path)


# --- what can go wrong under way ------------------------------------------------------------------


def test_features_beyond_the_range_name_the_images(images, tmp_path):
    message = r"images .*train/circle/0000\.png to .*--fraction-bits \d+ would hold"
    with pytest.raises(InvalidDataError, match=message):
        extract(images, tmp_path / "a.h5", node="penultimate*4096")
    assert not (tmp_path / "a.h5").exists()


class Full(Narrow):
    """A network whose device has no memory for a third step of 16 images."""

    def build(self, image_size):
        network, steps = super().build(image_size), []

        def hook(_, given):
            steps.extend([16] * (len(given[0]) == 16))
            if len(steps) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

        network.register_forward_pre_hook(hook)
        return network


def test_a_full_device_ends_with_a_message_and_what_is_done_is_kept(images, tmp_path, monkeypatch):
    monkeypatch.setitem(FAMILIES.data, "narrow", f"{__name__}:Full")
    message = r"the network failed on cpu with 16 images at a time .*--device"
    with pytest.raises(InputError, match=message):
        extract(images, tmp_path / "a.h5")
    assert not (tmp_path / "a.h5").exists()
    assert (tmp_path / "a.h5.partial").exists()


class Zeros:
    """An engine that takes any image for nothing."""

    step, threads, batch = 4, 2, 8

    def run(self, pixels):
        return np.zeros((4, 1), np.float32)

    def working(self):
        return nullcontext()


def test_a_thread_that_fails_is_told_with_its_image_behind_what_is_done():
    def decode(index):
        if index == 30:
            raise RuntimeError("the codec's arena is gone")
        return np.zeros((3, 4, 4), np.uint8)

    facts = SimpleNamespace(dim=1, slices=())
    network = Network(facts, paper_preprocessing(4), "fp32", Views(), Zeros())
    done = network.features(decode, range(45))
    assert [next(done)[0].indices.stop for _ in range(3)] == [8, 16, 24]
    with pytest.raises(InputError, match=r"failed at image 30 \(RuntimeError: .*run the same"):
        next(done)


def test_an_image_that_is_gone_under_way_loses_nothing_that_was_done(tmp_path, watched):
    images = write_imagefolder(tmp_path / "images", per_class=40, size=16, splits=("train",))
    whole = extract(images, tmp_path / "whole.h5")
    last, away = images / "train" / "square" / "0039.png", tmp_path / "away.png"
    watched.at(16, lambda: last.rename(away))
    with pytest.raises(InputError, match=r"0039\.png"):
        extract(images, tmp_path / "a.h5")
    away.rename(last)
    extract(images, tmp_path / "a.h5")
    assert watched.begun[-1] == ("extract", 120, 112)
    assert digest(tmp_path / "a.h5") == digest(whole)


def test_whole_chunks_are_committed_whatever_is_skipped(tmp_path, monkeypatch, watched):
    """Three rows are missing early on, so that no batch ends where a chunk does; one is all bad."""
    images = write_imagefolder(tmp_path / "images", per_class=100, size=8, splits=("train",))
    damage(images, *(f"circle/{i:04d}" for i in (0, 5, 9, *range(16, 24))))
    monkeypatch.setattr(stage, "COMMIT_SECONDS", 0)
    with watched.killed_at(290):
        extract(images, tmp_path / "a.h5", skip_corrupt=True)
    path = extract(images, tmp_path / "a.h5", skip_corrupt=True)
    assert watched.begun[-1] == ("extract", 300, 256 + 11)
    assert len(ids_of(path)) == 289
    whole = extract(images, tmp_path / "whole.h5", skip_corrupt=True)
    assert ids_of(path) == ids_of(whole)
    assert np.array_equal(values(path), values(whole)), "nothing is lost or doubled"


def test_pictures_that_become_a_bomb_when_resized_are_named(tmp_path):
    images = write_imagefolder(tmp_path / "images", per_class=2, splits=("train",))
    first = images / "train" / "line" / "0000.png"
    Image.new("RGB", (1, 60_000)).save(first)
    with pytest.raises(CorruptImageError, match=r"line/0000\.png: 1 × 60000 pixels become"):
        extract(images, tmp_path / "a.h5", image_size=64)
    path = extract(images, tmp_path / "b.h5", image_size=64, skip_corrupt=True)
    assert len(afltool.info(path)["source"]["skipped"]) == 1


def photographs(folder):
    """Pictures with damaged EXIF, with an orientation, with a transparent pixel, and plain ones."""
    rng = np.random.default_rng(0)
    turned = Image.Exif()
    turned[0x0112] = 6
    # a directory that promises 200 entries and ends after the first
    damaged = b"Exif\0\0II*\0\x08\0\0\0" + b"\xc8\0" + b"\x0f\x01\x02\0\xff\0\0\0\xf0\xff\0\0"
    for i in range(12):
        place = folder / "train" / "ab"[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(rng.integers(0, 255, (32, 32, 3), dtype=np.uint8))
        if i < 6:
            how = ({"exif": damaged}, {"exif": turned}, {})[i // 2]
            picture.save(place / f"{i}.jpg", **how)
            continue
        picture.putalpha(255)
        if i > 8:  # else an alpha that hides nothing
            picture.putpixel((0, 0), (1, 2, 3, 4))
        picture.save(place / f"{i}.png")
    return folder


def test_remarks_of_readers_are_counted_and_named_by_the_tool(tmp_path, cli, caplog, recwarn):
    images = photographs(tmp_path / "images")
    expected = {
        r"2 images, such as .*[ab]/[23]\.jpg: its EXIF orientation is not applied",
        r"3 images, such as .*[ab]/(9|10|11)\.png: its transparency is left out",
    }
    with caplog.at_level("INFO", logger="afltool"):
        extract(images, tmp_path / "a.h5", threads=2, skip_corrupt=True)
    lines = [one for one in caplog.messages if "images, such as" in one]
    assert len(lines) == len(expected)
    assert all(any(re.search(one, line) for line in lines) for one in expected)
    images_are = "EXIF orientation and transparency are ignored, as in torchvision"
    assert afltool.info(tmp_path / "a.h5")["images"] == images_are
    assert images_are in " ".join(cli("info", tmp_path / "a.h5").stdout.split())
    for quiet in ([], ["-q"]):
        done = cli(
            *quiet, "extract", "--backbone", "narrow", "--weights", "random", "--image-size", 32,
            "--data", f"imagefolder:{images}", "--engine", "torch", "-o", tmp_path / f"{quiet}.h5",
        )  # fmt: skip
        assert done.exit_code == 0, done.stderr
        assert done.stderr.count("such as") == len(expected) * (not quiet)
        assert "UserWarning" not in done.stderr
    assert not recwarn.list
