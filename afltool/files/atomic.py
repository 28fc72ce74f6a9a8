"""Writing a file whole or not at all: under a partial name, locked, synced, then renamed.

Every file goes through `replacing` but secrets, which nothing may ever replace: `write_once`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .. import system
from ..errors import InputError, OutputExistsError
from ..inputs import read_bytes
from ..progress import event
from .outputs import STDOUT, check_output, partial_path, writer_errors

PARTIAL_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK


@contextmanager
def replacing(
    path: Path, kind: str | None, go_on: Callable[[Path], bool] | None = None
) -> Iterator[int]:
    """The descriptor of a partial file, which takes the name ``path`` if the block succeeds.

    ``kind``: what the event of the file says. A second writer of one file is refused. ``go_on`` is
    called when the partial file is locked: True continues what an earlier run left in it, otherwise
    the file is emptied. When the block fails, the partial file is removed; with ``go_on`` it stays
    if it holds something.
    """
    check_output(path)
    partial = partial_path(path)
    with writer_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _open_locked(partial)
    try:
        with writer_errors(path):
            if go_on is None or not go_on(partial):
                os.ftruncate(lock, 0)
            yield lock
            os.fsync(lock)
            check_output(path)  # again: another program may have written a file there
            os.replace(partial, path)
        _sync_folder(path.parent)
        event("file", path=path, kind=kind)
    except BaseException:
        if go_on is None or os.fstat(lock).st_size == 0:
            with suppress(OSError):
                partial.unlink()
        raise
    finally:
        os.close(lock)


def _open_locked(partial: Path) -> int:
    """The descriptor of a partial file, made if it is not there, and locked; refused if foreign."""
    descriptor = os.open(partial, PARTIAL_FLAGS, 0o666)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise InputError(f"{partial} is in the way: it is no unfinished file; remove it")
        system.lock(descriptor)
        # Who had it before may have renamed or removed it between our open and our lock.
        with suppress(FileNotFoundError):
            if os.lstat(partial).st_ino == status.st_ino:
                return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return _open_locked(partial)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # some network file systems have no fsync of folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_bytes(data: bytes, path: Path, overwrite: bool = False) -> Path:
    """Write a small file that is not HDF5. '-' stands for stdout.

    An existing file with the same bytes is left as it is. Another one raises `OutputExistsError`
    unless ``overwrite``.
    """
    if path == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return path
    with suppress(OSError, ValueError, InputError):
        if path.stat().st_size == len(data) and read_bytes(path, len(data)) == data:
            return path
    check_output(path)
    check_equal(path, overwrite or not path.exists())
    with replacing(path, path.suffix[1:]) as place, os.fdopen(place, "wb", closefd=False) as file:
        file.write(data)
    return path


def check_equal(path: Path, equal: bool) -> None:
    """Refuse to replace a file that is not the same."""
    if not equal:
        raise OutputExistsError(
            f"{path} exists and holds something else; choose another -o, or use --overwrite"
        )


def write_text(text: str, path: Path, overwrite: bool = False) -> Path:
    """`write_bytes` of a text, see `as_bytes`."""
    return write_bytes(as_bytes(text), path, overwrite)


def as_bytes(text: str) -> bytes:
    """A text as UTF-8; what UTF-8 cannot hold becomes an escape."""
    return text.encode("utf-8", "backslashreplace")


def write_once(path: Path, data: bytes) -> bytes:
    """Write a private file (mode 600) unless it exists; returns the bytes that it then holds.

    It gets its name by a hard link, which fails where the name exists: of two writers one is first.
    """
    if not os.path.lexists(path):
        check_output(path)
    draft = path.with_name(f".{secrets.token_hex(8)}")
    try:
        with writer_errors(path):
            private_folder(path.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(draft, path)
            _sync_folder(path.parent)
            return path.read_bytes()
    finally:
        with suppress(OSError):
            draft.unlink()


def delete(path: Path) -> None:
    """Delete a file, if it is there, so that it does not come back after a power cut."""
    with writer_errors(path), suppress(FileNotFoundError):
        path.unlink()
        _sync_folder(path.parent)


def private_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, that nobody else may enter."""
    if not path.is_dir():
        private_folder(path.parent)
        with writer_errors(path):
            path.mkdir(0o700, exist_ok=True)
            path.chmod(0o700)


def link_or_copy(source: Path, path: Path, kind: str) -> Path:
    """Make ``path`` a second name of ``source``, or a copy where the disk has no hard links.

    A symbolic link is followed: a second name of the link itself would lead to nothing elsewhere.
    """
    source = Path(os.path.realpath(source))
    check_output(path)
    partial = partial_path(path)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.unlink(missing_ok=True)
        os.link(source, partial)
        os.replace(partial, path)
        partial.unlink(missing_ok=True)  # of two names of one file a rename leaves both
        event("file", path=path, kind=kind)
        return path
    with (
        replacing(path, kind) as place,
        source.open("rb") as file,
        os.fdopen(place, "wb", closefd=False) as copy,
    ):
        shutil.copyfileobj(file, copy)
    return path


def second_name(source: Path, path: Path) -> None:
    """Make ``path`` a second name of ``source``, where that is free and the disk has such names."""
    with suppress(OSError):
        os.link(source, path)
