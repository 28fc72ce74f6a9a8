"""A head or a rival is one module and one line in a registry: nothing else knows of it.

The toys are the examples of docs/extending.md: the nearest class mean, and the trimmed mean.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import embeddings
from rounds_of_heads import absorb
from typer.testing import CliRunner

import afltool
from afltool import heads
from afltool import rivals as baselines
from afltool.cli.app import app
from afltool.files.heads import load_head
from afltool.heads.base import Head

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"


def example(heading):
    """The code below a heading of docs/extending.md."""
    text = PAGE.read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return re.search(r"```python\n(.*?)```", text, re.S)[1]


def added(name, heading, tmp_path, monkeypatch):
    """The module of an example, as its own file beside the package."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / f"{name}.py").write_text(example(heading))
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.delitem(sys.modules, name, raising=False)
    return import_module(name)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.setitem(heads.HEADS, "nearest-mean", "nearest_mean")  # the one line
    return added("nearest_mean", "A head", tmp_path, monkeypatch)


@pytest.fixture
def rival(tmp_path, monkeypatch):
    monkeypatch.setitem(baselines.METHODS, "trimmed-mean", "trimmed_mean:TrimmedMean")
    return added("trimmed_mean", "A rival", tmp_path, monkeypatch)


def command(*words, code=0):
    done = CliRunner().invoke(app, [str(w) for w in words])
    assert done.exit_code == code, done.output
    return done


def test_a_toy_head_takes_the_whole_road(toy, tmp_path):
    train = afltool.import_embeddings(embeddings(tmp_path / "a.npz", 400), tmp_path / "train.h5")
    test = afltool.import_embeddings(embeddings(tmp_path / "b.npz", 100), tmp_path / "test.h5")
    afltool.partition(train, tmp_path / "clients.h5", scheme="dirichlet", alpha=0.1, clients=7)
    head0 = afltool.head("nearest-mean", tmp_path / "head0.h5")
    command("local-stats", train, "--partition", tmp_path / "clients.h5", "--head", head0,
            "-o", tmp_path / "stats")  # fmt: skip
    command("aggregate", tmp_path / "stats", "-o", tmp_path / "total.h5")
    whole = afltool.local_stats(train, head0, tmp_path / "whole.h5", client="all", sum=True)
    assert afltool.info(tmp_path / "total.h5")["digest"] == afltool.info(whole)["digest"]
    command("solve", tmp_path / "total.h5", "-o", tmp_path / "head.h5")
    command("verify", tmp_path / "head.h5", tmp_path / "total.h5")
    found = afltool.evaluate(tmp_path / "head.h5", test)
    solved, header = load_head(tmp_path / "head.h5")
    assert isinstance(solved, toy.HEAD)
    assert header["name"] == "nearest-mean"
    assert found["top1"] > 0.5
    assert found["n"] == 100


def test_its_options_are_checked_as_those_of_any_head(toy, tmp_path):
    for option, value, words in (
        ("prior", 3, "--prior takes true or false; found 3"),
        ("shrink", "x", "--shrink takes a number; found 'x'"),
        ("shrink", 2, "--shrink is 0 to 1; found 2.0"),
    ):
        with pytest.raises(afltool.errors.UsageError, match=words):
            afltool.head("nearest-mean", tmp_path / "h.h5", options={option: value})
    with pytest.raises(
        afltool.errors.UsageError, match="the head 'nearest-mean' has no option 'ridge'"
    ):
        afltool.head("nearest-mean", tmp_path / "h.h5", options={"ridge": 1.0})


def test_a_run_takes_a_toy_head_too(toy, tmp_path):
    train = afltool.import_embeddings(embeddings(tmp_path / "a.npz", 200), tmp_path / "train.h5")
    test = afltool.import_embeddings(embeddings(tmp_path / "b.npz", 50), tmp_path / "test.h5")
    words = ["run", "--train-features", train, "--test-features", test, "--head", "nearest-mean"]
    command(*words, "--clients", 5, "--alpha", 0.5, "-o", tmp_path / "RUN")
    assert afltool.info(tmp_path / "RUN" / "05-head.h5")["name"] == "nearest-mean"


