"""Each script here plays an adversary against the program as it is: it has to fail, in words."""

from __future__ import annotations

import os
import runpy
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPTS = sorted(p.stem for p in HERE.glob("*.py") if p.stem not in ("base", "test_attacks"))
PROCESSES = get_context("forkserver")  # which imports the package once


def play(script: Path, output: Path) -> None:
    """The script as a program, which ends this process."""
    descriptor = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.path.insert(0, str(HERE))
    runpy.run_path(str(script), run_name="__main__")


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_attack_fails(name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    PROCESSES.set_forkserver_preload(["base"])
    script, output = HERE / f"{name}.py", tmp_path / "output"
    text = script.read_text()
    assert "\nMust hold: " in text
    assert "\nShows: " in text
    process = PROCESSES.Process(target=play, args=(script, output))
    process.start()
    process.join(900)
    said = output.read_text()
    process.kill()
    assert process.exitcode == 0, said[-4000:]
    assert said.strip().splitlines()[-1].startswith("HOLDS: ")
