"""Engines: the feature space of PyTorch, one digest for each, no PyTorch once it is frozen."""

from __future__ import annotations

import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from helpers_images import narrow, values, write_imagefolder  # noqa: F401
from hidden import without

import afltool
from afltool.backbones.families import FAMILIES, Source
from afltool.backbones.models import load_backbone
from afltool.errors import CorruptFileError, EngineError, UsageError
from afltool.extraction.engines import is_installed
from afltool.files.backbones import load_frozen, save_frozen
from afltool.plugins import install

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
    return afltool.backbone("narrow", path, license="CC0", **RANDOM)


@pytest.fixture(scope="module")
def named(images, tmp_path_factory):
    """By ONNX Runtime, which auto takes."""
    return extract(images, tmp_path_factory.mktemp("named") / "a.h5")


@pytest.fixture(scope="module")
def fine(images, tmp_path_factory):
    """By OpenVINO, in fp32."""
    return extract(images, tmp_path_factory.mktemp("fine") / "a.h5", engine="openvino")


def extract(images, out, backbone="narrow", **options):
    given = options if str(backbone).endswith(".afl") else {**RANDOM, **options}
    return afltool.extract(
        backbone=str(backbone), data=f"imagefolder:{images}", split="train", out=out, **given
    )


def away(a, b):
    return np.abs(values(a).astype(int) - values(b))


def digest(path):
    return afltool.info(path)["digest"]


# --- the same space -------------------------------------------------------------------------------

SEVERAL = {"node": ("layer2:max", "penultimate*2"), "views": "flip+crops:2"}


@pytest.mark.parametrize("more", [{}, pytest.param(SEVERAL, marks=pytest.mark.slow)])
def test_features_are_those_of_plain_pytorch_within_one_step(images, tmp_path, more):
    ours, plain = (
        extract(images, tmp_path / f"{e}.h5", engine=e, **more) for e in ("auto", "torch")
    )
    assert afltool.info(ours)["space"] == afltool.info(plain)["space"]
    assert away(ours, plain).max() <= 1
    assert np.mean(away(ours, plain) > 0) < 2e-3
    told = afltool.info(ours)["provenance"]
    assert (told["engine"], told["device"]) == ("onnxruntime", "cpu")
    assert "torch" not in told
    assert afltool.info(plain)["provenance"]["engine"] == "torch"


@needs_openvino
def test_features_of_openvino_are_a_space_of_their_own(named, fine):
    assert afltool.info(fine)["space"] == {**afltool.info(named)["space"], "engine": "openvino"}
    assert away(fine, named).max() <= 2, "each is within a step of PyTorch"


@pytest.mark.parametrize("engine", ["torch", *BOTH])
def test_one_digest_for_any_batch_threads_and_shards(images, tmp_path, engine):
    """Over views every step has one size, so that no bit depends on how the work is cut."""
    more, before = {"engine": engine, "views": "flip"}, torch.get_num_threads()
    made = [extract(images, tmp_path / "whole.h5", threads=1, **more)]
    made.append(extract(images, tmp_path / "b.h5", threads=3, **more))
    assert [afltool.info(one)["provenance"]["threads"] for one in made] == [1, 3]
    for i in range(2):
        extract(images, tmp_path / "parts" / f"{i}.h5", shard=f"{i}/2", **more)
    made.append(afltool.merge([tmp_path / "parts"], tmp_path / "merged.h5"))
    assert len({digest(path) for path in made}) == 1
    assert torch.get_num_threads() == before, "the process's own setting is put back"


def version_of(engine, version, monkeypatch):
    """From now on the engine says that it is of this version."""
    told = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: version if name == engine else told(name))


@pytest.mark.parametrize("first", ["torch", "onnxruntime"])
def test_another_engine_or_version_begins_a_partial_file_anew(
    images, named, tmp_path, watched, monkeypatch, caplog, first
):
    """What one engine began is never gone on with by another: no file is of two."""
    with watched.stopped_at(16):
        extract(images, tmp_path / "a.h5", engine=first)
    assert (tmp_path / "a.h5.partial").exists()
    if first == "onnxruntime":
        version_of("onnxruntime", "9.9.9", monkeypatch)
    ours = extract(images, tmp_path / "a.h5")
    (said,) = [one for one in caplog.messages if "a.h5.partial was begun by" in one]
    assert re.search(rf"begun by {first} \d.*and this is onnxruntime .*from the start", said)
    assert "going on from there" not in caplog.text
    assert digest(ours) == digest(named)


def hide(monkeypatch, *packages):
    """As if these had not been installed."""
    for one in packages:
        monkeypatch.setitem(sys.modules, one, None)


