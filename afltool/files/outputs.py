"""Where an output may go: a new path, or a regular file of its kind that is not an input."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BusyError, InputError, OutputExistsError, UsageError
from ..inputs import kind_of, was_noted
from ..values.names import KEY, PUBLIC, ROUNDS
from . import schema
from .kinds import DAMAGED, KEYS, kind_of_file

STDOUT = Path("-")


def partial_path(path: Path) -> Path:
    """Where the file that will be called ``path`` is written."""
    return path.with_name(path.name + schema.PARTIAL)


def check_output(path: Path, kind: str | None = None) -> None:
    """Refuse a path that no output may have, also with --overwrite.

    These are: what is not the name of a file; a link, folder, device, pipe or socket; a file that
    this command has read or written; a member's key, and what lies in the folder of its rounds;
    and, where ``kind`` is given (a name of `schema.KINDS` or of `kind_of_bytes`), a file of another
    kind.
    """
    if path == STDOUT:
        raise UsageError("-: this output does not go to stdout; give the path of a file")
    if path.name in ("", "..") or "\0" in str(path):
        raise UsageError(f"{str(path)!r} is not the name of a file: say where the output goes")
    if path.name.endswith(schema.PARTIAL):
        raise UsageError(
            f"{path}: names in {schema.PARTIAL} are for unfinished files; choose another"
        )
    with writer_errors(path):
        try:
            found = path.lstat()
        except FileNotFoundError:
            return
        _check_regular(path, found.st_mode, streams=kind not in schema.KINDS)
        if was_noted(found):
            raise UsageError(
                f"{path} is a file that this command reads, or its other output: choose another -o"
            )
        have = kind_of_file(path)
    _check_no_key(path, have)
    replaceable = ("", kind, DAMAGED) if kind in schema.KINDS else ("", kind)
    if kind is not None and have not in replaceable:
        raise OutputExistsError(
            f"{path} exists and is of another kind ({have}, not {kind}): it is never replaced; "
            "remove it yourself or choose another path"
        )


def _check_regular(path: Path, mode: int, streams: bool) -> None:
    if stat.S_ISLNK(mode):
        raise InputError(
            f"cannot write {path}: it is a symbolic link, to {os.readlink(path)}; give the path of "
            "a regular file"
        )
    if not stat.S_ISREG(mode):
        raise InputError(
            f"cannot write {path}: it is {kind_of(mode)}; give the path of a regular file"
            f"{', or - for JSON or CSV on stdout' if streams else ''}"
        )


def _check_no_key(path: Path, have: str) -> None:
    """Refuse a key, by what it holds or by its name, and the private records of rounds."""
    if have in KEYS or (have and path.suffix in (KEY, PUBLIC)):
        what = have if have in KEYS else "file of keys by its name"
        raise OutputExistsError(
            f"{path} exists and is a {what}: no command replaces one; choose another path, or move "
            "it away yourself"
        )
    for folder in path.resolve().parents:
        owner = folder.name.removesuffix(ROUNDS)
        if owner != folder.name and folder.with_name(owner + KEY).exists():
            raise OutputExistsError(
                f"{path} belongs to the private records of rounds in {folder}: no command replaces "
                "one; choose another path"
            )


@contextmanager
def writer_errors(path: Path) -> Iterator[None]:
    """Turn the system's refusals into messages."""
    try:
        yield
    except OSError as error:
        kind = BusyError if error.errno == errno.EAGAIN else InputError
        raise kind(f"cannot write {path}: {_reason(path, error)}") from error


def _reason(path: Path, error: OSError) -> str:
    number = error.errno
    if number == errno.EAGAIN:
        return "another process is writing it; wait for it to end"
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "no space left on the disk; free some space and run the command again"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "the folder does not allow it (read-only?); choose another one with -o"
    if number in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR):
        return (
            f"{os.strerror(number)}: this path has a file where a folder should be, or vice versa"
        )
    if number == errno.ELOOP:
        return f"{partial_path(path).name} is a symbolic link, or links in the path form a loop"
    return error.strerror or str(error)


def why_not_written(error: OSError, instead: str) -> str:
    """Why the system did not take bytes; of a full disk also what helps ``instead``."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"no space left on the disk; free some space, or {instead}"
    return error.strerror or str(error)


def make_folder(path: Path) -> None:
    """Make a folder and those above it; `InputError` where that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path}: {error.strerror}") from None
