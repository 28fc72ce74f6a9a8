"""Where an output may go: a new path, or with --overwrite a regular file that is not an input."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from ..errors import BusyError, InputError, OutputExistsError, UsageError
from ..inputs import describe_kind
from ..values.names import KEY, PUBLIC
from . import schema

STDOUT = Path("-")
FULL = "no space left on the disk; free some space and run the command again"
CLOSED = "the folder does not allow it (read-only?); choose another one with -o"
CROSSED = "this path has a file where a folder should be, or vice versa"
REASONS = {
    errno.EAGAIN: "another process is writing it; wait for it to end",
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), FULL),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), CLOSED),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST, errno.EISDIR), CROSSED),
    errno.ELOOP: "its unfinished file is a symbolic link, or links in the path form a loop",
}


def partial_path(path: Path) -> Path:
    """Where the file that will be called ``path`` is written."""
    return path.with_name(path.name + schema.PARTIAL)


def check_output(path: Path) -> None:
    """Refuse a path that no output may have, also with --overwrite: no file's, or a key's."""
    if path == STDOUT:
        raise UsageError("-: this output does not go to stdout; give the path of a file")
    if path.name in ("", "..") or "\0" in str(path) or path.name.endswith(schema.PARTIAL):
        raise UsageError(f"{str(path)!r} is not the name of a file that is whole: choose another")
    with writer_errors(path):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            return
    if not stat.S_ISREG(mode):
        what = "a symbolic link" if stat.S_ISLNK(mode) else describe_kind(mode)
        raise InputError(f"cannot write {path}: it is {what}; give the path of a regular file")
    if path.suffix in (KEY, PUBLIC):
        text = f"{path} exists and has the name of a key: no command replaces it"
        raise OutputExistsError(f"{text}; choose another path")


def check_own(results: Iterable[Path], begun: bool) -> None:
    """Refuse a folder in which no work has ``begun``, and which has files with names of results."""
    for path in filter(os.path.lexists, results):
        check_output(path)
        if not begun:
            text = f"{path} exists, and nothing has begun in this folder: it would be lost"
            raise OutputExistsError(f"{text}; choose another -o, or use --overwrite")


@contextmanager
def writer_errors(path: Path) -> Iterator[None]:
    """Turn the system's refusals into messages."""
    try:
        yield
    except OSError as error:
        kind = BusyError if error.errno == errno.EAGAIN else InputError
        why = REASONS.get(error.errno or 0, error.strerror or str(error))
        raise kind(f"cannot write {path}: {why}") from error


def make_folder(path: Path) -> None:
    """Make a folder and those above it; `InputError` where that is not possible."""
    with writer_errors(path):
        path.mkdir(parents=True, exist_ok=True)


def refuse_inside(
    folder: Path,
    names: Collection[str],
    given: Iterable[tuple[str, Path, bool]],
    at_home: Mapping[str, str] | None = None,
) -> None:
    """Refuse with `UsageError` an input in an output folder under a name that is written there.

    ``names`` are patterns; ``given``: an option, its file, whether it is written; ``at_home``: the
    name under which the file of an option may lie there, because it is left as it is.
    """
    root = os.path.realpath(folder)
    for name, path, written in given if os.path.isdir(root) else ():
        inside = os.path.relpath(os.path.realpath(path), root)
        known = written or (at_home or {}).get(name) == inside
        if not known and any(fnmatch(inside, one) for one in names):
            text = f"{name} {path} is a file that this command writes into {folder}"
            raise UsageError(f"{text}: it would be lost; choose another -o")
