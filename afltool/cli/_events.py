"""`--events`: what happens while a command works, a line of JSON for each event (docs/format.md).

A line is appended by one write, so several processes may share a file.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from io import RawIOBase
from pathlib import Path

from .. import __version__, progress
from ..errors import AflError, InputError, OutputExistsError
from ..files.hdf5 import read_header
from ..files.headers import KINDS
from ..files.outputs import check_output, make_folder, writer_errors
from ..values.text import json_text
from ._console import print_message

SCHEMA = 1  # of the lines; another number where a field means something else
STDERR = Path("-")
START = b'{"event": '  # of every line


@contextmanager
def writing(place: Path, command: str) -> Iterator[None]:
    """In this block the events of ``command`` go to a file, or to stderr.

    `InputError` for a file that cannot be written, `OutputExistsError` for one without events.
    """

    def write(one: progress.Event) -> None:
        if one.get("kind") in KINDS:  # with its digest
            with suppress(AflError, OSError):
                one = {**one, "digest": read_header(one["path"], one["kind"])["digest"]}
        text = json_text(one, default=str)
        if file is None:
            print_message(text)
            return
        with writer_errors(place):
            file.write(f"{text}\n".encode())

    begun, warnings = time.monotonic(), logging.Handler(logging.WARNING)
    warnings.emit = lambda record: progress.event(  # type: ignore[method-assign]
        record.levelname.lower(), text=record.getMessage()
    )
    with (
        nullcontext() if place == STDERR else _open_events(place) as file,
        progress.listening(write),
    ):
        progress.log.addHandler(warnings)
        progress.event("begin", schema=SCHEMA, command=command, version=__version__)
        try:
            yield
        finally:
            progress.log.removeHandler(warnings)
            error, seconds = sys.exc_info()[1], round(time.monotonic() - begun, 3)
            code = 0 if error is None else getattr(error, "exit_code", 1)
            with suppress(InputError):  # a full disk has stopped the work already
                progress.event("end", exit_code=code, seconds=seconds)


def _open_events(place: Path) -> RawIOBase:
    """A file that is empty, new, or holds events, to append to it."""
    check_output(place)
    make_folder(place.parent)
    with writer_errors(place):
        file = place.open("a+b", buffering=0)
        file.seek(0)
        if file.read(len(START)) in (b"", START):
            return file
        file.close()
    raise OutputExistsError(f"{place} exists and holds no events: choose another --events")