def test_shards_of_several_engines_are_told(images, tmp_path, caplog, monkeypatch):
    """They have one recipe and one space, so they fit; what made which part is never lost."""
    with monkeypatch.context() as patch:
        hide(patch, "onnxruntime")  # so auto takes PyTorch
        shards = [extract(images, tmp_path / "0.h5", shard="0/3")]
    shards += [extract(images, tmp_path / f"{i}.h5", shard=f"{i}/3") for i in (1, 2)]
    made = afltool.info(afltool.merge(shards, tmp_path / "m.h5"))
    assert "the last bits of these shards may differ" in caplog.text
    ours, theirs = made["provenance"]["engines"].items()
    assert re.fullmatch(r"torch [\w.+]+ on cpu", theirs[0])
    assert re.fullmatch(r"onnxruntime [\d.]+ on cpu, graph [0-9a-f]{8}", ours[0])
    assert (theirs[1], ours[1]) == (["0/3"], ["1/3", "2/3"])
    version_of("onnxruntime", "9.9.9", monkeypatch)
    shards[0] = extract(images, tmp_path / "other.h5", shard="0/3")
    other = afltool.info(afltool.merge(shards, tmp_path / "n.h5"))
    assert "onnxruntime 9.9.9 on cpu" in caplog.text
    assert len(other["provenance"]["engines"]) == 2


# --- the frozen file ------------------------------------------------------------------------------


def test_extract_and_predict_take_a_frozen_file_or_a_kept_graph_without_pytorch(
    images, net, named, tmp_path
):
    """The features and scores of its name."""
    total = afltool.local_stats(named, "linear", tmp_path / "total.h5", client="a", sum=True)
    head = afltool.solve(total, tmp_path / "head.h5", head_options={"ridge": 1})
    afltool.predict(head, [images / "train"], tmp_path / "named.csv", weights="random")
    out, data = tmp_path / "light.h5", f"imagefolder:{images}"
    predict = ["predict", head, images / "train", "-o"]
    codes, done = without(
        TORCH,
        ["extract", "--backbone", net, "--data", data, "-o", out],
        ["verify", net],
        [*predict, tmp_path / "frozen.csv", "--backbone", net],
        [*predict, tmp_path / "kept.csv", "--weights", "random"],  # its graph is in the store
    )
    assert codes == [0] * 4, done.stderr
    assert digest(out) == digest(named)
    ours, theirs = (afltool.info(path) for path in (out, named))
    assert (ours["space"], ours["recipe"]) == (theirs["space"], theirs["recipe"])
    for name in ("frozen", "kept"):
        assert (tmp_path / f"{name}.csv").read_text() == (tmp_path / "named.csv").read_text()
    assert str(Path(afltool.__file__).parent).encode() not in load_frozen(net)[1].tobytes()
    about = afltool.info(net)["backbone"]
    assert (about["licence"], about["weights"], about["dim"]) == ("CC0", "random:0", 64)
    plain = load_backbone("narrow", weights="random", image_size=SIZE)
    assert about["weights_digest"] == plain.weights_digest


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


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize("damage", ["no graph", "an operator", "other features"])
def test_a_graph_that_an_engine_cannot_run_or_runs_otherwise_is_refused(
    images, net, tmp_path, damage, engine
):
    _, graph, probe = load_frozen(net)
    if damage == "no graph":
        change, said = {"graph": b"no graph at all"}, "cannot run this network"
    elif damage == "other features":
        change, said = {"probe": probe + np.float32(0.01)}, "other features than PyTorch on known"
    else:
        model = onnx.load_from_string(graph.tobytes())
        model.graph.node[-1].op_type = "NoSuchOperator"
        change, said = {"graph": model.SerializeToString()}, "cannot run .*NoSuchOperator"
    other = altered(net, tmp_path / "a.afl", **change)
    with pytest.raises(EngineError, match=rf"{engine} \d.*{said}"):
        extract(images, tmp_path / "a.h5", other, engine=engine)
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.slow
def test_auto_goes_on_with_pytorch_and_says_why(images, named, tmp_path, monkeypatch, caplog):
    """A graph in the store that does not agree is not used; a damaged one is refused."""
    monkeypatch.setenv("AFLTOOL_STORE", str(tmp_path / "store"))
    good = extract(images, tmp_path / "a.h5")
    assert digest(good) == digest(named)
    (place,) = (tmp_path / "store" / "graphs").glob("*.afl")
    whole = place.read_bytes()
    place.write_bytes(whole[:5000])
    with pytest.raises(CorruptFileError, match=place.name):
        extract(images, tmp_path / "b.h5")
    place.write_bytes(whole)
    _, _, probe = load_frozen(place)
    altered(place, tmp_path / "wrong.afl", probe=-probe)
    shutil.copy(tmp_path / "wrong.afl", place)
    other = extract(images, tmp_path / "c.h5")
    assert "PyTorch runs the network" in caplog.text
    assert afltool.info(other)["provenance"]["engine"] == "torch"
    with pytest.raises(EngineError):
        extract(images, tmp_path / "d.h5", engine="onnxruntime")


