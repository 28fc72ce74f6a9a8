"""The effect of signals before a command begins and after it ends; see `_console` for the rest."""

from __future__ import annotations

import os
import signal

from ..machine import STOPS

SIGNALS = (signal.SIGINT, *STOPS)


def leave_on_signals() -> None:
    """Until a command begins, a signal ends the process at once, with the signal's exit code."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as SIGINT is in the background
            signal.signal(number, leave)


def leave(number: int, frame: object) -> None:
    """End now: there is nothing to clean up.

    An exception would end in a traceback while modules load, or be swallowed by one of them.
    """
    os.write(2, b"interrupted before it began\n")
    os._exit(130 if number == signal.SIGINT else 75)


def ignore_signals() -> None:
    """Ignore signals from now on: all output is written, and the interpreter is about to end."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
