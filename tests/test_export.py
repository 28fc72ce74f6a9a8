"""`afltool export`: a file that another program runs, checked before it gets its name."""

from __future__ import annotations

import io
import json
import sys
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pandas as pd
import problems
import pytest
import torch
from conftest import embeddings
from problems import trained

import afltool
from afltool import exporting
from afltool.backbones.families import preprocessing_for
from afltool.datasets import open_dataset
from afltool.errors import InvalidDataError, MismatchError, UsageError
from afltool.exporting import onnx_files, pictures, trial
from afltool.exporting.build import build_from_features
from afltool.heads import make_head
from afltool.heads.base import NOBODY
from afltool.heads.calibration import CalibratedHead
from afltool.heads.graphs import GRAPHS, Classifier, activate_tensor, arithmetic, build_graph
from afltool.heads.options import ACTIVATIONS
from afltool.heads.projections import activate
from afltool.math.gram import FixedPoint, encode
from afltool.plugins import install

USAGE, INPUT, MISMATCH, NUMERICAL = 2, 3, 4, 5


def in_torch(model, given):
    """What the module itself makes of a batch."""
    with torch.inference_mode():
        return model.named(model.module(torch.from_numpy(given)))


class Stub:
    """A packer whose files are the module itself: what packing takes is slow."""

    def pack(self, model):
        return model.text().encode()

    def run(self, data, model, given):
        return in_torch(model, given)


@pytest.fixture
def packed(monkeypatch):
    """The packer of every format, a `Stub`, by the line that a format has."""
    stub = Stub()
    monkeypatch.setitem(sys.modules, "afltool.exporting.stub", stub)
    for end in (".onnx", ".pt2"):
        monkeypatch.setitem(exporting.FORMATS.data, end, (".stub", ()))
    return stub


def test_the_command_says_what_it_wrote_and_how_it_was_checked(road, tmp_path, cli, packed):
    done = cli("export", road.head, "-o", tmp_path / "m.onnx")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "m.onnx")
    assert "sample rows agree" in done.stderr


def test_a_file_that_differs_gets_no_name(road, tmp_path, cli, packed):
    """A packer that is off by more than the tolerance, that flips a class, that refuses less."""

    def off(amount):
        def run(data, model, given):
            found = in_torch(model, given)
            return {**found, "scores": found["scores"] * (1 + amount)}

        return run

    packed.run = off(1e-8)
    assert cli("export", road.head, "-o", tmp_path / "m.pt2").exit_code == 0
    (tmp_path / "m.pt2").unlink()
    packed.run = off(1e-5)
    done = cli("export", road.head, "-o", tmp_path / "m.pt2", "--card", tmp_path / "c.md")
    assert done.exit_code == NUMERICAL
    assert "m.pt2 was not written" in done.stderr
    assert "1e-05" in done.stderr

    def flipped(data, model, given):
        found = in_torch(model, given)
        return {**found, "predicted": np.where(found["predicted"] == 1, 2, found["predicted"])}

    packed.run = flipped
    assert "predicts other classes" in cli("export", road.head, "-o", tmp_path / "m.pt2").stderr

    def careless(data, model, given):
        found = in_torch(model, given)
        return {**found, "predicted": np.maximum(found["predicted"], 0)}

    packed.run = careless
    assert "refuses 0 rows" in cli("export", road.head, "-o", tmp_path / "m.pt2").stderr
    assert list(tmp_path.iterdir()) == []


