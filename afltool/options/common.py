"""What options of several stages share: threads, outputs, the space, files that are named."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..errors import UsageError
from .base import Holds, Options, Writes, fields_of, flag, paths_of, positional, role_of

STDOUT: Any = Path("-")  # as a default, it is of what a field takes
MOST = 1024  # threads
SEED = 2**63 - 1  # the largest seed that every generator takes
#: Where each head is: a name that begins with a dot is a folder or module of `afltool.heads`.
OWN_HEADS = {
    "linear": ".least_squares",
    "deepafl": ".deepafl",
    "random-features": ".random_features",
    "safle": ".safle",
    "softmax": ".softmax",
    "discriminant": ".discriminant",
}
FROZEN = ".afl"  # how the name of a frozen backbone ends
FROZEN_FILE = Holds(f"(.+[{FROZEN[0]}]{FROZEN[1:]})")  # beside names of backbones
#: KIND:PATH, as ``--data`` has it; a NAME of the Hub, hf:NAME, is none.
BEHIND_COLON = Holds("(?!hf:[^./])[^:]*:(.*)")
Column = Annotated[str | None, Holds("(.*):[^:]*")]  # TABLE:COLUMN


def frozen_in(text: str) -> str:
    """The path of a frozen backbone, where a text is one.

    >>> frozen_in("net.afl"), frozen_in("resnet18")
    ('net.afl', '')
    """
    return FROZEN_FILE.path(text)


@dataclass(frozen=True, kw_only=True)
class Threads(Options):
    """Of every stage that reads rows."""

    EXECUTION_ONLY: ClassVar = frozenset({"threads"})

    _threads = "threads that work on rows; no result depends on them (default: one per core)"
    threads: int | None = Field(default=None, ge=1, le=MOST, description=_threads)


@dataclass(frozen=True, kw_only=True)
class Output(Options):
    """Of every command that writes files; none of them is one that it reads, by `refuse_files`."""

    EXECUTION_ONLY: ClassVar = frozenset({"overwrite"})

    overwrite: bool = Field(default=False, description="replace an existing output")

    def __post_init__(self) -> None:
        refuse_files(files_of(self))
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class Printed(Options):
    """Of every command that has a result."""

    as_json: bool = Field(default=False, description="print JSON instead of a path or a table")


@dataclass(frozen=True, kw_only=True)
class Tracked(Options):
    """Of every command that trains or runs."""

    _track = "also log it to MLflow: mlflow:URI, such as mlflow:sqlite:///runs.db"
    track: str | None = Field(default=None, description=_track)


# ---------------------------------------------------------------- files that a command names

Named = tuple[str, Path, bool]  # an option, a file that it names, whether the file is written


def files_of(options: Options) -> Iterator[Named]:
    """The files that options name."""
    yield from files_in(type(options), options.changed())


def files_in(cls: type[Options], values: Mapping[str, Any]) -> Iterator[Named]:
    """`files_of` of values of options of a class, by name."""
    for name in values.keys() & fields_of(cls).keys():
        written = isinstance(role_of(fields_of(cls)[name]), Writes)
        said = name.upper() if name in positional(cls) else flag(name)
        yield from ((said, path, written) for path in paths_of(cls, name, values[name]))


def refuse_files(every: Iterable[Named]) -> None:
    """Refuse an output that is a file which the command reads, or its other output.

    Links are followed, and of two names of one file (hard links) each counts as both.

    Raises:
        UsageError: with the names of both options.
    """
    files = [*every]
    read = {identity(path): name for name, path, written in files if not written}
    outputs: dict[str, str] = {}
    for name, path in ((name, path) for name, path, written in files if written):
        if (known := identity(path)) and (other := read.get(known)):
            raise UsageError(
                f"{name} {path} is a file that this command reads ({other}): it would be lost; "
                f"give another path for {name}"
            )
        other = outputs.setdefault(os.path.realpath(path), name)
        if other != name and not path.is_dir():
            raise UsageError(f"{other} and {name} are two outputs with one path, {path}")


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a regular file; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
