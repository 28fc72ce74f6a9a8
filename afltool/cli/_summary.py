"""One line of JSON on stderr when a command ends, for people who read the logs of many tasks."""

from __future__ import annotations

import os
import platform
import time

from .. import machine
from ..values.json_text import json_text
from ._streams import tell

# Slurm's variables about a task, and their names in the line.
SLURM = {
    "SLURM_JOB_ID": "job",
    "SLURM_ARRAY_JOB_ID": "array_job",
    "SLURM_ARRAY_TASK_ID": "array_task",
    "SLURM_RESTART_COUNT": "restarts",
}


_begun: tuple[str, float] | None = None  # a command, and when its options were read


def begin(command: str) -> None:
    """`end` will write the line of this command."""
    global _begun
    _begun = command, time.monotonic()


def end(exit_code: int) -> None:
    """Write the line if it was asked for: what was done, how it ended, seconds and peak memory."""
    if _begun is None:
        return
    command, begun = _begun
    found = {
        "command": command,
        "exit_code": exit_code,
        "seconds": round(time.monotonic() - begun, 3),
        "cpu_seconds": round(time.process_time(), 3),
        "peak_mb": round(machine.peak_memory() / 1e6, 1),
        "host": platform.node(),
        **{name: int(os.environ[key]) for key, name in SLURM.items() if _number(key)},
    }
    tell(json_text(found))


def _number(key: str) -> bool:
    value = os.environ.get(key, "")
    return value.isascii() and value.isdigit() and len(value) < 20
