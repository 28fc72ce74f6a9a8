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
from helpers_images import scarce_memory, write_imagefolder
from PIL import Image
from torchvision import transforms

import afltool
from afltool.errors import (
    CorruptFileError,
    InputError,
    InvalidDataError,
    MismatchError,
    OutputExistsError,
    UsageError,
)
from afltool.files.features import open_features
from afltool.files.recipes import Target, state
from afltool.options.features import ExtractOptions
from afltool.options.grammars import Views
from afltool.sources.backbones.preprocessing import paper_preprocessing
from afltool.sources.extraction.network import Network
from afltool.sources.extraction.request import Asked, in_store
from afltool.sources.images.base import CorruptImageError
from afltool.stages import extract as stage

# Folding of batch norms, half of the time of such an extraction, has tests of its own below.
SMALL = {"weights": "random", "image_size": 32, "preprocess": "paper", "batch_size": 8,
         "engine": "torch"}  # fmt: skip


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """45 pictures of three classes: no multiple of a batch."""
    return write_imagefolder(tmp_path_factory.mktemp("images"), per_class=15, splits=("train",))


def extract(images, out, **options):
    return afltool.extract(
        backbone="resnet18",
        data=f"imagefolder:{images}",
        split="train",
        out=out,
        **{**SMALL, **options},
    )


def values(path):
    with open_features(path) as features:
        return np.asarray(features.stored(0, len(features))), features.row_ids.tolist()


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
    floats, ids = values(extract(images, tmp_path / "f.h5", dtype="float32", image_size=40,
                                 batch_size=9))  # fmt: skip
    expected = independent_loop(images, ids, 40, 9)
    assert len(ids) % 9 == 0, "the premise: whole batches"
    np.testing.assert_allclose(floats, expected, rtol=1e-5, atol=1e-6)
    fixed, _ = values(extract(images, tmp_path / "i.h5", image_size=40))
    assert np.abs(fixed / 512 - expected).max() <= 1 / 512
    assert fixed.std() > 10, "constant features would pass anything"


def test_shards_put_together_are_the_whole(images, tmp_path):
    whole = extract(images, tmp_path / "whole.h5")
    shards = [extract(images, tmp_path / "shards" / f"{i}.h5", shard=f"{i}/4") for i in range(4)]
    merged = afltool.merge([tmp_path / "shards"], tmp_path / "merged.h5")
    assert afltool.info(merged)["digest"] == afltool.info(whole)["digest"]
    assert state(Target(merged, afltool.info(whole)["recipe"]), every_byte=True).word == "done"
    with pytest.raises(MismatchError, match=r"1 of 4 shards are missing: 2/4"):
        afltool.merge([shards[0], shards[1], shards[3]], tmp_path / "m.h5")
    with pytest.raises(MismatchError, match="shard 1/4 is given twice"):
        afltool.merge([*shards, shards[1]], tmp_path / "m.h5")
    other = extract(images, tmp_path / "other.h5", shard="2/4", fraction_bits=8)
    with pytest.raises(MismatchError, match=r"not of the same extraction.*fraction_bits"):
        afltool.merge([shards[0], shards[1], other, shards[3]], tmp_path / "m.h5")
    with pytest.raises(UsageError, match="is not a shard"):
        afltool.merge([whole], tmp_path / "m.h5")
    assert not (tmp_path / "m.h5").exists()


def test_shards_without_images_are_empty_files_that_merge(tmp_path):
    images = write_imagefolder(tmp_path / "images", per_class=1, splits=("train",))
    whole = extract(images, tmp_path / "whole.h5")
    for i in range(5):
        extract(images, tmp_path / "shards" / f"{i}.h5", shard=f"{i}/5")
    rows = [len(values(tmp_path / "shards" / f"{i}.h5")[1]) for i in range(5)]
    assert (sum(rows), min(rows)) == (3, 0)
    merged = afltool.merge([tmp_path / "shards"], tmp_path / "merged.h5")
    assert afltool.info(merged)["digest"] == afltool.info(whole)["digest"]
    with pytest.raises(InvalidDataError, match="at least one byte string"):
        afltool.partition(tmp_path / "shards" / f"{rows.index(0)}.h5", tmp_path / "p.h5",
                          scheme="iid", clients=2)  # fmt: skip


