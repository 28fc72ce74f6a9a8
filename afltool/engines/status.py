"""`status`: what a run's folder holds, what of it is stale or failed, and what goes on from there.

Only headers are read (`verify` reads every byte). A part is stale when it was made of other inputs
than those that lie beside it now, by their digests, or comes after one that is.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import AflError, InputError
from ..files import rows_digest
from ..stages.pipeline import OPTIONS_FILE
from ..stages.run_config import make_config, read_config
from ..store.atomic import partial_path
from ..store.features import open_features
from ..store.hdf5 import read_header
from . import queue
from .slurm import FOLDER, PLAN, SUBMIT

TRAIN, TEST, CLIENTS = "01-features-train.h5", "01-features-test.h5", "02-clients.h5"
BUSY = ("running", "pending")


@dataclass(frozen=True)
class Part:
    """A file of the run: done, missing, unfinished, damaged or stale; and why."""

    name: str
    state: str
    why: str = ""


@dataclass(frozen=True)
class Work:
    """A step of a Slurm run in its present round: tasks by what has become of them."""

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
    options = folder / OPTIONS_FILE
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}: check the path")
    if not options.exists() and not list(folder.glob("0[1-6]-*")):
        raise InputError(f"{folder} is not the folder of a run: it has no {OPTIONS_FILE}")
    parts = list(_Files(folder, options).parts())
    answer = queue.ask() if (folder / FOLDER / PLAN).exists() else None
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
    """What the user types: first the removal of what cannot be kept."""
    held = [str(w.job) for w in works if w.state == "held"]
    if held:
        return f"scontrol release {','.join(held)}"
    at = folder.absolute()
    bad = [str(at / p.name) for p in parts if p.state in ("stale", "damaged")]
    remove = f"rm {shlex.join(bad)} && " if bad else ""
    if (folder / FOLDER / SUBMIT).exists():
        return f"{remove}bash {shlex.quote(str(at / FOLDER / SUBMIT))}"
    if (folder / OPTIONS_FILE).exists():
        toml = shlex.quote(str(at / OPTIONS_FILE))
        return f"{remove}afltool run {toml} -o {shlex.quote(str(at))}"
    return None


# ------------------------------------------------------------ files


class _Files:
    """The road's files in order; each is compared with those that it should have been made of."""

    def __init__(self, folder: Path, options: Path) -> None:
        self.folder = folder
        config = make_config(read_config(options)) if options.exists() else None
        self.held_out = bool(config and config.held_out)
        self.everybody = config is not None and config.participation == 1
        first = folder / "03-head0.h5"
        self.first_head = first if config is None or first.exists() else Path(config.head)
        self.headers: dict[str, Mapping[str, Any]] = {}
        self.states: dict[str, str] = {}

    def parts(self) -> Iterator[Part]:
        yield self.part(TRAIN)
        yield self.part(TEST)
        yield self.part(CLIENTS, rows=TRAIN)
        head = str(self.first_head)
        if self.first_head.parent == self.folder:
            head = self.first_head.name
        yield self.part(head)
        for number in count(1):
            suffix = "" if number == 1 else f"-{number}"
            total = f"04-total{suffix}.h5"
            sums = [f"04-held-out{suffix}.h5", total] if self.held_out else [total]
            for name in sums:
                yield self.part(name, head=head, features=TRAIN, partition=CLIENTS)
            head = f"05-head{suffix}.h5"
            yield self.part(head, total=total)
            if head not in self.headers or self.headers[head]["phase"] is None:
                break
        yield self.metrics(head)

    def part(self, name: str, **made_of: str) -> Part:
        """One file, and what it was made of: names of parts by what they are to it."""
        found = self.look(name, made_of)
        self.states[name] = found.state
        return found

    def look(self, name: str, made_of: Mapping[str, str]) -> Part:
        path = self.folder / name
        if not path.exists():
            return self.absent(name, path)
        try:
            self.headers[name] = header = read_header(path)
            theirs = _made_of(header)
        except AflError as error:
            return Part(name, "damaged", str(error))
        for what, other in made_of.items():
            if self.states[other] != "done":
                return Part(name, "stale", f"{other}, which it was made of, is not done")
            if theirs.get(what) not in (
                None,
                self.rows() if what == "rows" else self.digest(other),
            ):
                return Part(name, "stale", f"made of other {what} than {other}")
        if name.startswith("04-total") and (lacking := self.lacking(name)):
            return Part(name, "stale", f"it lacks {lacking} clients of the partition")
        return Part(name, "done", header["digest"])

    def absent(self, name: str, path: Path) -> Part:
        if partial_path(path).exists():
            return Part(name, "unfinished", f"{partial_path(path).name} is being written, or was")
        return Part(name, "missing")

    def digest(self, name: str) -> str:
        return str(self.headers[name]["digest"])

    def rows(self) -> str | None:
        """Which rows the training features are."""
        try:
            with open_features(self.folder / TRAIN) as features:
                order = np.argsort(features.row_ids, kind="stable")
                return rows_digest(features.row_ids[order], features.labels[order])
        except AflError:
            return None

    def lacking(self, total: str) -> int:
        if not self.everybody:
            return 0
        clients = self.headers[CLIENTS]
        held = set(clients["held_out"]) if self.held_out else set()
        wanted = {name for i, name in enumerate(clients["names"]) if i not in held}
        return len(wanted - set(self.headers[total]["clients"]["names"]))

    def metrics(self, head: str) -> Part:
        name = "06-metrics.json"
        try:
            found = json.loads((self.folder / name).read_text())
            measured = found["head"]["digest"], found["features"]["digest"]
            share = float(found["top1"])
        except OSError:
            return Part(name, "missing")
        except (ValueError, KeyError, TypeError):
            return Part(name, "damaged", "it is not what evaluate writes")
        if any(self.states[one] != "done" for one in (head, TEST)):
            return Part(name, "stale", f"{head} or {TEST} is not done")
        if measured != (self.digest(head), self.digest(TEST)):
            return Part(name, "stale", f"of another head than {head}, or other test features")
        return Part(name, "done", f"top-1 {share:.2%}")