@pytest.mark.parametrize(
    ("of", "options", "message"),
    [
        ("name", {"engine": "onnxruntime", "precision": "bf16"}, "computes in fp32"),
        ("name", {"engine": "openvino", "precision": "fp16"}, "openvino (is not|computes in)"),
        ("name", {"engine": "onnxruntime", "device": "cuda"}, "leave out --device"),
        ("file", {"node": "layer2"}, "leave --node out"),
        ("file", {"weights": "random"}, "leave --weights out"),
        ("file", {"engine": "torch"}, "without PyTorch"),
    ],
)
def test_what_an_engine_or_a_frozen_backbone_cannot_do_is_refused(
    images, net, tmp_path, of, options, message
):
    with pytest.raises(UsageError, match=message):
        extract(images, tmp_path / "a.h5", net if of == "file" else "narrow", **options)
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ("onnxruntime", f"onnxruntime is not installed: {install('fast')}"),
        ("onnxscript", f"the graph of a network needs onnxscript: {install('fast')}"),
    ],
)
def test_what_is_not_installed_is_named_with_its_extra_and_auto_takes_pytorch(
    images, tmp_path, monkeypatch, package, said
):
    hide(monkeypatch, package)
    if package == "onnxscript":  # which makes the graph that the store has
        monkeypatch.setenv("AFLTOOL_STORE", str(tmp_path / "store"))
    with pytest.raises(EngineError, match=re.escape(said)):
        extract(images, tmp_path / "a.h5", engine="onnxruntime")
    made = extract(images, tmp_path / "b.h5")
    assert afltool.info(made)["provenance"]["engine"] == "torch"


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    ("backbone", "size"), [("efficientnet_lite0", 64), ("timm:vit_tiny_patch16_224", 224)]
)
def test_other_networks_are_frozen_and_agree_with_plain_pytorch(images, tmp_path, backbone, size):
    random = {"weights": "random", "image_size": size}
    net = afltool.backbone(backbone, tmp_path / "net.afl", **random)
    plain = extract(images, tmp_path / "p.h5", backbone, image_size=size, engine="torch")
    for engine in ["onnxruntime", *["openvino"] * is_installed("openvino")]:
        ours = extract(images, tmp_path / f"{engine}.h5", net, engine=engine)
        assert away(ours, plain).max() <= 1
        assert np.mean(away(ours, plain) > 0) < 2e-3


# --- bf16 ----------------------------------------------------------------------------------------

BF16 = {"engine": "openvino", "precision": "bf16"}


@needs_openvino
def test_bf16_of_openvino_is_near_and_a_space_of_its_own(images, fine, tmp_path):
    import openvino

    if "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this processor has no bf16")
    coarse = extract(images, tmp_path / "b.h5", **BF16)
    told = [afltool.info(path)["space"] for path in (fine, coarse)]
    assert [one.pop("precision") for one in told] == ["fp32", "bf16"]
    assert told[0] == told[1]
    assert 0 < away(fine, coarse).max() / np.abs(values(fine)).max() < 0.05, "eight bits"


@needs_openvino
def test_bf16_is_refused_where_the_processor_has_none(images, tmp_path, monkeypatch):
    """A stand-in for OpenVINO on an older processor: what it says that it can."""
    import openvino

    monkeypatch.setattr(openvino.Core, "get_property", lambda *of: ["FP32", "INT8"])
    with pytest.raises(EngineError, match="no bf16 arithmetic: use --precision fp32"):
        extract(images, tmp_path / "a.h5", **BF16)
    assert not (tmp_path / "a.h5").exists()


# --- what PyTorch alone can run -------------------------------------------------------------------


class Branching(torch.nn.Module):
    """A network whose way depends on numbers: PyTorch's exporter refuses it."""

    def __init__(self):
        super().__init__()
        self.body, self.fc = torch.nn.Conv2d(3, 8, 3), torch.nn.Linear(8, 2)

    def forward(self, x):
        x = self.body(x).mean(dim=(2, 3))
        return self.fc(2 * x if float(x.abs().sum()) >= 0 else x)


class OfBranching(Source):
    """Its family, as a plug-in adds one."""

    def build(self, image_size):
        return Branching()


@pytest.mark.slow
def test_a_network_that_is_no_graph_is_run_by_pytorch_or_refused(
    images, tmp_path, caplog, monkeypatch
):
    monkeypatch.setitem(FAMILIES.data, "branching", f"{__name__}:OfBranching")
    paper = {"preprocess": "paper"}  # its family does not say how images are prepared
    made = extract(images, tmp_path / "a.h5", "branching", **paper)
    assert "branching cannot be made a graph" in caplog.text
    assert "PyTorch runs the network" in caplog.text
    assert afltool.info(made)["provenance"]["engine"] == "torch"
    with pytest.raises(EngineError, match="branching cannot be made a graph"):
        extract(images, tmp_path / "b.h5", "branching", engine="onnxruntime", **paper)
    with pytest.raises(EngineError, match="branching cannot be made a graph"):
        afltool.backbone("branching", tmp_path / "net.afl", **RANDOM, **paper)
    assert not list(tmp_path.glob("[bn]*"))
