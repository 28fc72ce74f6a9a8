"""Cells of a study carried out in several processes; work that they share is done once.

The first process hands out cells, and knows who makes what. Another process asks it before it makes
what others may need. It is told where that is, or to make it; while another one is at it, this cell
comes later: it is handed out again when that is there, or nobody makes it any more.
"""

from __future__ import annotations

import _thread
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from .. import cores, machine, progress
from ..errors import AflError, BusyError, StoppedError, UsageError
from ..inputs import distinct_files
from ..plans.made import Made
from .cells import Cell, StudyFolder
from .one_process import Failure, OneProcess, groups, why_of
from .results import finished

STOP, LATER = "stop", "later"  # what a process is told, beside cells and answers
GONE = "gone"  # what it tells itself when the other side is not there any more
PAUSE = 0.2  # seconds between two looks at requests to stop
AGAIN = 0.5  # seconds until a cell that a process of another study is at work on is tried again
PATIENCE = 30  # seconds that a process has to end when the study is interrupted


def work(pipe: Connection, root: Path, total: int, jobs: int, level: int) -> None:
    """Carry out the cells that come through the pipe, until None comes."""
    os.environ["OMP_NUM_THREADS"] = "1"  # by which `cores.available` counts
    line = _Line(pipe)
    logger = logging.getLogger("afltool")
    logger.handlers, logger.propagate = [_Told(line)], False
    logger.setLevel(level)
    line.tell("ready", None)
    study = _Cells(root, total, jobs, line)
    try:
        with cores.using(1), progress.listening(partial(line.tell, "event")):
            while (batch := line.told()) is not None:
                study.carry_out(batch)
    except (StoppedError, KeyboardInterrupt):
        return  # the first process says it


class _Line:
    """Both directions of the pipe. A request to stop is heard while the process computes.

    The terminal's Ctrl-C is for the first process, which then closes the pipe.
    """

    def __init__(self, pipe: Connection) -> None:
        self.pipe, self.lock, self.gone = pipe, Lock(), False
        self.inbox: SimpleQueue[Any] = SimpleQueue()
        signal.signal(signal.SIGINT, self._interrupted)
        machine.repeat_lost_interrupts()
        for name in ("SIGTERM", "SIGUSR1"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), lambda *_: progress.request_stop("a signal"))
        Thread(target=self._listen, daemon=True).start()

    def tell(self, kind: str, what: Any) -> None:
        """Say something to the first process."""
        try:
            with self.lock:
                self.pipe.send((kind, what))
        except OSError:  # it is gone, and what cells find does not fail for that
            raise KeyboardInterrupt from None

    def told(self) -> Any:
        """What the first process says next."""
        message = self.inbox.get()
        if message == GONE:
            raise KeyboardInterrupt
        progress.stop_point()
        return message

    def _listen(self) -> None:
        message: Any = GONE
        while message is not None:
            try:
                message = self.pipe.recv()
            except (EOFError, OSError):
                self.gone = True
                self.inbox.put(GONE)
                _thread.interrupt_main()
                return
            if message == STOP:
                progress.request_stop("a request of the study")
            self.inbox.put(message)

    def _interrupted(self, *_: object) -> None:
        if self.gone:
            raise KeyboardInterrupt


class _Told(logging.Handler):
    """Messages go to the first process, which shows them."""

    def __init__(self, line: _Line) -> None:
        super().__init__()
        self.line = line

    def emit(self, record: logging.LogRecord) -> None:
        self.line.tell("says", (record.name, record.levelno, record.getMessage()))


class _Later(BusyError):
    """Another process makes what a cell needs."""


class _Shared(dict[str, Any]):
    """What all processes have made: who asks for what is not there makes it, and says where."""

    def __init__(self, line: _Line) -> None:
        super().__init__()
        self.line = line

    def get(self, name: str, default: Any = None) -> Any:
        self.line.tell("asks", name)
        message = self.line.told()
        if message == LATER:
            raise _Later("another process makes what it needs")
        return message[0]

    def __setitem__(self, name: str, value: Any) -> None:
        self.line.tell("made", (name, value))


