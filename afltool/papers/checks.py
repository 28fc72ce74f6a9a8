"""What is checked before the first cell of a study, and which of its cells are carried out."""

from __future__ import annotations

import fnmatch
import logging

from ..errors import AflError, UsageError, naming
from ..installed import need_torch
from ..options import flag
from ..options.shards import Part
from ..plans.checks import check_before, check_rows, holds_clients_out
from ..plans.layout import RunFolder
from . import times
from .baselines import made_settings
from .cells import Cell
from .description import MOST_CELLS, Study
from .layout import StudyFolder
from .options import Cells
from .results import finished, names_of_cells

log = logging.getLogger("afltool.papers")


def check_size(wanted: Study, folder: StudyFolder, most: int) -> None:
    """Refuse a study of more cells than ``most``, before anything is begun."""
    count = wanted.count()
    if count > most:
        starts = f"--most {count} starts it" if count <= MOST_CELLS else f"{MOST_CELLS:,} may start"
        raise UsageError(
            f"the study {wanted.name} has {count:,} cells{times.of_all(wanted, folder)}; "
            f"{starts}, more options make it smaller"
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
    settings = made_settings(cell.method, cell.settings)
    settings.check_rate(holds_clients_out(cell.config), "the partition")


def part_of(cells: list[Cell], only: Cells | None) -> list[Cell]:
    """The cells that ``only`` names, in their order; all of them for None."""
    if only is None:
        return cells
    if isinstance(only, Part):
        return cells[only.of(len(cells))]
    named = only.words
    found = [cell for cell in cells if any(fnmatch.fnmatchcase(cell.key, one) for one in named)]
    if lacking := [one for one in named if not fnmatch.filter([c.key for c in found], one)]:
        raise UsageError(
            f"--only {lacking[0]}: no cell of the study has this name; cells are named as their "
            "folders (afltool status), or give part I/N"
        )
    return found