def test_it_says_what_runs_the_network(images, tmp_path, caplog):
    with caplog.at_level("INFO", logger="afltool"):
        extract(images, tmp_path / "a.h5", engine="torch")
    what = r"resnet18 \(random:0\) of 32 × 32 pixels, mean 0\.5 0\.5 0\.5"
    line = rf"extract: {what}, on cpu \(.+\), in fp32, by torch [\d.]+\S*"
    assert any(re.fullmatch(line, one) for one in caplog.messages)


def test_options_that_cannot_be_are_refused(images, tmp_path):
    for text in ("4/4", "1", "a/b", "-1/3"):
        with pytest.raises(UsageError, match="--shard is I/N"):
            extract(images, tmp_path / "x.h5", shard=text)
    with pytest.raises(UsageError, match="--batch-size is 1 to 65536; found 0"):
        extract(images, tmp_path / "x.h5", batch_size=0)


def test_a_stop_keeps_what_is_done_and_the_next_run_goes_on(images, tmp_path, watched, caplog):
    whole = extract(images, tmp_path / "whole.h5")
    out = tmp_path / "stopped.h5"
    with watched.stopped_at(32):
        extract(images, out)
    assert not out.exists()
    with caplog.at_level("INFO", logger="afltool"):
        extract(images, out)
    assert watched.begun[-1] == ("extract", 45, 32)
    assert "32 of 45 images are done" in caplog.text
    assert afltool.info(out)["digest"] == afltool.info(whole)["digest"]
    assert not out.with_name(out.name + ".partial").exists()


def test_a_corrupt_image_is_named_or_left_out_and_counted(tmp_path, cli):
    images = write_imagefolder(tmp_path / "images", per_class=6, splits=("train",))
    whole, ids = values(extract(images, tmp_path / "whole.h5"))
    (images / "train" / "line" / "0002.png").write_bytes(b"not a picture")
    with pytest.raises(CorruptImageError, match=r"line/0002\.png.*--skip-corrupt"):
        extract(images, tmp_path / "a.h5")
    assert not (tmp_path / "a.h5").exists()
    kept, rest = values(extract(images, tmp_path / "b.h5", skip_corrupt=True))
    lost = ids.index(b"train/line/0002.png")
    assert rest == ids[:lost] + ids[lost + 1 :]
    assert np.abs(kept.astype(int) - np.delete(whole, lost, 0)).max() <= 1
    skipped = afltool.info(tmp_path / "b.h5")["source"]["skipped"]
    assert [s["row"] for s in skipped] == ["train/line/0002.png"]
    said = cli("info", tmp_path / "b.h5").stdout
    assert "1 images that cannot be read, such as train/line/0002.png" in said
    assert json.loads(cli("info", tmp_path / "b.h5", "--field", "source.skipped").stdout) == skipped


def test_rows_that_are_done_serve_with_skip_corrupt_and_without(tmp_path, watched):
    """A stop at a damaged picture, in a file of the user and in the store."""
    images = write_imagefolder(tmp_path / "images", per_class=10, splits=("train",))
    out, bad = tmp_path / "a.h5", images / "train" / "line" / "0009.png"
    bad.write_bytes(b"")
    whole = afltool.info(extract(images, tmp_path / "whole.h5", skip_corrupt=True))["digest"]
    for where in ({}, {"store": tmp_path / "store"}):
        out.unlink(missing_ok=True)
        with pytest.raises(CorruptImageError, match=r"line/0009\.png"):
            extract(images, out, **where)
        extract(images, out, skip_corrupt=True, **where)
        assert watched.begun[-1] == ("extract", 30, 16)
        assert afltool.info(out)["digest"] == whole
        with pytest.raises(OutputExistsError, match="skip_corrupt"):
            extract(images, out, **where)


