"""Every mistake that afltool answers for, one class per kind, with its exit status.

A message says what was expected, what was found (with numbers and the path) and what to try.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class AflError(Exception):
    """An error for the user; ``advice``: the end of the message, which a caller may replace."""

    exit_code = 1

    def __init__(self, *args: object, advice: str = "", feature: int | None = None) -> None:
        super().__init__(*([f"{args[0]}{advice}"] if advice else args))
        self.advice, self.feature = advice, feature


class UsageError(AflError):
    """The command or the call is wrong: an unknown name, options that exclude each other."""

    exit_code = 2


class OutputExistsError(UsageError):
    """The output exists and was made of other inputs or options."""


class EngineError(UsageError):
    """A runtime of graphs cannot run this network here, or not as PyTorch does."""


class InputError(AflError):
    """A file or folder is missing, or cannot be read or written."""

    exit_code = 3


class BusyError(InputError):
    """Another process is at work on it; when it has ended, the same command may go on."""


class UnreachableError(InputError):
    """A place on the network, or its login, does not answer; later it may."""


class CorruptFileError(InputError):
    """A file is truncated, altered, incomplete or not one of ours."""


class InvalidDataError(InputError):
    """An intact file holds values that cannot be used: NaN, out of range, no rows."""


class MismatchError(AflError):
    """Inputs that do not belong together: other features, head, phase, rows, or a client twice."""

    exit_code = 4


class NumericalError(AflError):
    """The data do not determine an answer, or a computation would not be exact."""

    exit_code = 5


class RidgeNeededError(NumericalError):
    """A gram matrix that is singular to working precision: a larger ridge helps."""


class IncompleteError(AflError):
    """Some of many pieces of work failed; the others are done."""

    exit_code = 5


class StoppedError(AflError):
    """A signal asked for a stop; what is done is kept and the same command goes on from there."""

    exit_code = 75


@contextmanager
def naming(
    path: object,
    kind: type[AflError] = InvalidDataError,
    columns: Sequence[str] | None = None,
) -> Iterator[None]:
    """Inside, the message of an error of this kind begins with the path of the file, and with the
    name of the feature that it is about, where they have names, ``columns``."""
    try:
        yield
    except kind as error:
        column = ""
        if columns is not None and error.feature is not None:
            column = f"column {columns[error.feature]!r}, "
        error.args = (f"{path}: {column}{error}", *error.args[1:])
        raise
