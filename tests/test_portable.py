"""Systems that lack what Linux has, and names of files that are legal everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from filelock import lock_descriptor
from hidden import RUN, without
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tutorials import PAGES, blanked, check_figures, follow, shown
from tutorial_scripts import WINDOWS

import afltool
from afltool import machine
from afltool.values.names import file_of_name, file_stem

# What Windows has not; macOS lacks the affinity and O_TMPFILE, and preadv until 11.
MODULES = ("fcntl", "resource")
NAMES = (
    "signal.SIGUSR1", "os.sched_getaffinity", "os.O_TMPFILE", "os.O_NOFOLLOW",
    "os.O_NONBLOCK", "os.O_CLOEXEC", "os.pread", "os.pwrite", "os.preadv",
)  # fmt: skip
RESERVED = {"con", "prn", "aux", "nul", *(f"{x}{n}" for x in ("com", "lpt") for n in range(10))}


def test_a_run_that_puts_rows_aside_works_without_what_linux_has(road, tmp_path):
    options = {"train_features": road.train, "test_features": road.test, "clients": 2}
    options |= {"head": "deepafl", "layers": 1, "width": 8, "activation": "tanh", "memory": "0"}
    given = [x for k, v in options.items() for x in ("--" + k.replace("_", "-"), v)]
    lines = [["run", *given, "-o", tmp_path / "run"], ["verify", road.train]]
    codes, done = without(MODULES, *lines, names=NAMES)
    assert codes == [0, 0], done.stderr
    folders = tmp_path / "run", afltool.run(afltool.RunConfig(**options), tmp_path / "other")
    ours, theirs = (json.loads((x / "summary.json").read_text()) for x in folders)
    assert ours["digests"] == theirs["digests"]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("afltool.federation") is None, reason="it has the page's commands")
def test_the_consortium_tutorial_works_without_what_linux_has(tmp_path):
    hidden = json.dumps([MODULES, NAMES])
    code = (
        f"import json, sys\nmodules, names = json.loads({hidden!r})\n"
        "sys.argv[1:] = [json.dumps([modules, names, [sys.argv[1:]], ''])]\n"
        + RUN.replace('print("ended", json.dumps([words, ended.code or 0]))', "raise")
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "command.py").write_text(code)
    command = tmp_path / "bin" / "afltool"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path}/bin/command.py "$@"\n')
    command.chmod(0o755)
    page = next(page for page in PAGES if page.stem == "consortium")
    (tmp_path / "work").mkdir()
    work = tmp_path / "work"
    done = follow(page, work, env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    check_figures(page, done)
    assert (work / "office" / "head.onnx").is_file()
    solved = [work / "trial", *(work / name / "trial" for name in WINDOWS[1:])]
    assert len({afltool.info(one / "head.h5")["digest"] for one in solved}) == 1
    first = "session join ../place --key north --data train.npz --test test.npz -o first"
    asked = subprocess.run(
        [command, *first.split()], cwd=work / "north", capture_output=True, text=True
    )
    assert asked.returncode == 2
    printed = {blanked(x) for x in (done.stdout + done.stderr + asked.stderr).splitlines()}
    assert [x for x in map(blanked, shown(page)) if x not in printed] == []


def test_locks_are_those_of_filelock(tmp_path):
    """So that a process without fcntl and one with it see each other's."""
    first = os.open(tmp_path / "mark", machine.flags("RDWR", "CREAT"))
    second = os.open(tmp_path / "mark", machine.flags("RDWR"))
    machine.lock(first)
    assert not lock_descriptor(second, blocking=False)
    with pytest.raises(BlockingIOError):
        machine.lock(second)
    os.close(first)
    machine.lock(second)
    os.close(second)


def test_cores_are_those_of_psutil():
    assert machine.cores() == len(psutil.Process().cpu_affinity())


@pytest.mark.parametrize(
    ("told", "lacks"),
    [
        ("model name\t: Xeon\nflags\t\t: fpu avx512f avx512_bf16 amx_bf16\n", False),
        ("flags\t\t: fpu avx2 avx512f\n", True),
        ("Features\t: fp asimd bf16\n", False),
        ("Features\t: fp asimd\n", True),
        ("processor\t: 0\n", False),
        (None, False),
    ],
)
def test_bf16_is_missed_only_where_the_system_says_what_there_is(tmp_path, told, lacks):
    if told is not None:
        (tmp_path / "cpuinfo").write_text(told)
    assert machine.lacks_bf16(tmp_path / "cpuinfo") is lacks


@settings(max_examples=40)
@given(st.text(min_size=1) | st.sampled_from(sorted(RESERVED)).map(str.upper))
def test_names_of_files_are_legal_everywhere(name):
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    for file in (f"{file_stem(name)}.key", file_of_name(name)):
        assert not set(file) & set('<>:"/\\|?*')
        assert file.isascii()
        assert file.isprintable()
        assert file[-1] not in ". "
        assert file.split(".")[0].lower() not in RESERVED
        assert len(file) < 220


def test_text_is_written_and_read_as_utf8_everywhere():
    """The rule that finds files without an encoding; their newlines are those of bytes."""
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--preview", "--select", "PLW1514", "afltool"],
        cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
