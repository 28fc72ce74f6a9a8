"""A study on a Slurm cluster: an array over its cells, after one over what they share.

STUDY/slurm/common.sh, log, jobs   as those of a run; see `plans.slurm.jobs`
STUDY/slurm/01-prepare.sh          a task for the features of each data set, with their partitions
STUDY/slurm/02-cells.sh            a task a cell; of several cells where Slurm takes no more tasks
STUDY/slurm/submit.sh              submits the cells that have no result and are not in the queue

A task is the command `afltool study STUDY --only CELLS`. So a cell that fails is named as on one
machine, and the others go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import AflError
from ..files.outputs import make_folder
from ..inputs import read_text
from ..plans.layout import RunFolder
from ..plans.slurm import queue, scripts
from ..plans.slurm import quoting as shell
from ..plans.slurm.jobs import check_scripts, write_scripts
from ..plans.slurm.site import Site
from ..plans.slurm.steps import DONE, Job
from ..values.arrays import Digest
from .cells import Cell, StudyFolder
from .description import Study
from .execution import check_cells, check_size

PREPARE, CELLS = "01-prepare", "02-cells"
PARTS = f"{RunFolder.SLURM}/parts"  # marks of what has been prepared
ROUND = 1  # that the engine's names of jobs and logs have; a study has one
MOST_NAMES = 1 << 20  # bytes of the names of an array's cells


def script_texts(study: Study, site: Site, out: Path) -> dict[str, str]:
    """Every script of a study by its name; nothing is written.

    Raises what the command of a cell raises before any work.
    """
    check_cells(study, StudyFolder(out), study.cells, here=False)
    root, start = out.absolute(), Path.cwd()
    tasks, shared = _tasks(study.cells, site.max_array), _shared(study.cells)
    texts = {"common.sh": scripts.shared(root, site)}
    for step in _steps(tasks, shared, study.count()):
        lines = [*scripts.header(step, root, site, start), "", step.body]
        texts[f"{step.name}.sh"] = "\n".join(lines)
    names = {"round": ROUND, "done": DONE, "prepare": PREPARE, "cells": CELLS}
    texts["submit.sh"] = scripts.filled(
        Path(__file__).with_name("submit.sh"),
        run=shell.quoted(root),
        queue=scripts.queue(root, "afterany"),
        lists=_list("cells", tasks) + _list("shared", shared),
        limit=f"%{site.at_once}" if site.at_once else "",
        **names,
    )
    return texts


def prepare(study: Study, site: Site, out: str | Path, *, most: int = 1000) -> Path:
    """Write the scripts of a study into its folder; returns submit.sh.

    Raises `UsageError` for more cells than ``most``; nothing was written.
    """
    folder = StudyFolder(out)
    check_size(study, most)
    texts = script_texts(study, site, folder.root)
    check_scripts(folder.jobs, texts)
    make_folder(folder.jobs)
    study.keep(folder)
    write_scripts(folder.jobs, texts)
    return folder.jobs / "submit.sh"


def _tasks(cells: list[Cell], most: int) -> list[str]:
    """The names of the cells of each task, with commas between; at most ``most`` tasks."""
    names = list(dict.fromkeys(cell.key for cell in cells))
    count = min(len(names), most)
    ends = [len(names) * i // count for i in range(count + 1)]
    return [",".join(names[ends[i] : ends[i + 1]]) for i in range(count)]


def _shared(cells: list[Cell]) -> dict[str, str]:
    """A task for each set of features that is extracted or dealt for baselines, by its name.

    Its value is the names of cells that together need all of it.
    """
    groups: dict[str, dict[str, str]] = {}
    for cell in cells:
        dealt = None if cell.method is None else cell.config.partition
        extract = cell.config.extract
        if extract is None and dealt is None:
            continue
        own = cell.config.own.train_features if extract is None else extract.changed()
        group = Digest().json("features", str(own)).hex()[:16]
        groups.setdefault(group, {}).setdefault(f"{cell.method is None} {dealt}", cell.key)
    return {f"shared-{name}": ",".join(steps.values()) for name, steps in groups.items()}


def _steps(tasks: list[str], shared: Mapping[str, str], size: int) -> list[Job]:
    one = f'stage study "$RUN" --most {size} --only "${{cells[SLURM_ARRAY_TASK_ID]}}"'
    jobs = [
        Job(
            CELLS, "study", "Cells of the study; a task carries out those of its line.",
            f"{_list('cells', tasks)}{one}\n", StudyFolder.CELLS, len(tasks),
        )
    ]  # fmt: skip
    if shared:
        place = f'"$RUN"/{PARTS}'
        body = _list("shared", shared) + _list("cells", shared.values()) + one + " --prepare\n"
        body += f'mkdir -p {place} && touch {place}/"${{shared[SLURM_ARRAY_TASK_ID]}}"{DONE}\n'
        jobs.insert(0, Job(
            PREPARE, "extract", "What cells share: features, and the partitions of baselines.",
            body, PARTS, len(shared),
        ))  # fmt: skip
    return jobs


def _list(name: str, lines: Iterable[str]) -> str:
    """A bash array; names of cells need no quotes."""
    return f"{name}=(\n" + "".join(f"    {line}\n" for line in lines) + ")\n"


def states(folder: StudyFolder, keys: list[str]) -> dict[str, tuple[str, str | None]]:
    """The state of cells without result that jobs have or had, and what the last log says.

    A state is that of the queue; 'failed' where the job is no longer there, 'unknown' where no
    Slurm answers.
    """
    if not folder.jobs.is_dir():
        return {}
    answer = queue.ask()
    by_cell: dict[str, tuple[str, str | None]] = {}
    for job in queue.jobs_of(folder.root, CELLS, ROUND):
        where = answer.of([job]) if answer is not None else {}
        for task, names in enumerate(_cells_of(folder, job.number)):
            for key in names:
                by_cell[key] = _state(folder, task, where) if answer else ("unknown", None)
    return {key: by_cell[key] for key in keys if key in by_cell}


def _state(folder: StudyFolder, task: int, where: Mapping[int, str]) -> tuple[str, str | None]:
    if task in where:
        return ("running" if where[task] == "completing" else where[task]), None
    log = queue.last_log(folder.root, CELLS, ROUND, task)
    return "failed", None if log is None else log[1]


def _cells_of(folder: StudyFolder, job: int) -> list[list[str]]:
    """The cells of each task of a job, as submit.sh has noted them."""
    place = folder.root / RunFolder.JOBS / f"cells-{job}"
    try:
        return [line.split(",") for line in read_text(place, "cells", MOST_NAMES).split()]
    except AflError:
        return []
