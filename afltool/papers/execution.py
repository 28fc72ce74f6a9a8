"""A study carried out on this machine, in one process or in several; and its heads solved alone."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import IncompleteError, NumericalError
from ..files.hdf5 import read_header
from ..files.outputs import make_folder
from ..inputs import distinct_files
from ..plans.layout import RunFolder
from ..plans.summary import last_round
from ..progress import quiet
from ..stages.solve import solve
from . import times
from .cells import Cell
from .checks import check_cells, check_size, part_of
from .description import Study, asked_for
from .layout import StudyFolder
from .one_process import MOST_NAMED, OneProcess
from .options import StudyOptions
from .processes import Processes
from .results import by_reason, finished, names_of_cells

log = logging.getLogger("afltool.papers")


def study(
    wanted: Study | str | Path,
    out: Path | None = None,
    options: StudyOptions = StudyOptions(),
    *,
    axes: Mapping[str, Any] | None = None,
    check: bool = False,
) -> Path:
    """Carry out every cell of a study in the folder ``out``; returns it.

    ``wanted``: a TOML file, the name of a study of the package, or the folder of a study, which is
    then ``out``, too. ``axes``: options that replace those of the study, by their names in its
    file; a list is an axis. ``seeds``: 0 … seeds − 1 instead of the study's. ``only``: these cells
    alone, by the names of their folders, or part 'I/N' of the cells. ``prepare``: only what these
    cells share. ``jobs``: processes at the same time, of one thread each. ``check``: solve every
    total again by itself.

    Raises:
        UsageError: more cells than ``most``; nothing was begun.
        IncompleteError: some cells failed, the others are done.
        NumericalError: with ``check``, a total solved alone gives another head.
    """
    wanted, folder = asked_for(wanted, out, axes or {}, options.seeds)
    check_size(wanted, folder, options.most)
    cells = part_of(wanted.cells, options.only)
    todo = [cell for cell in cells if finished(folder, cell) is None]
    check_cells(wanted, folder, todo)
    make_folder(folder.root)
    wanted.keep(folder)
    jobs, names = options.jobs, names_of_cells(wanted.cells)
    work = OneProcess(folder, len(cells), names)
    if jobs > 1 and len(todo) > 1:
        work = Processes(folder, len(cells), names, jobs)
    if options.prepare:
        work.prepare(cells)
        return folder.root
    log.info(
        "study %s: %d cells, %d done, %d to do%s", wanted.name, len(cells),
        len(cells) - len(todo), len(todo), times.of_rest(folder, cells, todo, jobs),
    )  # fmt: skip
    failures = work.all(cells)
    times.note(work.took)
    if check:
        check_heads(folder, cells)
    if failures:
        raise IncompleteError(
            f"{len(failures)} of {len(cells)} cells failed: {by_reason(failures, MOST_NAMED)}. The "
            f"others are done; the same command tries these again{work.advice()}"
        )
    return folder.root


def check_heads(folder: StudyFolder, cells: list[Cell]) -> int:
    """Solve every round of every run again, by itself; returns the number of heads that agree.

    Raises `NumericalError` naming the cell whose head differs.
    """
    names, agreed, left = names_of_cells(cells), 0, 0
    for cell in cells:
        found = finished(folder, cell)
        if found is None or cell.method is not None:
            continue
        place = RunFolder(folder.cell(cell.key))
        start = cell.config.first_head or place.first_head
        if last_round(place, start) is not None:
            left += 1
            log.info(
                "%s: kept only its last round (--keep-rounds last), so it is not solved again",
                names[cell.key],
            )
            continue
        for number in range(1, len(found["bytes_per_client"]) + 1):
            held = place.held_out(number) if place.held_out(number).exists() else None
            with (
                tempfile.TemporaryDirectory(dir=folder.root) as scratch,
                distinct_files(),
                quiet(log),
            ):
                how = replace(cell.config.solve, head=start, validate=held)
                alone = solve(place.total(number), Path(scratch) / "head.h5", how)
                pair = [read_header(p, "head")["digest"] for p in (alone, place.head(number))]
            if pair[0] != pair[1]:
                raise NumericalError(
                    f"{names[cell.key]}: solved alone, round {number} gives the head "
                    f"{pair[0]}; the cell has {pair[1]}"
                )
            start, agreed = place.head(number), agreed + 1
    not_solved = f"; {left} cells kept only their last round and cannot be checked" if left else ""
    log.info("study: %d heads solved alone have the digests of the cells%s", agreed, not_solved)
    return agreed
