"""A worker on the cells of a study: it carries out those that no other worker has or is at.

Any number of workers, on any number of machines, share the folder of a study: a lock says who is at
work on a cell, and equal work is done once, see `runs.step_cache`. A cell with complete and valid
files is kept. A cell that fails is named, and the others go on. `study --jobs N` starts so many
workers on this machine, each a process of one thread that tells on stdout, in lines of JSON, what
it did; the first process shows that, and names the cell of one that is killed.
"""

from __future__ import annotations

import fnmatch
import json
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from queue import Empty, Queue
from subprocess import PIPE, Popen, TimeoutExpired
from threading import Lock, Thread
from typing import Any

from ... import parallel, progress
from ...errors import AflError, BusyError, IncompleteError, StoppedError, UsageError
from ...files.atomic import write_text
from ...files.locks import marked, who
from ...files.outputs import make_folder
from ...files.schema import SUMMARY
from ...inputs import read_json
from ...options.grammars import parse_part
from ...runs.folder import RunFolder
from ...runs.step_cache import Made
from ...runs.summary import remove_rounds
from ...values.text import json_text
from .cells import Cell, StudyFolder
from .options import words_of
from .results import changed_default, duration, failure, finished, kept, names_of_cells
from .spec import Study, of_folder

log = logging.getLogger("afltool.lab.studies")
MOST_KILLED = 2  # processes that may die in a cell before the study leaves the cell out
PAUSE = 0.2  # seconds between two looks at requests to stop
PATIENCE = 3  # seconds that a worker has to end when the study is interrupted


class Worker:
    """Carries out cells, one after another; those that can share their rounds are neighbours.

    Attributes:
        cells: the cells of the study, or the part of them that is carried out.
        processes: workers of this study on this machine, which share its memory.
        tell: is told of each cell that has ended, by its key.
    """

    def __init__(
        self,
        study: Study,
        folder: StudyFolder,
        cells: list[Cell],
        processes: int = 1,
        tell: Callable[[str], object] = str,
    ) -> None:
        self.study, self.folder, self.processes, self.tell = study, folder, processes, tell
        self.names = names_of_cells(study.cells)
        self.numbers = {cell.key: number for number, cell in enumerate(cells, 1)}
        group = {cell.together(): number for number, cell in reversed([*enumerate(cells)])}
        self.cells = sorted(cells, key=lambda cell: group[cell.together()])
        self.busy: set[str] = set()  # cells that another process was at work on
        self.seconds: list[float] = []  # of the cells that this worker has carried out

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
        """Carry out every cell, number ``first`` first, until each has a result or has failed."""
        todo = self.cells[first:] + self.cells[:first]
        while todo := [cell for cell in todo if not self.tried(cell)]:
            time.sleep(PAUSE)

    def tried(self, cell: Cell) -> bool:
        """Carry out a cell unless it has ended; False: another process is at what it needs."""
        progress.stop_point()
        try:
            if not self.ended(cell):
                self._carry_out(cell)
        except BusyError as error:
            if self.processes == 1 and cell.key not in self.busy:
                log.info("%s comes later: %s", self.called(cell), error)
            self.busy.add(cell.key)
            return False
        self.tell(cell.key)
        return True

    def ended(self, cell: Cell) -> bool:
        """Whether a cell has a result, or has failed since the study was called."""
        done = finished(self.folder, cell) is not None
        return done or failure(self.folder, cell) is not None

    def called(self, cell: Cell) -> str:
        """How messages call a cell: '[3/8] linear, alpha 0.1'."""
        return f"[{self.numbers[cell.key]}/{len(self.numbers)}] {self.names[cell.key]}"

    def _carry_out(self, cell: Cell) -> None:
        """Carry out a cell under its lock; a failure is said and noted. Raises `BusyError`.

        If processes were killed while they ran the cell, perhaps for their memory, it counts as
        failed this time, so that the others can run; the next time it is tried again.
        """
        place, begun = self.folder.cell(cell.key), time.perf_counter()
        made = Made(self.folder.steps(cell), self.processes)
        try:
            with progress.quiet(log), marked(place / StudyFolder.BEGUN) as before:
                if len(before) >= MOST_KILLED:
                    raise IncompleteError(
                        f"{len(before)} processes were killed while they ran it, perhaps for "
                        f"their memory; the last one was {before[-1]}"
                    )
                if self.ended(cell):  # meanwhile
                    return
                old = kept(self.folder, cell)
                if old is not None:
                    log.info("%s is made again: %s", self.called(cell), changed_default(cell, old))
                cell.make(self.folder, made, again=old is not None)
                top1 = read_json(place / SUMMARY, "a summary")["top1"]
        except (StoppedError, BusyError):
            raise
        except (AflError, MemoryError, OSError) as error:
            self.failed(cell, why_of(error))
            return
        if cell.thinned:  # the rounds that its group shares, after the last of it
            alike = [one for one in self.study.cells if one.together() == cell.together()]
            forget_steps(self.folder, alike)
        self.seconds.append(time.perf_counter() - begun)
        done = f"{100 * top1:.2f} % ({self.seconds[-1]:.1f} s{self._left()})"
        log.info("%s: top-1 %s", self.called(cell), done)

    def _left(self) -> str:
        """The time that one worker needs for the cells that have not ended, about."""
        left = [one for one in self.cells if not self.ended(one)] if self.processes == 1 else []
        each = sum(self.seconds) / len(self.seconds)
        return f", about {duration(each * len(left))} left" if left else ""

    def failed(self, cell: Cell, why: str) -> None:
        """Say why a cell failed, there and to the user."""
        log.error("%s failed: %s", self.called(cell), why)
        make_folder(self.folder.cell(cell.key))
        note = self.folder.cell(cell.key) / StudyFolder.FAILED
        write_text(why + "\n", note, overwrite=True)


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