class _Cells(OneProcess):
    def __init__(self, root: Path, total: int, jobs: int, line: _Line) -> None:
        super().__init__(StudyFolder(root), total, {})
        self.line, self.jobs, self.shared = line, jobs, Made(_Shared(line), jobs)

    def carry_out(self, batch: list[tuple[int, Cell, str]]) -> None:
        """Cells one after another. Those that remove their rounds share only among themselves."""
        thinned = batch[0][1].thinned
        self.made = Made(processes=self.jobs) if thinned else self.shared
        with self.made.rounds_kept():
            for number, cell, name in batch:
                self.number, self.names = number - 1, {cell.key: name}
                self.came_back: BusyError | None = None
                failure = self.tried(cell)
                if self.came_back is None:
                    self.line.tell("tried", (failure, self.wants_ridge))
                else:
                    again = isinstance(self.came_back, _Later)
                    self.line.tell("later", None if again else self.came_back)

    def later(self, cell: Cell, name: str, why: BusyError) -> None:
        self.came_back = why


@dataclass
class _Batch:
    """Cells that one process carries out, one after another, with their numbers; what is left."""

    cells: deque[tuple[int, Cell]]
    waits: str = ""  # for what another process makes
    due: float = 0.0


class _Process:
    """A process, as the first one sees it."""

    def __init__(self, *given: Any) -> None:
        context = get_context("spawn")  # a fork would take over locks of threads
        self.pipe, theirs = context.Pipe()
        self.itself = context.Process(target=work, args=(theirs, *given))
        self.itself.start()
        theirs.close()
        self.ready = False
        self.waits = ""  # for what another one makes
        self.batch: _Batch | None = None

    def send(self, message: Any) -> None:
        with suppress(OSError):  # it has ended: that is seen when it is heard
            self.pipe.send(message)


