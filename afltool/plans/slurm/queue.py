"""What Slurm says about jobs: which of them wait or run, and the end of a task's log."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...errors import AflError
from ...inputs import read_text
from ..layout import RunFolder

PATIENCE = 20.0  # seconds for an answer
MOST_ANSWER = 64 << 20  # bytes of an answer: about a million tasks
MOST_JOBS = 1 << 20  # bytes of a list of jobs
LOG_END = 1 << 16  # bytes of a log that are looked at
MOST_SAID = 300  # characters of a log that are shown


class Submitted(NamedTuple):
    """A job and its name: a controller that lost its last minutes gives their numbers again."""

    number: int
    name: str


@dataclass(frozen=True)
class Queue:
    """The user's jobs: state by (job, task); the task is -1 for a job that is no array.

    A job that waits until somebody releases it is 'held', not 'pending': Slurm holds jobs that a
    node could not start.
    """

    states: dict[tuple[Submitted, int], str]

    def of(self, jobs: list[Submitted]) -> dict[int, str]:
        """State by task, of these jobs alone."""
        return {task: state for (job, task), state in self.states.items() if job in jobs}


def ask() -> Queue | None:
    """The queue; None where there is no Slurm, or none that answers with lines of a queue."""
    answer = _said(["squeue", "--me", "-h", "-r", "-o", "%F|%K|%T|%r|%j"])
    if answer is None:
        return None
    lines = [line for line in answer.splitlines() if line.strip()]
    states = dict(filter(None, map(_state_of, lines)))
    return None if lines and not states else Queue(states)


def _state_of(line: str) -> tuple[tuple[Submitted, int], str] | None:
    """A job and its task, and its state; None for a line that is not of a queue."""
    fields = line.split("|", 4)
    if len(fields) < 5 or not _is_number(fields[0]):
        return None
    job, task, state, reason, name = fields
    held = state == "PENDING" and "held" in reason.lower()
    which = Submitted(int(job), name), int(task) if _is_number(task) else -1
    return which, "held" if held else state.lower()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def _said(words: list[str]) -> str | None:
    """The output of a command; None if it fails, writes too much or takes too long."""
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    assert process.stdout is not None
    output, until = bytearray(), time.monotonic() + PATIENCE
    try:
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ)
            while len(output) <= MOST_ANSWER and (left := until - time.monotonic()) > 0:
                if not waiting.select(left):
                    break
                part = os.read(process.stdout.fileno(), 1 << 16)
                if not part:
                    left = max(0.1, until - time.monotonic())
                    return output.decode(errors="replace") if process.wait(left) == 0 else None
                output += part
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
    return None


def jobs_of(folder: Path, name: str, number: int) -> list[Submitted]:
    """The jobs that a step has had in a round, oldest first."""
    path = folder / RunFolder.JOBS / f"{name}-{number}"
    try:
        lines = read_text(path, "jobs", MOST_JOBS).split()
    except AflError:
        return []
    return [Submitted(int(line), path.name) for line in lines if _is_number(line)]


def last_log(folder: Path, name: str, number: int, task: int | None) -> tuple[Path, str] | None:
    """The newest log of a step (of one of its tasks), and the last error in it or its last line."""
    ending = "" if task is None else f"_{task}"
    logs = (folder / RunFolder.LOGS).glob(f"{name}-{number}-*{ending}.log")
    latest = sorted((p.stat().st_mtime, p) for p in logs if p.is_file())
    if not latest:
        return None
    path = latest[-1][1]
    with path.open("rb") as file:  # a log may be long
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LOG_END))
        lines = file.read(LOG_END).decode(errors="replace").splitlines()
    errors = [line for line in lines if "error" in line]
    return path, (errors or lines or [""])[-1][:MOST_SAID]