def why_of(error: BaseException) -> str:
    """What is said of a cell that failed."""
    if isinstance(error, MemoryError):
        return f"out of memory ({error})" if str(error) else "out of memory"
    return str(error) or type(error).__name__


def part_of(cells: list[Cell], only: str | None) -> list[Cell]:
    """The cells that ``only`` names, in their order; all of them for None."""
    if only is None:
        return cells
    if "/" in only:
        return cells[parse_part(only, "--only").of(len(cells))]
    keys, named = [cell.key for cell in cells], words_of(only)
    if lacking := [one for one in named if not fnmatch.filter(keys, one)]:
        raise UsageError(
            f"--only {lacking[0]}: no cell of the study has this name; cells are named as their "
            "folders (afltool status), or give part I/N"
        )
    return [cell for cell in cells if any(fnmatch.fnmatchcase(cell.key, one) for one in named)]


# ---------------------------------------------------------------- in the process of a worker


def main(given: dict[str, Any]) -> None:
    """A worker that tells the first process what it does, and ends with it."""
    signal.signal(signal.SIGTERM, lambda *_: progress.request_stop("a signal"))
    Thread(target=_end_with, args=(sys.stdin,), daemon=True).start()
    line = _Line()
    logger = logging.getLogger("afltool")
    logger.handlers, logger.propagate = [line], False
    logger.setLevel(given["level"])
    folder = StudyFolder(given["root"])
    study = of_folder(folder.root)
    cells = part_of(study.cells, given["only"])
    worker = Worker(study, folder, cells, given["jobs"], partial(line.tell, "ended"))
    with (
        suppress(StoppedError),  # the first process says it
        parallel.using(1),
        progress.listening(partial(line.tell, "event")) if given["heard"] else nullcontext(),
    ):
        worker.all(given["first"] * len(cells) // given["jobs"])


def _end_with(parent: Any) -> None:
    """The stream ends with the process that holds its other end."""
    parent.read()
    progress.request_stop("the end of the first process")


class _Line(logging.Handler):
    """Tells the first process what happens; messages, too, which it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.pipe, self.one_at_a_time = os.fdopen(os.dup(1), "w", encoding="utf-8"), Lock()
        os.dup2(2, 1)  # what a library prints is no line of ours

    def tell(self, kind: str, what: Any) -> None:
        """Say something to the first process."""
        try:
            with self.one_at_a_time:
                print(json_text([kind, what], default=str), file=self.pipe, flush=True)
        except OSError:  # it is gone, and what cells find does not fail for that
            progress.request_stop("the end of the first process")

    def emit(self, record: logging.LogRecord) -> None:
        self.tell("says", (record.name, record.levelno, record.getMessage()))


# ---------------------------------------------------------------- in the first process


class Workers:
    """``jobs`` workers on the cells of ``worker``, which does here what all cores do.

    ``only``: which cells of the study these are, in the words of the command.
    """

    def __init__(self, worker: Worker, todo: list[Cell], jobs: int, only: str | None) -> None:
        self.worker, self.todo, self.jobs, self.only = worker, todo, jobs, only
        self.left = {cell.key for cell in todo}  # cells that have not ended
        self.at_work: list[Popen[str]] = []
        self.said: Queue[tuple[Popen[str], str, Any]] = Queue()

    def all(self) -> None:
        """Carry out every cell; an exception ends the workers with it."""
        images = [cell for cell in self.todo if cell.config.extract is not None]
        for cell, why in self.worker.prepare(images):  # features, by all cores
            self.worker.failed(cell, why)
            self.left.discard(cell.key)
        every = len(self.worker.cells)
        with progress.task("study", every, "cells", every - len(self.left)) as self.task:
            try:
                for number in range(min(self.jobs, len(self.left))):
                    self.start(number)
                while self.at_work:
                    self.hear()
            finally:
                self.end()
        progress.stop_point()

    def start(self, number: int) -> None:
        """Start a worker, with its own part of the cells first."""
        given = {
            "root": str(self.worker.folder.root.absolute()),
            "only": self.only,
            "jobs": self.jobs,
            "heard": progress.heard(),
            "first": number % self.jobs,
            "level": logging.getLogger("afltool").getEffectiveLevel(),
        }
        one = Popen(
            [sys.executable, "-m", __name__, json_text(given)],
            stdin=PIPE,
            stdout=PIPE,
            encoding="utf-8",
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # by which `parallel.available` counts
            start_new_session=True,  # Ctrl-C is for the first process
        )
        self.at_work.append(one)
        Thread(target=self.listen, args=(one,), daemon=True).start()

    def listen(self, one: Popen[str]) -> None:
        """In a thread: the lines of a worker until it has ended."""
        assert one.stdout is not None
        assert one.stdin is not None
        with one.stdin, one.stdout:
            for line in one.stdout:
                self.said.put((one, *json.loads(line)))
        self.said.put((one, "gone", None))

    def hear(self) -> None:
        """One thing that a worker says; a request to stop goes to all of them."""
        for one in self.at_work if progress.stop_requested() else ():
            one.terminate()
        try:
            one, kind, what = self.said.get(timeout=PAUSE)
        except Empty:
            return
        if kind == "says":
            name, level, text = what
            logging.getLogger(name).log(level, "%s", text)
        elif kind == "event":
            progress.tell_again(what)
        elif kind == "gone":
            self.gone(one)
        elif what in self.left:  # whoever saw it first
            self.left.discard(what)
            self.task.advance()

    def gone(self, one: Popen[str]) -> None:
        """A worker has ended: all is done, it was to stop, or something killed it."""
        self.at_work.remove(one)
        code, cell = one.wait(), self.forget(one)
        if progress.stop_requested() or not code:
            return
        why = f"its process ended (exit code {code})"
        if code < 0:
            why = f"its process was killed (signal {-code}), perhaps for its memory"
        if cell is None:
            raise IncompleteError(f"a worker of --jobs {self.jobs} is at no cell: {why}")
        self.worker.failed(cell, why)
        self.left.discard(cell.key)
        self.task.advance()
        if self.left:
            self.start(len(self.at_work))

    def forget(self, one: Popen[str]) -> Cell | None:
        """The cell that a killed worker was at; its mark is removed."""
        for cell in self.todo:
            mark = self.worker.folder.cell(cell.key) / StudyFolder.BEGUN
            if who(mark).startswith(f"process {one.pid} on "):
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


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
