"""`study --jobs N`: the files of one process, by several; work that cells share is done once."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import GIVEN, carried_out, installed

from afltool.errors import IncompleteError
from afltool.files.hdf5 import read_header
from afltool.lab.studies.cells import StudyFolder
from afltool.lab.studies.execution import status
from afltool.lab.studies.spec import read_study
from afltool.runs.folder import RunFolder

#: Runs that share what they can: the sum of all rows, and heads.
SHARING = f"""{GIVEN}
alpha = [0.1, 9]
[[method]]
head = "linear"
ridge = [1, 2]
[[method]]
head = "linear"
held-out = 0.2
ridge = "auto"
"""
BASELINE = '[[method]]\nbaseline = "fedavg"\nrounds = 2\n'
#: Cells that take a while, one after another in one process.
DEEP = """
head = "deepafl"
layers = 4
width = 32
head-seed = [0, 1, 2, 3]
"""
LONG = GIVEN + DEEP


def results(at, cells):
    """What the cells of a study have found, without their times; heads and recipes too."""
    found = {}
    for cell in cells:
        place = StudyFolder(at).cell(cell.key)
        summary = json.loads((place / "summary.json").read_text())
        files = {p.name: read_header(p)["recipe"] for p in sorted(place.glob("0[3-9]-*.h5"))}
        found[cell.key] = (summary["top1"], summary["digests"], files)
    return found


def children(pid):
    """The processes that carry out cells."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    lines = {int(c): Path(f"/proc/{c}/cmdline").read_bytes() for c in found}
    return [c for c, line in lines.items() if b"lab.studies.worker" in line]


def until(holds, seconds=60):
    """Wait until something holds; returns it."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


@pytest.mark.slow
def test_several_processes_make_the_files_of_one(described, tmp_path, caplog, watched):
    """Of cells that share sums, and rounds that are removed; one cell fails at first."""
    deep = DEEP.replace("4", "1").replace("[0, 1, 2, 3]", "0")
    wanted = read_study(described(SHARING + f"[[method]]\n{deep}"))
    bad = RunFolder(StudyFolder(tmp_path / "two").cell(wanted.cells[0].key))
    bad.total(1).mkdir(parents=True)  # no place for a file
    failed = pytest.raises(IncompleteError, match=r"1 of 8 cells failed: linear, alpha 0.1, rid")
    with caplog.at_level(logging.INFO, "afltool"), failed:
        carried_out(wanted, tmp_path / "two", jobs=2)
    said = [one for one in caplog.messages if one.startswith("[")]
    assert sorted(one.split("]")[0] for one in said) == [f"[{n}/8" for n in range(1, 9)]
    assert not [one for one in caplog.messages if one.startswith("local-stats")], "of its cells"
    assert ("study", 8, 0) in watched.begun
    assert status(tmp_path / "two")["counts"] == {"done": 7, "failed": 1}
    bad.total(1).rmdir()
    carried_out(wanted, tmp_path / "two", jobs=2)
    carried_out(wanted, tmp_path / "one")
    assert not list((tmp_path / "two").glob("cells/deepafl-*/04-total.h5"))
    assert results(tmp_path / "two", wanted.cells) == results(tmp_path / "one", wanted.cells)
    heads = [RunFolder(p).head(1) for p in (tmp_path / "two" / "cells").glob("linear-*")]
    assert len({head.stat().st_ino for head in heads}) == len(
        {json.dumps(read_header(head)["recipe"]) for head in heads}
    ), "equal heads are one file"


@pytest.fixture
def begun(described, tmp_path, signals_are_heard):
    """A study whose two processes are at work: the first process, the others, and its command."""
    words = "study", described(LONG), "-o", tmp_path / "S", "--jobs", 2
    one = installed(*words, wait=False)
    until(lambda: len(list(tmp_path.glob("S/cells/*/begun.txt"))) == 2)
    at_work = children(one.pid)
    assert len(at_work) == 2
    return one, at_work, words


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_ends_all_processes_and_the_same_command_goes_on(begun, tmp_path, number, code):
    one, at_work, words = begun
    one.send_signal(number)
    _, said = one.communicate(timeout=60)
    assert one.returncode == code, said
    assert "Traceback" not in said
    assert not any(Path(f"/proc/{pid}").exists() for pid in at_work)
    assert not list(tmp_path.glob("S/cells/*/begun.txt"))
    assert not list(tmp_path.glob("S/cells/*/failed.txt"))
    again = installed(*words)
    assert again.returncode == 0, again.stderr
    assert status(tmp_path / "S")["counts"] == {"done": 4}


@pytest.mark.slow
def test_a_process_that_is_killed_fails_its_cell_alone(begun, tmp_path):
    one, at_work, words = begun
    os.kill(at_work[0], signal.SIGKILL)
    _, said = one.communicate(timeout=120)
    assert one.returncode == 5, said
    assert "was killed (signal 9)" in said
    assert "1 of 4 cells failed" in said
    assert status(tmp_path / "S")["counts"] == {"done": 3, "failed": 1}
    assert installed(*words).returncode == 0
    assert status(tmp_path / "S")["counts"] == {"done": 4}


@pytest.mark.slow
def test_when_the_first_process_is_killed_the_others_end(begun, tmp_path):
    one, at_work, _ = begun
    one.kill()
    one.communicate(timeout=60)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in at_work))
    assert not list(tmp_path.glob("S/cells/*/begun.txt"))
    assert not list(tmp_path.glob("S/cells/*/failed.txt"))


@pytest.mark.slow
def test_two_studies_with_several_processes_share_a_folder(described, tmp_path):
    """Each of them a script, which may call it at its top."""
    path, text = tmp_path / "script.py", "import afltool\nafltool.study({!r}, 'S', jobs=2)\n"
    path.write_text(text.format(str(described(SHARING + BASELINE))))
    how = {"cwd": tmp_path, "stderr": subprocess.PIPE, "text": True}
    for one in [subprocess.Popen([sys.executable, path], **how) for _ in range(2)]:
        _, said = one.communicate(timeout=120)
        assert one.returncode == 0, said
        assert "failed" not in said
    assert status(tmp_path / "S")["state"] == "done"
