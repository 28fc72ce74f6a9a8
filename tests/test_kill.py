"""Killed at any moment, a stage leaves whole files or none, and the next run makes it good.

A stage is killed with SIGKILL at 4 moments, a command of several seconds at fewer, drawn from a
fixed seed: half of them over its whole duration, half from the moment on at which its first
unfinished file is there. `partition` and `aggregate` write one file at their end, as `solve` does.
Extractions that are killed again and again are in test_extract_scale.py.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import embeddings, installed
from helpers_images import write_imagefolder

import afltool
from afltool.values.arrays import file_sha256

pytestmark = pytest.mark.slow

MOMENTS = 4
FEWER = {"predict": 3, "extract": 3, "run": 3}  # of commands that take several seconds
# The command with extraction committing more often than every 5 s, so that short runs do, too.
EAGER = """
import afltool.stages.extract as extract
from afltool.cli import main
extract.COMMIT_SECONDS = 0.1
main()
"""


@dataclass(frozen=True)
class Stage:
    """A command by the folder that it writes into, and the file there that it is judged by."""

    args: Callable[[Path], list[Any]]
    result: str
    eager: bool = False
    expected: list[str] = field(default_factory=list)  # the digest without a kill, once it is known

    def start(self, folder: Path) -> subprocess.Popen[str]:
        args = [str(a) for a in self.args(folder)]
        if not self.eager:
            return installed(*args, wait=False)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-c", EAGER, *args], **pipes)

    def finish(self, folder: Path, cli: Any) -> str:
        """Run it to its end, in this process to save time; returns what it said."""
        folder.mkdir(exist_ok=True)
        done = cli(*self.args(folder))
        assert done.exit_code == 0, done.stderr
        return str(done.stderr)

    def undisturbed(self, folder: Path, cli: Any) -> str:
        """The digest of an undisturbed run, which is made once, in a folder beside."""
        if not self.expected:
            self.finish(folder.with_name("undisturbed"), cli)
            self.expected.append(self.digest(folder.with_name("undisturbed")))
        return self.expected[0]

    def digest(self, folder: Path) -> str:
        path = folder / self.result
        return file_sha256(path) if path.suffix == ".csv" else afltool.verify(path)["digest"]


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    """Inputs large enough that there is something to interrupt."""
    at = tmp_path_factory.mktemp("inputs")
    embedded = embeddings(at / "train.npz", 20_000, d=128, classes=10)
    train = afltool.import_embeddings(embedded, at / "train.h5")
    clients = afltool.partition(train, at / "clients.h5", alpha=0.1, clients=40)
    stats = afltool.local_stats(train, "linear", at / "stats", partition=clients)
    total = afltool.aggregate([stats], at / "total.h5")
    head = afltool.solve(total, at / "head.h5")
    many = [train] * 4
    images = write_imagefolder(at / "images", per_class=90, size=16)
    # Frozen, since PyTorch takes 3 s to start; it is killed in test_extract_scale.py.
    net = afltool.backbone("resnet18", at / "net.afl", weights="random", image_size=48)
    backbone = ["--backbone", net, "--data", f"imagefolder:{images}"]
    dealt = ["--partition", clients, "--head", "linear"]
    return {
        "extract": Stage(lambda f: ["extract", *backbone, "-o", f / "f.h5"], "f.h5", eager=True),
        "import": Stage(lambda f: ["import", embedded, "-o", f / "f.h5"], "f.h5"),
        "local-stats": Stage(
            lambda f: ["local-stats", train, *dealt, "-o", f / "stats"], "stats/client-39.h5"
        ),
        "predict": Stage(
            lambda f: ["predict", head, *many, "--scores", "-o", f / "p.csv"], "p.csv"
        ),
        "solve": Stage(lambda f: ["solve", total, "--ridge", "auto", "-o", f / "h.h5"], "h.h5"),
        "run": Stage(
            lambda f: ["run", *backbone, "--limit", 64, "--clients", 20, "--head", "deepafl",
                       "--layers", 2, "--width", 16, "--store", f / "store", "--keep-clients",
                       "-o", f / "run"],
            "run/head-final.h5",
            eager=True,
        ),
    }  # fmt: skip


NAMES = ("extract", "import", "local-stats", "predict", "solve", "run")


def unfinished(folder):
    return list(folder.rglob("*.partial"))


def wait_for_an_unfinished_file(process, folder):
    while process.poll() is None and not unfinished(folder):
        time.sleep(0.002)


def kill_while_it_writes(process, folder):
    """Killed while it stands still before an unfinished file: no race with the file's last name."""
    while process.poll() is None:
        wait_for_an_unfinished_file(process, folder)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if unfinished(folder):
            break
        process.send_signal(signal.SIGCONT)
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


