"""What a solve will need, said before it starts and refused with numbers; freed blocks kept."""

from __future__ import annotations

import ctypes
import logging
import os
from pathlib import Path

from .errors import NumericalError

log = logging.getLogger("afltool")
WORTH_SAYING = 1 << 30
KEPT = 256 << 20  # bytes of freed memory that a command keeps for its next blocks of rows
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def need(size: int, what: str) -> None:
    """Refuse with `NumericalError` when fewer than ``size`` bytes of memory are available."""
    free = available()
    if free is not None and size > free:
        raise NumericalError(
            f"{what} needs about {size / 1e9:.2f} GB of memory and {free / 1e9:.2f} GB are free: "
            "use a smaller problem (--width, --experts, --group-size) or a larger machine"
        )
    if size >= WORTH_SAYING:
        log.info("%s: about %.2f GB of memory", what, size / 1e9)


def available() -> int | None:
    """Bytes that this process may still take: of the machine and of its control group."""
    found = [free for free in (_machine(), _group()) if free is not None]
    return min(found, default=None)


def physical() -> int:
    """Bytes of memory that this machine has, free or not."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _machine() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return None
    kilobytes = (int(line.split()[1]) for line in text.splitlines() if "MemAvailable" in line)
    return next((1024 * k for k in kilobytes), None)


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
