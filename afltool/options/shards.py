"""Part I of N: what `--shard` and `--only` say, or what a Slurm job says of its task."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from ..errors import UsageError


def check_shard(text: str | None) -> None:
    """Refuse what is neither I/N nor 'slurm'; the job itself is looked at when work begins."""
    if text != "slurm":
        parse_shard(text)


def parse_shard(text: str | None, option: str = "--shard") -> tuple[int, int]:
    """'I/N' with I from 0; 'slurm' is this task of a job; nothing is '0/1'.

    >>> parse_shard("2/8")
    (2, 8)
    """
    if text is None:
        return 0, 1
    if text == "slurm":
        return shard_of_job(os.environ)
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not int(match[1]) < int(match[2]):
        raise UsageError(
            f"{option} is I/N with I from 0 to N−1, such as 0/8, or slurm; found {text!r}"
        )
    return int(match[1]), int(match[2])


def shard_of_job(environ: Mapping[str, str]) -> tuple[int, int]:
    """(I, N) of a Slurm task: its place in the array, times its place among srun's tasks.

    Array tasks may begin anywhere and keep a step (``--array=1-19:2``), not leave some out: then
    their places are not what their numbers say.

    >>> shard_of_job({"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "8"})
    (3, 8)
    >>> shard_of_job({"SLURM_PROCID": "1", "SLURM_NTASKS": "4"})
    (1, 4)
    """
    array = "SLURM_ARRAY_TASK_"
    has_array, has_tasks = f"{array}ID" in environ, "SLURM_PROCID" in environ
    if not has_array and not has_tasks:
        raise UsageError(
            "--shard slurm: expected SLURM_ARRAY_TASK_ID (sbatch --array) or SLURM_PROCID (srun), "
            "found neither; outside a Slurm job give I/N"
        )
    part, parts = 0, 1
    if has_array:
        number, parts = _whole(environ, f"{array}ID"), _whole(environ, f"{array}COUNT")
        first = _whole(environ, f"{array}MIN", 0)
        part, odd = divmod(number - first, _whole(environ, f"{array}STEP", 1) or 1)
        if odd or not 0 <= part < parts:
            raise UsageError(
                f"--shard slurm: task {number} of {parts} array tasks from {first} on has no place "
                "among them; number them without gaps (--array=0-7), or give I/N"
            )
    if has_tasks:
        inner, tasks = _whole(environ, "SLURM_PROCID"), _whole(environ, "SLURM_NTASKS", 1)
        if not inner < tasks:
            raise UsageError(
                f"--shard slurm: expected SLURM_PROCID below SLURM_NTASKS, found {inner} of {tasks}"
            )
        part, parts = part * tasks + inner, parts * tasks
    return part, parts


def _whole(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environ.get(name, "" if default is None else str(default))
    if not text.isdecimal():
        raise UsageError(f"--shard slurm: expected a whole number in {name}, found {text!r}")
    return int(text)
