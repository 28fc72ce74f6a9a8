"""What a run keeps: what files hold, what rounds leave for the next one, which sums are known.

`run` makes it and passes it on: to stages, and from there to the readers and writers of files. A
command of its own passes `NO_CACHE`. It only saves time: a file is known by its place on the disk,
size and times, so one that somebody has changed meanwhile is read again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

from ..inputs import note
from .carried import NOTHING, Carried, Remembered
from .memory import Room

Identity = tuple[int, ...]
Spill = Callable[[str], Carried]  # where rows of a part go that memory has no room for
Sums = dict[str, tuple[Path, str]]  # files of sums and their digests, by what is summed
T = TypeVar("T")


def identity_of(found: os.stat_result) -> Identity:
    """Device, inode, size and times of a file; it changes whenever the file does."""
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


class Cache:
    """Values by file and type, and what heads carry from round to round, within ``budget``.

    What does not fit of heads' intermediate rows goes to ``spill``. ``sums``: what several runs
    know of each other's sums, by content; None where nobody asks for them. Without a budget it
    keeps nothing: every file is read, every round starts from the features.
    """

    def __init__(
        self, budget: Room | None = None, spill: Spill = lambda _: NOTHING, sums: Sums | None = None
    ) -> None:
        self.keeps = budget is not None
        self.room, self.sums = budget or Room(0), sums
        self._spill = spill
        self._files: dict[Identity, dict[type, tuple[Any, int]]] = {}
        self._carried: dict[str, tuple[str, Remembered]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.clear()
        self._carried.clear()

    # ------------------------------------------------------------ files

    def keep(self, path: Path, value: Any, size: int, written: bool = False) -> None:
        """Keep what a file holds, ``size`` bytes, unless there is no room for it.

        ``written``: the whole of a file that was written just now, so that nobody here reads it.
        """
        if not self.keeps:
            return
        known = self._files.setdefault(identity_of(os.stat(path)), {})
        if type(value) not in known and self.room.take(size):
            known[type(value)] = value, size
            if written:
                _leave_to_disk(path)

    def known(self, path: Path, kind: type[T]) -> T | None:
        """What was kept of this file; None of another one, or where it has changed."""
        if not self._files:
            return None
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

    # ------------------------------------------------------------ rounds

    def carried(self, task: str, part: str) -> Carried:
        """What the round before left of a part of a task, such as a client."""
        before, found = self._carried.get(part, ("", None))
        if found is not None and before == task:
            return found
        if found is not None:
            found.forget()
        beyond = self._spill(part)
        return Remembered(room=self.room, beyond=beyond) if self.keeps else beyond

    def left(self, task: str, part: str, carried: Carried) -> None:
        """Keep what a round has left, for the next one."""
        if isinstance(carried, Remembered):
            self._carried[part] = task, carried


NO_CACHE = Cache()


def _leave_to_disk(path: Path) -> None:
    """Let the system drop a file from its cache.

    The heads of a deep run are gigabytes. Fresh pages for them took longer than all else that the
    server did in a round: on a virtual machine 2.5 s a gigabyte, used ones 0.25 s.
    """
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