def test_an_image_that_was_left_out_is_not_left_out_without_the_option(tmp_path, watched):
    images = write_imagefolder(tmp_path / "images", per_class=10, splits=("train",))
    (images / "train" / "circle" / "0003.png").write_bytes(b"")
    with watched.stopped_at(16):
        extract(images, tmp_path / "a.h5", skip_corrupt=True)
    with pytest.raises(InvalidDataError, match=r"circle/0003\.png.*remove .*a\.h5\.partial"):
        extract(images, tmp_path / "a.h5")
    extract(images, tmp_path / "a.h5", skip_corrupt=True)
    assert watched.begun[-1] == ("extract", 30, 16)


def test_a_file_from_which_nothing_was_left_out_is_kept_with_skip_corrupt(images, tmp_path):
    out = extract(images, tmp_path / "a.h5")
    before = out.stat().st_mtime_ns
    assert extract(images, out, skip_corrupt=True).stat().st_mtime_ns == before
    other = extract(images, tmp_path / "b.h5", skip_corrupt=True)
    before = other.stat().st_mtime_ns
    assert extract(images, other).stat().st_mtime_ns == before


def test_shards_may_differ_in_what_they_tolerate(tmp_path):
    images = write_imagefolder(tmp_path / "images", per_class=4, splits=("train",))
    (images / "train" / "line" / "0000.png").write_bytes(b"")
    parts = [
        extract(images, tmp_path / f"{i}.h5", shard=f"{i}/2", skip_corrupt=i == bad)
        for i, bad in ((0, 0), (1, 0))
    ]
    whole = afltool.merge(parts, tmp_path / "merged.h5")
    again = extract(images, tmp_path / "whole.h5", skip_corrupt=True)
    assert afltool.info(whole)["recipe"] == afltool.info(again)["recipe"]
    assert afltool.info(whole)["digest"] == afltool.info(again)["digest"]


def test_a_stop_among_corrupt_images_loses_and_doubles_nothing(tmp_path, watched):
    images = write_imagefolder(tmp_path / "images", per_class=20, splits=("train",))
    for i in (0, 5, 9):
        (images / "train" / "line" / f"{i:04d}.png").write_bytes(b"")
    whole, ids = values(extract(images, tmp_path / "whole.h5", skip_corrupt=True))
    assert len(ids) == 57
    for stop_at in (16, 32, 48):
        out = tmp_path / f"{stop_at}.h5"
        with watched.stopped_at(stop_at):
            extract(images, out, skip_corrupt=True)
        again, rest = values(extract(images, out, skip_corrupt=True))
        assert watched.begun[-1] == ("extract", 60, stop_at)
        assert rest == ids
        assert np.array_equal(again, whole)


def test_the_store_answers_the_second_time_and_knows_what_changes_a_feature(
    images, tmp_path, monkeypatch, watched
):
    monkeypatch.setenv("AFLTOOL_STORE", str(tmp_path / "store"))
    first = extract(images, None)
    before = first.stat().st_mtime_ns
    assert extract(images, None) == first
    assert first.stat().st_mtime_ns == before
    assert len(watched.begun) == 1, "nothing is extracted a second time"

    def place(**change):
        given = ExtractOptions(
            backbone="resnet18", data=f"imagefolder:{images}", **{**SMALL, **change}
        )
        return in_store(Asked.of(given))[0]

    paths = {place(), extract(images, None, image_size=40)}
    for change in (
        {"precision": "bf16"},
        {"seed": 1},
        {"fraction_bits": 8},
        {"dtype": "float32"},
        {"limit": 30},
        {"classes": ("square", "line", "circle")},
    ):
        paths.add(place(**change))
    assert len(paths | {first}) == 8
    assert extract(images, None, batch_size=4) == first, "a batch size is recorded, not a key"


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


def test_a_table_is_answered_by_the_columns_that_were_asked_for(tmp_path):
    """One table, two columns of labels: two files in the store."""
    write_imagefolder(tmp_path, ("ape", "bee"), per_class=2, splits=("all",), size=8)
    files = sorted(p.relative_to(tmp_path).as_posix() for p in (tmp_path / "all").rglob("*.png"))
    table = tmp_path / "t.csv"
    rows = [f"{name},{name.split('/')[1]},{i % 2}" for i, name in enumerate(files)]
    table.write_text("\n".join(["file,animal,sick", *rows]))

    def classes(**columns):
        made = afltool.extract(
            backbone="resnet18", data=f"table:{table}", store=tmp_path / "store", **SMALL, **columns
        )
        return afltool.info(made)["classes"], made

    for _ in range(2):
        assert classes(path_column="file", label_column="animal")[0] == ["ape", "bee"]
        assert classes(path_column="file", label_column="sick")[0] == ["0", "1"]


