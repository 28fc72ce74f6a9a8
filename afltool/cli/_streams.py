"""stdin, stdout and stderr in any state: closed, full, a pipe without a reader, not UTF-8."""

from __future__ import annotations

import io
import os
import sys
from typing import IO, Any, TextIO

from ..values.escaping import shown, shown_json, shown_lines

BROKEN_PIPE = 141  # the shell's code for a program that a closed pipe ended


class Output(io.TextIOWrapper):
    """A stream that drops what it cannot print: no reader (``| head -1``), or a full disk.

    The command goes on and writes its files whole; `settle` gives the shell the exit code.
    """

    failed: OSError | None = None

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._leave(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._leave(error)

    def _leave(self, error: OSError) -> None:
        self.failed = error
        discard(self)


def discard(stream: IO[str]) -> None:
    """Discard what is still to be written, because the interpreter flushes once more at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def secure() -> None:
    """Make the three streams usable; to be called before any file is opened.

    A closed stream becomes /dev/null; otherwise the next file would get its number, and messages
    would be written into that file. Characters that a stream's encoding lacks are printed as
    escapes; bytes on stdin that are not UTF-8 are kept, because names of files can have them.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free: this one
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False, encoding="utf-8")  # noqa: SIM115 - as long as the process
    stdin: Any = sys.stdin  # to mypy it is a TextIO, which does not promise to reconfigure
    stdin.reconfigure(errors="surrogateescape")
    sys.stdout = _output(sys.stdout, 1)
    sys.stderr = _output(sys.stderr, 2)


def _output(stream: Any, number: int) -> Output:
    encoding, lines = "utf-8", True
    if stream is not None:
        encoding, lines = stream.encoding, stream.line_buffering
        stream.flush()
    raw = open(number, "wb", closefd=False)  # noqa: SIM115 - as long as the process
    return Output(raw, encoding, "backslashreplace", line_buffering=lines)


def say(text: object) -> None:
    """One line on stdout."""
    print(shown(text))


def say_lines(text: str) -> None:
    """A text on stdout whose lines afltool itself has laid out."""
    print(shown_lines(text), end="")


def print_json(value: Any, indent: int | None = 2) -> None:
    """One JSON document on stdout."""
    print(shown_json(value, indent, ascii_only=not _is_utf8(sys.stdout)))


def tell(text: object) -> None:
    """One line on stderr."""
    print(shown(text), file=sys.stderr, flush=True)


def settle(code: int) -> int:
    """Flush both streams at the end of a command; returns its final exit code."""
    sys.stdout.flush()
    error = sys.stdout.failed if isinstance(sys.stdout, Output) else None
    if error is None or code:
        return code
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    tell(f"error: cannot write to stdout: {error.strerror or error}")
    return 3


def _is_utf8(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "") == "utf8"
