"""Engines: the feature space of PyTorch, one digest for each, no PyTorch once it is frozen."""

from __future__ import annotations

import re
import shutil
from importlib import metadata

import numpy as np
import onnx
import pytest
import torch
from helpers_images import write_imagefolder
from hidden import without

import afltool
from afltool.errors import CorruptFileError, EngineError, UsageError
from afltool.files.backbones import load_frozen, save_frozen
from afltool.files.features import open_features
from afltool.machine import lacks_bf16
from afltool.plugins import install
from afltool.sources.backbones.families import FAMILIES, Source
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
    return afltool.extract(
        backbone=str(backbone), data=f"imagefolder:{images}", split="train", out=out, **given
    )


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
    plain = extract(images, tmp_path / "b.h5", engine="torch", **more)
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


def version_of(engine, version, monkeypatch):
    """From now on the engine says that it is of this version."""
    told = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: version if name == engine else told(name))


@pytest.mark.parametrize("first", ["torch", "onnxruntime"])
def test_another_engine_or_version_begins_a_partial_file_anew(
    images, tmp_path, watched, monkeypatch, caplog, first
):
    """What one engine began is never gone on with by another: no file is of two."""
    with watched.stopped_at(8):
        extract(images, tmp_path / "a.h5", engine=first, batch_size=8)
    assert (tmp_path / "a.h5.partial").exists()
    if first == "onnxruntime":
        version_of("onnxruntime", "9.9.9", monkeypatch)
    ours = extract(images, tmp_path / "a.h5")
    (said,) = [one for one in caplog.messages if "a.h5.partial was begun by" in one]
    assert re.search(rf"begun by {first} \d.*and this is onnxruntime .*from the start", said)
    assert "going on from there" not in caplog.text
    assert digest(ours) == digest(extract(images, tmp_path / "b.h5"))


@pytest.mark.slow
def test_shards_of_several_engines_are_told(images, tmp_path, caplog, monkeypatch):
    """They have one recipe and one space, so they fit; what made which part is never lost."""
    line = ["extract", "--backbone", "resnet18", "--weights", "random", "--image-size", SIZE]
    line += ["--data", f"imagefolder:{images}", "--shard", "0/3", "-o", tmp_path / "0.h5"]
    codes, done = without(["onnxruntime"], line)  # so auto takes PyTorch
    assert codes == [0], done.stderr
    shards = [tmp_path / "0.h5"]
    shards += [extract(images, tmp_path / f"{i}.h5", shard=f"{i}/3") for i in (1, 2)]
    made = afltool.info(afltool.merge(shards, tmp_path / "m.h5"))
    assert "several engines, versions or devices made these shards" in caplog.text
    ours, theirs = made["provenance"]["engines"].items()
    assert re.fullmatch(r"torch [\w.+]+ on cpu", theirs[0])
    assert re.fullmatch(r"onnxruntime [\d.]+ on cpu, graph [0-9a-f]{8}", ours[0])
    assert (theirs[1], ours[1]) == (["0/3"], ["1/3", "2/3"])
    version_of("onnxruntime", "9.9.9", monkeypatch)
    shards[0] = extract(images, tmp_path / "other.h5", shard="0/3")
    other = afltool.info(afltool.merge(shards, tmp_path / "n.h5"))
    assert "onnxruntime 9.9.9 on cpu" in caplog.text
    assert len(other["provenance"]["engines"]) == 2


def test_shards_of_one_engine_are_merged_without_a_warning(images, tmp_path, caplog):
    shards = [extract(images, tmp_path / f"{i}.h5", shard=f"{i}/2") for i in range(2)]
    made = afltool.info(afltool.merge(shards, tmp_path / "m.h5"))
    assert not [one for one in caplog.records if one.levelname == "WARNING"]
    assert list(made["provenance"]["engines"].values()) == [["0/2", "1/2"]]


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


