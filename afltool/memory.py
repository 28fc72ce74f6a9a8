"""What a solve will need, said before it starts; refused with numbers where it will not fit."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from .errors import NumericalError

log = logging.getLogger("afltool")
WORTH_SAYING = 1 << 30


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
