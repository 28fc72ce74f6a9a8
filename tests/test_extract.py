"""extract and merge: the same features whatever the batch, the shards, the stops and the cache."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from helpers_images import write_imagefolder
from PIL import Image

import afltool
from afltool import progress
from afltool.backbones import load_backbone
from afltool.datasets import CorruptImageError
from afltool.errors import InvalidDataError, MismatchError, StoppedError, UsageError
from afltool.files import up_to_date
from afltool.stages import extract as stage
from afltool.store.features import open_features

SMALL = {"weights": "random", "image_size": 32, "batch_size": 8}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """99 pictures of three classes: no multiple of a batch."""
    return write_imagefolder(tmp_path_factory.mktemp("images"), per_class=33, splits=("train",))


def extract(images, out, **options):
    return afltool.extract(
        "resnet18", f"imagefolder:{images}", "train", out, **{**SMALL, **options}
    )


def values(path):
    with open_features(path) as features:
        return np.asarray(features.stored(0, len(features))), features.row_ids.tolist()


def plain_loop(images, ids):
    """What everybody would write: no batches of one size, no channels-last, no folding."""
    module = load_backbone("resnet18", weights="random", image_size=32).module
    rows = []
    for name in ids:
        x = np.asarray(Image.open(images / name.decode()).convert("RGB"), np.float32) / 255
        x = torch.from_numpy((x - 0.5) / 0.5).permute(2, 0, 1)[None]
        with torch.no_grad():
            rows.append(module(x)[0].numpy())
    return np.stack(rows)


def test_features_are_those_of_a_plain_loop_within_one_step(images, tmp_path):
    fixed, ids = values(extract(images, tmp_path / "a.h5"))
    expected = plain_loop(images, ids)
    assert np.abs(fixed / 512 - expected).max() <= 1 / 512
    floats, _ = values(extract(images, tmp_path / "b.h5", dtype="float32"))
    assert np.allclose(floats, expected, rtol=1e-3, atol=1e-4)
    assert fixed.std() > 10, "constant features would pass anything"


def test_shards_put_together_are_the_whole(images, tmp_path):
    whole = extract(images, tmp_path / "whole.h5")
    shards = [extract(images, tmp_path / "shards" / f"{i}.h5", shard=f"{i}/4") for i in range(4)]
    merged = afltool.merge([tmp_path / "shards"], tmp_path / "merged.h5")
    assert afltool.info(merged)["digest"] == afltool.info(whole)["digest"]
    assert up_to_date(merged, afltool.info(whole)["recipe"])
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


@pytest.mark.parametrize("text", ["4/4", "1", "a/b", "-1/3"])
def test_a_shard_that_cannot_be_is_refused(images, tmp_path, text):
    with pytest.raises(UsageError, match="--shard is I/N"):
        extract(images, tmp_path / "x.h5", shard=text)


def test_a_stop_keeps_what_is_done_and_the_next_run_goes_on(images, tmp_path, monkeypatch, caplog):
    whole = extract(images, tmp_path / "whole.h5")
    seen = []

    def counting(self, index):
        seen.append(index)
        if len(seen) == 70:
            progress.request_stop("a test")
        return original(self, index)

    original = stage._Job.decode
    monkeypatch.setattr(stage._Job, "decode", counting)
    out = tmp_path / "stopped.h5"
    try:
        with pytest.raises(StoppedError, match="run the same command to go on"):
            extract(images, out)
    finally:
        progress.clear_stop()
    assert not out.exists()
    seen.clear()
    with caplog.at_level("INFO", logger="afltool"):
        extract(images, out)
    assert 0 < len(seen) < 99, "nothing, or everything, was done again"
    assert "of 99 images are done" in caplog.text
    assert afltool.info(out)["digest"] == afltool.info(whole)["digest"]
    assert not out.with_name(out.name + ".partial").exists()


def test_a_corrupt_image_is_named_or_left_out_and_counted(tmp_path):
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


def test_a_stop_among_corrupt_images_loses_and_doubles_nothing(tmp_path, monkeypatch):
    images = write_imagefolder(tmp_path / "images", per_class=20, splits=("train",))
    for i in (0, 5, 19):
        (images / "train" / "line" / f"{i:04d}.png").write_bytes(b"")
    whole, ids = values(extract(images, tmp_path / "whole.h5", skip_corrupt=True))
    assert len(ids) == 57
    original = stage._Job.decode
    for stop_at in (1, 24, 41, 55):

        def stopping(self, index, stop_at=stop_at):
            if index == stop_at:
                progress.request_stop("a test")
            return original(self, index)

        out = tmp_path / f"{stop_at}.h5"
        monkeypatch.setattr(stage._Job, "decode", stopping)
        try:
            with pytest.raises(StoppedError):
                extract(images, out, skip_corrupt=True)
        finally:
            progress.clear_stop()
            monkeypatch.setattr(stage._Job, "decode", original)
        again, rest = values(extract(images, out, skip_corrupt=True))
        assert rest == ids
        assert np.array_equal(again, whole)


def test_the_store_answers_the_second_time_and_knows_what_changes_a_feature(
    images, tmp_path, monkeypatch
):
    monkeypatch.setenv("AFLTOOL_STORE", str(tmp_path / "store"))
    first = extract(images, None)
    before = first.stat().st_mtime_ns
    monkeypatch.setattr(stage._Job, "run", None)  # a second extraction would fail
    assert extract(images, None) == first
    assert first.stat().st_mtime_ns == before
    monkeypatch.undo()
    monkeypatch.setenv("AFLTOOL_STORE", str(tmp_path / "store"))
    paths = {first}
    for change in (
        {"image_size": 40},
        {"precision": "bf16"},
        {"seed": 1},
        {"fraction_bits": 8},
        {"dtype": "float32"},
        {"limit": 30},
        {"classes": ["square", "line", "circle"]},
    ):
        paths.add(extract(images, None, **change))
    assert len(paths) == 8
    assert extract(images, None, batch_size=4) == first, "a batch size is recorded, not a key"


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
    assert found["provenance"]["batch_size"] == 8
    assert found["source"]["weights"] == "random:0"
    assert found["classes"] == ["circle", "line", "square"]


def test_features_beyond_the_range_name_the_images(images, tmp_path, monkeypatch):
    from afltool import backbones

    infer = backbones.infer
    monkeypatch.setattr(backbones, "infer", lambda *args: infer(*args) * 1e4)
    message = r"images .*train/circle/0000\.png to .*--fraction-bits \d+ would hold it"
    with pytest.raises(InvalidDataError, match=message):
        extract(images, tmp_path / "a.h5")
    assert not (tmp_path / "a.h5").exists()


def test_batches_of_another_size_move_a_feature_by_at_most_one_step(images, tmp_path):
    a, _ = values(extract(images, tmp_path / "a.h5"))
    b, _ = values(extract(images, tmp_path / "b.h5", batch_size=5))
    assert np.abs(a.astype(int) - b).max() <= 1


def test_a_batch_size_of_nothing_is_refused(images, tmp_path):
    with pytest.raises(UsageError, match="--batch-size is at least 1"):
        extract(images, tmp_path / "a.h5", batch_size=0)