def test_predict_takes_it_or_a_kept_graph_without_pytorch_and_has_the_same_scores(
    images, net, tmp_path
):
    features = extract(images, tmp_path / "train.h5")
    total = afltool.local_stats(features, "linear", tmp_path / "total.h5", client="a", sum=True)
    head = afltool.solve(total, tmp_path / "head.h5", head_options={"ridge": 1})
    afltool.predict(head, [images / "train"], tmp_path / "named.csv", weights="random")
    hows = {
        "frozen": ["--backbone", net],
        "kept": ["--weights", "random"],
    }  # in a file, in the store
    for name, how in hows.items():
        out = tmp_path / f"{name}.csv"
        codes, done = without(TORCH, ["predict", head, images / "train", "-o", out, *how])
        assert codes == [0], done.stderr
        assert out.read_text() == (tmp_path / "named.csv").read_text()


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
    other = extract(images, tmp_path / "c.h5")
    assert "PyTorch runs the network" in caplog.text
    assert afltool.info(other)["provenance"]["engine"] == "torch"
    with pytest.raises(EngineError):
        extract(images, tmp_path / "d.h5", engine="onnxruntime")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "onnxruntime", "precision": "bf16"}, "computes in fp32"),
        ({"engine": "openvino", "precision": "fp16"}, "openvino (is not|computes in)"),
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
    assert install("fast") in done.stderr
    assert afltool.info(tmp_path / "b.h5")["provenance"]["engine"] == "torch"


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
        away = np.abs(values(ours) - values(plain))
        assert away.max() <= 1
        assert np.mean(away > 0) < 2e-3


# --- bf16 ----------------------------------------------------------------------------------------


def bf16(images, out):
    return ["extract", "--backbone", "resnet18", "--weights", "random", "--image-size", SIZE,
            "--data", f"imagefolder:{images}", "--engine", "openvino", "--precision", "bf16",
            "-o", out]  # fmt: skip


@needs_openvino
@pytest.mark.skipif(lacks_bf16(), reason="this processor has no bf16")
def test_bf16_of_openvino_is_near_and_a_space_of_its_own(images, tmp_path, cli):
    fine = extract(images, tmp_path / "a.h5", engine="openvino")
    done = cli(*bf16(images, tmp_path / "b.h5"))
    assert done.exit_code == 0, done.stderr
    told = [afltool.info(path)["space"] for path in (fine, tmp_path / "b.h5")]
    assert [one.pop("precision") for one in told] == ["fp32", "bf16"]
    assert told[0] == told[1]
    fine, coarse = values(fine), values(tmp_path / "b.h5")
    away = np.abs(coarse - fine).max() / np.abs(fine).max()
    assert 0 < away < 0.05, "eight bits of a mantissa, over some layers"


@needs_openvino
def test_bf16_is_refused_where_the_processor_has_none(images, tmp_path):
    """A stand-in for OpenVINO on an older processor: what it says that it can."""
    older = "import openvino; openvino.Core.get_property = lambda *of: ['FP32', 'INT8']"
    codes, done = without([], bf16(images, tmp_path / "a.h5"), prepare=older)
    assert codes == [2], done.stderr
    assert "this processor has no bf16 arithmetic: use --precision fp32" in done.stderr
    assert not (tmp_path / "a.h5").exists()


# --- what PyTorch alone can run, and what an engine lacks -----------------------------------------


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

    def __init__(self, name):
        self.name = name

    def weight_names(self):
        return []

    def knows(self, weights):
        return False

    def build(self, image_size):
        return Branching()

    def versions(self):
        return "1"


@pytest.fixture
def branching(monkeypatch):
    monkeypatch.setitem(FAMILIES.data, "branching", f"{__name__}:OfBranching")
    return "branching"