def test_its_options_are_options_of_commands(toy, tmp_path):
    """In a process of its own: the command line is made once, when it is loaded."""
    line = "from afltool.heads import HEADS; HEADS['nearest-mean'] = 'nearest_mean'"
    path = f"{Path(toy.__file__).parent}{os.pathsep}{Path(afltool.__file__).parents[1]}"
    words = ["head", "nearest-mean", "--shrink", "0.25", "-o", str(tmp_path / "head0.h5")]
    subprocess.run(
        [sys.executable, "-c", f"{line}; from afltool.cli import main; main()", *words],
        env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True,
    )  # fmt: skip
    assert afltool.info(tmp_path / "head0.h5")["options"] == {"prior": False, "shrink": 0.25}


def test_a_toy_rival_takes_the_whole_road(rival, road, tmp_path):
    given = {"partition": road.clients, "test": road.test, "threads": 1}
    settings = {"rounds": 3, "trim": 0.0}
    ours = afltool.baseline("trimmed-mean", road.train, tmp_path / "R", settings=settings, **given)
    equal = {"rounds": 3, "average": "uniform"}
    theirs = afltool.baseline("fedavg", road.train, tmp_path / "F", settings=equal, **given)
    found, wanted = (json.loads((at / "summary.json").read_text()) for at in (ours, theirs))
    assert found["top1"] == pytest.approx(wanted["top1"], abs=0.01)
    assert found["settings"]["trim"] == 0.0
    a, b = (load_head(at / "head.h5")[0].arrays() for at in (ours, theirs))
    assert all(np.allclose(a[name], b[name], rtol=1e-5, atol=1e-6) for name in b)
    with pytest.raises(afltool.errors.UsageError, match=r"--trim is at least 0, below 0\.5"):
        baselines.make_settings("trimmed-mean", {"trim": 0.5})


def test_trimming_leaves_the_farthest_clients_out(rival):
    import torch

    settings = baselines.make_settings("trimmed-mean", {"trim": 0.2})
    method = SimpleNamespace(settings=settings)
    theta = torch.tensor([[1.0, -900.0], [2.0, 4.0], [3.0, 5.0], [4.0, 6.0], [900.0, 7.0]])
    merged = rival.TrimmedMean.merge(method, 1, range(5), None, theta)
    assert merged.tolist() == [3.0, 5.0]


def test_a_study_takes_a_toy_rival_too(rival, road, tmp_path):
    (tmp_path / "s.toml").write_text(
        f"train-features = '{road.train}'\ntest-features = '{road.test}'\nclients = 4\n"
        "baseline = 'trimmed-mean'\nrounds = 1\ntrim = [0.0, 0.25]\n"
    )
    command("study", tmp_path / "s.toml", "-o", tmp_path / "S")
    shown = command("table", tmp_path / "S", "--columns", "trim").stdout
    assert "trim = 0.25" in shown


def test_the_interface_has_fourteen_public_methods():
    public = {
        name for name in vars(Head) if not name.startswith("_") and callable(vars(Head)[name])
    }
    assert public == {
        "phase", "phases", "gather", "absorb", "scores", "round_scores", "round_features",
        "bind", "array_specs", "arrays", "restore", "digest", "affine", "room",
    }  # fmt: skip


def test_no_head_derives_from_another():
    for name in heads.HEADS:
        assert heads.head_class(name).__bases__ == (Head,), name


def test_scores_after_the_last_round_are_the_heads(toy):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)).astype(np.float32), np.arange(60) % 3
    head = heads.make_head("linear", {"ridge": 1.0}).bind(4, 3)
    head = absorb(head, head.gather([(X, y)])[0])
    ((name, scores),) = head.round_scores(X)
    assert name == "last"
    assert np.array_equal(scores, head.scores(X))
