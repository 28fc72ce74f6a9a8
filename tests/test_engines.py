"""Engines: the feature space of PyTorch, one digest for each, no PyTorch once it is frozen."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
from helpers_images import write_imagefolder
from hidden import without

import afltool
from afltool.errors import CorruptFileError, EngineError, UsageError
from afltool.files.backbones import load_frozen, save_frozen
from afltool.files.features import open_features
from afltool.sources.backbones.models import load_backbone
from afltool.sources.extraction.engines import is_installed

SIZE = 32
RANDOM = {"weights": "random", "image_size": SIZE}
TORCH = ["torch", "torchvision", "timm"]
needs_openvino = pytest.mark.skipif(not is_installed("openvino"), reason="openvino is not here")
BOTH = ["onnxruntime", pytest.param("openvino", marks=needs_openvino)]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """21 pictures of three classes: no multiple of a step."""
    folder = tmp_path_factory.mktemp("images")
    return write_imagefolder(folder, per_class=7, splits=("train",), size=40)


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    path = tmp_path_factory.mktemp("net") / "net.afl"
    return afltool.backbone("resnet18", path, licence="CC0", **RANDOM)


def extract(images, out, backbone="resnet18", **options):
    given = options if str(backbone).endswith(".afl") else {**RANDOM, **options}
    return afltool.extract(str(backbone), f"imagefolder:{images}", "train", out, **given)


def values(path):
    with open_features(path) as features:
        return np.asarray(features.stored(0, len(features))).astype(int)


def digest(path):
    return afltool.info(path)["digest"]


# --- the same space -------------------------------------------------------------------------------


SEVERAL = {"node": ("layer2:max", "penultimate*2"), "views": "flip+crops:2"}


@pytest.mark.parametrize("more", [{}, pytest.param(SEVERAL, marks=pytest.mark.slow)])
def test_features_are_those_of_plain_pytorch_within_one_step(images, tmp_path, more):
    ours = extract(images, tmp_path / "a.h5", **more)
    plain = extract(images, tmp_path / "b.h5", plain=True, **more)
    assert afltool.info(ours)["space"] == afltool.info(plain)["space"]
    away = np.abs(values(ours) - values(plain))
    assert away.max() <= 1
    assert np.mean(away > 0) < 2e-3
    told = afltool.info(ours)["provenance"]
    assert (told["engine"], told["device"]) == ("onnxruntime", "cpu")
    assert "torch" not in told
    assert afltool.info(plain)["provenance"]["engine"] == "torch"


@needs_openvino
def test_features_of_openvino_are_a_space_of_their_own(images, tmp_path):
    own = extract(images, tmp_path / "a.h5", engine="openvino")
    plain = extract(images, tmp_path / "b.h5", engine="torch")
    assert afltool.info(own)["space"] == {**afltool.info(plain)["space"], "engine": "openvino"}
    assert np.abs(values(own) - values(plain)).max() <= 1


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.slow
def test_one_digest_for_any_batch_workers_threads_and_shards(images, tmp_path, monkeypatch, engine):
    made = {extract(images, tmp_path / "whole.h5", engine=engine)}
    for k, (batch, workers) in enumerate([(1, 1), (23, 2)]):
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", str(1 + 2 * k))
        made.add(extract(images, tmp_path / f"{k}.h5", engine=engine, batch_size=batch,
                         workers=workers))  # fmt: skip
    for i in range(2):
        extract(images, tmp_path / "parts" / f"{i}.h5", engine=engine, shard=f"{i}/2")
    made.add(afltool.merge([tmp_path / "parts"], tmp_path / "merged.h5"))
    assert len({digest(path) for path in made}) == 1


@pytest.mark.slow
def test_another_engine_begins_a_partial_file_anew(images, tmp_path, watched):
    """What one engine began is never gone on with by another: no file is of two."""
    with watched.stopped_at(8):
        extract(images, tmp_path / "a.h5", engine="torch", batch_size=8)
    assert (tmp_path / "a.h5.partial").exists()
    ours = extract(images, tmp_path / "a.h5")
    assert digest(ours) == digest(extract(images, tmp_path / "b.h5"))


@pytest.mark.slow
def test_an_image_that_is_corrupt_is_left_out_or_named(tmp_path):
    images = write_imagefolder(tmp_path / "images", per_class=7, splits=("train",), size=40)
    victim = sorted(images.rglob("*.png"))[3]
    victim.write_bytes(victim.read_bytes()[:60])
    with pytest.raises(afltool.errors.InvalidDataError, match=re.escape(victim.name)):
        extract(images, tmp_path / "a.h5")
    left = extract(images, tmp_path / "b.h5", skip_corrupt=True)
    assert len(values(left)) == 20


# --- the frozen file ------------------------------------------------------------------------------


def test_a_frozen_backbone_makes_the_features_of_its_name_without_pytorch(images, net, tmp_path):
    named = extract(images, tmp_path / "named.h5")
    out, data = tmp_path / "light.h5", f"imagefolder:{images}"
    lines = [
        ["extract", "--backbone", net, "--data", data, "-o", out],
        ["info", net],
        ["verify", net],
    ]
    codes, done = without(TORCH, *lines)
    assert codes == [0, 0, 0], done.stderr
    assert digest(out) == digest(named)
    ours, theirs = (afltool.info(path) for path in (out, named))
    assert (ours["space"], ours["recipe"]) == (theirs["space"], theirs["recipe"])
    about = afltool.info(net)["backbone"]
    assert (about["licence"], about["weights"], about["dim"]) == ("CC0", "random:0", 512)
    plain = load_backbone("resnet18", weights="random", image_size=SIZE)
    assert about["weights_digest"] == plain.weights_digest


def test_predict_takes_it_without_pytorch_and_has_the_same_scores(images, net, tmp_path):
    features = extract(images, tmp_path / "train.h5")
    total = afltool.local_stats(features, "linear", tmp_path / "total.h5", client="a", sum=True)
    head = afltool.solve(total, tmp_path / "head.h5", ridge=1)
    afltool.predict(head, [images / "train"], tmp_path / "named.csv", weights="random")
    line = ["predict", head, images / "train", "-o", tmp_path / "light.csv", "--backbone", net]
    codes, done = without(TORCH, line)
    assert codes == [0], done.stderr
    assert (tmp_path / "light.csv").read_text() == (tmp_path / "named.csv").read_text()


@pytest.mark.slow
def test_a_kept_graph_is_used_without_pytorch(images, tmp_path):
    extract(images, tmp_path / "a.h5")  # the graph is in the store from here on
    data = f"imagefolder:{images}"
    line = ["extract", "--backbone", "resnet18", "--weights", "random", "--image-size", SIZE]
    codes, done = without(TORCH, [*line, "--data", data, "-o", tmp_path / "b.h5"])
    assert codes == [0], done.stderr
    assert digest(tmp_path / "a.h5") == digest(tmp_path / "b.h5")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"node": "layer2"}, "leave --node out"),
        ({"image_size": 64}, "leave --image-size out"),
        ({"weights": "random"}, "leave --weights out"),
        ({"engine": "torch"}, "without PyTorch"),
    ],
)
def test_what_a_frozen_backbone_is_cannot_be_said_otherwise(
    images, net, tmp_path, options, message
):
    with pytest.raises(UsageError, match=message):
        extract(images, tmp_path / "a.h5", net, **options)
    assert not (tmp_path / "a.h5").exists()


# --- what can go wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_damaged_frozen_backbone_is_refused(images, net, tmp_path, share):
    bad = tmp_path / "bad.afl"
    shutil.copy(net, bad)
    with bad.open("r+b") as file:
        file.seek(int(bad.stat().st_size * share))
        file.write(b"damage" * 10)
    with pytest.raises(CorruptFileError):
        extract(images, tmp_path / "a.h5", bad)
    with pytest.raises(CorruptFileError):
        afltool.verify(bad)


def altered(net, path, graph=None, probe=None):
    """The frozen backbone with something else in it, and a right digest."""
    header, own_graph, own_probe = load_frozen(net)
    graph = own_graph if graph is None else np.frombuffer(graph, np.uint8)
    made = header["recipe"]
    return save_frozen(path, header["backbone"], graph, own_probe if probe is None else probe, made)


def test_a_graph_that_an_engine_cannot_read_is_told(images, net, tmp_path):
    foreign = altered(net, tmp_path / "a.afl", graph=b"no graph at all")
    with pytest.raises(EngineError, match=r"onnxruntime \d.* cannot run this network"):
        extract(images, tmp_path / "a.h5", foreign)


@pytest.mark.parametrize("engine", BOTH)
def test_an_engine_that_makes_other_features_is_refused(images, net, tmp_path, engine):
    _, _, probe = load_frozen(net)
    other = altered(net, tmp_path / "a.afl", probe=probe + np.float32(0.01))
    with pytest.raises(EngineError, match="other features than PyTorch on known pictures"):
        extract(images, tmp_path / "a.h5", other, engine=engine)


@pytest.mark.slow
def test_auto_goes_on_with_pytorch_and_says_why(images, tmp_path, monkeypatch, caplog):
    """A damaged graph in the store is made again; one that does not agree is not used."""
    monkeypatch.setenv("AFLTOOL_STORE", str(tmp_path / "store"))
    good = extract(images, tmp_path / "a.h5")
    (place,) = (tmp_path / "store" / "graphs").glob("*.afl")
    place.write_bytes(place.read_bytes()[:5000])
    again = extract(images, tmp_path / "b.h5")
    assert "the graph is made again" in caplog.text
    assert digest(again) == digest(good)
    _, _, probe = load_frozen(place)
    altered(place, tmp_path / "wrong.afl", probe=-probe)
    shutil.copy(tmp_path / "wrong.afl", place)
    torch = extract(images, tmp_path / "c.h5")
    assert "PyTorch runs the network" in caplog.text
    assert afltool.info(torch)["provenance"]["engine"] == "torch"
    with pytest.raises(EngineError):
        extract(images, tmp_path / "d.h5", engine="onnxruntime")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "onnxruntime", "precision": "bf16"}, "computes in fp32"),
        ({"engine": "openvino", "precision": "fp16"}, "openvino (is not|computes in)"),
        ({"engine": "onnxruntime", "plain": True}, "--plain is used only with --engine"),
        ({"engine": "onnxruntime", "device": "cuda"}, "leave out --device"),
    ],
)
def test_what_an_engine_cannot_do_is_refused(images, tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        extract(images, tmp_path / "a.h5", **options)


@pytest.mark.slow
def test_an_engine_that_is_not_installed_is_named_with_its_extra(images, tmp_path):
    data = f"imagefolder:{images}"
    line = ["extract", "--backbone", "resnet18", "--weights", "random", "--image-size", SIZE,
            "--data", data]  # fmt: skip
    lines = [[*line, "--engine", "onnxruntime", "-o", "a.h5"], [*line, "-o", "b.h5"]]
    codes, done = without(["onnxruntime"], *lines, folder=tmp_path)
    assert codes == [2, 0], done.stderr
    assert "pip install 'afltool[fast]'" in done.stderr
    assert afltool.info(tmp_path / "b.h5")["provenance"]["engine"] == "torch"
