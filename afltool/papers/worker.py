"""One of several processes that carry out the cells of a study; `processes` is the other side."""

from __future__ import annotations

import _thread
import logging
import os
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from .. import cores, progress
from ..cache import memory
from ..errors import BusyError, StoppedError
from ..plans.made import Made
from .cells import Cell
from .layout import StudyFolder
from .one_process import OneProcess

STOP, LATER = "stop", "later"  # what a process is told, beside cells and answers
GONE = "gone"  # what it tells itself when the other side is not there any more


def work(pipe: Connection, root: Path, total: int, jobs: int, level: int) -> None:
    """Carry out the cells that come through the pipe, until None comes."""
    memory.keep_freed()
    os.environ["OMP_NUM_THREADS"] = "1"  # by which `cores.available` counts
    line = _Line(pipe)
    logger = logging.getLogger("afltool")
    logger.handlers, logger.propagate = [_Told(line)], False
    logger.setLevel(level)
    line.tell("ready", None)
    study = _Cells(root, total, jobs, line)
    try:
        with cores.using(1):
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
        found = self.inbox.get()
        if found == GONE:
            raise KeyboardInterrupt
        progress.stop_point()
        return found

    def _listen(self) -> None:
        found: Any = GONE
        while found is not None:
            try:
                found = self.pipe.recv()
            except (EOFError, OSError):
                self.gone = True
                self.inbox.put(GONE)
                _thread.interrupt_main()
                return
            if found == STOP:
                progress.request_stop("a request of the study")
            self.inbox.put(found)

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
        found = self.line.told()
        if found == LATER:
            raise _Later("another process makes what it needs")
        return found[0]

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
                self.number, self.names, self.took = number - 1, {cell.key: name}, []
                self.came_back: BusyError | None = None
                failure = self.tried(cell)
                if self.came_back is None:
                    took = [seconds for _, seconds in self.took]
                    self.line.tell("tried", (failure, took, self.wants_ridge))
                else:
                    again = isinstance(self.came_back, _Later)
                    self.line.tell("later", None if again else self.came_back)

    def later(self, cell: Cell, name: str, why: BusyError) -> None:
        self.came_back = why
