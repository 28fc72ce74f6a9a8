"""`afltool export`: a file that another program runs, checked before it gets its name."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import afltool
from afltool import exporting
from afltool.errors import UsageError
from afltool.exporting import onnx_files, pictures, trial
from afltool.files.features import open_features
from afltool.files.heads import load_head
from afltool.math.gram import real
from afltool.plugins import install

USAGE, INPUT, MISMATCH, NUMERICAL = 2, 3, 4, 5


def features_of(path):
    """The rows of a feature file as float32."""
    with open_features(path) as rows:
        return real(rows.rows(0, len(rows))).astype(np.float32), rows.labels


def scores_of(head, path):
    with open_features(path) as rows:
        return load_head(head)[0].scores(rows.rows(0, len(rows)))


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
        monkeypatch.setitem(exporting.FORMATS, end, (".stub", ()))
    return stub


def test_the_command_says_what_it_wrote_and_how_it_was_checked(road, tmp_path, cli):
    done = cli("export", road.head, "-o", tmp_path / "m.onnx")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "m.onnx")
    assert "sample rows agree" in done.stderr


@pytest.mark.slow
def test_a_program_of_torch_needs_no_afltool(road, tmp_path):
    """Read with torch alone: scores, classes and metadata."""
    path = afltool.export(road.head, tmp_path / "m.pt2")
    extra = {"afltool.json": ""}
    program = torch.export.load(io.BytesIO(path.read_bytes()), extra_files=extra).module()
    X, _ = features_of(road.test)
    scores, predicted = program(torch.from_numpy(X))
    wanted = scores_of(road.head, road.test)
    assert np.abs(scores.numpy() - wanted).max() < 1e-12
    assert np.array_equal(predicted, wanted.argmax(axis=1))
    assert json.loads(extra["afltool.json"])["head"]["name"] == "linear"


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


def test_the_sample_reaches_every_scale_and_the_refused_rows(road):
    head, header = load_head(road.head)
    x = trial.sample_rows(head, 9)
    own = trial.own_scores(head, 9, x)
    assert np.isnan(own).any(axis=1).sum() == 2
    sizes = np.abs(x[: trial.ROWS]).max(axis=1)
    assert sizes.min() < 0.1 < 10 < sizes.max()
    assert len(np.unique(own[: trial.ROWS].argmax(axis=1))) == len(header["classes"])


def test_a_card_says_counts_and_digests_and_leaves_the_rest_open(road, tmp_path, cli, packed):
    test = tmp_path / "test.json"
    words = ["--metrics", "accuracy,f1", "-o", test]
    assert cli("evaluate", road.head, road.test, *words).exit_code == 0
    card = tmp_path / "card.md"
    done = cli("export", road.head, "-o", tmp_path / "m.onnx", "--card", card, "--metrics", test)
    assert done.exit_code == 0, done.stderr
    text, found = card.read_text(), json.loads(test.read_text())
    info = afltool.info(road.head)
    for said in (
        "| Rows | 600 |", "| Clients | 6 |", info["digest"], f"| Top-1 accuracy | "
        f"{found['top1']:.4f} |", found["features"]["digest"], "| Rows of the test | 200 |",
        f"| f1 (mean over classes) | {found['metrics']['f1']['value']:.4f} (95 %: ",
        "| Accuracy of 3 |",
        "by at most 1e-06 of a row's largest score",
    ):  # fmt: skip
        assert said in text, said
    assert text.count("**To be filled in by a person.**") == 4
    assert "/" not in text.replace("/ 2^9", "")  # no path of this machine
    without = tmp_path / "other.md"
    assert cli("export", road.head, "-o", tmp_path / "m.onnx", "--card", without).exit_code == 0
    assert "**None were given.**" in without.read_text()
    done = cli("export", road.head, "-o", tmp_path / "n.onnx", "--card", card)
    assert done.exit_code == USAGE
    assert not (tmp_path / "n.onnx").exists()


def test_names_from_outside_do_nothing_on_a_card(tmp_path, packed):
    from conftest import embeddings

    classes = ["<b>x</b>", "a|b", "[c](http://x)", "d\x1b[31m"]
    y = np.array(classes)[np.random.default_rng([0, 90]).integers(0, 4, 90)]
    x = embeddings(tmp_path / "x.npz", 90, y=y)
    train = afltool.import_embeddings(x, tmp_path / "x.h5")
    total = afltool.local_stats(train, "linear", tmp_path / "t.h5", client="a", sum=True)
    head = afltool.solve(total, tmp_path / "h.h5", head_options={"ridge": 1.0})
    afltool.export(head, tmp_path / "m.pt2", card=tmp_path / "c.md")
    text = (tmp_path / "c.md").read_text()
    assert r"\<b\>x\</b\>" in text
    assert r"a\|b" in text
    assert r"\[c\](http://x)" in text
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


@pytest.mark.parametrize(
    ("name", "options", "code", "says"),
    [
        ("m.safetensors", [], USAGE, "ends in .onnx, .pt2"),
        ("m.pt2", ["--with-backbone"], USAGE, "were imported as 'import': afltool has no network"),
    ],
)
def test_what_cannot_be_exported_is_refused(road, tmp_path, cli, name, options, code, says):
    done = cli("export", road.head, "-o", tmp_path / name, *options)
    assert done.exit_code == code
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_head_that_is_not_solved_is_refused(road, tmp_path, cli):
    done = cli("export", road.head0, "-o", tmp_path / "m.pt2")
    assert done.exit_code == USAGE
    assert "not solved yet: its next phase is 'gram'" in done.stderr


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_named_before_any_work(road, tmp_path, cli, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    done = cli("export", tmp_path / "none.h5", "-o", tmp_path / "m.onnx")
    assert done.exit_code == USAGE
    assert f"needs {package}: {install('export')}" in done.stderr


def test_a_model_too_large_for_one_message_is_refused_as_onnx():
    module = SimpleNamespace(state_dict=lambda: {"W": SimpleNamespace(nbytes=2**31)})
    with pytest.raises(UsageError, match=r"2.1 GB of numbers.*export it as \.pt2"):
        onnx_files.pack(SimpleNamespace(module=module))


def test_an_arithmetic_that_a_graph_has_not_is_refused(tmp_path):
    space = {"preprocessing": {}, "precision": "bf16"}
    with pytest.raises(UsageError, match="made in bf16; a graph computes in fp32"):
        pictures.network_in_fp32(tmp_path / "h.h5", {"space": space}, "default", 0)