def _made_of(header: Mapping[str, Any]) -> dict[str, str | None]:
    """Digests of the inputs, as a file tells them."""
    if header["kind"] == "partition":
        return {"rows": header["rows_digest"]}
    if header["kind"] == "statistics":
        table = header["clients"]
        return {
            "head": header["context"]["head"]["digest"],
            "features": _only(table["sources"]),
            "partition": _only([digest for digest, _ in table["partitions"]]),
        }
    return {"total": header["recipe"]["inputs"].get("total")}


def _only(values: list[str]) -> str | None:
    """The one that there should be; several never equal a digest."""
    return values[0] if len(values) == 1 else ", ".join(values) or None


# ------------------------------------------------------------ jobs


def _works(folder: Path, answer: queue.Queue | None) -> Iterator[Work]:
    """What has become of each step, in the order of the road."""
    place = folder / FOLDER
    try:
        planned = json.loads((place / PLAN).read_text())["steps"]
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"cannot read {place / PLAN}: {error}") from None
    number = _round(folder)
    for step in planned:
        once = "{" not in step["output"]
        at = 1 if once and step["name"] != "06-evaluate" else number
        yield _work(folder, step, at, answer)


def _round(folder: Path) -> int:
    """The round that is under way: one after the last head that there is, while it is unsolved."""
    number = 1
    while (head := folder / f"05-head{'' if number == 1 else f'-{number}'}.h5").exists():
        try:
            if read_header(head)["phase"] is None:
                return number
        except AflError:
            return number
        number += 1
    return number


def _work(folder: Path, step: Mapping[str, Any], number: int, answer: queue.Queue | None) -> Work:
    name, tasks = step["name"], step["tasks"]
    suffix = "" if number == 1 else f"-{number}"
    output = folder / step["output"].format(round=number, suffix=suffix)
    files = [output / f"{i}{step['ending']}" for i in range(tasks)] if tasks else [output]
    missing = [i for i, file in enumerate(files) if not file.exists()]
    count = len(files) - len(missing)
    # evaluate is submitted in the round after the one that solved the head
    rounds = (number, number + 1) if name == "06-evaluate" else (number,)
    jobs = [(job, r) for r in rounds for job in queue.jobs_of(folder / FOLDER, name, r)]
    states = answer.of([job for job, _ in jobs]) if answer is not None else {}
    kinds = set(states.values())
    job, at = jobs[-1] if jobs else (None, number)
    if kinds == {"held"}:  # be its files there or not: what depends on it waits for its end
        return Work(name, number, len(files), count, "held", (), job)
    if not missing or _is_past(folder, step, suffix):
        return Work(name, number, len(files), len(files), "done", (), job)
    if job is None:
        return Work(name, number, len(files), count, "missing")
    if answer is None:
        return Work(name, number, len(files), count, "unknown", (), job)
    if states:
        busy = "running" if {"running", "completing"} & kinds else "pending"
        failed = tuple(i for i in missing if tasks and i not in states)
        return Work(name, number, len(files), count, busy, failed, job)
    log = queue.last_log(folder / FOLDER, name, at, missing[0] if tasks else None)
    where, said = (str(log[0]), log[1]) if log else (None, None)
    failed = tuple(missing) if tasks else ()
    return Work(name, number, len(files), count, "failed", failed, job, where, said)


def _is_past(folder: Path, step: Mapping[str, Any], suffix: str) -> bool:
    """Whether what the step is for is there, so that its own files are no longer needed."""
    name = step["name"]
    if name.startswith("01-extract"):
        split = name.removeprefix("01-extract-")
        return (folder / f"01-features-{split}.h5").exists()
    if name.startswith("04-"):
        return (folder / f"04-total{suffix}.h5").exists()
    return False
