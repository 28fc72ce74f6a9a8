"""What options of several stages share: threads, outputs, the space, files that are named."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic.dataclasses import dataclass

from ..errors import UsageError
from .base import Holds, Named, Options, files_in, option

STDOUT: Any = Path("-")  # as a default, it is of what a field takes
MOST = 1024  # threads
SEED = 2**63 - 1  # the largest seed that every generator takes
#: Where each head is: a name that begins with a dot is a folder or module of `afltool.heads`.
OWN_HEADS = {
    "linear": ".least_squares:LinearHead",
    "deepafl": ".deepafl.head:DeepAFLHead",
    "random-features": ".least_squares:RandomFeaturesHead",
    "safle": ".safle.head:SafleHead",
    "softmax": ".softmax.head:SoftmaxHead",
    "discriminant": ".discriminant:DiscriminantHead",
}
FROZEN = ".afl"  # how the name of a frozen backbone ends
FROZEN_FILE = Holds(f"(.+[{FROZEN[0]}]{FROZEN[1:]})")  # beside names of backbones
#: KIND:PATH, as ``--data`` has it; a NAME of the Hub, hf:NAME, is none.
BEHIND_COLON = Holds("(?!hf:[^./])[^:]*:(.*)")
Column = Annotated[str | None, Holds("(.*):[^:]*")]  # TABLE:COLUMN


@dataclass(frozen=True, kw_only=True)
class Threads(Options):
    """Of every stage that reads rows."""

    EXECUTION_ONLY: ClassVar = frozenset({"threads"})

    threads: int | None = option(
        None, "threads; no result depends on them (default: one per core)", ge=1, le=MOST
    )


@dataclass(frozen=True, kw_only=True)
class Output(Options):
    """Of every command that writes files; none of them is one that it reads, by `refuse_files`."""

    EXECUTION_ONLY: ClassVar = frozenset({"overwrite"})

    overwrite: bool = option(False, "replace an existing output")

    def check(self) -> None:
        refuse_files(list_option_files(self))


@dataclass(frozen=True, kw_only=True)
class Printed(Options):
    """Of every command that has a result."""

    as_json: bool = option(False, "print JSON instead of a path or a table")


@dataclass(frozen=True, kw_only=True)
class Tracked(Options):
    """Of every command that trains or runs."""

    track: str | None = option(None, "also log to MLflow: mlflow:URI, as mlflow:sqlite:///runs.db")


# ---------------------------------------------------------------- files that a command names


def list_option_files(options: Options) -> Iterator[Named]:
    """The files that options name."""
    return files_in(type(options), options.changed_options())


def refuse_files(every: Iterable[Named]) -> None:
    """`UsageError` for an output that is a file which the command reads, or its other output.

    Links are followed, and of two names of one file (hard links) each counts as both.
    """
    files = [*every]
    read = {identity(path): name for name, path, written in files if not written}
    outputs: dict[str, str] = {}
    for name, path in ((name, path) for name, path, written in files if written):
        if (known := identity(path)) and (other := read.get(known)):
            lost = f"is a file that this command reads ({other}): it would be lost"
            raise UsageError(f"{name} {path} {lost}; give another {name}")
        other = outputs.setdefault(os.path.realpath(path), name)
        if other != name and not path.is_dir():
            raise UsageError(f"{other} and {name} are two outputs with one path, {path}")


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a regular file; None where there is none."""
    with suppress(OSError):
        status = path.stat()
        return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
    return None
