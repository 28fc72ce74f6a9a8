"""Without PyTorch: all that needs no network, and what to install for the rest."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hidden import without
from scipy import special

import afltool
from afltool.heads.projections import activate, table

ROOT = Path(__file__).parents[1]
TORCH = ["torch", "torchvision"]
LIBRARY = ("gelu", "sigmoid")  # of which PyTorch has others
POINTS = "np.r_[-30:30:60001j, -1e-6:1e-6:1001j]"
ACTIVATED = f"""
import numpy as np
from afltool.heads.projections import table
from afltool.heads.projections import activate
made = {{}}
for name in {LIBRARY}:
    for kind in ("float32", "float64"):
        made[name + kind] = activate(name, ({POINTS}).astype(kind).reshape(1, -1))
    for bits in range(1, 15, 4):
        made[name + str(bits)] = table(name, bits)
np.savez("made.npz", **made)
"""


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """What activations are without PyTorch."""
    folder = tmp_path_factory.mktemp("light")
    _, done = without(TORCH, prepare=ACTIVATED, folder=folder)
    assert done.returncode == 0, done.stderr
    return np.load(folder / "made.npz")


@pytest.mark.parametrize("name", LIBRARY)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_activations_have_the_same_bits_without_pytorch_and_are_close(light, name, kind):
    x = np.r_[-30:30:60001j, -1e-6:1e-6:1001j].astype(kind)
    ours = activate(name, x.copy().reshape(1, -1))[0]
    assert np.array_equal(light[name + kind][0], ours)
    assert ours.dtype == kind
    exact = x.astype("f8")
    share = {"gelu": exact * special.ndtr(exact), "sigmoid": special.expit(exact)}[name]
    assert (np.abs(ours - share) <= 2 * np.finfo(kind).eps * np.maximum(1, np.abs(exact))).all()


@pytest.mark.parametrize("name", LIBRARY)
def test_activations_of_integers_have_the_same_bits(light, name):
    for bits in range(1, 15, 4):
        assert np.array_equal(light[f"{name}{bits}"], table(name, bits))


HEADS = {
    "deepafl": {"compute": "fixed", "layers": 2, "width": 16},
    "random-features": {"compute": "fixed", "width": 16, "activation": "gelu"},
    "safle": {"experts": 4},
    "softmax": {},
    "discriminant": {},
}


@pytest.mark.slow
def test_heads_have_the_same_bits_without_pytorch(road, tmp_path):
    given = {"train_features": road.train, "test_features": road.test, "clients": 3}
    every = {head: {**given, "head": head, **more} for head, more in HEADS.items()}
    every["deepafl-real"] = {**given, "head": "deepafl", "layers": 2, "width": 16}
    lines = [["run", *words(o), "-o", tmp_path / f"light-{k}"] for k, o in every.items()]
    codes, done = without(TORCH, *lines)
    assert codes == [0] * len(every), done.stderr
    for name, options in every.items():
        folders = (
            afltool.run(afltool.RunConfig(**options), tmp_path / name),
            tmp_path / f"light-{name}",
        )
        ours, theirs = (json.loads((f / "summary.json").read_text()) for f in folders)
        assert ours["top1"] == theirs["top1"]
        assert ours["digests"] == theirs["digests"], name


def words(options):
    return [x for name, value in options.items() for x in ("--" + name.replace("_", "-"), value)]


@pytest.mark.slow
def test_everything_else_of_the_table_in_the_docs_runs(road, tmp_path):
    """Convert, split, predict of features, study, table, report and plot."""
    at = tmp_path
    study = at / "s.toml"
    study.write_text(
        f'train-features = "{road.train}"\ntest-features = "{road.test}"\nclients = 4\n'
        'seed = [0, 1]\nhead = ["linear", "discriminant"]\n'
    )
    lines = [
        ["convert", road.train, "--fraction-bits", 3, "-o", at / "small.h5"],
        ["split", road.train, "--test", 0.2, "-o", at / "parts"],
        ["predict", road.head, road.test, "-o", at / "p.csv"],
        ["study", study, "-o", at / "S"],
        ["table", at / "S"],
        ["report", at / "S", "-o", at / "S.html"],
        ["plot", "partition", road.clients, "-o", at / "S.png"],
    ]
    codes, done = without(TORCH, *lines)
    assert codes == [0] * len(lines), done.stderr
    assert {"p.csv", "S.html", "S.png"} <= {path.name for path in at.iterdir()}
    assert "discriminant" in done.stdout


def test_what_needs_pytorch_says_what_to_install(road, tmp_path):
    out = tmp_path / "out"
    lines = [
        ["extract", "--backbone", "resnet18", "--list-nodes"],
        ["export", road.head, "-o", tmp_path / "head.pt2"],
        ["export", road.head, "-o", tmp_path / "head.onnx"],
        ["baseline", "fedavg", road.train, "--test", road.test, "-o", out, "--partition", "p.h5"],
    ]
    codes, done = without(TORCH, *lines)
    assert codes == [2] * 4, done.stderr
    assert "Traceback" not in done.stderr
    told = done.stderr.splitlines()
    assert sum("PyTorch" in line and "pip install afltool" in line for line in told) == 4
    assert not out.exists()


def builder():
    spec = importlib.util.spec_from_file_location(
        "build", ROOT / "packaging" / "light" / "build.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_light_build_is_this_source_without_pytorch():
    full = (ROOT / "pyproject.toml").read_text()
    before, after = tomllib.loads(full), tomllib.loads(builder().light(full))
    assert after["project"]["name"] == "afltool-light"
    left = {*before["project"]["dependencies"]} - {*after["project"]["dependencies"]}
    assert {one.split(">")[0] for one in left} == {*TORCH}
    assert "torch" not in json.dumps(after["project"]["optional-dependencies"])
    for part in ("scripts", "entry-points"):
        assert after["project"][part] == before["project"][part]
    assert after["tool"]["setuptools"] == before["tool"]["setuptools"]
