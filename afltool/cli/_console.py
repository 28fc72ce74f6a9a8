"""The terminal: streams in any state, messages, progress, errors as one paragraph, exit codes."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer

from .. import progress
from ..errors import AflError
from ..plugins import FULL, TORCH
from ..system import STOPS, leave, repeat_lost_interrupts
from ..values.text import escape_json, escape_line

BROKEN_PIPE = 141  # the shell's code for a program that a closed pipe ended
PLAIN_SECONDS = 5.0  # between two lines of progress without a terminal


def setup_streams() -> None:
    """Make the three streams usable, before any file is opened and gets the number of a closed one.

    Characters that a stream's encoding lacks are printed as escapes; bytes on stdin that are not
    UTF-8 are kept, because names of files can have them.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - for good
        errors = "surrogateescape" if mode == "r" else "backslashreplace"
        getattr(sys, name).reconfigure(errors=errors)


def flush_streams(code: int) -> int:
    """Flush the output at the end of a command; returns its final exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # or it fails once more
            broken = isinstance(error, BrokenPipeError)
            if not code and not broken:
                print_message(f"error: cannot write the output: {error.strerror or error}")
            code = code or (BROKEN_PIPE if broken else 3)
    return code


def print_line(text: object) -> None:
    """One line on stdout."""
    print(escape_line(text))


def print_lines(text: str) -> None:
    """A text on stdout whose lines afltool itself has laid out."""
    print("\n".join(map(escape_line, text.split("\n"))), end="")


def print_json(value: Any, indent: int | None = 2) -> None:
    """One JSON document on stdout."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(escape_json(value, indent, ascii_only=not utf8))


def print_message(text: object) -> None:
    """One line on stderr; who reads it may leave, and the work goes on."""
    with suppress(OSError):
        print(escape_line(text), file=sys.stderr, flush=True)


def setup_console(quiet: bool, verbose: bool) -> None:
    """Send messages and progress to stderr; let signals ask for a clean stop."""
    handler, logger = logging.StreamHandler(sys.stderr), logging.getLogger("afltool")
    handler.setFormatter(_Plain())
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO)
    if not quiet:
        progress.set_reporter(_Bar if sys.stderr.isatty() else _Lines)
    for number in STOPS:
        signal.signal(number, lambda number, _: progress.request_stop(signal.Signals(number).name))


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        return head + escape_line(record.getMessage())


@contextmanager
def command() -> Iterator[None]:
    """Inside, an error becomes one paragraph on stderr and the documented exit code."""
    try:
        if signal.getsignal(signal.SIGINT) is leave:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            repeat_lost_interrupts()
        progress.stop_point()  # a signal may have come while modules were loaded
        yield
    except AflError as error:
        _stop(f"{error}", error.exit_code)
    except KeyboardInterrupt:
        _stop("interrupted; a file that was being written is not under its final name", 130)
    except BrokenPipeError:
        raise typer.Exit(BROKEN_PIPE) from None
    except ModuleNotFoundError as error:
        if error.name not in TORCH:
            raise
        _stop(f"this needs PyTorch, which is not installed: {FULL}", 2)
    except MemoryError as error:
        _stop(f"out of memory ({error}); use smaller inputs or a larger machine", 5)
    except UnicodeEncodeError as error:
        around = error.object[max(0, error.start - 40) : error.start + 20]
        _stop(f"a name holds bytes that are not UTF-8: {around!r}; rename it", 3)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        _stop(f"{error.strerror or error}{where}", 3)


def _stop(message: str, code: int) -> None:
    with suppress(AflError):  # of a place that takes no more events
        progress.event("error", text=message, exit_code=code)
    print_message(f"error: {message}" if code not in (75, 130) else message)
    raise typer.Exit(code)


class _Lines:
    """Without a terminal: a plain line every few seconds, and one at the end of slow work."""

    def __init__(self, title: str, total: int, unit: str, done: int) -> None:
        self.title, self.total, self.unit = title, total, unit
        self.begun_with = self.done = done
        self.begun = self.last = time.monotonic()

    def advance(self, n: int = 1) -> None:
        self.done += n
        if time.monotonic() - self.last >= PLAIN_SECONDS:
            self._line()

    def finish(self) -> None:
        if self.last > self.begun:
            self._line()

    def _line(self) -> None:
        self.last = time.monotonic()
        rate = (self.done - self.begun_with) / (self.last - self.begun)
        left = f"{(self.total - self.done) / rate:.0f} s left" if rate else "time left unknown"
        done = f"{self.done}/{self.total} {self.unit}"
        print_message(f"{self.title}: {done}, {rate:.1f} {self.unit}/s, {left}")


class _Bar:
    """On a terminal: rich's bar with the time left."""

    def __init__(self, title: str, total: int, unit: str, done: int) -> None:
        from rich import progress as of_rich

        from ..rendering.terminal import stderr_console

        self.bar = of_rich.Progress(console=stderr_console(), transient=True)
        self.bar.start()
        self.number = self.bar.add_task(
            escape_line(f"{title}, {unit}"), total=total, completed=done
        )

    def advance(self, n: int = 1) -> None:
        self.bar.update(self.number, advance=n)

    def finish(self) -> None:
        self.bar.stop()