def test_a_changed_image_is_not_answered_from_the_store(tmp_path):
    images = write_imagefolder(tmp_path / "images", per_class=2, splits=("train",))
    first = extract(images, None, store=tmp_path / "store")
    Image.new("RGB", (32, 32), "red").save(images / "train" / "line" / "0000.png")
    assert extract(images, None, store=tmp_path / "store") != first


def test_what_was_done_is_written_down(images, tmp_path):
    found = afltool.info(extract(images, tmp_path / "a.h5"))
    assert json.dumps(found)
    space = found["space"]
    assert (space["backbone"], space["node"], space["dim"]) == ("resnet18", "input of fc", 512)
    assert space["preprocessing"]["mean"] == [0.5, 0.5, 0.5]
    assert len(space["weights"]) == len(space["preprocessing"]["fingerprint"]) == 64
    assert found["provenance"]["batch_size"] == 16
    assert found["source"]["weights"] == "random:0"
    assert found["classes"] == ["circle", "line", "square"]


def test_features_beyond_the_range_name_the_images(images, tmp_path):
    message = r"images .*train/circle/0000\.png to .*--fraction-bits \d+ would hold it"
    with pytest.raises(InvalidDataError, match=message):
        extract(images, tmp_path / "a.h5", node="penultimate*1024")
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.slow
def test_a_store_answers_for_the_same_weights_images_and_options(tmp_path):
    images = write_imagefolder(tmp_path / "images", per_class=2, splits=("train",))
    for seed in (0, 1):
        torch.manual_seed(seed)
        torch.save(torchvision.models.resnet18().state_dict(), tmp_path / f"{seed}.pth")
    weights, store = tmp_path / "w.pth", tmp_path / "store"
    shutil.copy(tmp_path / "0.pth", weights)
    options = {"weights": str(weights), "store": store}
    first = extract(images, None, **options)
    assert extract(images, None, **options) == first
    for change in ({"views": "flip"}, {"limit": 3}):
        assert extract(images, None, **{**options, **change}) != first
    times = weights.stat()
    weights.write_bytes((tmp_path / "1.pth").read_bytes())
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert weights.stat().st_size == times.st_size, "the premise: size and mtime are the same"
    other = extract(images, None, **options)
    assert other != first
    assert afltool.info(other)["space"]["weights"] != afltool.info(first)["space"]["weights"]


def test_a_lost_file_is_made_again_and_a_damaged_one_is_not_answered(images, tmp_path):
    first = extract(images, None, store=tmp_path)
    digest = afltool.info(first)["digest"]
    first.unlink()
    assert extract(images, None, store=tmp_path) == first
    assert afltool.info(first)["digest"] == digest
    place = first.read_bytes().index(values(first)[0][:1].tobytes())
    with first.open("r+b") as file:
        file.seek(place)
        file.write(b"damage")
    with pytest.raises(CorruptFileError, match="not usable"):
        extract(images, None, store=tmp_path)


# --- what can go wrong under way ------------------------------------------------------------------


def test_a_full_device_ends_with_a_message_and_what_is_done_is_kept(images, tmp_path):
    message = r"the network failed on cpu with 16 images at a time .*--device"
    with scarce_memory(16, after=2), pytest.raises(InputError, match=message):
        extract(images, tmp_path / "a.h5")
    assert not (tmp_path / "a.h5").exists()
    assert (tmp_path / "a.h5.partial").exists()


class Zeros:
    """An engine that takes any image for nothing."""

    step, threads = 4, 2

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
    network = Network(facts, paper_preprocessing(4), "fp32", Views(), Zeros(), 8, 2)
    done = network.features(decode, range(45))
    assert [next(done)[0].indices.stop for _ in range(3)] == [8, 16, 24]
    with pytest.raises(InputError, match=r"failed at image 30 \(RuntimeError: .*run the same"):
        next(done)


