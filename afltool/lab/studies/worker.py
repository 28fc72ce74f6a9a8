"""A worker on the cells of a study: it carries out those that no other worker has or is at.

Any number of workers, on any number of machines, share the folder of a study: a lock says who is at
work on a cell, and equal work is done once, see `runs.step_cache`. `study --jobs N` starts so many
workers, each a process of one thread; the first process says what they say, and names the cell of
one that is killed.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from subprocess import PIPE, STDOUT, Popen, TimeoutExpired
from threading import Thread
from typing import Any

from ... import parallel, progress
from ...errors import AflError, BusyError, IncompleteError, StoppedError, UsageError
from ...files.atomic import write_text
from ...files.locks import get_marked_process, work_marker
from ...files.outputs import make_folder
from ...files.schema import SUMMARY
from ...inputs import read_json
from ...options.grammars import parse_part
from ...runs.plan import data_steps
from ...runs.step_cache import StepCache, store_features
from ...runs.summary import log_done
from .cells import Cell, StudyFolder
from .options import parse_words
from .results import failure, find_changed_default, load_current, load_summary, names_of_cells
from .spec import Study, read_folder

log = logging.getLogger("afltool.lab.studies")
MOST_KILLED = 2  # processes that may die in a cell before the study leaves the cell out
PAUSE = 0.2  # seconds between two looks at requests to stop
PATIENCE = 3  # seconds that a worker has to end when the study is interrupted


class Worker:
    """Carries out cells, one after another; those that can share their rounds are neighbors.

    Attributes:
        cells: the cells of the study, or the part of them that is carried out.
        processes: workers of this study on this machine, which share its memory.
    """

    def __init__(
        self, study: Study, folder: StudyFolder, cells: list[Cell], processes: int = 1
    ) -> None:
        self.study, self.folder, self.processes = study, folder, processes
        self.names = names_of_cells(study.cells)
        self.numbers = {cell.key: number for number, cell in enumerate(cells, 1)}
        group = {cell.group: number for number, cell in reversed([*enumerate(cells)])}
        self.cells = sorted(cells, key=lambda cell: group[cell.group])

    def run_all(self, first: int = 0) -> None:
        """Carry out every cell, from number ``first`` on; one that another is at comes later."""
        todo = self.cells[first:] + self.cells[:first]
        while todo := [cell for cell in todo if not self.try_cell(cell)]:
            time.sleep(PAUSE)

    def try_cell(self, cell: Cell) -> bool:
        """Carry out a cell unless it has ended; False: another process is at what it needs."""
        progress.stop_point()
        try:
            if not self.has_ended(cell):
                self._carry_out(cell)
        except BusyError:
            return False
        return True

    def has_ended(self, cell: Cell) -> bool:
        """Whether a cell has a result, or has failed since the study was called."""
        done = load_current(self.folder, cell) is not None
        return done or failure(self.folder, cell) is not None

    def is_abandoned(self, cell: Cell) -> bool:
        """Whether nobody is at work on a cell, and something of it is there to look at."""
        place = self.folder.cell(cell.key)
        there = any((place / name).exists() for name in (SUMMARY, StudyFolder.FAILED))
        return there and not (place / StudyFolder.BEGUN).exists()

    def name_cell(self, cell: Cell) -> str:
        """How messages call a cell: '[3/8] linear, alpha 0.1'."""
        return f"[{self.numbers[cell.key]}/{len(self.numbers)}] {self.names[cell.key]}"

    def _carry_out(self, cell: Cell) -> None:
        """Carry out a cell under its lock; a failure is said and noted. Raises `BusyError`."""
        place, begun = self.folder.cell(cell.key), time.perf_counter()
        made = StepCache(self.folder.steps(cell), self.processes)
        try:
            with progress.quiet(log), work_marker(place / StudyFolder.BEGUN) as before:
                if len(before) >= MOST_KILLED:
                    raise IncompleteError(f"{len(before)} processes were killed while they ran it")
                if self.has_ended(cell):  # meanwhile
                    return
                old = load_summary(self.folder, cell)
                if old is not None:
                    log.info(
                        "%s is made again: %s",
                        self.name_cell(cell),
                        find_changed_default(cell, old),
                    )
                cell.make(self.folder, made, again=old is not None)
                top1 = read_json(place / SUMMARY, "a summary")["top1"]
        except (StoppedError, BusyError):
            raise
        except (AflError, MemoryError, OSError) as error:
            self.record_failure(cell, error)
            return
        forget_steps(self.folder, [one for one in self.study.cells if one.group == cell.group])
        seconds = time.perf_counter() - begun
        log.info("%s: top-1 %.2f %% (%.1f s)", self.name_cell(cell), 100 * top1, seconds)

    def record_failure(self, cell: Cell, error: BaseException) -> None:
        why = str(error) or type(error).__name__
        why = f"out of memory ({why})" if isinstance(error, MemoryError) else why
        log.error("%s failed: %s", self.name_cell(cell), why)
        place = self.folder.cell(cell.key)
        make_folder(place)
        write_text(why + "\n", place / StudyFolder.FAILED, overwrite=True)


def forget_steps(folder: StudyFolder, cells: list[Cell]) -> None:
    there = all((folder.cell(cell.key) / SUMMARY).exists() for cell in reversed(cells))  # cheap
    if there and all(load_current(folder, cell) is not None for cell in cells):
        shutil.rmtree(folder.steps(cells[0]), ignore_errors=True)


def select_part(cells: list[Cell], only: str | None) -> list[Cell]:
    """The cells that ``only`` names, in their order; all of them for None."""
    if only is None:
        return cells
    if "/" in only:
        return cells[parse_part(only, "--only").of(len(cells))]
    keys, named = [cell.key for cell in cells], parse_words(only)
    if lacking := [one for one in named if not fnmatch.filter(keys, one)]:
        raise UsageError(
            f"--only {lacking[0]}: no cell of the study has this name; cells are named as their "
            "folders (afltool status), or give part I/N"
        )
    return [cell for cell in cells if any(fnmatch.fnmatchcase(cell.key, one) for one in named)]


# ---------------------------------------------------------------- several processes


def main(root: str, only: str, jobs: str, first: str, level: str) -> None:
    """A worker in a process of its own, which ends with the first process."""
    signal.signal(signal.SIGTERM, lambda *_: progress.request_stop("a signal"))
    Thread(target=_end_with, args=(sys.stdin,), daemon=True).start()
    logging.basicConfig(format="%(message)s")
    progress.log.setLevel(int(level))
    folder = StudyFolder(root)
    study = read_folder(folder.root)
    cells = select_part(study.cells, only or None)
    with (
        suppress(StoppedError),
        parallel.thread_limit(1),
    ):  # the first process says that it is stopped
        Worker(study, folder, cells, int(jobs)).run_all(int(first) * len(cells) // int(jobs))


def _end_with(parent: Any) -> None:
    """The stream ends with the process that holds its other end."""
    parent.read()
    progress.request_stop("the end of the first process")


class Workers:
    """``jobs`` processes with a worker each on the cells ``only`` of ``worker``'s study."""

    def __init__(self, worker: Worker, todo: list[Cell], jobs: int, only: str | None) -> None:
        self.worker, self.jobs, self.only = worker, jobs, only
        self.left = list(todo)  # cells that have not ended
        self.at_work: dict[Popen[str], Thread] = {}  # with what passes on what they say

    def run_all(self) -> None:
        """Carry out every cell; an exception ends the workers with it."""
        for cell in self.left:  # features, by all cores
            try:
                for step in data_steps(cell.config, self.worker.folder.run(cell)):
                    progress.stop_point()
                    if step.stage.stored:
                        store_features(step)
            except StoppedError:
                raise
            except BusyError:
                continue  # a worker waits for it
            except (AflError, MemoryError, OSError) as error:
                self.worker.record_failure(cell, error)
        every = len(self.worker.cells)
        with progress.task("study", every, "cells", every - len(self.left)) as task:
            try:
                for number in range(min(self.jobs, len(self.left))):
                    self.start(number)
                while self.at_work:
                    time.sleep(PAUSE)
                    self.look()
                    task.advance(self.count_ended())
            finally:
                self.end()
        progress.stop_point()

    def start(self, number: int) -> None:
        """Start a worker, with its own part of the cells first."""
        root = str(self.worker.folder.root.absolute())
        numbers = (self.jobs, number % self.jobs, log.getEffectiveLevel())
        one = Popen(
            [sys.executable, "-m", __name__, root, self.only or "", *map(str, numbers)],
            stdin=PIPE,
            stdout=PIPE,
            stderr=STDOUT,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # by which `parallel.available` counts
            start_new_session=True,  # Ctrl-C is for the first process
        )
        self.at_work[one] = Thread(target=_pass_on, args=(one,), daemon=True)
        self.at_work[one].start()

    def count_ended(self) -> int:
        """How many cells have ended since the last look; tells it of those that are done."""
        those = [cell for cell in self.left if self.worker.is_abandoned(cell)]
        for cell in those:
            self.left.remove(cell)
            if load_current(self.worker.folder, cell) is not None:
                log_done(self.worker.folder.cell(cell.key), cell.HEAD)
        return len(those)

    def look(self) -> None:
        """Pass a request to stop on; see which workers have ended, and why."""
        for one in [*self.at_work]:
            if progress.stop_requested():
                one.terminate()
            if (code := one.poll()) is None:
                continue
            self.at_work.pop(one).join()
            cell = self.forget(one)
            if progress.stop_requested() or not code:
                continue
            why = f"its process was killed (signal {-code})" if code < 0 else f"exit code {code}"
            if cell is None:
                raise IncompleteError(f"a worker of --jobs {self.jobs} is at no cell: {why}")
            self.worker.record_failure(cell, IncompleteError(why))
            self.start(len(self.at_work))

    def forget(self, one: Popen[str]) -> Cell | None:
        """The cell that a killed worker was at; its mark is removed."""
        for cell in self.left:
            mark = self.worker.folder.cell(cell.key) / StudyFolder.BEGUN
            if get_marked_process(mark).startswith(f"process {one.pid} on "):
                mark.unlink()
                return cell
        return None

    def end(self) -> None:
        """End the workers that are left; what is not done in a moment is not done."""
        for one in self.at_work:
            one.terminate()
        for one in self.at_work:
            try:
                one.wait(PATIENCE)
            except TimeoutExpired:
                one.kill()
                one.wait()
            self.forget(one)


def _pass_on(one: Popen[str]) -> None:
    """In a thread: say what a worker says, until it has ended."""
    assert one.stdin is not None
    assert one.stdout is not None
    with one.stdin, one.stdout:
        for text in one.stdout:
            log.info("%s", text.rstrip())


if __name__ == "__main__":
    main(*sys.argv[1:])
