"""What a cell takes over of one that failed: what was gathered, where only `solve` is to differ."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ..errors import AflError
from ..files.atomic import link_or_copy
from ..inputs import distinct_files
from ..plans.config import RunConfig, read_config
from ..plans.layout import RunFolder
from ..plans.solve_options import EVALUATE, SOLVE, difference_of
from .cells import Cell
from .layout import StudyFolder


def take_over(study: StudyFolder, cell: Cell) -> None:
    """Link features, partition, head and total of a failed cell that this one differs from late.

    A cell that has begun keeps what it has. `run` looks at the recipe of every file.
    """
    own = RunFolder(study.cell(cell.key))
    if own.options.exists() or cell.config.own.keep_clients:
        return
    for mark in sorted((study.root / study.CELLS).glob(f"*/{study.FAILED}")):
        other = RunFolder(mark.parent)
        if _serves(other, cell.config):
            for name, kind in _FILES.items():
                if (other / name).exists():
                    link_or_copy(other / name, own / name, kind)
            return


def _serves(other: RunFolder, config: RunConfig) -> bool:
    start: Path = config.first_head or other.first_head
    with distinct_files(), suppress(AflError):
        theirs = RunConfig(**read_config(other.options))
        return start.exists() and not difference_of(theirs, config, start, {SOLVE, EVALUATE})
    return False


_FILES = {
    RunFolder.FEATURES.format(split="train"): "features",
    RunFolder.FEATURES.format(split="test"): "features",
    RunFolder.CLIENTS: "partition",
    RunFolder.FIRST_HEAD: "head",
    RunFolder.HELD_OUT.format(suffix=""): "statistics",
    RunFolder.TOTAL.format(suffix=""): "statistics",
}
