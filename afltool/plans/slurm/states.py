"""`status`: which parts of a run are done, stale, running or failed, and how to continue it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import AflError, CorruptFileError, InputError
from ...files.hdf5 import read_header
from ...inputs import meant, read_json
from ..config import RunConfig, read_config
from ..layout import RunFolder
from ..status import Part, Parts
from . import queue
from .steps import Job

PLAN, SUBMIT = RunFolder.PLAN, RunFolder.SUBMIT
MOST_PLAN = 1 << 20  # bytes of a plan
MOST_TASKS = 10**6  # of one array
BUSY = ("running", "pending")


@dataclass(frozen=True)
class Work:
    """A step of a Slurm run in its present round, and the state of its tasks."""

    name: str
    round: int
    tasks: int
    done: int
    state: str
    failed: tuple[int, ...] = ()
    job: int | None = None
    log: str | None = None
    said: str | None = None


def status(folder: str | Path) -> dict[str, Any]:
    """Parts, jobs, the state of the whole, and the command that continues (None: nothing to do)."""
    folder = Path(folder)
    options = folder / RunFolder.OPTIONS
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: {meant(folder)}")
    if not options.exists() and not list(folder.glob("0[1-6]-*")):
        raise InputError(f"{folder} is not the folder of a run: it has no {RunFolder.OPTIONS}")
    config = RunConfig(**read_config(options)) if options.exists() else None
    parts = list(Parts(RunFolder(folder), config).all())
    answer = queue.ask() if (folder / PLAN).exists() else None
    works = list(_works(folder, answer))
    state = _state(parts, works)
    return {
        "folder": str(folder),
        "state": state,
        "queue": "unknown" if answer is None else "asked",
        "parts": [asdict(p) for p in parts],
        "jobs": [asdict(w) for w in works],
        "continue": None if state in ("done", *BUSY) else _command(folder, parts, works),
    }


def _state(parts: list[Part], works: list[Work]) -> str:
    for state in ("running", "held", "pending"):  # what depends on a held job is pending
        if any(w.state == state for w in works):
            return state
    states = {p.state for p in parts}
    for state in ("damaged", "stale"):
        if state in states:
            return state
    if any(w.state == "failed" for w in works):
        return "failed"
    return "done" if states == {"done"} else "unfinished"


def _command(folder: Path, parts: list[Part], works: list[Work]) -> str | None:
    """The command that the user types; it first removes files that cannot be kept."""
    held = [str(w.job) for w in works if w.state == "held"]
    if held:
        return f"scontrol release {','.join(held)}"
    at = folder.absolute()
    here = [p for p in parts if not Path(p.name).is_absolute()]  # a given head is the user's
    bad = [str(at / p.name) for p in here if p.state in ("stale", "damaged")]
    remove = f"rm {shlex.join(bad)} && " if bad else ""
    if (folder / SUBMIT).exists():
        return f"{remove}bash {shlex.quote(str(at / SUBMIT))}"
    if (folder / RunFolder.OPTIONS).exists():
        toml = shlex.quote(str(at / RunFolder.OPTIONS))
        return f"{remove}afltool run {toml} -o {shlex.quote(str(at))}"
    return None


def _works(folder: Path, answer: queue.Queue | None) -> Iterator[Work]:
    """The state of each step, in the order of the stages."""
    if not (folder / PLAN).exists():
        return
    number = _round(folder)
    for step in read_plan(folder / PLAN):
        at = number if "{" in step.output or step.stage == "evaluate" else 1
        yield _work(folder, step, at, answer)


def read_plan(path: Path) -> list[Job]:
    """The steps that `slurm` wrote into plan.json.

    Raises:
        InputError: it cannot be read.
        CorruptFileError: it is not what `slurm` writes.
    """
    plan = read_json(path, "the steps of the jobs", MOST_PLAN)
    steps = plan.get("steps") if isinstance(plan, dict) else None
    if not isinstance(steps, list) or not all(_is_step(one) for one in steps):
        raise CorruptFileError(
            f"{path} is not what afltool slurm writes: run the same afltool slurm … again, which "
            "writes it again and keeps what is done"
        )
    return [Job(**{**one, "about": "", "body": ""}) for one in steps]


def _is_step(one: Any) -> bool:
    """Whether an entry of a plan has the fields of a step, with values that one can have."""
    texts = ("name", "stage", "output", "ending")
    return (
        isinstance(one, dict)
        and one.keys() == {*texts, "tasks"}
        and all(isinstance(one[key], str) and len(one[key]) < 100 for key in texts)
        and type(one["tasks"]) is int
        and 0 <= one["tasks"] <= MOST_TASKS
        and not {"/", "*", ".."} & {one["name"], *one["output"].split("/")}
        and "/" not in one["name"]
    )


def _round(folder: Path) -> int:
    """The round that is under way: one after the last head that there is, while it is unsolved."""
    number = 1
    while (head := RunFolder(folder).head(number)).exists():
        try:
            if read_header(head)["phase"] is None:
                return number
        except AflError:
            return number
        number += 1
    return number


def _work(folder: Path, step: Job, number: int, answer: queue.Queue | None) -> Work:
    name, tasks = step.name, step.tasks
    suffix = RunFolder.suffix(number)
    output = folder / step.output.replace("{round}", str(number)).replace("{suffix}", suffix)
    there = _names_in(output if tasks else output.parent)
    names = [f"{i}{step.ending}" for i in range(tasks)] if tasks else [output.name]
    missing = [i for i, one in enumerate(names) if one not in there]
    total, count = len(names), len(names) - len(missing)
    # evaluate is submitted in the round after the one that solved the head
    rounds = (number, number + 1) if step.stage == "evaluate" else (number,)
    jobs = [(job, r) for r in rounds for job in queue.jobs_of(folder, name, r)]
    states = answer.of([job for job, _ in jobs]) if answer is not None else {}
    kinds = set(states.values())
    job, at = (jobs[-1][0].number, jobs[-1][1]) if jobs else (None, number)
    if kinds == {"held"}:  # also when its files are there: what depends on it waits for its end
        # A controller that lost its last minutes knows no job that was submitted in them.
        job = next(one.number for one, _ in reversed(jobs) if answer and answer.of([one]))
        return Work(name, number, total, count, "held", (), job)
    if not missing or _is_past(folder, step, suffix):
        return Work(name, number, total, total, "done", (), job)
    if job is None:
        return Work(name, number, total, count, "missing")
    if answer is None:
        return Work(name, number, total, count, "unknown", (), job)
    if states:
        busy = "running" if {"running", "completing"} & kinds else "pending"
        failed = tuple(i for i in missing if tasks and i not in states)
        return Work(name, number, total, count, busy, failed, job)
    log = queue.last_log(folder, name, at, missing[0] if tasks else None)
    where, text = (str(log[0]), log[1]) if log else (None, None)
    failed = tuple(missing) if tasks else ()
    return Work(name, number, total, count, "failed", failed, job, where, text)


def _names_in(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def _is_past(folder: Path, step: Job, suffix: str) -> bool:
    """Whether the result of the step exists, so that its own files are no longer needed."""
    place = RunFolder(folder)
    if step.stage == "extract":
        return place.features(step.name.removeprefix("01-extract-")).exists()
    if step.stage in ("local-stats", "aggregate"):
        return (folder / RunFolder.TOTAL.format(suffix=suffix)).exists()
    return False
