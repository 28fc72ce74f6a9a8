"""Work that one process at a time may do, and a mark beside it that says who does it.

A lock ends with its process, however that ends; the mark stays when the process is killed. So a
mark without a lock is what a killed process left.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import BusyError
from ..progress import now
from .atomic import write_text
from .outputs import writer_errors

WAIT = 60  # seconds for work that takes a moment


@dataclass(frozen=True)
class Before:
    """What a mark says: how many processes began the work and did not end it, and the last one."""

    begun: int = 0
    last: str = ""


@contextmanager
def alone(place: Path, who: str = "another process", wait: bool = False) -> Iterator[None]:
    """In this block no other process, on any machine, is in such a block with this file.

    ``wait`` for the turn of this process, up to `WAIT`.

    Raises:
        BusyError: another process is; ``who`` is how the message calls it.
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
def marked(mark: Path) -> Iterator[Before]:
    """In this block the file ``mark`` says that this process does the work; then it is removed.

    It is also removed when the block fails: it only stays if the process is killed.

    Raises:
        BusyError: another process, which is alive, does the work; the message says which.
    """
    with alone(mark, _read(mark).last or "another process"):
        before = _read(mark)
        me = f"process {os.getpid()} on {platform.node()} since {now()}"
        try:
            write_text(f"{before.begun + 1}\n{me}\n", mark, overwrite=True)
            yield before
        finally:
            with suppress(OSError):
                mark.unlink()


def who(mark: Path) -> str:
    """The process that a mark names; '' where there is none."""
    return _read(mark).last


def _read(mark: Path) -> Before:
    try:
        with mark.open("rb") as file:
            lines = file.read(1000).decode("utf-8", "replace").splitlines()
    except OSError:
        return Before()
    count, last = (*lines, "", "")[:2]
    return Before(int(count) if count.isdecimal() else 0, last)
