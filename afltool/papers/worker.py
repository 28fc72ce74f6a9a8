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
from ..files.atomic import link_or_copy, write_text
from ..files.locks import alone, marked
from ..files.outputs import make_folder
from ..files.schema import SUMMARY
from ..inputs import distinct_files, read_json
from ..plans.checks import EVALUATE, SOLVE, difference_of
from ..plans.config import RunConfig, read_config
from ..plans.here import run
from ..plans.layout import RunFolder
from ..plans.made import Made, stored
from ..plans.summary import remove_rounds
from ..progress import quiet
from .cells import Cell, StudyFolder, baseline
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
                with distinct_files():
                    shared_work(self.folder, cell)
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
        with distinct_files():  # looking at an output is not reading it
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
            with distinct_files(), quiet(log), _begun(place / StudyFolder.BEGUN):
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
        again = old is not None
        if cell.method is None:
            take_over(self.folder, cell)
            run(cell.config, out, overwrite=again, made=made)
        else:
            shared_work(self.folder, cell)
            baseline(cell.method, cell.files(self.folder), out, cell.settings, again)
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
    with distinct_files():
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


def shared_work(folder: StudyFolder, cell: Cell) -> None:
    """Make what this cell shares with others, in their folder; a run links features itself."""
    make_folder(folder.root / StudyFolder.SHARED)
    for step in cell.shared(folder):
        if cell.method is None:
            stored(step)
            continue
        assert step.out is not None
        with alone(folder.root / StudyFolder.STEPS / step.out.name):
            Made(folder.steps(cell)).carry_out(step)


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
                if (other / name).is_file():
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
