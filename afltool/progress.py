"""Progress of long work, what is told of it, its events, and requests to stop it."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from .errors import StoppedError

log = logging.getLogger("afltool")  # what a person is told; the command line shows it on stderr


class Task:
    """One piece of work under way, of which nothing is shown; a reporter has its own."""

    def __init__(self, title: str, total: int, unit: str, done: int) -> None: ...

    def advance(self, n: int = 1) -> None: ...

    def finish(self) -> None: ...


Reporter = Callable[[str, int, str, int], Any]  # title, number of units, their name, units done
_reporter: Reporter = Task
_stop_reason: str | None = None


def set_reporter(reporter: Reporter) -> None:
    """Let ``reporter`` show the progress of every stage of this process."""
    global _reporter
    _reporter = reporter


@contextmanager
def task(title: str, total: int, unit: str, done: int = 0) -> Iterator[Task]:
    """Announce ``total`` units of work, ``done`` of them from an earlier run."""
    current = _reporter(title, total, unit, done)
    try:
        yield current
    finally:
        current.finish()


Event = dict[str, Any]  # what happened when, and where: docs/format.md has the fields
Listener = Callable[[Event], None]
_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """In this block ``listener`` is told every event of this process."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def has_listener() -> bool:
    """Whether somebody listens: only then what an event says is looked up."""
    return bool(_listeners)


def event(name: str, **facts: Any) -> None:
    """Say that something happened, now and in this process. No result depends on who listens."""
    where = f"{platform.node()}:{os.getpid()}"
    for listener in _listeners:
        listener({"event": name, "time": utc_now("milliseconds"), "process": where, **facts})


def utc_now(precision: str = "seconds") -> str:
    """The time in UTC, as files and events have it."""
    return datetime.now(UTC).isoformat(timespec=precision)


def request_stop(reason: str) -> None:
    """Ask the running stage to stop at its next safe place. Signal handlers call this."""
    global _stop_reason
    _stop_reason = reason


def stop_requested() -> bool:
    """Whether a stop was asked for."""
    return _stop_reason is not None


def stop_point() -> None:
    """Raise `StoppedError` if a stop was asked for. Call it where nothing would be lost."""
    if _stop_reason is not None:
        raise StoppedError(
            f"stopped on {_stop_reason}; finished work is kept: run the same command to go on"
        )


@contextmanager
def quiet(but: logging.Logger = log) -> Iterator[None]:
    """Inside, only warnings are said, and with -v all; the logger ``but`` says what it did."""
    levels = log.level, but.level
    but.setLevel(but.getEffectiveLevel())
    if log.level > logging.DEBUG:
        log.setLevel(max(log.level, logging.WARNING))
    try:
        yield
    finally:
        log.setLevel(levels[0])
        but.setLevel(levels[1])