def test_a_card_says_counts_and_digests_and_leaves_the_rest_open(road, tmp_path, cli, packed):
    test, card = tmp_path / "test.json", tmp_path / "card.md"
    words = ["--metrics", "accuracy,f1,sensitivity", "--positive", "3", "-o", test]
    assert cli("evaluate", road.head, road.test, *words).exit_code == 0
    done = cli("export", road.head, "-o", tmp_path / "m.onnx", "--card", card, "--metrics", test)
    assert done.exit_code == 0, done.stderr
    text, found, figures = card.read_text(), json.loads(test.read_text()), {}
    for name, one in found["metrics"].items():
        figures[name] = f"{one['value']:.4f} (95 %: "
    for said in (
        "| Rows | 600 |", "| Clients | 6 |", afltool.info(road.head)["digest"],
        f"| Top-1 accuracy | {found['top1']:.4f} |", found["features"]["digest"],
        "| Rows of the test | 200 |", f"| f1 (mean over classes) | {figures['f1']}",
        f"| sensitivity (positive class: 3) | {figures['sensitivity']}", "| Accuracy of 3 |",
        "by at most 1e-06 of a row's largest score",
    ):  # fmt: skip
        assert said in text, said
    assert text.count("**To be filled in by a person.**") == 4
    assert "/" not in text.replace("/ 2^9", "")  # no path of this machine
    done = cli("export", road.head, "-o", tmp_path / "n.onnx", "--card", card)
    assert done.exit_code == USAGE
    assert not (tmp_path / "n.onnx").exists()
    del found["metrics"]["sensitivity"]["positive"]  # a figure of an older file
    test.write_text(json.dumps(found))
    afltool.export(road.head, tmp_path / "o.onnx", card=tmp_path / "o.md", metrics=test)
    assert "| sensitivity (positive class not named) |" in (tmp_path / "o.md").read_text()


def test_names_from_outside_do_nothing_on_a_card(tmp_path, packed):
    classes = ["<b>x</b>", "a|b", "[c](http://x)", "d\x1b[31m"]
    y = np.array(classes)[np.random.default_rng([0, 90]).integers(0, 4, 90)]
    x = embeddings(tmp_path / "x.npz", 90, y=y)
    train = afltool.import_embeddings(x, tmp_path / "x.h5")
    total = afltool.local_stats(train, "linear", tmp_path / "t.h5", client="a", sum=True)
    head = afltool.solve(total, tmp_path / "h.h5", head_options={"ridge": 1.0})
    afltool.export(head, tmp_path / "m.pt2", card=tmp_path / "c.md")
    text = (tmp_path / "c.md").read_text()
    for said in (r"\<b\>x\</b\>", r"a\|b", r"\[c\](http://x)", "**None were given.**"):
        assert said in text
    assert "\x1b" not in text


def test_an_evaluation_of_another_head_is_refused(road, tmp_path, cli, packed):
    other = afltool.solve(road.total, tmp_path / "other.h5", head_options={"ridge": 3.0})
    assert cli("evaluate", other, road.test, "-o", tmp_path / "t.json").exit_code == 0
    words = ["--card", tmp_path / "c.md", "--metrics", tmp_path / "t.json"]
    done = cli("export", road.head, "-o", tmp_path / "m.onnx", *words)
    assert done.exit_code == MISMATCH
    assert "is the evaluation of another head" in done.stderr
    (tmp_path / "t.json").write_text('{"top1": 1}')
    done = cli("export", road.head, "-o", tmp_path / "m.onnx", *words)
    assert done.exit_code == INPUT
    assert "is not what afltool evaluate … -o writes" in done.stderr
    done = cli("export", road.head, "-o", tmp_path / "m.onnx", "--metrics", tmp_path / "t.json")
    assert done.exit_code == USAGE
    assert not (tmp_path / "m.onnx").exists()


