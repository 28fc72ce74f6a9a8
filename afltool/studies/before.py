"""What is checked before the first cell of a study, and which of its cells are carried out."""

from __future__ import annotations

import fnmatch

from ..errors import UsageError
from ..options.shards import parse_shard
from ..store.hdf5 import read_header
from . import times
from .cells import Cell
from .description import MOST_CELLS, Study
from .layout import StudyFolder


def check_size(wanted: Study, folder: StudyFolder, most: int) -> None:
    """Refuse a study of more cells than ``most``, before anything is begun."""
    count = wanted.count()
    if count > most:
        starts = f"--most {count} starts it" if count <= MOST_CELLS else f"{MOST_CELLS:,} may start"
        raise UsageError(
            f"the study {wanted.name} has {count:,} cells{times.of_all(wanted, folder)}; "
            f"{starts}, more options make it smaller"
        )


def check_given(cells: list[Cell]) -> None:
    """Refuse given feature files that are missing or damaged, before the first cell."""
    for path in dict.fromkeys(
        path
        for cell in cells
        for path in (cell.config.own.train_features, cell.config.own.test_features)
        if path is not None
    ):
        read_header(path, "features")


def part_of(cells: list[Cell], only: str | None) -> list[Cell]:
    """The cells that ``only`` names, in their order; all of them for None."""
    if only is None:
        return cells
    if "/" in only:
        part, parts = parse_shard(only, "--only")
        return cells[len(cells) * part // parts : len(cells) * (part + 1) // parts]
    wanted = [one.strip() for one in only.split(",") if one.strip()]
    found = [cell for cell in cells if any(fnmatch.fnmatchcase(cell.key, one) for one in wanted)]
    if lacking := [one for one in wanted if not fnmatch.filter([c.key for c in found], one)]:
        raise UsageError(
            f"--only {lacking[0]}: no cell of the study has this name; cells are named as their "
            "folders (afltool status), or give part I/N"
        )
    return found
