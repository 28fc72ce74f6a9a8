"""What the operating system decides: locks, control groups, cores, memory, signals."""

from __future__ import annotations

import _thread
import errno
import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import Any

FOLDS = sys.platform == "darwin"  # its disks do not tell capitals apart, usually
#: What asks a command to stop cleanly; Slurm sends the second one before the time limit.
STOPS = (signal.SIGTERM, signal.SIGUSR1)
SIGNALS = (signal.SIGINT, *STOPS)
WITHOUT = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)  # of file systems that have no locks


def lock(descriptor: int) -> None:
    """Lock an open file until it is closed; `BlockingIOError` where another process has.

    Nothing happens on a file system that has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in WITHOUT:
            raise


def cores() -> int:
    """The cores that this process may use, by its affinity where the system has one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def control_groups(root: Path = Path("/")) -> Iterator[Path]:
    """Folders of the groups (version 2) that limit this process: its own, and those above."""
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    top = root / "sys/fs/cgroup"
    for own in (line.removeprefix("0::") for line in lines if line.startswith("0::")):
        at = top / own.strip("/")  # in a container it may be the host's name of it
        yield from (folder for folder in (at, *at.parents) if folder.is_relative_to(top))


def quota(root: Path = Path("/")) -> int | None:
    """Cores that the control groups of this process give it, rounded up; None: all."""
    limits = []
    for folder in control_groups(root):
        with suppress(OSError, ValueError):  # the limit may be max
            limit, period = map(int, (folder / "cpu.max").read_text("ascii").split())
            limits.append(max(1, -(-limit // period)))
    return min(limits, default=None)


def free_memory() -> int:
    """Bytes that the machine has available."""
    import psutil  # 0.02 s: only for what asks

    return int(psutil.virtual_memory().available)


def repeat_lost_interrupts() -> None:
    """Raise KeyboardInterrupt again where it came while Python ignores exceptions (`__del__`)."""
    sys.unraisablehook = _unheard


def _unheard(lost: Any) -> None:
    if issubclass(lost.exc_type, KeyboardInterrupt):
        Timer(0.01, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(lost)


def leave_on_signals() -> None:
    """Until a command begins, a signal ends the process at once, with the signal's exit code."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as SIGINT is in the background
            signal.signal(number, leave)


def leave(number: int, frame: object) -> None:
    """End now: an exception would end in a traceback while modules load, or be swallowed."""
    os.write(2, b"interrupted before it began\n")
    os._exit(130 if number == signal.SIGINT else 75)


def ignore_signals() -> None:
    """Ignore signals from now on: all output is written, and the interpreter is about to end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
