"""Work that one process at a time may do, and a mark beside it that says who does it.

A lock ends with its process, however that ends; the mark stays when the process is killed. So a
mark without a lock is what a killed process left.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .. import machine
from ..errors import BusyError
from .atomic import locked
from .outputs import writer_errors

LONGEST = 1000  # bytes of a mark


@dataclass(frozen=True)
class Before:
    """What a mark says: how many processes began the work and did not end it, and the last one."""

    begun: int
    last: str


@contextmanager
def marked(mark: Path) -> Iterator[Before]:
    """In this block the file ``mark`` says that this process does the work; then it is removed.

    It is also removed when the block fails: it only stays if the process is killed.

    Raises:
        BusyError: another process, which is alive, does the work; the message says which.
    """
    with writer_errors(mark):
        mark.parent.mkdir(parents=True, exist_ok=True)
        descriptor = locked(mark, _take)
    try:
        before = _read(descriptor)
        text = f"{before.begun + 1}\n{_me()}\n".encode()
        with writer_errors(mark):
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, text)
        yield before
    finally:
        if machine.WINDOWS:  # where an open file cannot be removed
            os.close(descriptor)
        with suppress(OSError):
            mark.unlink()
        if not machine.WINDOWS:
            os.close(descriptor)


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """In this block no other process is in such a block with this folder; waits for its turn."""
    if machine.WINDOWS:  # where a folder cannot be opened
        yield
        return
    descriptor = os.open(folder, machine.flags("RDONLY"))
    try:
        machine.lock(descriptor, wait=True)
        yield
    finally:
        os.close(descriptor)


def _take(mark: Path, descriptor: int) -> None:
    try:
        machine.lock(descriptor)
    except BlockingIOError:
        who = _read(descriptor).last or "another process"
        raise BusyError(f"{who} is at work on it") from None


def _read(descriptor: int) -> Before:
    os.lseek(descriptor, 0, os.SEEK_SET)
    lines = os.read(descriptor, LONGEST).decode("utf-8", "replace").splitlines()
    count, last = (*lines, "", "")[:2]
    return Before(int(count) if count.isdecimal() else 0, last)


def _me() -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"process {os.getpid()} on {platform.node()} since {since}"
