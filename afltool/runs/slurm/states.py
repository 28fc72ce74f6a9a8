"""`status`: which parts of a run are done, stale, running or failed, and how to continue it."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import InputError
from ..config import RunConfig, read_config
from ..folder import RunFolder
from ..status import Part, Parts
from . import jobs
from .site import load_site

PATIENCE = 20.0  # seconds for an answer of the queue
LOG_END = 1 << 16  # bytes of a log that are looked at
MOST_SAID = 300  # characters of a log that are shown


@dataclass(frozen=True)
class StepState:
    """A job that is still to make its file: missing, in the queue, or failed."""

    name: str
    tasks: int
    state: str
    job: str | None = None
    log: str | None = None
    said: str | None = None


class Queued(NamedTuple):
    """A line of the queue. A job that waits until somebody releases it is 'held', not 'pending'."""

    number: str
    state: str
    name: str


def status(root: str | Path) -> dict[str, Any]:
    """Parts, jobs, the state of the whole, and the command that continues (None: nothing to do)."""
    folder = RunFolder(root)
    if not folder.options.exists():
        raise InputError(f"{root} is not the folder of a run: it has no {RunFolder.OPTIONS}")
    config = RunConfig(**read_config(folder.options))
    by_jobs = (folder / RunFolder.SITE).exists()
    lines = queue() if by_jobs else None  # before the files: a job may end in between
    parts = list(Parts(folder, config).all())
    works: list[StepState] = []
    if by_jobs and not any(p.state == "damaged" for p in parts):
        works = list(_works(config, folder, lines))
    state = _state(parts, works)
    ends = state in ("done", "running", "pending")
    return {
        "folder": str(root),
        "state": state,
        "queue": "unknown" if lines is None else "asked",
        "parts": [asdict(p) for p in parts],
        "jobs": [asdict(w) for w in works],
        "continue": None if ends else _command(folder, parts, works),
    }


def queue() -> list[Queued] | None:
    """The user's jobs; None where there is no Slurm, or none that answers with lines of a queue."""
    words = ["squeue", "--me", "-h", "-r", "-o", "%F|%K|%T|%r|%j"]
    try:
        done = subprocess.run(words, capture_output=True, timeout=PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = [line for line in done.stdout.decode(errors="replace").splitlines() if line.strip()]
    found = []
    fields = (line.split("|", 4) for line in lines if line.count("|") > 3)
    for number, _, state, why, name in fields:
        if re.fullmatch("[0-9]+", number):
            found.append(Queued(number, "held" if "held" in why.lower() else state.lower(), name))
    return None if lines and not found else found


def _works(config: RunConfig, folder: RunFolder, lines: list[Queued] | None) -> Iterator[StepState]:
    root = folder.root.absolute()
    missing = jobs.missing(config, load_site(folder / RunFolder.SITE), RunFolder(root))
    end = jobs.tag(root)
    mine = [one for one in lines or () if one.name.endswith(end)]
    todo = {job.name for job in missing}
    for one in mine:  # of held ones whose files are there; what waits for their end still waits
        if one.name.removesuffix(end) not in todo and one.state == "held":
            yield StepState(one.name.removesuffix(end), 0, "held", one.number)
    for job in missing:
        own = [one for one in mine if one.name == job.name + end]
        states = {one.state for one in own}
        if own:
            busy = "running" if states & {"running", "completing"} else "pending"
            state = "held" if states == {"held"} else busy
            yield StepState(job.name, len(job.tasks), state, own[-1].number)
        elif log := last_log(root, job.name):
            state = "unknown" if lines is None else "failed"
            yield StepState(job.name, len(job.tasks), state, None, str(log[0]), log[1])
        else:
            yield StepState(job.name, len(job.tasks), "missing")


def last_log(root: Path, name: str) -> tuple[Path, str] | None:
    """The newest log of a job, and the last error in it or its last line."""
    logs = (root / RunFolder.LOGS).glob(f"{name}-[0-9]*.log")
    latest = max(((p.stat().st_mtime, p) for p in logs if p.is_file()), default=None)
    if latest is None:
        return None
    path = latest[1]
    with path.open("rb") as file:  # a log may be long
        file.seek(max(0, path.stat().st_size - LOG_END))
        lines = file.read(LOG_END).decode(errors="replace").splitlines()
    errors = [line for line in lines if "error" in line]
    return path, (errors or lines or [""])[-1][:MOST_SAID]


def _state(parts: Sequence[Part], works: Sequence[StepState]) -> str:
    """The first of these that a job or a file is in; what depends on a held job is pending."""
    jobs, files = {w.state for w in works}, {p.state for p in parts}
    order = [("running", jobs), ("held", jobs), ("pending", jobs)]
    order += [("damaged", files), ("stale", files), ("failed", jobs)]
    done = "done" if files == {"done"} and not works else "unfinished"
    return next((state for state, those in order if state in those), done)


def _command(folder: RunFolder, parts: Sequence[Part], works: Sequence[StepState]) -> str:
    """The command that the user types; it first removes files that cannot be kept."""
    if held := [str(w.job) for w in works if w.state == "held"]:
        return f"scontrol release {','.join(held)}"
    at = folder.root.absolute()
    here = [p for p in parts if not Path(p.name).is_absolute()]  # a given head is the user's
    bad = [str(at / p.name) for p in here if p.state in ("stale", "damaged")]
    remove = f"rm {shlex.join(bad)} && " if bad else ""
    words = ["afltool", "run", str(at / RunFolder.OPTIONS), "-o", str(at)]
    if (folder / RunFolder.SUBMIT).exists():
        words = ["bash", str(at / RunFolder.SUBMIT)]
    return f"{remove}{shlex.join(words)}"
