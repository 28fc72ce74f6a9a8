"""What options of several stages share: files, threads, CSV, the space; and which help in an error.

Which files a command reads and which it writes follows from how its options are declared. An option
whose type is a path is read, unless it is declared as written; a parameter called ``out`` is
written. A text may hold a path: ``path_in`` says where. From these declarations alone follows the
one rule: what a command writes may be nothing that it reads, and no two outputs are one file.
"""

from __future__ import annotations

import inspect
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, dataclass, fields
from fnmatch import fnmatch
from functools import wraps
from itertools import combinations
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_args

from ..errors import AflError, Remedy, UsageError
from . import Options, flag, option

OUT = "out"  # what every function and command calls its result
STREAM = "-"  # stdin or stdout
FROZEN = ".afl"  # how the name of a frozen backbone ends


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


@dataclass(frozen=True)
class Files:
    """What the value of an option says of files: written or read, and where in a text they are."""

    writes: bool = False
    path_in: Callable[[str], str] = str

    def paths(self, value: Any) -> Iterator[Path]:
        """The files that a value names; a list may stand for several."""
        for one in value if isinstance(value, (list, tuple)) else [value]:
            text = str(one) if isinstance(one, Path) else self.path_in(one) if one else ""
            if text not in ("", STREAM) and "\0" not in text:
                yield Path(text)


WRITES = Files(writes=True)
Given = tuple[str, Files, Any]  # an option as people write it, what it says of files, its value


def of_field(f: Field[Any]) -> Files | None:
    """What a field of an options class says of files; None: nothing."""
    m = f.metadata
    if m.get("path_in") is not None:
        return Files(path_in=m["path_in"])
    if m.get("names_file") or "Path" in str(f.type):
        return Files(writes=bool(m.get("writes")))
    return None


def of_parameter(p: inspect.Parameter) -> Files | None:
    """What a parameter of a command or a function says of files, by its annotation and name."""
    files = [one for one in get_args(p.annotation) if isinstance(one, Files)]
    if files:
        return files[-1]
    return Files(writes=p.name == OUT) if "Path" in str(p.annotation) else None


def of_options(options: Any) -> Iterator[Given]:
    """What the options of a stage say of files, as far as they are not their defaults."""
    known = {f.name: of_field(f) for f in fields(options)}
    for name, value in options.chosen().items():
        if (files := known[name]) is not None and value is not None:
            yield flag(name), files, value


def refuse_shared(given: Iterable[Given]) -> None:
    """Refuse an output that is a file which the command reads, or its other output.

    Links are followed, and of two names of one file (hard links) each counts as both.

    Raises:
        UsageError: with the names of both options.
    """
    every = [
        (name, path, files.writes) for name, files, value in given for path in files.paths(value)
    ]
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
    given: Iterable[Given],
    at_home: Mapping[str, str] | None = None,
) -> None:
    """Refuse an input that lies in an output folder under a name that the command writes there.

    ``names`` are patterns. ``at_home``: the name under which the file of an option may lie there,
    because it is left as it is.

    Raises:
        UsageError: with the option and the file.
    """
    root = os.path.realpath(folder)
    for name, files, value in given if os.path.isdir(root) else ():
        for path in () if files.writes else files.paths(value):
            inside = os.path.relpath(_place(path), root)
            if (at_home or {}).get(name) != inside and any(fnmatch(inside, one) for one in names):
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


MOST = 1024
P = ParamSpec("P")
R = TypeVar("R")


def threads_option(
    in_run: bool = False, text: str = "threads that work on rows; no result depends on their number"
) -> Any:
    """--threads; ``in_run``: of a whole run, which decides for its stages."""
    return option(
        None,
        text,
        at_least=1,
        at_most=MOST,
        unset="as many as cores may be used",
        in_result=False,
        in_run=in_run,
    )


@dataclass(frozen=True, kw_only=True)
class ThreadOptions(Options):
    """Of every stage that reads rows."""

    threads: int | None = threads_option()


def on_cores(stage: Callable[P, R]) -> Callable[P, R]:
    """A stage that works with the threads of its options; see `afltool.cores`."""

    @wraps(stage)
    def with_threads(*args: P.args, **named: P.kwargs) -> R:
        from .. import cores

        given = [one for one in (*args, *named.values()) if isinstance(one, ThreadOptions)]
        with cores.using(given[0].threads if given else None):
            return stage(*args, **named)

    return with_threads


SEED = 2**63 - 1  # the largest seed that every generator takes


@dataclass(frozen=True, kw_only=True)
class SpaceOptions(Options):
    """Which features a federation has."""

    _space = (
        "feature file: every site has features of its space, and its classes; others are "
        "refused before they compute"
    )
    space: Path | None = option(None, _space)


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
