"""Each script here plays an adversary against the program as it is: it has to fail, in words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FAST = {"dp_tail", "small_order"}  # each less than 3 s
SCRIPTS = sorted(p.stem for p in HERE.glob("*.py") if p.stem not in ("base", "test_attacks"))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in SCRIPTS],
)
def test_the_attack_fails(name):
    path = os.pathsep.join([str(HERE.parent.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, HERE / f"{name}.py"], capture_output=True, text=True, timeout=900,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    said = done.stdout.strip().splitlines()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert said[-1].startswith("HOLDS: ")


def test_the_scripts_say_what_they_are():
    """Which adversary, what it shows, what must hold: and what was adapted, if anything was."""
    assert len(SCRIPTS) >= 23
    for name in SCRIPTS:
        text = (HERE / f"{name}.py").read_text()
        assert text.startswith(('"""adapted: ', '"""new: ')), name
        assert "\nMust hold: " in text, name
        assert "\nShows: " in text, name
