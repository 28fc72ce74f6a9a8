"""What options of several stages share: threads, outputs, the space, files that are named."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, ClassVar, ParamSpec, TypeVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..errors import UsageError
from .base import Holds, Options, Reads, Writes, fields_of, flag, paths_of, positional, role_of

STDOUT: Any = Path("-")  # as a default, it is of what a field takes
MOST = 1024  # threads
SEED = 2**63 - 1  # the largest seed that every generator takes
#: Where each head is: a name that begins with a dot is a folder or module of `afltool.heads`.
OWN_HEADS = {
    "linear": ".linear",
    "deepafl": ".deepafl",
    "random-features": ".random_features",
    "safle": ".safle",
    "softmax": ".softmax",
    "discriminant": ".discriminant",
}


FROZEN = ".afl"  # how the name of a frozen backbone ends
FROZEN_FILE = Holds(f"(.+[{FROZEN[0]}]{FROZEN[1:]})")  # beside names of backbones
BEHIND_COLON = Holds("[^:]*:(.*)")  # KIND:PATH, as ``--data`` has it
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

    _threads = (
        "threads that work on rows; no result depends on their number (default: as many as cores "
        "may be used)"
    )
    threads: int | None = Field(default=None, ge=1, le=MOST, description=_threads)


@dataclass(frozen=True, kw_only=True)
class Output(Options):
    """Of every command that writes files."""

    EXECUTION_ONLY: ClassVar = frozenset({"overwrite"})

    overwrite: bool = Field(default=False, description="replace an existing output")

    def __post_init__(self) -> None:
        refuse_files(files_of(self))
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class Printed(Options):
    """Of every command that has a result."""

    _as_json = "print JSON instead of a path or a table"
    as_json: bool = Field(default=False, description=_as_json)


@dataclass(frozen=True, kw_only=True)
class Tracked(Options):
    """Of every command that trains or runs."""

    _track = "also log it to MLflow: mlflow:URI, such as mlflow:sqlite:///runs.db"
    track: str | None = Field(default=None, description=_track)


@dataclass(frozen=True, kw_only=True)
class SpaceOptions(Options):
    """Which features a federation has."""

    _space = (
        "feature file: every site has features of its space, and its classes; others are "
        "refused before they compute"
    )
    space: Annotated[Path | None, Reads("features")] = Field(default=None, description=_space)


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
    read, writes = dict[Any, str](), list[tuple[str, Path]]()
    for name, path, written in every:
        if written:
            writes.append((name, path))
        else:
            read[identity(path)] = name
    for name, path in writes:
        if (known := identity(path)) and (other := read.get(known)):
            raise UsageError(
                f"{name} {path} is a file that this command reads ({other}): it would be "
                f"lost; give another path for {name}"
            )
    for (one, first), (other, second) in combinations(writes, 2):
        if not first.is_dir() and os.path.realpath(first) == os.path.realpath(second):
            raise UsageError(
                f"{one} and {other} are two outputs with one path, {first}: give each its own"
            )


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a regular file; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


# ---------------------------------------------------------------- how a stage is carried out

P = ParamSpec("P")
R = TypeVar("R")


def on_cores(stage: Callable[P, R]) -> Callable[P, R]:
    """A stage that works with the threads of its options; see `afltool.cores`."""

    @wraps(stage)
    def with_threads(*args: P.args, **named: P.kwargs) -> R:
        from .. import cores

        given = [one for one in (*args, *named.values()) if isinstance(one, Threads)]
        with cores.using(given[0].threads if given else None):
            return stage(*args, **named)

    return with_threads
