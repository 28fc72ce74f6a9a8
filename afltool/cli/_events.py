"""`--events`: what happens while a command works, a line of JSON for each event.

docs/format.md has the fields. A line is appended by one write, so several processes may share a
file.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .. import __version__, machine, progress
from ..errors import AflError, OutputExistsError
from ..files.hdf5 import read_header
from ..files.headers import KINDS
from ..files.outputs import check_output, make_folder, why_not_written, writer_errors
from ..values.text import json_text
from ._console import tell

SCHEMA = 1  # of the lines; another number where a field means something else
STDERR = Path("-")
START = b'{"event": '  # of every line


@contextmanager
def writing(place: Path, command: str) -> Iterator[None]:
    """In this block the events of ``command`` go to a file, or to stderr.

    Raises:
        InputError: the file cannot be written.
        OutputExistsError: it is there and holds no events.
    """
    begun, lines, warnings = time.monotonic(), _Lines(place), _Warnings(logging.WARNING)
    progress.log.addHandler(warnings)
    try:
        with progress.listening(lines):
            progress.event("begin", schema=SCHEMA, command=command, version=__version__)
            try:
                yield
            finally:
                error = sys.exc_info()[1]
                code = 0 if error is None else getattr(error, "exit_code", 1)
                seconds = round(time.monotonic() - begun, 3)
                progress.event("end", exit_code=code, seconds=seconds)
    finally:
        progress.log.removeHandler(warnings)
        lines.close()


class _Warnings(logging.Handler):
    """Warnings and errors that a person is told are events, too."""

    def emit(self, record: logging.LogRecord) -> None:
        progress.event(record.levelname.lower(), text=record.getMessage())


class _Lines:
    def __init__(self, place: Path) -> None:
        self.place = place
        self.descriptor = None if place == STDERR else _opened(place)
        self.whole = True  # nothing was lost so far

    def __call__(self, one: progress.Event) -> None:
        text = json_text({**one, **_digest(one)}, default=str)
        if self.descriptor is None:
            tell(text)
        elif self.whole:
            try:
                os.write(self.descriptor, f"{text}\n".encode())
            except OSError as error:
                self.whole = False
                why = why_not_written(error, "give another --events")
                progress.log.warning("%s has no events from here on: %s", self.place, why)

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


def _opened(place: Path) -> int:
    """The descriptor of a file that is empty, new, or holds events, to append to it."""
    check_output(place)
    make_folder(place.parent)
    with writer_errors(place):
        descriptor = os.open(place, machine.flags("RDWR", "APPEND", "CREAT", "NOFOLLOW"), 0o666)
    if os.read(descriptor, len(START)) in (b"", START):
        return descriptor
    os.close(descriptor)
    raise OutputExistsError(f"{place} exists and holds no events: choose another --events")


def _digest(one: progress.Event) -> dict[str, str]:
    """The digest in the file of an event, where it has one."""
    if one.get("kind") in KINDS:
        with suppress(AflError, OSError):
            return {"digest": read_header(one["path"], one["kind"])["digest"]}
    return {}
