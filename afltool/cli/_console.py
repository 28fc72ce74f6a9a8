"""Output on the terminal: messages and progress on stderr, errors as one paragraph, exit codes."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import typer

from .. import progress
from ..errors import AflError
from ..inputs import distinct_files
from ..installed import FULL, TORCH, twice
from ..machine import STOPS
from ..values.escaping import shown
from . import _help, _parts
from ._later import postpone
from ._signals import leave
from ._streams import BROKEN_PIPE, say_lines, tell

PLAIN_SECONDS = 5.0  # between two lines of progress without a terminal


def set_up(quiet: bool, verbose: bool) -> None:
    """Send messages and progress to stderr; let signals ask for a clean stop."""
    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Plain())
    logger = logging.getLogger("afltool")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(level)
    if not quiet:
        progress.set_reporter(_Bar if sys.stderr.isatty() else _Lines)
    if both := twice(Path(__file__).parents[1]):
        logger.warning(both)
    for number in STOPS:
        signal.signal(number, _ask_to_stop)


def is_quiet() -> bool:
    """Whether the user wants nothing but results and errors."""
    return not logging.getLogger("afltool").isEnabledFor(logging.INFO)


def _ask_to_stop(number: int, frame: object) -> None:
    progress.request_stop(signal.Signals(number).name)


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        return head + shown(record.getMessage())


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn the errors of a command into one paragraph on stderr and the documented exit code."""

    @wraps(function)
    def guarded(*args: Any, **options: Any) -> Any:
        try:
            if signal.getsignal(signal.SIGINT) is leave:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            progress.stop_point()  # a signal may have come while modules were loaded
            postpone("numpy.f2py", "numpy.testing")
            with distinct_files():
                return function(*args, **options)
        except AflError as error:
            _stop(f"{error}", error.exit_code)
        except KeyboardInterrupt:
            _stop("interrupted; a file that was being written is not under its final name", 130)
        except BrokenPipeError:  # of a file that was asked for on stdout
            raise typer.Exit(BROKEN_PIPE) from None
        except ModuleNotFoundError as error:
            if error.name not in TORCH:
                raise
            _stop(f"this needs PyTorch, which is not installed: {FULL}", 2)
        except MemoryError as error:
            _stop(f"out of memory ({error}); use smaller inputs or a larger machine", 5)
        except UnicodeEncodeError as error:
            _stop(f"a name holds bytes that are not UTF-8: {_around(error)!r}; rename it", 3)
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            _stop(f"{error.strerror or error}{where}", 3)

    return guarded


_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer does not export it


class Commands(_parts.Commands):
    """All commands; Typer's messages about a wrong command line are escaped like all others."""

    def parse_args(self, context: Any, words: list[str]) -> list[str]:
        """Typer's command, unless help is asked for, which needs no parsing."""
        if context.resilient_parsing:  # the shell asks for words that begin so
            return super().parse_args(context, words)
        text = _help.asked_for(self, context.command_path, words)
        if text is not None:
            say_lines(text)
            context.exit(0 if _help.is_asked(words) else 2)
        return super().parse_args(context, words)

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _usage_errors():
            return super().make_context(*args, **options)

    def invoke(self, context: Any) -> Any:
        with _usage_errors():
            return super().invoke(context)


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except _UsageError as error:
        told: Any = error  # its class is typer's own, with a message
        told.message = shown(told.message)
        raise


def _around(error: UnicodeEncodeError) -> str:
    return error.object[max(0, error.start - 40) : error.start + 20]


def _stop(message: str, code: int) -> None:
    progress.event("error", text=message, exit_code=code)
    tell(f"error: {message}" if code not in (75, 130) else message)
    raise typer.Exit(code)


class _Lines:
    """Without a terminal: a plain line every few seconds, and one at the end of slow work."""

    def __init__(self, title: str, total: int, unit: str, done: int) -> None:
        self.title, self.total, self.unit = title, total, unit
        self.begun_with = self.done = done
        self.begun = self.last = time.monotonic()
        self.shown = False

    def advance(self, n: int = 1) -> None:
        self.done += n
        if time.monotonic() - self.last >= PLAIN_SECONDS:
            self._line()

    def finish(self) -> None:
        if self.shown:
            self._line()

    def _line(self) -> None:
        now = time.monotonic()
        rate = (self.done - self.begun_with) / max(now - self.begun, 1e-9)
        left = (self.total - self.done) / rate if rate else float("inf")
        left_text = f"{left:.0f} s left" if left < 1e6 else "time left unknown"
        tell(
            f"{self.title}: {self.done}/{self.total} {self.unit}, {rate:.1f} {self.unit}/s, "
            f"{left_text}"
        )
        self.last, self.shown = now, True


class _Bar:
    """On a terminal: rich's bar with rate and time left."""

    def __init__(self, title: str, total: int, unit: str, done: int) -> None:
        from rich import progress as of_rich

        from ..show.terminal import on_stderr

        self.bar = of_rich.Progress(
            of_rich.TextColumn("{task.description}"),
            of_rich.BarColumn(),
            of_rich.MofNCompleteColumn(),
            of_rich.TextColumn("{task.fields[rate]}"),
            of_rich.TimeRemainingColumn(),
            console=on_stderr(),
            transient=True,
        )
        self.bar.start()
        self.number = self.bar.add_task(shown(title), total=total, completed=done, rate="")
        self.unit, self.begun, self.count = unit, time.monotonic(), 0

    def advance(self, n: int = 1) -> None:
        self.count += n
        rate = self.count / max(time.monotonic() - self.begun, 1e-9)
        self.bar.update(self.number, advance=n, rate=f"{rate:.1f} {self.unit}/s")

    def finish(self) -> None:
        self.bar.stop()
