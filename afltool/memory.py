"""Memory: what work asks for before it starts, and what is kept in it to save time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from . import system
from .errors import CorruptFileError, NumericalError, UsageError
from .values.ridge_spec import LiteralText

if TYPE_CHECKING:  # help needs memory, and no NumPy
    from .values.arrays import Array

UNBACKED = 300 << 20  # bytes of arrays that any file may claim: a gram of 8,192 features
BACKING = 64  # times its own bytes that a file may claim beyond that
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def require_memory(size: int, what: str, advice: str = "use a smaller problem") -> None:
    """Refuse with `NumericalError` when fewer than ``size`` bytes are available.

    Every solve asks before it allocates anything large; ``advice`` names the options to change.
    """
    free = available()
    if size > free:
        raise NumericalError(
            f"{what} needs about {size / 1e9:.2f} GB of memory and {free / 1e9:.2f} GB are free: "
            f"{advice}, or a larger machine"
        )


def check_claimed_size(claimed: int, held: int, what: str) -> None:
    """Refuse numbers that take ``claimed`` bytes of memory and only ``held`` bytes of a file."""
    limit = max(UNBACKED, BACKING * held)
    if claimed > limit:
        raise CorruptFileError(
            f"{what} not plausible: {held / 1e6:.1f} MB in it claim {claimed / 1e9:.2f} GB of "
            f"numbers, and up to {limit / 1e9:.2f} GB are read; use a smaller head"
        )


def available() -> int:
    """Bytes that this process may still take, by the machine and its control groups.

    What is only cached in a group can be freed.
    """
    free = [system.free_memory()]
    for folder in system.control_groups():
        with suppress(OSError, ValueError):  # the limit may be max
            left = int((folder / "memory.max").read_text())
            left -= int((folder / "memory.current").read_text())
            lines = (folder / "memory.stat").read_text().splitlines()
            left += sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
            free.append(max(left, 0))
    return min(free)


@dataclass(frozen=True)
class Size(LiteralText):
    """So many ``bytes``."""

    bytes: int


def parse_size(text: str) -> Size:
    """'8GB' or '500M'. Raises `UsageError` for anything else.

    >>> parse_size("1.5GB").bytes, parse_size("0").bytes
    (1500000000, 0)
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([kMGT]?)B?", text.strip())
    if match is None:
        raise UsageError(f"--memory is a size such as 8GB or 500MB; found {text!r}")
    return Size(text, int(float(match[1]) * UNITS[match[2]]))


class MemoryBudget:
    """Bytes that may still be taken for what is kept only to save time.

    >>> room = MemoryBudget(10)
    >>> room.take(6), room.take(6), room.free
    (True, False, 4)
    """

    def __init__(self, size: int) -> None:
        self.free = size
        self._lock = Lock()

    def take(self, size: int) -> bool:
        """Whether so many bytes are left; then they are taken. Negative ones are given back."""
        with self._lock:
            enough = size <= self.free
            self.free -= size * enough
            return enough


class Carried:
    """What a head made of a client's rows in one round, with which the next round starts.

    Arrays of each block lie in memory under a ``key`` that says what made them, as long as there is
    room; other blocks are computed again.
    """

    def __init__(self, key: str = "", room: MemoryBudget | None = None) -> None:
        self.key, self._room = key, MemoryBudget(1 << 62) if room is None else room
        self.blocks: dict[int, dict[str, Array]] = {}

    def take(self, key: str, block: int, rows: int) -> dict[str, Array] | None:
        """The arrays of a block of so many rows, which are the caller's from now on; None where
        there are none under this key."""
        if key != self.key:
            self.forget()  # no other caller will ask for these blocks
        arrays = self.blocks.pop(block, {})
        self._room.take(-_size(arrays))
        return arrays if arrays and all(len(a) == rows for a in arrays.values()) else None

    def following(self, key: str) -> Carried:
        """An empty one for what the coming round puts under ``key``."""
        return Carried(key, self._room)

    def put(self, block: int, arrays: Mapping[str, Array]) -> None:
        """Keep the arrays of a block, with one entry per row; blocks come in order, from 0 on."""
        if self._room.take(_size(arrays)):
            self.blocks[block] = dict(arrays)

    def forget(self) -> None:
        """Drop every block."""
        self._room.take(-sum(map(_size, self.blocks.values())))
        self.blocks.clear()


NOTHING = Carried(room=MemoryBudget(0))


def _size(arrays: Mapping[str, Array]) -> int:
    return sum(a.nbytes for a in arrays.values())
