"""What options of several stages share: threads, outputs, the space; and which help in an error."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import wraps
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, ClassVar, ParamSpec, TypeVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..errors import AflError, Remedy, UsageError
from .base import Options, Reads, Writes, fields_of, flag, paths_of, positional, role_of

STDOUT: Any = Path("-")  # as a default, it is of what a field takes
FROZEN = ".afl"  # how the name of a frozen backbone ends
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


def table_in(text: str) -> str:
    """The path in TABLE:COLUMN.

    >>> table_in("a:b.csv:site"), table_in("site")
    ('a:b.csv', '')
    """
    return text.rpartition(":")[0]


def file_in(text: str) -> str:
    """The path in NAME=FILE."""
    return text.partition("=")[2]


def data_in(text: str) -> str:
    """The path in KIND:PATH, as ``--data`` has it."""
    return text.partition(":")[2]


def frozen_in(text: str) -> str:
    """The path of a frozen backbone, where a text is one.

    >>> frozen_in("net.afl"), frozen_in("resnet18")
    ('net.afl', '')
    """
    return text if text.endswith(FROZEN) else ""


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
        refuse_shared(self)
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class SpaceOptions(Options):
    """Which features a federation has."""

    _space = (
        "feature file: every site has features of its space, and its classes; others are "
        "refused before they compute"
    )
    space: Annotated[Path | None, Reads("features")] = Field(default=None, description=_space)


# ---------------------------------------------------------------- files that a command names


def files_of(options: Options) -> Iterator[tuple[str, Path, bool]]:
    """The files that options name, by the name of the option; whether they are written."""
    yield from files_in(type(options), options.changed())


def files_in(cls: type[Options], values: Mapping[str, Any]) -> Iterator[tuple[str, Path, bool]]:
    """`files_of` of values of options of a class, by name."""
    for name in values.keys() & fields_of(cls).keys():
        written = isinstance(role_of(fields_of(cls)[name]), Writes)
        said = name.upper() if name in positional(cls) else flag(name)
        yield from ((said, path, written) for path in paths_of(cls, name, values[name]))


def refuse_shared(options: Options) -> None:
    """Refuse an output that is a file which the command reads, or its other output.

    Links are followed, and of two names of one file (hard links) each counts as both.

    Raises:
        UsageError: with the names of both options.
    """
    refuse_files(list(files_of(options)))


def refuse_files(every: Collection[tuple[str, Path, bool]]) -> None:
    """`refuse_shared` of files by the names of their options, and whether they are written."""
    writes = [(name, path) for name, path, written in every if written]
    there = {path: identity for _, path in writes if (identity := _identity(path))}
    read = {_identity(path): name for name, path, written in every if there and not written}
    for name, path in writes:
        if other := path in there and read.get(there[path]):
            raise UsageError(
                f"{name} {path} is a file that this command reads ({other}): it would be "
                f"lost; give another path for {name}"
            )
    for (one, first), (other, second) in combinations(writes, 2):
        if not first.is_dir() and _place(first) == _place(second):
            raise UsageError(
                f"{one} and {other} are two outputs with one path, {first}: give each its own"
            )


def refuse_inside(
    folder: Path,
    names: Collection[str],
    given: Iterable[tuple[str, Path, bool]],
    at_home: Mapping[str, str] | None = None,
) -> None:
    """Refuse an input that lies in an output folder under a name that the command writes there.

    ``names`` are patterns, ``given`` what `files_of` says. ``at_home``: the name under which the
    file of an option may lie there, because it is left as it is.

    Raises:
        UsageError: with the option and the file.
    """
    root = os.path.realpath(folder)
    for name, path, written in given if os.path.isdir(root) else ():
        inside = os.path.relpath(_place(path), root)
        known = written or (at_home or {}).get(name) == inside
        if not known and any(fnmatch(inside, one) for one in names):
            raise UsageError(
                f"{name} {path} is a file that this command writes into {folder}: it would be "
                f"lost; choose another -o, or give a copy of it"
            )


def _place(path: Path) -> str:
    """The path without links; as it is, where it can be none."""
    try:
        return os.path.realpath(path)
    except ValueError:
        return str(path)


def _identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a regular file; None where there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):  # a text such as '\x00' names no file; who opens it says so
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


SAID = {
    Remedy.FRACTION_BITS: "; --fraction-bits {} would hold it (later rows were not read yet and "
    "may need fewer), or use --dtype float32",
    Remedy.REALS: ": use --dtype float32, or scale the features at all sites (afltool scale, "
    "then import --scale)",
    Remedy.ROUNDED: ": use --dtype float32 or more --fraction-bits, or scale the features at all "
    "sites (afltool scale, then import --scale); --allow-constant takes them as they are",
    Remedy.FEWER_BITS_OF_ROWS: ": extract with fewer --fraction-bits",
    Remedy.FEWER_BITS_OF_SUMS: ": extract the features with fewer --fraction-bits",
    Remedy.OTHER_ROWS: "; give each file once, or --allow-repeats if you mean it",
    Remedy.ONE_CLASS_LIST: ". Give extract or import of all sites one list, --classes FILE",
    Remedy.OTHER_LAW: ", or a --gamma > 0 in the head; or use --law sum",
    Remedy.RIDGE: ". Give a ridge (--ridge 1, or --ridge auto to choose it by generalised "
    "cross-validation), or --min-norm for the minimum-norm solution",
    Remedy.LARGER_RIDGE: ": use a larger --ridge, or --ridge auto",
    Remedy.RIDGE_BEYOND: ", or give a larger --ridge",
    Remedy.LARGER_FIXED_RIDGE: ": use a larger --ridge",
    Remedy.LARGER_GIVEN_RIDGE: ", or give a larger --ridge",
    Remedy.FLOAT64: ": make a head with --compute float64, and its sums",
    Remedy.SHRINKAGE: ": give --shrinkage 0.05, or gather more rows than features",
    Remedy.LARGER_BLOCK_RIDGE: ": use a larger --block-ridge, or 0 for the minimum-norm solution",
    Remedy.LARGER_PENALTY: ": use a larger --penalty",
    Remedy.LARGER_GIVEN_PENALTY: ", or give a larger --penalty",
}


@contextmanager
def advised() -> Iterator[None]:
    """Inside, the message of an error says the options that help; also a decorator of a stage."""
    try:
        yield
    except AflError as error:
        if error.remedy is not None:
            remedy = SAID[error.remedy].format(error.number)
            error.args = (f"{error}{remedy}", *error.args[1:])
            error.remedy = None
        raise