def kill_after(process, seconds):
    """SIGKILL after so many seconds; whether it came before the end."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL


def check_finished_files(folder):
    for path in folder.rglob("*.h5"):
        assert afltool.verify(path)["intact"]
    for path in folder.rglob("*.json"):
        assert json.loads(path.read_text())


WRITE_LONG = (
    "extract",
    "import",
    "local-stats",
    "predict",
    "run",
)  # the others write for milliseconds


@pytest.mark.parametrize("name", NAMES)
def test_killed_at_random_moments(name, stages, tmp_path, cli):
    stage = stages[name]
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    begun = time.monotonic()
    process = stage.start(undisturbed)
    wait_for_an_unfinished_file(process, undisturbed)
    writing_after = time.monotonic() - begun
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    duration = time.monotonic() - begun
    expected = stage.digest(undisturbed)
    stage.expected[:] = [expected]

    draw = random.Random(name)
    killed, met, moments = 0, 0, FEWER.get(name, MOMENTS)
    for number in range(moments):
        folder = tmp_path / str(number)
        folder.mkdir()
        process = stage.start(folder)
        if number == 1:  # once for certain
            killed += kill_while_it_writes(process, folder)
        elif number % 2:
            wait_for_an_unfinished_file(process, folder)
            later = draw.random() ** 2 * (duration - writing_after)
            killed += kill_after(process, later)
        else:
            killed += kill_after(process, (number + draw.random()) / moments * duration)
        met += bool(unfinished(folder))
        check_finished_files(folder)
        stage.finish(folder, cli)
        check_finished_files(folder)
        assert stage.digest(folder) == expected
        assert not unfinished(folder)
    assert killed > moments // 4, "the premise: many runs were interrupted"
    assert met > 0 or name not in WRITE_LONG, "the premise: some were interrupted while they wrote"


def interrupt(stage, folder, number):
    """Start a stage and send it a signal once it is writing: (exit code, what it said).

    The code is 0 when the result was there before the signal, whatever became of the process.
    """
    folder.mkdir()
    process = stage.start(folder)
    wait_for_an_unfinished_file(process, folder)
    process.send_signal(number)
    out, said = process.communicate(timeout=120)
    assert "Traceback" not in said
    return 0 if out else process.returncode, said


@pytest.mark.usefixtures("signals_are_heard")
@pytest.mark.parametrize(
    ("name", "number", "code"),
    [
        ("extract", signal.SIGUSR1, 75),
        ("import", signal.SIGTERM, 75),
        ("local-stats", signal.SIGINT, 130),
        ("run", signal.SIGINT, 130),
    ],
)
def test_a_stage_that_is_asked_to_stop_goes_on_later(name, number, code, stages, tmp_path, cli):
    stage, folder = stages[name], tmp_path / "asked"
    found, said = interrupt(stage, folder, number)
    assert found in (code, 0), "0: it was done before the signal"
    check_finished_files(folder)
    if name == "extract":
        assert found == 75
        assert "stopped on SIGUSR1" in said
        assert "run the same command to go on" in said
        assert [p.name for p in folder.iterdir()] == ["f.h5.partial"]
    again = stage.finish(folder, cli)
    if name == "extract":
        done = int(re.search(r"(\d+) of 270 images are done, going on from there", again)[1])
        assert 0 < done < 270
    assert stage.digest(folder) == stage.undisturbed(folder, cli)


def test_two_extractions_of_one_file_at_once(stages, tmp_path):
    """A batch system that starts a job twice: one of them writes, the other is told."""
    stage = stages["extract"]
    first = stage.start(tmp_path)
    wait_for_an_unfinished_file(first, tmp_path)
    second = stage.start(tmp_path)
    codes = []
    for process in (second, first):
        _, said = process.communicate(timeout=300)
        codes.append(process.returncode)
        assert process.returncode == 0 or "another process is writing it" in said
    assert sorted(codes) in ([0, 0], [0, 3])
    assert afltool.verify(tmp_path / "f.h5")["intact"]
