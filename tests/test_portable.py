"""Systems that lack what Linux has, and names of files that are legal everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from filelock import lock_descriptor
from hypothesis import given, settings
from hypothesis import strategies as st

from afltool import machine
from afltool.values.names import file_of_name, file_stem


def test_locks_are_those_of_filelock(tmp_path):
    """So that a process without fcntl and one with it see each other's."""
    first = os.open(tmp_path / "mark", os.O_RDWR | os.O_CREAT)
    second = os.open(tmp_path / "mark", os.O_RDWR)
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
@given(st.text(min_size=1))
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
        assert len(file) < 220


def test_text_is_written_and_read_as_utf8_everywhere():
    """The rule that finds files without an encoding; their newlines are those of bytes."""
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--preview", "--select", "PLW1514", "afltool"],
        cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
