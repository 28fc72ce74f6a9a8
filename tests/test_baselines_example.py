"""The table of all rivals, made in small as a user would make it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

SCRIPT = Path(__file__).parents[1] / "examples" / "rivals.py"


def run(*arguments):
    command = [sys.executable, SCRIPT, *arguments, "--rounds", "3", "--lr-rounds", "1",
               "--seeds", "2", "--clients", "10"]  # fmt: skip
    done = subprocess.run(
        [str(one) for one in command], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_table_is_made_in_pieces_and_gone_on_with(road, tmp_path):
    out = tmp_path / "out"
    files = (out, road.train, road.test)
    run(*files, "--only", "AFL")
    printed = run(*files, "--only", "FedAvg")
    cells = pd.read_csv(out / "rivals.csv")
    assert list(cells.method) == ["AFL"] * 2 + ["FedAvg"] * 4
    assert list(cells.rate[2:]) == ["papers'"] * 2 + ["chosen"] * 2
    assert cells.lr[2] == 0.05
    assert cells.lr[4] == cells.lr[5], "chosen once, with seed 0"
    assert (cells["last"] > 0.4).all()
    assert "± " in printed
    head = out / "runs" / "FedAvg-papers_-0" / "head.h5"
    before = head.stat().st_mtime_ns
    assert run(*files, "--table").splitlines()[-4:] == printed.splitlines()[-4:]
    assert head.stat().st_mtime_ns == before