def test_what_cannot_be_exported_is_refused(road, tmp_path, cli, monkeypatch):
    for head, name, options, says in (
        (road.head, "m.safetensors", [], "ends in .onnx, .pt2"),
        (road.head, "m.pt2", ["--with-backbone"], "were imported as 'import'"),
        (road.head0, "m.pt2", [], "not solved yet: its next phase is 'gram'"),
    ):
        done = cli("export", head, "-o", tmp_path / name, *options)
        assert done.exit_code == USAGE
        assert says in done.stderr
    for package in ("onnx", "onnxscript", "onnxruntime"):  # named before any work
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            done = cli("export", tmp_path / "none.h5", "-o", tmp_path / "m.onnx")
        assert done.exit_code == USAGE
        assert f"needs {package}: {install('export')}" in done.stderr
    assert list(tmp_path.iterdir()) == []
    module = SimpleNamespace(state_dict=lambda: {"W": SimpleNamespace(nbytes=2**31)})
    with pytest.raises(UsageError, match=r"2.1 GB of numbers.*export it as \.pt2"):
        onnx_files.pack(SimpleNamespace(module=module))
    space = {"preprocessing": {}, "precision": "bf16"}
    with pytest.raises(UsageError, match="made in bf16"):
        pictures.network_in_fp32(tmp_path / "h.h5", {"space": space}, "default", 0)


# ---------------------------------------------------------------- graphs of heads


DIM, CLASSES, BITS = 10, 4, 9