def test_an_image_that_is_gone_under_way_loses_nothing_that_was_done(tmp_path, watched):
    images = write_imagefolder(tmp_path / "images", per_class=40, splits=("train",))
    whole = extract(images, tmp_path / "whole.h5")
    last, away = images / "train" / "square" / "0039.png", tmp_path / "away.png"
    watched.at(16, lambda: last.rename(away))
    with pytest.raises(InputError, match=r"0039\.png"):
        extract(images, tmp_path / "a.h5")
    away.rename(last)
    extract(images, tmp_path / "a.h5")
    assert watched.begun[-1] == ("extract", 120, 112)
    assert afltool.info(tmp_path / "a.h5")["digest"] == afltool.info(whole)["digest"]


def test_whole_chunks_are_committed_whatever_is_skipped(tmp_path, monkeypatch, watched):
    """Three rows are missing early on, so that no batch ends where a chunk does; one is all bad."""
    images = write_imagefolder(tmp_path / "images", per_class=100, size=8, splits=("train",))
    bad = [0, 5, 9, *range(16, 24)]
    for i in bad:
        (images / "train" / "circle" / f"{i:04d}.png").write_bytes(b"")
    monkeypatch.setattr(stage, "COMMIT_SECONDS", 0)
    with watched.killed_at(290):
        extract(images, tmp_path / "a.h5", skip_corrupt=True)
    found, ids = values(extract(images, tmp_path / "a.h5", skip_corrupt=True))
    assert watched.begun[-1] == ("extract", 300, 256 + 11)
    assert len(found) == len(ids) == 289
    assert ids[0] == b"train/circle/0001.png"


def test_a_picture_that_only_becomes_a_bomb_when_resized_is_refused(tmp_path):
    images = write_imagefolder(tmp_path / "images", per_class=2, splits=("train",))
    Image.new("RGB", (1, 60_000)).save(images / "train" / "line" / "0000.png")
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


def test_a_damaged_tiff_is_named(tmp_path):
    images = write_imagefolder(tmp_path / "images", per_class=2, splits=("train",))
    bad = images / "train" / "line" / "0000.tif"
    Image.new("RGB", (64, 64)).save(bad, compression="tiff_deflate")
    data = bytearray(bad.read_bytes())
    data[12:16] = b"\xff\xff\xff\xff"
    bad.write_bytes(data)
    with pytest.raises(CorruptImageError, match=r"0000\.tif"):
        extract(images, tmp_path / "a.h5")


def test_remarks_of_readers_are_counted_and_named_by_the_tool(tmp_path, cli, caplog, recwarn):
    images = photographs(tmp_path / "images")
    expected = {
        r"2 images, such as .*[ab]/[01]\.jpg: Tag data larger than file",
        r"2 images, such as .*[ab]/[01]\.jpg: Corrupt EXIF data",
        r"2 images, such as .*[ab]/[23]\.jpg: its EXIF orientation is not applied",
        r"3 images, such as .*[ab]/(9|10|11)\.png: its transparency is left out",
    }
    with caplog.at_level("INFO", logger="afltool"):
        extract(images, tmp_path / "a.h5", workers=2, skip_corrupt=True)
    lines = [one for one in caplog.messages if one.startswith("extract: ") and "such as" in one]
    assert len(lines) == len(expected)
    assert all(any(re.search(one, line) for line in lines) for one in expected)
    images_are = "EXIF orientation and transparency are ignored, as in torchvision"
    assert afltool.info(tmp_path / "a.h5")["images"] == images_are
    assert images_are in " ".join(cli("info", tmp_path / "a.h5").stdout.split())
    for quiet in ([], ["-q"]):
        done = cli(
            *quiet, "extract", "--backbone", "resnet18", "--weights", "random", "--image-size", 32,
            "--data", f"imagefolder:{images}", "--engine", "torch", "-o", tmp_path / f"{quiet}.h5",
        )  # fmt: skip
        assert done.exit_code == 0, done.stderr
        assert done.stderr.count("such as") == len(expected) * (not quiet)
        assert "UserWarning" not in done.stderr
    assert not recwarn.list
