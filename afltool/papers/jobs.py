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
from .cells import StudyFolder
from .description import Study, find
from .execution import check_cells, check_size
from .results import finished


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
    """A task is a cell, or several where Slurm takes no more tasks."""
    cells, count = study.cells, min(len(study.cells), site.max_array)
    lacking = {cell.key: cell for cell in cells if finished(folder, cell) is None}
    parts = (Part(i, count).of(len(cells)) for i in range(count))
    todo = [i for i, part in enumerate(parts) if lacking.keys() & {c.key for c in cells[part]}]
    if not todo:
        return "echo every cell has its result\n"
    most = ("--most", str(study.count()))
    images: dict[str, str] = {}  # one cell for each set of images whose features cells need
    for cell in lacking.values():
        if cell.config.extract is not None:
            images.setdefault(str(cell.config.extract.changed()), cell.key)
    first = [
        jobs.Job(f"features-{i}", "extract", (*most, "--prepare", "--only", key))
        for i, key in enumerate(images.values())
    ]
    words, after = (*most, "--only", f"%I/{count}"), tuple(job.name for job in first)
    array = jobs.Job("cells", "study", words, after, tuple(todo))
    return jobs.lines_of([*first, array], site, folder.root.absolute())


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