@pytest.mark.slow
def test_a_network_that_is_no_graph_is_run_by_pytorch_or_refused(
    images, tmp_path, caplog, branching
):
    paper = {"preprocess": "paper"}  # its family does not say how images are prepared
    made = extract(images, tmp_path / "a.h5", branching, **paper)
    assert "branching cannot be made a graph" in caplog.text
    assert "PyTorch runs the network" in caplog.text
    assert afltool.info(made)["provenance"]["engine"] == "torch"
    with pytest.raises(EngineError, match="branching cannot be made a graph"):
        extract(images, tmp_path / "b.h5", branching, engine="onnxruntime", **paper)
    with pytest.raises(EngineError, match="branching cannot be made a graph"):
        afltool.backbone(branching, tmp_path / "net.afl", **RANDOM, **paper)
    assert not list(tmp_path.glob("[bn]*"))


@pytest.mark.parametrize("engine", BOTH)
def test_an_operator_that_an_engine_lacks_is_told(images, net, tmp_path, engine):
    _, graph, _ = load_frozen(net)
    model = onnx.load_from_string(graph.tobytes())
    model.graph.node[-1].op_type = "NoSuchOperator"
    other = altered(net, tmp_path / "a.afl", graph=model.SerializeToString())
    with pytest.raises(EngineError, match=rf"{engine} .* cannot run this network:.*NoSuchOperator"):
        extract(images, tmp_path / "a.h5", other, engine=engine)
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.slow
def test_without_the_exporter_auto_takes_pytorch_and_an_engine_by_name_is_refused(images, tmp_path):
    data = f"imagefolder:{images}"
    line = ["extract", "--backbone", "resnet18", "--weights", "random", "--seed", 5,
            "--image-size", SIZE, "--data", data]  # fmt: skip
    lines = [[*line, "-o", "a.h5"], [*line, "--engine", "onnxruntime", "-o", "b.h5"]]
    codes, done = without(["onnxscript"], *lines, folder=tmp_path)
    assert codes == [0, 2], done.stderr
    assert done.stderr.count(f"a graph is made with onnxscript: {install('fast')}") == 2
    assert afltool.info(tmp_path / "a.h5")["provenance"]["engine"] == "torch"


# --- the engine by name, and the threads ----------------------------------------------------------


@pytest.mark.parametrize("engine", ["torch", *BOTH])
def test_threads_mean_the_same_for_every_engine(images, tmp_path, engine):
    """Its steps have one size here, so that no bit depends on the threads."""
    made, more = [], {"engine": engine, "views": "flip"}
    for threads in (1, 3):
        made.append(extract(images, tmp_path / f"{threads}.h5", threads=threads, **more))
        assert afltool.info(made[-1])["provenance"]["threads"] == threads
    assert digest(made[0]) == digest(made[1])


@pytest.mark.slow
def test_a_run_a_study_and_slurm_scripts_take_the_engine_that_is_named(tmp_path, cli):
    engine = "torch"  # which auto does not take
    images = write_imagefolder(tmp_path / "images", per_class=7, size=40)
    given = ["--backbone", "resnet18", "--weights", "random", "--image-size", SIZE, "--clients", 2,
             "--data", f"imagefolder:{images}", "--ridge", 1, "--engine", engine]  # fmt: skip
    store = tmp_path / "store"
    assert cli("run", *given, "--store", store, "-o", tmp_path / "run").exit_code == 0
    text = "\n".join(f"{str(key)[2:]} = {value!r}" for key, value in
                     zip(given[::2], given[1::2], strict=True) if key != "--ridge")  # fmt: skip
    study = tmp_path / "one.toml"
    study.write_text(f"{text}\n[[method]]\nhead = 'linear'\nridge = 1\n")
    words = ["study", study, "--store", tmp_path / "other", "-o", tmp_path / "study"]
    assert cli(*words).exit_code == 0
    for folder in (store, tmp_path / "other"):
        made = [afltool.info(path) for path in folder.glob("*.h5")]
        assert [one["recipe"]["options"]["engine"] for one in made] == [engine] * 2
        assert [one["provenance"]["engine"] for one in made] == [engine] * 2
    assert cli("slurm", *given, "-o", tmp_path / "jobs").exit_code == 0
    assert f'engine = "{engine}"' in (tmp_path / "jobs" / "run.toml").read_text()
