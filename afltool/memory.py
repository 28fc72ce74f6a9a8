"""The one policy of memory, and what is kept in it to save time.

Work asks before it starts, and is refused with the numbers: `need` is for solves, `check_backed`
for files that claim more than they hold, `Room` for what is kept.

`Carried` is what a head computed from a client's rows in one round, so that the next round starts
from it; it never leaves the client. It is kept block by block, under a key that says what it was
made with, so that no head takes the arrays of another head. A round takes block i of the round
before and then puts its own block i.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, RLock
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from . import machine
from .errors import CorruptFileError, NumericalError, UsageError
from .values.parsed import Written

if TYPE_CHECKING:  # help needs memory, and no NumPy
    from .values.arrays import Array

log = logging.getLogger("afltool")
WORTH_SAYING = 1 << 30
UNBACKED = 300 << 20  # bytes of arrays that any file may claim: a gram of 8,192 features
BACKING = 64  # times its own bytes that a file may claim beyond that
ALLOWED = "AFLTOOL_FILE_GB"  # environment: gigabytes that the arrays of any file may take
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def need(size: int, what: str, advice: str = "use a smaller problem") -> None:
    """Refuse with `NumericalError` when fewer than ``size`` bytes of memory are available.

    Every solve asks before it allocates anything large; ``advice`` names the options to change.
    """
    free = available()
    if size > free:
        raise NumericalError(
            f"{what} needs about {size / 1e9:.2f} GB of memory and {free / 1e9:.2f} GB are free: "
            f"{advice}, or a larger machine"
        )
    if size >= WORTH_SAYING:
        log.info("%s: about %.2f GB of memory", what, size / 1e9)


def check_backed(claimed: int, held: int, what: str) -> None:
    """Refuse numbers that take ``claimed`` bytes of memory and only ``held`` bytes of a file.

    A few hundred kilobytes can claim gigabytes of zeros. Honest sums do so only where a client has
    next to no rows and the head is very large; whoever has such clients says so in the environment.
    """
    given = os.environ.get(ALLOWED, "")
    try:
        allowed = int(float(given or 0) * 1e9)
    except (ValueError, OverflowError):
        raise UsageError(f"${ALLOWED} is a number of gigabytes; found {given!r}") from None
    limit = max(UNBACKED, BACKING * held, allowed)
    if claimed > limit:
        raise CorruptFileError(
            f"{what} not plausible: {held / 1e6:.1f} MB in it claim {claimed / 1e9:.2f} GB of "
            f"numbers, and up to {limit / 1e9:.2f} GB are read; if it is of a client with hardly "
            f"any rows and of a very large head, set {ALLOWED}={claimed / 1e9 + 0.1:.1f}"
        )


class Room:
    """Bytes that may still be taken for what is kept only to save time.

    >>> room = Room(10)
    >>> room.take(6), room.take(6), room.free
    (True, False, 4)
    """

    def __init__(self, size: int) -> None:
        self.free = size
        self._lock = Lock()

    def take(self, size: int) -> bool:
        """Whether so many bytes are left; then they are taken."""
        with self._lock:
            if size > self.free:
                return False
            self.free -= size
            return True

    def give(self, size: int) -> None:
        """Give back what was taken."""
        with self._lock:
            self.free += size


@dataclass(frozen=True)
class Size(Written):
    """So many ``bytes``."""

    bytes: int = 0


def parse_size(text: str) -> Size:
    """'8GB' or '500M'. Raises `UsageError` for anything else.

    >>> parse_size("1.5GB").bytes, parse_size("0").bytes
    (1500000000, 0)
    """
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*([kMGT]?)(i?)B?", text.strip())
    if match is None:
        raise UsageError(f"--memory is a size such as 8GB or 500MB; found {text!r}")
    unit = UNITS[match[2]]
    factor = 1024 ** (len(str(unit)) // 3) if match[3] else unit
    return Size(text, int(float(match[1]) * factor))


def available() -> int:
    """Bytes that this process may still take, by the machine and its control groups."""
    return min([machine.free_memory(), *_of_groups()])


def _of_groups() -> Iterator[int]:
    """What each control group of this process leaves; what is only cached in it can be freed."""
    for folder in machine.control_groups():
        with suppress(OSError, ValueError):  # the limit may be max
            left = int((folder / "memory.max").read_text())
            left -= int((folder / "memory.current").read_text())
            lines = (folder / "memory.stat").read_text().splitlines()
            left += sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
            yield max(left, 0)


T = TypeVar("T")


class _Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


Made = TypeVar("Made", bound=_Sized)


class Kept(Generic[Made]):
    """``make(*key)``, with up to ``room`` bytes of the first results kept, and the latest one.

    Memory does not grow with the number of keys. Who asks for one key again and again, or for the
    first few, pays once. One thread makes a result, the others wait for it.
    """

    _making = RLock()  # of all: what is made may need another one

    def __init__(self, make: Callable[..., Made], room: int) -> None:
        self._make, self._room = make, Room(room)
        self.kept: dict[tuple[int, ...], Made] = {}
        self._latest: dict[tuple[int, ...], Made] = {}

    def __call__(self, *key: int) -> Made:
        made = self.kept.get(key) or self._latest.get(key)
        return self._new(key) if made is None else made

    def _new(self, key: tuple[int, ...]) -> Made:
        with self._making:
            made = self.kept.get(key) or self._latest.get(key)
            if made is None:
                made = self._make(*key)
                if self._room.take(made.nbytes):
                    self.kept[key] = made
                else:
                    self._latest = {key: made}
            return made


class Carried:
    """Keeps nothing: every round starts from the features."""

    def take(self, key: str, block: int, rows: int) -> dict[str, Array] | None:
        """The arrays of block number ``block`` with ``rows`` rows, if they were put under this
        key; otherwise None. The caller owns them and may write into them; each block is given
        once."""
        return None

    def following(self, key: str) -> Carried:
        """An empty store for the arrays that the coming round puts under ``key``."""
        return self

    def put(self, block: int, arrays: Mapping[str, Array]) -> None:
        """Keep the arrays of a block, with one entry per row; blocks come in order, from 0 on."""


NOTHING = Carried()


class Remembered(Carried):
    """Keeps the arrays in memory, as long as there is room; other blocks are computed again."""

    def __init__(self, key: str = "", room: Room | None = None) -> None:
        self.key, self._room = key, room
        self.blocks: dict[int, dict[str, Array]] = {}

    def take(self, key: str, block: int, rows: int) -> dict[str, Array] | None:
        if key != self.key:
            self.forget()  # no other caller will ask for these blocks
        arrays = self._removed(block)
        return None if arrays is None or any(len(a) != rows for a in arrays.values()) else arrays

    def following(self, key: str) -> Remembered:
        return Remembered(key, self._room)

    def put(self, block: int, arrays: Mapping[str, Array]) -> None:
        if self._room is None or self._room.take(_size(arrays)):
            self.blocks[block] = dict(arrays)

    def forget(self) -> None:
        """Drop every block that is kept."""
        for block in list(self.blocks):
            self._removed(block)

    def _removed(self, block: int) -> dict[str, Array] | None:
        arrays = self.blocks.pop(block, None)
        if arrays is not None and self._room is not None:
            self._room.give(_size(arrays))
        return arrays


def _size(arrays: Mapping[str, Array]) -> int:
    return sum(a.nbytes for a in arrays.values())


Identity = tuple[int, ...]


def identity_of(status: os.stat_result) -> Identity:
    """Device, inode, size and times of a file; it changes whenever the file does."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
