"""The bash scripts of a run: one for each step, what they share, and what submits them.

What does not depend on the run stands in the files .sh of this folder, with §{NAME} for the rest.
"""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Any

from ..layout import RunFolder
from . import quoting as shell
from .quoting import quoted
from .site import Site
from .steps import Job

HERE = Path(__file__).parent
NAMES = {
    "second": RunFolder.HEAD.format(suffix=""),
    "before": RunFolder.HEAD.format(suffix="-$(($1 - 1))"),
    "total": RunFolder.TOTAL.format(suffix="$suffix"),
    "held_out": RunFolder.HELD_OUT.format(suffix="$suffix"),
    "solved": RunFolder.HEAD.format(suffix="$suffix"),
    "parts": RunFolder.PARTS.format(round="$1"),
    "metrics": RunFolder.METRICS,
    "slurm": RunFolder.SLURM,
}


class _Bash(Template):
    delimiter = "§"


def filled(path: Path, **values: Any) -> str:
    """The script in a file, with a value for each §{NAME} in it."""
    return _Bash(path.read_text("utf-8")).substitute(NAMES, **values)


def common(folder: Path, head: Path | None, site: Site) -> str:
    """common.sh of a run."""
    first = f"$RUN/{RunFolder.FIRST_HEAD}" if head is None else quoted(head)
    return shared(folder, site, f"HEAD={first}\n", filled(HERE / "rounds.sh"))


def shared(folder: Path, site: Site, head: str = "", rounds: str = "") -> str:
    """common.sh: where the folder is, the site's environment, and how a stage runs in a job."""
    modules = site.modules.split(",") if site.modules else []
    lines = [f"module load {shell.line(modules)}"] if modules else []
    if site.venv is not None:
        lines.append(f"source {quoted(site.venv.absolute() / 'bin' / 'activate')}")
    setup = "".join(line + "\n" for line in [*lines, *site.setup])
    container = ""
    if site.container is not None:  # the path of a file does not depend on the job
        address = "://" in site.container
        image = site.container if address else Path(site.container).absolute()
        container = filled(HERE / "container.sh", image=quoted(image))
    own = {"run": quoted(folder), "head": head, "setup": setup}
    return filled(HERE / "common.sh", **own, container=container, rounds=rounds)


def queue(folder: Path, after: str = "afterok") -> str:
    """The part of submit.sh that defines `enqueue`; ``after``: what a job waits for of another."""
    return filled(HERE / "queue.sh", run=quoted(folder), after=after)


def script(step: Job, folder: Path, site: Site, start: Path) -> str:
    """The job script of a step of a run."""
    lines = [*header(step, folder, site, start), 'of_round "${1:-1}"', ""]
    return "\n".join([*lines, step.body]) + "\n"


def header(step: Job, folder: Path, site: Site, start: Path) -> list[str]:
    """The first lines of a job script: what it is, what it asks Slurm for, common.sh."""
    s = site.of(step.stage)
    one = "%A_%a" if step.tasks else "%j"
    options = {
        "job-name": step.name,
        "output": f"{shell.log_folder(folder)}/{RunFolder.LOGS}/%x-{one}.log",
        "open-mode": "append",
        "chdir": start,
        "partition": s.partition_name,
        "account": s.account,
        "qos": s.qos,
        "time": s.time,
        "mem": s.memory,
        "cpus-per-task": s.cpus,
        "gres": f"gpu:{s.gpus}" if s.gpus else None,
        "signal": f"B:USR1@{s.warn}",
    }
    wishes = [f"#SBATCH --{k}={shell.for_sbatch(v)}" for k, v in options.items() if v is not None]
    lines = ["#!/bin/bash", f"# {step.about}", *wishes, "#SBATCH --requeue"]
    return [*lines, f"source {quoted(folder / RunFolder.COMMON)}"]


def submitting(steps: list[Job], folder: Path, site: Site) -> str:
    """submit.sh."""
    limit = f"%{site.at_once}" if site.at_once else ""
    lines = ["train='' test=''"]
    sums: list[str] = []
    dealt = any(step.stage == "partition" for step in steps)
    after = '"$clients"' if dealt else '"$train"'
    for step in steps:
        if step.name.startswith("01-extract"):
            split = step.name.removeprefix("01-extract-")
            place = f'"$RUN/{RunFolder.FEATURES.format(split=split)}"'
            lines += [
                f"if [ ! -e {place} ]; then",
                f"    {_many(step, limit, chr(34) * 2)}",
                f'    one 01-merge-{split} "$job" {place}',
                f"    {split}=$job",
                "fi",
            ]
        elif step.stage == "partition":
            lines += [f'one {step.name} "$train" "$RUN/{step.output}"', "clients=$job"]
        elif step.tasks:
            sums.append(f"    {_many(step, limit, after)}")
            after = '"$job"'
        elif step.stage == "aggregate":
            sums.append(f'    one {step.name} "$job" "$total"')
    before, rest = "\n".join(lines), "\n".join(sums)
    names = {"run": quoted(folder), "queue": queue(folder)}
    return filled(HERE / "submit.sh", **names, before=before, sums=rest)


def _many(step: Job, limit: str, after: str) -> str:
    place = step.output.replace(RunFolder.PARTS, "$parts")
    place = place if place.startswith("$") else f"$RUN/{place}"
    return f'many {step.name} {after} "{place}" {step.tasks} "{limit}" {step.ending}'
