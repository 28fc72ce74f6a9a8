"""The one policy of memory: work asks before it starts, and is refused with the numbers.

`need` is for solves, `check_backed` for files that claim more than they hold, `Room` for what is
kept only to save time; `keep_freed` tunes the C library.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from .. import machine
from ..errors import CorruptFileError, NumericalError, UsageError
from ..values.parsed import Written

log = logging.getLogger("afltool")
WORTH_SAYING = 1 << 30
UNBACKED = 300 << 20  # bytes of arrays that any file may claim: a gram of 8,192 features
BACKING = 64  # times its own bytes that a file may claim beyond that
ALLOWED = "AFLTOOL_FILE_GB"  # environment: gigabytes that the arrays of any file may take
KEPT = 256 << 20  # bytes of freed memory that a command keeps for its next blocks of rows
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def need(size: int, what: str, advice: str = "use a smaller problem") -> None:
    """Refuse with `NumericalError` when fewer than ``size`` bytes of memory are available.

    Every solve asks before it allocates anything large; ``advice`` names the options to change.
    """
    free = available()
    if free is not None and size > free:
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
    """So many ``bytes``, or a ``share`` of the memory that is free."""

    bytes: int = 0
    share: float = 0.0

    def now(self) -> int:
        """Bytes; of a share as many as it is now."""
        return int(self.share * (available() or 0)) if self.share else self.bytes


def parse_size(text: str) -> Size:
    """'8GB', '500M', or a share of the memory that is free, '50%'.

    Raises `UsageError` for anything else.

    >>> parse_size("1.5GB").now(), parse_size("0").now()
    (1500000000, 0)
    """
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?)\s*(?:([kMGT]?)(i?)B?|(%))", text.strip())
    if found is None or (found[4] and float(found[1]) > 100):
        raise UsageError(
            "--memory is a size such as 8GB or 500MB, or a share of the free memory such as 50%; "
            f"found {text!r}"
        )
    number = float(found[1])
    if found[4]:
        return Size(text, share=number / 100)
    unit = UNITS[found[2]]
    return Size(text, int(number * (1024 ** (len(str(unit)) // 3) if found[3] else unit)))


def available() -> int | None:
    """Bytes that this process may still take: of the machine, its control group, its own limits."""
    found = [free for free in (machine.free_memory(), _group(), _limits()) if free is not None]
    return min(found, default=None)


def _limits() -> int | None:
    """What ``ulimit -v`` and ``ulimit -d`` leave."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limits
        return None
    limits = {"VmSize": resource.RLIMIT_AS, "VmData": resource.RLIMIT_DATA}
    given = {name: resource.getrlimit(limit)[0] for name, limit in limits.items()}
    given = {name: most for name, most in given.items() if most != resource.RLIM_INFINITY}
    if not given:
        return None
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    used = {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines if "kB" in line}
    return max(min(most - used.get(name, 0) for name, most in given.items()), 0)


def _group() -> int | None:
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = ((folder / f"memory.{n}").read_text().strip() for n in ("max", "current"))
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return None
    pages = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
    return None if limit == "max" else max(int(limit) - int(used) + pages, 0)


def keep_freed() -> None:
    """Let the C library keep up to `KEPT` freed bytes, where it is GNU's; elsewhere nothing.

    By default it gives blocks of rows back to the kernel as soon as they are freed and takes others
    for the next ones, a page fault for every 4 KB: a fifth of a DeepAFL layer's time. For processes
    of our own, as the commands are; a library does not decide this for its caller.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(M_MMAP_THRESHOLD, 32 << 20)
    mallopt(M_TRIM_THRESHOLD, KEPT)
