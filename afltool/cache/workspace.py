"""What a run keeps of the files that it has read or written, so that it reads none of them twice.

In a block of `working`, the readers of files look here first. A file is known by its place on the
disk, size and times: one that somebody has changed meanwhile is read again. Outside such a block,
as in a command of its own, nothing is kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..inputs import note
from .carried import NOTHING, Carried, Remembered
from .memory import Room

Identity = tuple[int, ...]
T = TypeVar("T")


def identity_of(found: os.stat_result) -> Identity:
    """Device, inode, size and times of a file; it changes whenever the file does."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class Spill(Protocol):
    """Where rows go that memory has no room for."""

    def of(self, part: str) -> Carried:
        """The blocks of a part of the work, such as a client."""

    def close(self) -> None:
        """Give the space back."""


class Workspace:
    """Values by file and type, and what heads carry from round to round, within ``room``."""

    def __init__(self, room: Room, spill: Spill) -> None:
        self.room = room
        self._spill = spill
        self._files: dict[Identity, dict[type, tuple[Any, int]]] = {}
        self._carried: dict[str, tuple[str, Remembered]] = {}
        self.keeps_rows = True  # of feature files, as they are read

    def keep(self, path: Path, value: Any, size: int, written: bool = False) -> None:
        """Keep what a file holds, ``size`` bytes, unless there is no room for it.

        ``written``: the whole of a file that was written just now, so that nobody here reads it.
        """
        known = self._files.setdefault(identity_of(os.stat(path)), {})
        if type(value) not in known and self.room.take(size):
            known[type(value)] = value, size
            if written:
                _leave_to_disk(path)

    def known(self, path: Path, kind: type[T]) -> T | None:
        """What was kept of this file; None of another one, or where it has changed."""
        try:
            found = os.stat(path)
        except OSError:
            return None
        value, _ = self._files.get(identity_of(found), {}).get(kind, (None, 0))
        if not isinstance(value, kind):
            return None
        note(found)
        return value

    def forget(self, path: Path) -> None:
        """Give up what was kept of a file."""
        for _, size in self._files.pop(identity_of(os.stat(path)), {}).values():
            self.room.give(size)

    def carried(self, task: str, part: str) -> Carried:
        """What the round before left of a part of a task, such as a client."""
        before, found = self._carried.get(part, ("", None))
        if found is not None and before == task:
            return found
        if found is not None:
            found.forget()
        return Remembered(room=self.room, beyond=self._spill.of(part))

    def left(self, task: str, part: str, carried: Carried) -> None:
        """Keep what a round has left, for the next one."""
        if isinstance(carried, Remembered):
            self._carried[part] = task, carried

    def close(self) -> None:
        """Give everything up."""
        self._files.clear()
        self._carried.clear()
        self._spill.close()


_current: ContextVar[Workspace | None] = ContextVar("what this run keeps", default=None)


@contextmanager
def working(room: Room, spill: Spill) -> Iterator[Workspace]:
    """In this block files that are read or written are kept, as long as there is room.

    What does not fit of heads' intermediate rows goes to ``spill``.
    """
    space = Workspace(room, spill)
    before = _current.set(space)
    try:
        yield space
    finally:
        _current.reset(before)
        space.close()


@contextmanager
def reading_afresh() -> Iterator[None]:
    """In this block every file is read from the disk, whatever is kept of it."""
    before = _current.set(None)
    try:
        yield
    finally:
        _current.reset(before)


def current() -> Workspace | None:
    """The innermost block of `working`; None outside."""
    return _current.get()


def keep(path: Path, value: Any, size: int, written: bool = False) -> None:
    """`Workspace.keep` of the current one, if there is one."""
    space = current()
    if space is not None:
        space.keep(path, value, size, written)


def _leave_to_disk(path: Path) -> None:
    """Let the system drop a file from its cache.

    The heads of a deep run are gigabytes. Fresh pages for them took longer than all else that the
    server did in a round: on a virtual machine 2.5 s a gigabyte, used ones 0.25 s.
    """
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def forget(*paths: Path) -> None:
    """`Workspace.forget` of the current one, for each path."""
    space = current()
    if space is not None:
        for path in paths:
            space.forget(path)


def known(path: Path, kind: type[T]) -> T | None:
    """`Workspace.known` of the current one; None without one."""
    space = current()
    return None if space is None else space.known(path, kind)


class InWorkspace:
    """What `local-stats` leaves of a task for the next round of the same process.

    It has the methods of `files.carried_rows.CarriedFile`, without a file.
    """

    def __init__(self, task: str) -> None:
        self._task = task

    def of(self, part: str) -> Carried:
        space = current()
        return NOTHING if space is None else space.carried(self._task, part)

    def left(self, part: str, carried: Carried) -> None:
        space = current()
        if space is not None:
            space.left(self._task, part, carried)
