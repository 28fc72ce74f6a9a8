"""Situations that ended wrong once, each a script that ends RIGHT, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = sorted(Path(__file__).parent.glob("*.sh"))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_a_case_ends_right(case, tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", case], cwd=tmp_path, env={**os.environ, "PATH": path},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1].startswith("RIGHT"), done.stdout + done.stderr
