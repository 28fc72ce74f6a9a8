"""The tutorials run as they are written: every shell block of a page, in one folder, in order."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from slurm_cluster import Cluster, missing
from tutorial_scripts import WINDOWS, script

PAGES = {
    page.stem: page for page in (Path(__file__).parents[1] / "docs" / "tutorials").glob("*.md")
}


def test_every_block_is_of_a_kind_that_is_run():
    """What a hospital gives is the same for every shell: no loop, pipe or quote; sixty lines."""
    assert PAGES.keys() == {"cluster", "consortium", "patients", "researcher"}
    for page in PAGES.values():
        kinds = re.findall(r"^```(\w*)$", page.read_text(), re.M)
        assert set(kinds) - {""} <= {"sh", "full", "slurm", "python", *WINDOWS}, page
        assert kinds.count("") == len(kinds) // 2, f"{page}: a block of no kind"
    plain = PAGES["consortium"].read_text("utf-8")
    parts = re.split(r"^## ", plain, flags=re.M)
    assert len((parts[1] + parts[3]).splitlines()) <= 60
    blocks = re.findall(r"^```(?:sh|" + "|".join(WINDOWS) + r")\n(.*?)^```$", plain, re.M | re.S)
    lines = "".join(blocks).splitlines()
    assert len(lines) > 20
    assert [x for x in lines if not re.fullmatch(r"(afltool|cd|python) [\w ./,-]+", x)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cluster", "patients", "researcher", pytest.param(
    "consortium", marks=pytest.mark.nightly)])  # fmt: skip
def test_a_tutorial_can_be_followed(name, tmp_path):
    """Every percentage of a page is what its commands print; the cluster is a real Slurm."""
    page, kinds, cluster, env = PAGES[name], ("sh", "full"), None, {}
    (work := tmp_path / "work").mkdir()
    if name == "cluster" and not (lacks := missing()):
        (tmp_path / "slurm").mkdir()
        cluster = Cluster(tmp_path / "slurm", dict(os.environ))
        kinds, env = ("sh", "slurm"), cluster.env
    elif name == "cluster" and os.environ.get("AFLTOOL_REQUIRE_SLURM"):
        pytest.fail(f"no {', '.join(lacks)}")
    try:
        if cluster is not None:
            cluster.start()
        done = subprocess.run(
            ["bash", "-c", script(page, kinds)], cwd=work, capture_output=True, text=True,
            timeout=600, env={**os.environ, **env, "OMP_NUM_THREADS": "1"}, check=False,
        )  # fmt: skip
    finally:
        if cluster is not None:
            cluster.stop()
    assert done.returncode == 0, done.stderr[-2000:]
    assert list(work.rglob("*.h5")), "the premise: it makes files"
    for figure in re.findall(r"\d\d\.\d\d %", page.read_text()):
        assert figure.replace(" ", "") in done.stdout + done.stderr
