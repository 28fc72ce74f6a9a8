"""Work that one process at a time may do, and a mark beside it that says who does it."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import BusyError
from ..progress import utc_now
from .outputs import writer_errors

WAIT = 60  # seconds for work that takes a moment


@contextmanager
def alone(place: Path, who: str = "another process", wait: bool = False) -> Iterator[None]:
    """In this block no other process, on any machine, is in such a block with this file.

    ``wait`` for the turn of this process, up to `WAIT`. `BusyError`: another process is; ``who`` is
    how the message calls it.
    """
    lock = FileLock(place.with_name(f"{place.name}.lock"), timeout=WAIT if wait else 0)
    with writer_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            raise BusyError(f"{who} is at work on it") from None
    try:
        yield
    finally:
        with suppress(OSError):
            Path(lock.lock_file).unlink()  # who waits for it sees that it is gone
        lock.release()


@contextmanager
def work_marker(mark: Path) -> Iterator[list[str]]:
    """In this block the file ``mark`` has a line of this process; then it is removed.

    It only stays if the process is killed: what the block gets are the lines of such processes.

    Raises:
        BusyError: another process, which is alive, does the work; the message says which.
    """
    with alone(mark, get_marked_process(mark) or "another process"):
        killed = marks(mark)
        with writer_errors(mark), mark.open("a", encoding="utf-8") as file:
            print(f"process {os.getpid()} on {platform.node()} since {utc_now()}", file=file)
        try:
            yield killed
        finally:
            with suppress(OSError):
                mark.unlink()


def marks(mark: Path) -> list[str]:
    """The processes that a mark names."""
    with suppress(OSError):
        return mark.read_text("utf-8", "replace").splitlines()
    return []


def get_marked_process(mark: Path) -> str:
    """The last process that a mark names; '' where there is none."""
    return (marks(mark) or [""])[-1]
