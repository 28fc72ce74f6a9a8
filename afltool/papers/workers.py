"""`study --jobs N`: so many workers on this machine, each a process of one thread.

The first process starts them, shows what they say, and names the cell of one that is killed. It
hands out nothing: what is done, and by whom, is known by the folder of the study.
"""

from __future__ import annotations

import _thread
import logging
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from .. import cores, machine, progress
from ..errors import StoppedError, UsageError
from .cells import Cell, StudyFolder
from .description import Study
from .worker import Worker

PAUSE = 0.2  # seconds between two looks at requests to stop
PATIENCE = 10  # seconds that a worker has to end when the study is interrupted


# ---------------------------------------------------------------- in the process of a worker


def work(
    pipe: Connection, study: Study, root: Path, cells: list[Cell], jobs: int, first: int, level: int
) -> None:
    """A worker that tells the first process what it does."""
    try:
        _hear_signals()
        os.environ["OMP_NUM_THREADS"] = "1"  # by which `cores.available` counts
        line = _Line(pipe)
        logger = logging.getLogger("afltool")
        logger.handlers, logger.propagate = [line], False
        logger.setLevel(level)
        line.tell("ready", "")
        worker = Worker(study, StudyFolder(root), cells, jobs, line.tell)
        with cores.using(1), progress.listening(partial(line.tell, "event")):
            worker.all(first)
    except (StoppedError, KeyboardInterrupt):
        return  # the first process says it


def _hear_signals() -> None:
    """An interrupt, or the end of the first process, ends the work; other signals ask it to stop.

    The terminal and the first process may both interrupt it: once is enough.
    """
    signal.signal(signal.SIGINT, _interrupted)
    machine.repeat_lost_interrupts()
    for number in machine.STOPS:
        signal.signal(number, lambda *_: progress.request_stop("a signal"))
    parent = multiprocessing.parent_process()
    assert parent is not None
    Thread(target=_watch, args=(parent.sentinel,), daemon=True).start()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, machine.SIGNALS)


def _interrupted(*_: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _watch(parent: int) -> None:
    wait([parent])
    _thread.interrupt_main()


class _Line(logging.Handler):
    """Tells the first process what happens; messages, too, which it shows."""

    def __init__(self, pipe: Connection) -> None:
        super().__init__()
        self.pipe, self.one_at_a_time = pipe, Lock()

    def tell(self, kind: str, what: Any) -> None:
        """Say something to the first process."""
        try:
            with self.one_at_a_time:
                self.pipe.send((kind, what))
        except OSError:  # it is gone, and what cells find does not fail for that
            raise KeyboardInterrupt from None

    def emit(self, record: logging.LogRecord) -> None:
        self.tell("says", (record.name, record.levelno, record.getMessage()))


# ---------------------------------------------------------------- in the first process


class _Process:
    """A worker, as the first process sees it."""

    def __init__(self, *given: Any) -> None:
        self.pipe, theirs = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("spawn")  # a fork would take over locks of threads
        self.itself = context.Process(target=work, args=(theirs, *given))
        with _signals_later():
            self.itself.start()
        theirs.close()
        self.ready = False
        self.cell = ""  # key of the one that it is at work on

    def interrupt(self) -> None:
        """End it at once; what it is at work on is not done."""
        if not self.ready or machine.WINDOWS or not self.itself.pid:
            self.itself.kill()
            return
        with suppress(ProcessLookupError):
            os.kill(self.itself.pid, signal.SIGINT)


@contextmanager
def _signals_later() -> Iterator[None]:
    """In this block signals wait, and for a process that it starts until it can hear them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which is started with a mask of its own
    before = signal.pthread_sigmask(signal.SIG_BLOCK, machine.SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Workers:
    """``jobs`` workers on the cells of ``worker``, which does here what all cores do."""

    def __init__(self, worker: Worker, todo: list[Cell], jobs: int) -> None:
        self.worker, self.todo, self.jobs = worker, todo, jobs
        self.cells = {cell.key: cell for group in worker.groups for cell in group}
        self.left = {cell.key for cell in todo}  # cells that have not ended
        self.at_work: list[_Process] = []

    def all(self) -> None:
        """Carry out every cell."""
        self.make_features()
        done = len(self.cells) - len(self.left)
        with progress.task("study", len(self.cells), "cells", done) as self.task, self._ending():
            for number in range(min(self.jobs, len(self.left))):
                self.start(number)
            while self.at_work:
                self.hear()
        progress.stop_point()

    def make_features(self) -> None:
        """Make the features of cells that have images, by all cores."""
        images = [cell for cell in self.todo if cell.config.extract is not None]
        for cell, why in self.worker.prepare(images):
            self.worker.failed(cell, why)
            self.left.discard(cell.key)

    def start(self, number: int) -> None:
        """Start a worker, with its own part of the cells first."""
        level = logging.getLogger("afltool").getEffectiveLevel()
        first = number * len(self.worker.groups) // self.jobs
        root, cells = self.worker.folder.root.absolute(), list(self.cells.values())
        given = self.worker.study, root, cells, self.jobs, first, level
        self.at_work.append(_Process(*given))

    def hear(self) -> None:
        """What workers say; a request to stop goes to all of them."""
        if progress.stop_requested():
            for one in self.at_work:
                one.itself.terminate() if one.ready else one.itself.kill()
        by_pipe: dict[Any, _Process] = {one.pipe: one for one in self.at_work}
        for pipe in wait(list(by_pipe), PAUSE):
            one = by_pipe[pipe]
            try:
                message = one.pipe.recv()
            except (EOFError, OSError):
                self.ended(one)
            else:
                self.heard(one, *message)

    def heard(self, one: _Process, kind: str, what: Any) -> None:
        """Something that a worker says."""
        match kind:
            case "ready":
                one.ready = True
            case "says":
                name, level, text = what
                logging.getLogger(name).log(level, "%s", text)
            case "event":
                progress.tell_again(what)
            case "begun":
                one.cell = what
            case "ended":
                one.cell = ""
                self.count(what)
            case "wants ridge":
                self.worker.wants_ridge = True

    def count(self, key: str) -> None:
        """Count a cell that has ended, whoever saw it first."""
        if key in self.left:
            self.left.discard(key)
            self.task.advance()

    def ended(self, one: _Process) -> None:
        """A worker is gone: all is done, it was to stop, or something killed it."""
        self.at_work.remove(one)
        one.itself.join(PATIENCE)
        code = one.itself.exitcode or 0
        if progress.stop_requested() or (one.ready and not code):
            return
        why = f"its process ended (exit code {code})"
        if code < 0:
            why = f"its process was killed (signal {-code}), perhaps for its memory"
        if not one.ready:
            raise UsageError(
                f"a process of --jobs {self.jobs} could not begin: {why}; in a script, call study "
                'under if __name__ == "__main__":, since each process reads the script first'
            )
        if one.cell:
            self.worker.failed(self.cells[one.cell], why)
            self.count(one.cell)
        if self.left:
            self.start(len(self.at_work))

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """If an exception ends this block, the workers end with it."""
        try:
            yield
        finally:
            for one in self.at_work:
                one.interrupt()
            for one in self.at_work:
                one.itself.join(PATIENCE)
                one.itself.kill()
