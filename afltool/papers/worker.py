"""A worker on the cells of a study: it carries out those that no other worker has or is at.

Any number of workers, on any number of machines, share the folder of a study: a lock says who is at
work on a cell, and equal work is done once, see `plans.made`. A cell with complete and valid files
is kept. A cell that fails is named, and the others go on.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .. import progress
from ..errors import AflError, BusyError, IncompleteError, RidgeNeededError, StoppedError
from ..files.atomic import write_text
from ..files.locks import marked
from ..files.outputs import make_folder
from ..files.schema import SUMMARY
from ..inputs import read_json
from ..plans.layout import RunFolder
from ..plans.made import Made
from ..plans.summary import remove_rounds
from ..progress import quiet
from .cells import Cell, StudyFolder
from .description import Study
from .results import failure, finished, names_of_cells, outdated

log = logging.getLogger("afltool.papers")
WAIT = 5  # tenths of a second until a cell that another process is at work on is tried again
MOST_KILLED = 2  # processes that may die in a cell before the study leaves the cell out


def _untold(what: str, key: str) -> None: ...


class Worker:
    """Carries out cells, one after another.

    Attributes:
        cells: the cells of the study, or the part of them that is carried out.
        processes: workers of this study on this machine, which share its memory.
        tell: is told that a cell has "begun", "ended" or "wants ridge", by its key.
    """

    def __init__(
        self,
        study: Study,
        folder: StudyFolder,
        cells: list[Cell],
        processes: int = 1,
        tell: Callable[[str, str], None] = _untold,
    ) -> None:
        self.study, self.folder, self.processes, self.tell = study, folder, processes, tell
        self.names = names_of_cells(study.cells)
        self.numbers = {cell.key: number for number, cell in enumerate(cells, 1)}
        self.groups = groups(cells)
        self.busy: set[str] = set()  # cells that another process was at work on
        self.wants_ridge = False  # whether a cell failed for the lack of one

    def prepare(self, cells: list[Cell]) -> list[tuple[Cell, str]]:
        """Make what these cells share; returns the cells for which that failed, and why."""
        failed = []
        for cell in cells:
            progress.stop_point()
            try:
                cell.prepare(self.folder)
            except StoppedError:
                raise
            except (AflError, MemoryError, OSError) as error:
                failed.append((cell, why_of(error)))
        return failed

    def all(self, first: int = 0) -> None:
        """Carry out every cell, those of the group number ``first`` first.

        Cells that can take over one another's rounds come one after another. A cell ends once: by a
        result or, in this call of the study, by a failure.
        """
        first %= max(1, len(self.groups))
        todo = [cell for group in self.groups[first:] + self.groups[:first] for cell in group]
        while todo:
            todo = [cell for cell in todo if not self.tried(cell)]
            for _ in range(WAIT if todo else 0):
                time.sleep(0.1)
                progress.stop_point()

    def tried(self, cell: Cell) -> bool:
        """Carry out a cell unless it has ended; False: another process is at work on what it needs.

        Messages about workers that wait are those of one that works alone.
        """
        progress.stop_point()
        if not self.ended(cell):
            try:
                self._carry_out(cell)
            except BusyError as error:
                if self.processes == 1 and cell.key not in self.busy:
                    log.info("%s comes later: %s", self.called(cell), error)
                self.busy.add(cell.key)
                return False
        self.tell("ended", cell.key)
        return True

    def ended(self, cell: Cell) -> bool:
        """Whether a cell has a result, or has failed since the study was called."""
        done = finished(self.folder, cell) is not None
        return done or failure(self.folder, cell) is not None

    def called(self, cell: Cell) -> str:
        """How messages call a cell: '[3/8] linear, alpha 0.1'."""
        return f"[{self.numbers[cell.key]}/{len(self.numbers)}] {self.names[cell.key]}"

    def _carry_out(self, cell: Cell) -> None:
        """Carry out a cell under its lock; a failure is said and noted. Raises `BusyError`."""
        place, begun = self.folder.cell(cell.key), time.perf_counter()
        made = Made(self.folder.steps(cell), self.processes)
        try:
            with quiet(log), _begun(place / StudyFolder.BEGUN):
                if self.ended(cell):  # meanwhile
                    return
                self.tell("begun", cell.key)
                summary = self._make(cell, made)
        except (StoppedError, BusyError):
            raise
        except (AflError, MemoryError, OSError) as error:
            self.failed(cell, why_of(error), isinstance(error, RidgeNeededError))
            return
        finally:
            made.release()
        self._forget_rounds(cell)
        took = time.perf_counter() - begun
        log.info("%s: top-1 %.2f %% (%.1f s)", self.called(cell), 100 * summary["top1"], took)

    def _make(self, cell: Cell, made: Made) -> dict[str, Any]:
        out = self.folder.cell(cell.key)
        old = outdated(self.folder, cell)
        if old is not None:
            log.info("%s is made again: %s", self.names[cell.key], old)
        cell.make(self.folder, made, again=old is not None)
        summary: dict[str, Any] = read_json(out / SUMMARY, "a summary")
        return summary

    def _forget_rounds(self, cell: Cell) -> None:
        """Remove the rounds that cells which keep only the last one share, after the last cell."""
        if cell.thinned:
            name = cell.together()
            forget_steps(self.folder, [c for c in self.study.cells if c.together() == name])

    def failed(self, cell: Cell, why: str, wants_ridge: bool = False) -> None:
        """Say why a cell failed, there and to the user."""
        log.error("%s failed: %s", self.called(cell), why)
        place = self.folder.cell(cell.key)
        make_folder(place)
        write_text(why + "\n", place / StudyFolder.FAILED, overwrite=True)
        if wants_ridge:
            self.wants_ridge = True
            self.tell("wants ridge", cell.key)


def forget_steps(folder: StudyFolder, cells: list[Cell]) -> None:
    """Remove what these cells share, if all of them are done."""
    done = all(finished(folder, cell) is not None for cell in cells)
    for place in {folder.steps(cell) for cell in cells} if done else ():
        shutil.rmtree(place, ignore_errors=True)


def clear(folder: StudyFolder, cell: Cell) -> None:
    """Forget what an earlier call of the study left: a failure, rounds of a killed process."""
    with suppress(FileNotFoundError):
        (folder.cell(cell.key) / StudyFolder.FAILED).unlink()
    own = RunFolder(folder.cell(cell.key))
    if cell.thinned and own.head(1).exists():
        summary = finished(folder, cell)
        if summary is not None:
            remove_rounds(own, len(summary["bytes_per_client"]))


@contextmanager
def _begun(mark: Path) -> Iterator[None]:
    """A mark beside a cell while it runs; the mark stays if the process is killed.

    If two processes were killed while they ran a cell, perhaps for their memory, the cell counts as
    failed this time, so that the others can run; the next time it is tried again.
    """
    with marked(mark) as before:
        if before.begun >= MOST_KILLED:
            raise IncompleteError(
                f"{before.begun} processes were killed while they ran it, perhaps for their "
                f"memory; the last one was {before.last or 'not named'}"
            )
        yield


def groups(cells: list[Cell]) -> list[list[Cell]]:
    """The cells, with those together that can take over one another's rounds."""
    together: dict[str, list[Cell]] = {}
    for cell in cells:
        together.setdefault(cell.together(), []).append(cell)
    return list(together.values())


def why_of(error: BaseException) -> str:
    """What is said of a cell that failed."""
    if isinstance(error, MemoryError):
        return f"out of memory ({error})" if str(error) else "out of memory"
    return str(error) or type(error).__name__
