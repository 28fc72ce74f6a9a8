"""What `--shard` and `--only` say: part I of N, this task's part of a Slurm job, or clients."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import UsageError
from ..values.parsed import Parsed, Written


@dataclass(frozen=True)
class Part(Parsed):
    """Part ``number``, from 0, of ``count``."""

    number: int = 0
    count: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def of(self, n: int) -> slice:
        """The places of this part in a sequence of ``n``.

        >>> "abcde"[Part(1, 2).of(5)]
        'cde'
        """
        return slice(n * self.number // self.count, n * (self.number + 1) // self.count)

    def now(self) -> Part:
        """The part that is meant."""
        return self


WHOLE = Part()


@dataclass(frozen=True)
class OfJob(Parsed):
    """The part of this task of a Slurm job; it is looked at when work begins."""

    def __str__(self) -> str:
        return "slurm"

    def now(self) -> Part:
        """The part that is meant."""
        return shard_of_job(os.environ)


@dataclass(frozen=True)
class Numbers(Written):
    """Clients by their numbers, the first and last of each range."""

    ranges: tuple[tuple[int, int], ...]

    def below(self, clients: int) -> list[int]:
        """The numbers of so many clients, ascending, each once.

        >>> parse_clients("0-2,5").below(10)
        [0, 1, 2, 5]
        """
        if not all(0 <= first <= last < clients for first, last in self.ranges):
            raise UsageError(
                f"--only {self}: the {clients} clients are numbered 0 to {clients - 1}"
            )
        return sorted({k for first, last in self.ranges for k in range(first, last + 1)})


def parse_shard(text: str) -> Part | OfJob:
    """'I/N' with I from 0, or 'slurm'."""
    return OfJob() if text == "slurm" else parse_part(text, "--shard")


def parse_part(text: str, option: str) -> Part:
    """'I/N' with I from 0.

    >>> parse_part("2/8", "--only")
    Part(number=2, count=8)
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not int(match[1]) < int(match[2]):
        raise UsageError(
            f"{option} is I/N with I from 0 to N−1, such as 0/8, or slurm; found {text!r}"
        )
    return Part(int(match[1]), int(match[2]))


def parse_clients(text: str) -> Part | Numbers:
    """'0-9,12', or 'I/N'."""
    if "/" in text:
        return parse_part(text, "--only")
    try:
        return Numbers(text, tuple(map(_range, text.split(","))))
    except ValueError:
        raise UsageError(
            f"--only takes clients such as 0-9 or 3,7-8, or a part I/N; found {text!r}"
        ) from None


def _range(text: str) -> tuple[int, int]:
    low, dash, high = text.strip().partition("-")
    return int(low), int(high if dash else low)


def shard_of_job(environ: Mapping[str, str]) -> Part:
    """The part of a Slurm task: its place in the array, times its place among srun's tasks.

    Array tasks may begin anywhere and keep a step (``--array=1-19:2``), not leave some out: then
    their places are not what their numbers say.

    >>> shard_of_job({"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "8"})
    Part(number=3, count=8)
    >>> shard_of_job({"SLURM_PROCID": "1", "SLURM_NTASKS": "4"})
    Part(number=1, count=4)
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
    return Part(part, parts)


def _whole(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environ.get(name, "" if default is None else str(default))
    if not text.isdecimal():
        raise UsageError(f"--shard slurm: expected a whole number in {name}, found {text!r}")
    return int(text)
