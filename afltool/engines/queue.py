"""What the batch system says: which jobs wait or run, and what the log of a task ends with."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 30.0  # seconds for an answer


@dataclass(frozen=True)
class Queue:
    """The user's jobs: state by (job, task); the task is -1 for a job that is no array.

    A job that waits until somebody releases it, as Slurm has it when a node fails to start it, is
    'held' and not 'pending'.
    """

    states: dict[tuple[int, int], str]

    def of(self, jobs: list[int]) -> dict[int, str]:
        """State by task, of these jobs alone."""
        return {task: state for (job, task), state in self.states.items() if job in jobs}


def ask() -> Queue | None:
    """The queue; None where there is no Slurm, or none that answers."""
    try:
        done = subprocess.run(
            ["squeue", "--me", "-h", "-r", "-o", "%F|%K|%T|%r"],
            capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    found = {}
    for line in done.stdout.splitlines():
        job, task, state, reason = line.split("|", 3)
        held = state == "PENDING" and "held" in reason.lower()
        found[int(job), int(task) if task.isdigit() else -1] = "held" if held else state.lower()
    return Queue(found)


def jobs_of(folder: Path, name: str, number: int) -> list[int]:
    """The jobs that a step has had in a round, oldest first."""
    try:
        lines = (folder / "jobs" / f"{name}-{number}").read_text().split()
    except OSError:
        return []
    return [int(line) for line in lines if line.isdigit()]


def last_log(folder: Path, name: str, number: int, task: int | None) -> tuple[Path, str] | None:
    """The newest log of a step (of one of its tasks), and the last error in it or its last line."""
    ending = "" if task is None else f"_{task}"
    logs = (folder / "log").glob(f"{name}-{number}-*{ending}.log")
    found = sorted((p.stat().st_mtime, p) for p in logs)
    if not found:
        return None
    path = found[-1][1]
    lines = path.read_text(errors="replace").splitlines()
    errors = [line for line in lines if "error" in line and not line.startswith("{")]
    return path, (errors or lines or [""])[-1]