class Processes(OneProcess):
    """The cells of a study, carried out by ``jobs`` processes of one thread each."""

    def __init__(
        self, folder: StudyFolder, total: int, names: Mapping[str, str], jobs: int
    ) -> None:
        super().__init__(folder, total, names)
        self.jobs = jobs
        self.todo: deque[_Batch] = deque()
        self.at_work: list[_Process] = []
        self.makers: dict[str, _Process] = {}  # who makes what is not there yet
        self.failures: list[Failure] = []

    def all(self, cells: list[Cell]) -> list[Failure]:
        """Carry out every cell; returns the failed ones."""
        numbers = {cell.key: number for number, cell in enumerate(cells, 1)}
        self.todo.extend(
            _Batch(deque((numbers[cell.key], cell) for cell in group))
            for group in groups(list(self.with_features(cells)))
        )
        self.jobs = min(self.jobs, len(self.todo))
        done = len(cells) - sum(len(one.cells) for one in self.todo)
        with progress.task("study", len(cells), "cells", done) as self.task, self._ending():
            while self.todo or any(one.batch for one in self.at_work):
                self.hand_out()
                self.hear()
        progress.stop_point()
        return self.failures

    def with_features(self, cells: list[Cell]) -> Iterator[Cell]:
        """The cells whose features are there; those of images are made here, by all cores."""
        for self.number, cell in enumerate(cells, 1):
            try:
                if cell.config.extract is not None and finished(self.folder, cell) is None:
                    progress.stop_point()
                    with distinct_files():
                        self.shared_work(cell)
            except StoppedError:
                raise
            except (AflError, MemoryError, OSError) as error:
                self.failures.append(self.failed(cell, why_of(error)))
            else:
                yield cell

    def hand_out(self) -> None:
        """Give what can be done to processes that have nothing to do; new ones are started."""
        now = time.monotonic()
        for batch in [b for b in self.todo if b.due <= now and b.waits not in self.makers]:
            process = self.free()
            if process is None:
                return
            self.todo.remove(batch)
            process.batch = batch
            process.send([(n, cell, self.names[cell.key]) for n, cell in batch.cells])

    def free(self) -> _Process | None:
        """A process that has nothing to do, perhaps a new one; None: all have."""
        process = next((one for one in self.at_work if one.batch is None), None)
        if process is None and len(self.at_work) < self.jobs:
            level = logging.getLogger("afltool").getEffectiveLevel()
            process = _Process(self.folder.root.absolute(), self.total, self.jobs, level)
            self.at_work.append(process)
        return process

    def hear(self) -> None:
        """What processes say; a request to stop goes to all of them."""
        if progress.stop_requested():
            self.todo.clear()
            for one in self.at_work:
                one.send(STOP)
        by_pipe: dict[Any, _Process] = {one.pipe: one for one in self.at_work}
        for pipe in wait(list(by_pipe), PAUSE):
            one = by_pipe[pipe]
            try:
                message = one.pipe.recv()
            except (EOFError, OSError):
                self.ended(one)
            else:
                self.heard(one, message)

    def heard(self, one: _Process, message: tuple[Any, ...]) -> None:
        match message:
            case "ready", _:
                one.ready = True
            case "says", (name, level, text):
                logging.getLogger(name).log(level, "%s", text)
            case "event", one_event:
                progress.tell_again(one_event)
            case "asks", name:
                self.asked(one, name)
            case "made", (name, value):
                self.made.found[name] = value
                self.makers.pop(name, None)
            case "tried", (failure, wants_ridge):
                self.left(one)
                self.failures += [failure] if failure else []
                self.wants_ridge |= wants_ridge
                self.task.advance()
            case "later", why:
                again = _Batch(deque([self.left(one)]), one.waits if why is None else "")
                if why is not None:
                    self.number, cell = again.cells[0]
                    self.later(cell, self.names[cell.key], why)
                    self.busy.clear()
                    again.due = time.monotonic() + AGAIN
                self.todo.append(again)

    def left(self, one: _Process) -> tuple[int, Cell]:
        """The cell that a process is not at work on any more; what it was to make others may."""
        assert one.batch is not None
        cell = one.batch.cells.popleft()
        if not one.batch.cells:
            one.batch = None
        self.makers = {name: maker for name, maker in self.makers.items() if maker is not one}
        return cell

    def ended(self, one: _Process) -> None:
        """A process is gone: it was to stop, or something killed it, and the study goes on."""
        self.at_work.remove(one)
        one.itself.join(PATIENCE)
        code = one.itself.exitcode or 0
        why = f"its process ended (exit code {code})"
        if code < 0:
            why = f"its process was killed (signal {-code}), perhaps for its memory"
        if progress.stop_requested() or one.batch is None:
            return
        if not one.ready:
            raise UsageError(
                f"a process of --jobs {self.jobs} could not begin: {why}; in a script, call study "
                'under if __name__ == "__main__":, since each process reads the script first'
            )
        rest = one.batch
        self.number, cell = self.left(one)
        self.failures.append(self.failed(cell, why))
        self.task.advance()
        if rest.cells:
            self.todo.append(rest)

    def asked(self, one: _Process, name: str) -> None:
        """Say where something is, to make it, or that another one is at it."""
        if name in self.made.found:
            one.send((self.made.found[name],))
        elif self.makers.setdefault(name, one) is one:
            one.send((None,))
        else:
            one.waits = name
            one.send(LATER)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """In the end the processes are told to end, and if it is an exception, to end at once."""
        ended = False
        try:
            yield
            ended = True
        finally:
            for one in self.at_work:
                one.send(None) if ended else one.pipe.close()
            for one in self.at_work:
                one.itself.join(None if ended else PATIENCE)
                one.itself.kill()
