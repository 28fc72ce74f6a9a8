"""The tutorials run as they are written: every shell block of a page, in one folder, in order."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from slurm_cluster import Cluster, missing
from tutorial_scripts import WINDOWS, script

PAGES = sorted((Path(__file__).parents[1] / "docs" / "tutorials").glob("*.md"))


def follow(page, folder, kinds=("sh", "full"), env=None, timeout=600):
    done = subprocess.run(
        ["bash", "-c", script(page, kinds)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done


def test_every_block_is_of_a_kind_that_is_run():
    assert len(PAGES) == 4
    for page in PAGES:
        kinds = re.findall(r"^```(\w*)$", page.read_text(), re.M)
        assert set(kinds) - {""} <= {"sh", "full", "slurm", "python", *WINDOWS}, page
        assert kinds.count("") == len(kinds) // 2, f"{page}: a block of no kind"


def check_figures(page, done):
    """Every percentage of a page is what its commands print."""
    for figure in re.findall(r"\d\d\.\d\d %", page.read_text()):
        assert figure.replace(" ", "") in done.stdout + done.stderr


def shown(page):
    """The indented lines of a page that are no commands: what somebody sees."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    return [
        x for x in re.findall(r"^    (\S.*)$", text, re.M) if not x.startswith(("cd ", "afltool "))
    ]


def blanked(line):
    """A line without what differs each time: digests and seconds."""
    line = re.sub(r"\b([0-9a-f]{64}\b|3f1c…)", "DIGEST", line)
    return re.sub(r"\d+\.\d s\b", "N s", line).strip()


def test_what_a_site_gives_is_the_same_for_every_shell():
    """No loop, pipe, quote or line that goes on; a hospital reads sixty lines at most."""
    page = next(page for page in PAGES if page.stem == "consortium")
    plain = page.read_text("utf-8")
    hospital = plain.partition("## 3.")[2].partition("## 4.")[0]
    assert (
        len(hospital.splitlines())
        + len(plain.partition("## 1.")[2].partition("## 2.")[0].splitlines())
        <= 60
    )
    blocks = re.findall(r"^```(?:sh|" + "|".join(WINDOWS) + r")\n(.*?)^```$", plain, re.M | re.S)
    lines = "".join(blocks).splitlines()
    assert len(lines) > 20
    assert [x for x in lines if not re.fullmatch(r"(afltool|cd|python) [\w ./,-]+", x)] == []


# consortium is followed in test_portable.py.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["cluster", "patients", "researcher"])
def test_a_tutorial_can_be_followed(name, tmp_path):
    page = next(page for page in PAGES if page.stem == name)
    done = follow(page, tmp_path)
    assert list(tmp_path.rglob("*.h5")), "the premise: it makes files"
    check_figures(page, done)


@pytest.mark.slow
def test_the_cluster_tutorial_on_a_real_slurm(tmp_path):
    if lacks := missing():
        if os.environ.get("AFLTOOL_REQUIRE_SLURM"):
            pytest.fail(f"no {', '.join(lacks)}")
        pytest.skip(f"no {', '.join(lacks)}")
    (tmp_path / "slurm").mkdir()
    (tmp_path / "work").mkdir()
    cluster = Cluster(tmp_path / "slurm", dict(os.environ))
    try:
        cluster.start()
        page = next(page for page in PAGES if page.stem == "cluster")
        follow(page, tmp_path / "work", ("sh", "slurm"), cluster.env)
    finally:
        cluster.stop()