def rows(n=200, seed=0):
    """Rows that a classifier can tell apart, with exact zeros and halves of a step in them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    x = rng.normal(size=(n, DIM)) + np.random.default_rng(5).normal(size=(CLASSES, DIM))[y]
    x[:, :3] = np.maximum(x[:, :3], 0.0)
    x[::3, 4] = (np.floor(x[::3, 4] * 512) + 0.5) / 512
    return x.astype(np.float32), y


def stored(x, bits):
    return x if bits is None else FixedPoint(encode(x, bits), bits)


def solved(name, bits, classes=CLASSES, **options):
    """A head through all of its phases, from rows in memory."""
    x, y = rows()
    return trained(make_head(name, options).bind(DIM, classes), stored(x, bits), y)


def network(bits):
    rng = np.random.default_rng(0)
    sizes = (DIM, 7, CLASSES)
    arrays = {}
    for n, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        arrays |= {f"weights-{n}": rng.normal(size=(fan_in, fan_out)).astype("f4")}
        arrays |= {f"bias-{n}": rng.normal(size=fan_out).astype("f4")}
    return make_head("network").restore(None, arrays)


def calibrated(method, bits):
    """A head with a calibration, from random counts."""
    inner = solved("softmax" if method == "temperature" else "linear", bits)
    counts = np.random.default_rng(0).integers(1, 40, (CLASSES, 2, 12))
    counts[:, 0] += np.arange(12)[::-1] * 30
    counts[:, 1] += np.arange(12) * 30
    edges = np.linspace(0, 1, 13) if inner.log_probabilities else np.linspace(-0.5, 1.5, 13)
    return CalibratedHead.of(inner, list("0123"), counts, edges, method)


DEEP = {"layers": 2, "width": 16}
HEADS = {
    **problems.HEADS,
    "deepafl identities": {**DEEP, "identity_omega": True, "identity_projection": True},
    "deepafl random-omega": {**DEEP, "random_omega": True, "bias": "first"},
    "deepafl relu": {**problems.HEADS["deepafl cascade"], "activation": "relu"},
    "deepafl fixed (89)": {**DEEP, "width": 5, "from_phi0": True, "compute": "fixed",
                           "fixed_bits": 9, "hidden_width": 7},
    "random-features relu": {"width": 32, "compute": "fixed", "activation": "relu",
                             "intercept": True},
    "softmax random": {"rounds": 2, "features": "random", "width": 16},
    "softmax float32": {"rounds": 2, "features": "random", "width": 16, "compute": "float32"},
}  # fmt: skip
METHODS = ("platt", "temperature", "isotonic")


@pytest.mark.parametrize("case", [*HEADS, "network", *METHODS])
def test_the_graph_gives_the_scores_of_the_head(case):
    """Of rows that were rounded and of rows that are not yet; buckets never flip.

    Random features that the head rounds to b bits are real in the graph: scores differ by a few
    times 2^-b, and classes only where two scores are as close.
    """
    name, options = case.split()[0], HEADS.get(case, {})
    for bits in (BITS, 3) if options.get("compute") == "fixed" else (BITS, 3, None):
        if case in HEADS:
            head = solved(name, bits, **options)
        else:
            head = network(bits) if case == "network" else calibrated(case, bits)
        check_graph(case, name, options, head, bits)


def check_graph(case, name, options, head, bits):
    x, _ = rows(500, seed=1)
    graph = Classifier(build_graph(head, bits), bits, head.log_probabilities).eval()
    with torch.inference_mode():
        found = graph(torch.from_numpy(x))
    wanted = head.decision_function(stored(x, bits))
    coarse = options.get("compute", "float32" if name in ("deepafl", "random-features") else "")
    tolerance = 2e-5 if coarse == "float32" else 1e-9
    rounded = arithmetic(graph)[1]
    if options.get("compute") == "fixed":
        assert rounded == options.get("fixed_bits", 11 if name == "deepafl" else bits)
    else:
        assert rounded == (bits if case == "softmax random" else None)
    if rounded is not None:
        tolerance = 5 * 2.0**-rounded
    finite = np.isfinite(wanted)
    assert (
        np.abs(found[0].numpy() - wanted)[finite].max() <= tolerance * np.abs(wanted[finite]).max()
    )
    assert np.array_equal(found[1].numpy(), found[0].numpy().argmax(axis=1))
    assert (found[1].numpy() == wanted.argmax(axis=1)).mean() > (0.997 if tolerance < 0.1 else 0.97)
    if head.log_probabilities:
        assert np.allclose(found[2].sum(dim=1), 1.0)
    assert len(found) == 2 + head.log_probabilities


def test_a_class_without_rows_is_never_predicted():
    for rule in ("lda", "naive-bayes", "qda"):
        head = solved("discriminant", BITS, classes=CLASSES + 1, rule=rule)
        x, _ = rows(50, seed=1)
        scores, predicted, shares = Classifier(build_graph(head, BITS), BITS, True)(torch.tensor(x))
        wanted = head.decision_function(stored(x, BITS))
        assert torch.isneginf(scores[:, -1]).all()
        assert np.allclose(scores[:, :-1], wanted[:, :-1])
        assert np.array_equal(predicted, wanted.argmax(axis=1))
        assert (shares[:, -1] == 0).all()


def test_a_row_that_would_be_refused_has_no_class():
    for bits, bad in ((9, 64.5), (9, np.nan), (None, np.inf), (None, np.nan)):
        head, (x, _) = solved("linear", bits), rows(5)
        x[2, 1] = bad
        scores, predicted = Classifier(build_graph(head, bits), bits, False)(torch.tensor(x))
        assert predicted.tolist().index(NOBODY) == 2
        assert (predicted >= 0).sum() == 4
        assert torch.isnan(scores).all(dim=1).tolist() == [False, False, True, False, False]
    # relu of fixed point: the head refuses the row, the graph says NaN, and −1 is its class
    head = solved("random-features", BITS, width=32, compute="fixed", activation="relu")
    x, _ = rows(2)
    A = build_graph(head, BITS)[0].drawn.A
    x[0] = np.where(A[:, 0] > 0, 63.9, -63.9)  # as far as a row can go
    scores, predicted = Classifier(build_graph(head, BITS), BITS, False)(torch.tensor(x))
    with pytest.raises(InvalidDataError, match="is beyond"):
        head.decision_function(stored(x[:1], BITS))
    assert torch.isnan(scores[0]).all()
    assert predicted.tolist() == [NOBODY, int(head.decision_function(stored(x[1:], BITS)).argmax())]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_activations_are_those_of_the_heads(dtype):
    for name in ACTIVATIONS:
        x = np.linspace(-9, 9, 1001, dtype=dtype)[None].copy()
        wanted = activate(name, x.copy())
        assert np.abs(activate_tensor(name, torch.tensor(x)).numpy() - wanted).max() < 1e-6


def test_a_head_without_a_graph_is_refused(monkeypatch):
    monkeypatch.delitem(GRAPHS, "network")
    with pytest.raises(UsageError, match="a network head cannot be exported"):
        build_graph(network(BITS), BITS)


# ---------------------------------------------------------------- with a network, by ONNX Runtime


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Features of digits by a small network with random weights, at another node; a head."""
    pytest.importorskip("timm")
    at = tmp_path_factory.mktemp("digits")
    train = afltool.extract(
        backbone="timm:test_resnet", weights="random", image_size=32, data="digits", limit=300,
        node=("layer3",), views="flip", out=at / "train.h5",
    )  # fmt: skip
    total = afltool.local_stats(train, "linear", at / "t.h5", client="a", sum=True)
    return afltool.solve(total, at / "head.h5", head_options={"ridge": 1.0})


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Digits as PNG files, in the order of their names, and as what a model takes."""
    at, data = tmp_path_factory.mktemp("pictures"), open_dataset("digits", "test", limit=100)
    for i in range(len(data)):
        data.load(i).save(at / f"{i:03d}.png")
    way = preprocessing_for("weights", "timm:test_resnet", image_size=32)
    return at, np.stack([way.pixels(data.load(i)).transpose(1, 2, 0) for i in range(len(data))])


@pytest.mark.slow
@pytest.mark.parametrize("end", [".onnx", ".pt2"])
def test_predictions_from_raw_digits_are_afltools(end, digits, images, tmp_path, cli):
    """By onnxruntime or torch alone, as the file that predict writes; with metadata, no paths."""
    (files, squares), info = images, afltool.info(digits)
    whole = {"with_backbone": True, "weights": "random"}
    with pytest.raises(MismatchError, match="weights"):
        afltool.export(digits, tmp_path / f"no{end}", **whole, seed=1)
    path = afltool.export(digits, tmp_path / f"m{end}", **whole, card=tmp_path / "card.md")
    assert not (tmp_path / f"no{end}").exists()
    if end == ".onnx":
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        found = dict(zip(names, session.run(None, {"images": squares}), strict=True))
        said = json.loads(session.get_modelmeta().custom_metadata_map["afltool"])
    else:
        extra = {"afltool.json": ""}
        program = torch.export.load(io.BytesIO(path.read_bytes()), extra_files=extra).module()
        names, said = ("features", "scores", "predicted"), json.loads(extra["afltool.json"])
        found = dict(zip(names, program(torch.from_numpy(squares)), strict=True))
    assert found["features"].shape == (100, info["dim"])
    done = cli("predict", digits, files, "--weights", "random", "-o", tmp_path / "p.csv")
    assert done.exit_code == 0, done.stderr
    told = pd.read_csv(tmp_path / "p.csv", dtype=str)
    assert told["path"].tolist() == [str(path) for path in sorted(files.iterdir())]
    predicted = np.array(info["classes"])[np.asarray(found["predicted"])]
    assert (predicted == told["predicted"]).all()
    assert len(np.unique(predicted)) > 3, "the premise: not one class for everything"
    assert said["classes"] == info["classes"]
    assert said["input"]["shape"] == ["n", 32, 32, 3]
    assert info["digest"] in (tmp_path / "card.md").read_text()
    assert str(tmp_path.parent).encode() not in path.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("case", ["deepafl cascade", "random-features", "safle hybrid",
                                  "discriminant qda", "isotonic"])  # fmt: skip
def test_one_of_each_kind_of_graph_goes_through_onnx_runtime(case):
    """What packing makes of it is what the module itself gives."""
    head = (
        calibrated(case, BITS) if case in METHODS else solved(case.split()[0], BITS, **HEADS[case])
    )
    space = {"fraction_bits": BITS}
    header = {"space": space, "digest": head.digest(), "options": {}, "classes": list("0123")}
    model, (x, _) = build_from_features(head, header), rows(100, seed=1)
    answers = onnx_files.run(onnx_files.pack(model), model, x)
    assert trial.compare(head, BITS, x, answers, case).rows == 100
