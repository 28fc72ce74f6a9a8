"""Without PyTorch, or without what Linux has: all that needs it not, and what to install."""

from __future__ import annotations

import importlib.util
import json
import os
import tomllib
from pathlib import Path

import numpy as np
import psutil
import pytest
from hidden import without
from hypothesis import given, settings
from hypothesis import strategies as st

import afltool
from afltool import system
from afltool.heads.projections import activate, table
from afltool.values.names import file_of_name, file_stem

ROOT = Path(__file__).parents[1]
TORCH = ["torch", "torchvision"]
LIBRARY = ("gelu", "tanh")  # of which PyTorch has others
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


def test_without_pytorch_activations_have_the_same_bits_and_the_rest_says_what_to_install(
    road, tmp_path
):
    from scipy import special

    lines = [
        ["extract", "--backbone", "resnet18", "-o", tmp_path / "a.h5"],
        ["export", road.head, "-o", tmp_path / "head.pt2"],
        ["export", road.head, "-o", tmp_path / "head.onnx"],
        ["baseline", "fedavg", road.train, "--test", road.test, "-o", tmp_path / "out",
         "--partition", "p.h5"],
    ]  # fmt: skip
    codes, done = without(TORCH, *lines, prepare=ACTIVATED, folder=tmp_path)
    assert codes == [2] * 4, done.stderr
    told = done.stderr.splitlines()
    assert sum("PyTorch" in line and "pip install afltool" in line for line in told) == 4
    assert sum(line.startswith("error: export needs PyTorch") for line in told) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["made.npz"]
    light = np.load(tmp_path / "made.npz")
    x = np.r_[-30:30:60001j, -1e-6:1e-6:1001j]
    for name in LIBRARY:
        for kind in ("float32", "float64"):
            at = x.astype(kind)
            ours = activate(name, at.copy().reshape(1, -1))[0]
            assert np.array_equal(light[name + kind][0], ours)
            exact = at.astype("f8")
            share = {"gelu": exact * special.ndtr(exact), "tanh": np.tanh(exact)}[name]
            error = 2 * np.finfo(kind).eps * np.maximum(1, np.abs(exact))
            assert (np.abs(ours - share) <= error).all()
        for bits in range(1, 15, 4):
            assert np.array_equal(light[f"{name}{bits}"], table(name, bits))


HEADS = {
    "deepafl": {"compute": "fixed", "layers": 2, "width": 16},
    "deepafl-real": {"head": "deepafl", "layers": 2, "width": 16},
    "random-features": {"compute": "fixed", "width": 16, "activation": "gelu"},
    "safle": {"experts": 4},
    "softmax": {},
    "discriminant": {},
}


@pytest.mark.slow
def test_runs_have_the_same_bits_without_pytorch_and_the_rest_of_the_table_works(road, tmp_path):
    """Convert, split, predict of features, study, table, report and plot: docs/install.md."""
    at, given = tmp_path, {"train_features": road.train, "test_features": road.test, "clients": 3}
    every = {name: {**given, "head": name, **more} for name, more in HEADS.items()}
    (study := at / "s.toml").write_text(
        f'train-features = "{road.train}"\ntest-features = "{road.test}"\nclients = 4\n'
        'seed = [0, 1]\nhead = ["linear", "discriminant"]\n'
    )
    lines = [["run", *words(o), "-o", at / f"light-{k}"] for k, o in every.items()]
    lines += [
        ["convert", road.train, "--fraction-bits", 3, "-o", at / "small.h5"],
        ["split", road.train, "--test-size", 0.2, "-o", at / "parts"],
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
    for name, options in every.items():
        full = afltool.run(afltool.RunConfig(**options), at / name)
        folders = (full, at / f"light-{name}")
        ours, theirs = (json.loads((f / "summary.json").read_text()) for f in folders)
        assert ours["top1"] == theirs["top1"]
        assert ours["digests"] == theirs["digests"], name


def words(options):
    return [x for name, value in options.items() for x in ("--" + name.replace("_", "-"), value)]


def test_the_light_build_is_this_source_without_pytorch():
    place = ROOT / "packaging" / "light" / "build.py"
    spec = importlib.util.spec_from_file_location("build", place)
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    full = (ROOT / "pyproject.toml").read_text()
    before, after = tomllib.loads(full), tomllib.loads(builder.light(full))
    assert after["project"]["name"] == "afltool-light"
    left = {*before["project"]["dependencies"]} - {*after["project"]["dependencies"]}
    assert {one.split(">")[0] for one in left} == {*TORCH}
    assert "torch" not in json.dumps(after["project"]["optional-dependencies"])
    for part in ("scripts", "entry-points"):
        assert after["project"][part] == before["project"][part]
    assert after["tool"]["setuptools"] == before["tool"]["setuptools"]


# ------------------------------------------------------------ other systems


def test_locks_and_cores_are_those_of_the_libraries(tmp_path):
    """So that a process without fcntl and one with it see each other's locks."""
    from filelock import lock_descriptor

    first, second = (os.open(tmp_path / "mark", os.O_RDWR | os.O_CREAT) for _ in range(2))
    system.lock(first)
    assert not lock_descriptor(second, blocking=False)
    with pytest.raises(BlockingIOError):
        system.lock(second)
    os.close(first)
    system.lock(second)
    os.close(second)
    assert system.cores() == len(psutil.Process().cpu_affinity())


@settings(max_examples=40)
@given(st.text(min_size=1).filter(lambda name: name.isprintable()))
def test_names_of_files_are_legal_everywhere(name):
    for file in (f"{file_stem(name)}.key", file_of_name(name)):
        assert not set(file) & set('<>:"/\\|?*')
        assert file.isascii()
        assert file.isprintable()
        assert file[-1] not in ". "
        assert len(file) < 220
