"""A study carried out on this machine, in one process or in several."""

from __future__ import annotations

import fnmatch
import logging
from pathlib import Path

from ..errors import AflError, IncompleteError, UsageError, naming
from ..files.outputs import make_folder
from ..options.base import flag
from ..options.grammars import Part
from ..plans.checks import check_before, check_rows
from ..plans.layout import RunFolder
from ..plugins import need_torch
from ..progress import event
from .cells import Cell, StudyFolder, made_settings
from .description import MOST_CELLS, Study, asked_for
from .one_process import MOST_NAMED, OneProcess
from .options import RunStudy, StudyOptions, parse_cells
from .results import by_reason, finished, names_of_cells

log = logging.getLogger("afltool.papers")


def study(o: RunStudy) -> Path:
    """Carry out every cell of a study in the folder ``out``; returns it.

    ``study``: a TOML file, the name of a study of the package, or the folder of a study, which is
    then ``out``, too. ``axes``: options that replace those of the study, by their names in its
    file; a list is an axis. ``seeds``: 0 … seeds − 1 instead of the study's. ``only``: these cells
    alone, by the names of their folders, or part 'I/N' of the cells. ``prepare``: only what these
    cells share. ``jobs``: processes at the same time, of one thread each.

    Raises:
        UsageError: more cells than ``most``; nothing was begun.
        IncompleteError: some cells failed, the others are done.
    """
    return carry_out(*asked_for(o.study, o.out, o.axes, o.seeds), o)


def carry_out(wanted: Study, folder: StudyFolder, options: StudyOptions) -> Path:
    """`study` of one that is read."""
    check_size(wanted, options.most)
    cells = part_of(wanted.cells, options.only)
    todo = [cell for cell in cells if finished(folder, cell) is None]
    check_cells(wanted, folder, todo)
    make_folder(folder.root)
    wanted.keep(folder)
    jobs, names = options.jobs, names_of_cells(wanted.cells)
    work = OneProcess(folder, len(cells), names)
    if jobs > 1 and len(todo) > 1:
        from .processes import Processes

        work = Processes(folder, len(cells), names, jobs)
    if options.prepare:
        work.prepare(cells)
        return folder.root
    facts = {"study": wanted.name, "cells": len(cells)}
    event("run_begun", folder=folder.root, what="study", options=facts)
    log.info(
        "study %s: %d cells, %d done, %d to do",
        wanted.name,
        len(cells),
        len(cells) - len(todo),
        len(todo),
    )
    failures = work.all(cells)
    event("run_done", folder=folder.root, summary={**facts, "failed": len(failures)})
    if failures:
        raise IncompleteError(
            f"{len(failures)} of {len(cells)} cells failed: {by_reason(failures, MOST_NAMED)}. The "
            f"others are done; the same command tries these again{work.advice()}"
        )
    return folder.root


def check_size(wanted: Study, most: int) -> None:
    """Refuse a study of more cells than ``most``, before anything is begun."""
    count = wanted.count()
    if count > most:
        starts = f"--most {count} starts it" if count <= MOST_CELLS else f"{MOST_CELLS:,} may start"
        raise UsageError(
            f"the study {wanted.name} has {count:,} cells; {starts}, more options make it smaller"
        )


def check_cells(
    wanted: Study, folder: StudyFolder, cells: list[Cell], *, here: bool = True
) -> None:
    """Refuse a study with a cell that would fail, as the cell's own command does; names the cell.

    What cells have in common is checked once, and cells that are done are not. Options that only
    some methods have are said. ``here``: see `plans.checks.check_before`.
    """
    for name, methods, taken in wanted.left_out:
        if not taken:
            raise UsageError(f"{flag(name)} is no option of {', '.join(methods)}: leave it out")
        log.info("study %s: %s without %s", wanted.name, ", ".join(methods), flag(name))
    names, known = names_of_cells(wanted.cells), set[str]()
    for cell in cells:
        if finished(folder, cell) is None:
            with naming(names[cell.key], AflError):
                _check(cell, folder, here, known)


def _check(cell: Cell, folder: StudyFolder, here: bool, known: set[str]) -> None:
    if cell.method is None:
        check_before(cell.config, RunFolder(folder.cell(cell.key)), here=here, known=known)
        return
    need_torch(f"training of {cell.method}")
    places = dict(zip(("train", "test"), cell.files(folder), strict=False))
    check_rows(cell.config, places, here=here, known=known)
    made_settings(cell.method, cell.settings)  # refuses what the method does not take


def part_of(cells: list[Cell], only: str | None) -> list[Cell]:
    """The cells that ``only`` names, in their order; all of them for None."""
    if only is None:
        return cells
    if isinstance(which := parse_cells(only), Part):
        return cells[which.of(len(cells))]
    named = which.words
    chosen = [cell for cell in cells if any(fnmatch.fnmatchcase(cell.key, one) for one in named)]
    if lacking := [one for one in named if not fnmatch.filter([c.key for c in chosen], one)]:
        raise UsageError(
            f"--only {lacking[0]}: no cell of the study has this name; cells are named as their "
            "folders (afltool status), or give part I/N"
        )
    return chosen
