"""A study on a Slurm cluster: an array whose task I is `afltool study . --only I/N`.

The scripts are those of a run, see `plans.slurm.jobs`. A job for each set of images extracts their
features before, since it may ask for GPUs. Whatever else cells share is made by the one that comes
first. A cell that fails is named as on one machine, and the others go on.
"""

from __future__ import annotations

from pathlib import Path

from ..files.outputs import make_folder
from ..options.grammars import Part
from ..plans.layout import RunFolder
from ..plans.slurm import jobs
from ..plans.slurm.site import Site, kept_site
from ..plans.slurm.states import last_log, queue
from .cells import Cell, StudyFolder
from .description import Study, find
from .execution import check_cells, check_size
from .results import finished

CELLS = "cells"  # the name of the array


def script_texts(study: Study, site: Site, out: Path) -> dict[str, str]:
    """Every script of a study by its name, and what submit.sh submits; nothing is written.

    Raises what the command of a cell raises before any work.
    """
    folder = StudyFolder(out)
    check_cells(study, folder, study.cells, here=False)
    asking = 'lines=$("${run[@]}" study . --slurm --next) || exit\neval "$lines"'
    texts = jobs.scripts(out.absolute(), site, "study .", asking, "afterany")
    return {**texts, "jobs": _lines(study, site, folder)}


def next_lines(out: str | Path) -> str:
    """The lines of submit.sh for the cells that have no result."""
    folder = StudyFolder(out)
    return _lines(find(str(out)), kept_site(folder.root / RunFolder.SITE), folder)


def _lines(study: Study, site: Site, folder: StudyFolder) -> str:
    cells, parts = study.cells, _parts(study.cells, site)
    lacking = {cell.key for cell in cells if finished(folder, cell) is None}
    todo = [part for part in parts if lacking & {c.key for c in cells[part.of(len(cells))]}]
    if not todo:
        return "echo every cell has its result\n"
    most = ("--most", str(study.count()))
    first = [
        jobs.Job(f"features-{i}", "extract", (*most, "--prepare", "--only", key))
        for i, key in enumerate(_extracting([cell for cell in cells if cell.key in lacking]))
    ]
    words = (*most, "--only", f"%I/{len(parts)}")
    after = tuple(job.name for job in first)
    array = jobs.Job(CELLS, "study", words, after, tuple(part.number for part in todo))
    return jobs.lines_of([*first, array], site, folder.root.absolute())


def _extracting(cells: list[Cell]) -> list[str]:
    """The name of one cell for each set of images whose features cells need."""
    found: dict[str, str] = {}
    for cell in cells:
        if cell.config.extract is not None:
            found.setdefault(str(cell.config.extract.changed()), cell.key)
    return list(found.values())


def _parts(cells: list[Cell], site: Site) -> list[Part]:
    """The tasks of the array: a cell each, or several where Slurm takes no more tasks."""
    count = min(len(cells), site.max_array)
    return [Part(i, count) for i in range(count)]


def prepare(study: Study, site: Site, out: str | Path, *, most: int = 1000) -> Path:
    """Write the scripts of a study into its folder; returns submit.sh.

    Raises `UsageError` for more cells than ``most``; nothing was written.
    """
    folder = StudyFolder(out)
    check_size(study, most)
    texts = script_texts(study, site, folder.root)
    make_folder(folder.root)
    study.keep(folder)
    return jobs.keep_scripts(texts, site, folder.root)


def states(folder: StudyFolder, cells: list[Cell]) -> dict[str, tuple[str, str | None]]:
    """The state of cells without result that jobs have or had, and what the last log says.

    A state is that of the queue; 'failed' where the job is no longer there, 'unknown' where no
    Slurm answers.
    """
    if not (folder.root / RunFolder.SITE).exists():
        return {}
    lines, name = queue(), f"{CELLS}{jobs.tag(folder.root)}"
    by_task = {one.task: one.state for one in lines or () if one.name == name}
    found: dict[str, tuple[str, str | None]] = {}
    for part in _parts(cells, kept_site(folder.root / RunFolder.SITE)):
        state = by_task.get(str(part.number))
        log = last_log(folder.root, CELLS, part.number)
        if state is not None:
            each: tuple[str, str | None] = "running" if state == "completing" else state, None
        elif log is not None:
            each = ("unknown", None) if lines is None else ("failed", log[1])
        else:
            continue
        found |= dict.fromkeys((cell.key for cell in cells[part.of(len(cells))]), each)
    return found
