"""What a file is, by its first bytes, and where an output may go.

That is a new path, or a regular file of its own kind that is not an input: a file never replaces
one of another kind.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import h5py
import numpy as np
from h5py import h5a, h5f, h5p

from .. import machine
from ..errors import BusyError, InputError, OutputExistsError, UsageError
from ..inputs import HDF5, kind_of, was_noted
from ..values.names import KEY, PUBLIC
from . import schema

STDOUT = Path("-")
DAMAGED = "damaged HDF5"  # any file of ours may replace it
START = 4096  # bytes that tell the kind
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"%PDF-": "PDF",
    b"PAR1": "parquet",
    b"<?xml": "SVG",
    b"<svg": "SVG",
    b"{": "JSON",
    b"[{": "JSON",
    b"-----BEGIN ": "key",
    b"ssh-ed25519 ": "key",
}


def open_to_read(path: Path) -> h5py.File:
    """An HDF5 file open for reading, without a lock; the library's errors are passed on."""
    return h5py.File(h5f.open(os.fsencode(path), h5f.ACC_RDONLY, fapl=_without_lock()))


@cache
def _without_lock() -> h5p.PropFAID:
    """What `h5py.File` with ``locking=False`` makes anew for each file."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_libver_bounds(h5f.LIBVER_EARLIEST, h5f.LIBVER_LATEST)
    access.set_file_locking(False, False)
    return access


def get_attribute(file: h5py.File, name: str) -> str | int | None:
    """An attribute of the root group: a text of fixed length or a whole number, else None."""
    if not h5a.exists(file.id, name.encode()):
        return None
    attribute = h5a.open(file.id, name.encode())
    dtype = attribute.dtype
    if attribute.shape != () or dtype.kind not in "iuS":
        return None
    value = np.empty((), dtype)
    attribute.read(value)
    return bytes(value[()]).decode() if dtype.kind == "S" else int(value[()])


def kind_of_bytes(start: bytes) -> str:
    """The kind of a file that is not HDF5, such as PNG, JSON, key, text, other; '' if empty.

    >>> kind_of_bytes(b"true,a,b"), kind_of_bytes(b"{}"), kind_of_bytes(b"")
    ('text', 'JSON', '')
    """
    if not start:
        return ""
    for signature, kind in _SIGNATURES.items():
        if start.startswith(signature):
            return kind
    return "other" if b"\0" in start else "text"


def kind_of_file(path: Path) -> str:
    """The kind of a regular file; of HDF5 files that of `schema.KINDS`, or what else they are."""
    descriptor = os.open(path, machine.flags("RDONLY", "NONBLOCK"))
    try:
        start = os.read(descriptor, START)
    finally:
        os.close(descriptor)
    if not start.startswith(HDF5):
        return kind_of_bytes(start)
    try:
        with open_to_read(path) as file:
            text = get_attribute(file, schema.FORMAT)
    except (OSError, RuntimeError, LookupError, ValueError, TypeError):
        return DAMAGED
    return str(text) if text in schema.KINDS else "HDF5 of another program"


# ---------------------------------------------------------------- outputs


def partial_path(path: Path) -> Path:
    """Where the file that will be called ``path`` is written."""
    return path.with_name(path.name + schema.PARTIAL)


def check_output(path: Path, kind: str | None = None) -> None:
    """Refuse a path that no output may have, also with --overwrite.

    These are: what is not the name of a file; a link, folder, device, pipe or socket; a file that
    this command has read or written; a key, by what it holds or by its name; and, where ``kind`` is
    given (a name of `schema.KINDS` or of `kind_of_bytes`), a file of another kind.
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
            status = path.lstat()
        except FileNotFoundError:
            return
        _check_regular(path, status.st_mode, streams=kind not in schema.KINDS)
        if was_noted(status):
            raise UsageError(
                f"{path} is a file that this command reads, or its other output: choose another -o"
            )
        have = kind_of_file(path)
    if have == "key" or (have and path.suffix in (KEY, PUBLIC)):
        raise OutputExistsError(
            f"{path} exists and is a key, or has the name of one: no command replaces it; choose "
            "another path, or move it away yourself"
        )
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
