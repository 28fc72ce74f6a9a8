"""Writing a file whole or not at all: under a partial name, locked, synced, then renamed.

Every file that afltool writes goes through `replacing`, so that one set of rules holds for all; see
`outputs` for where they may go. `write_once` is for secrets, which nothing may ever replace.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from .. import machine
from ..errors import InputError, OutputExistsError
from ..progress import event
from .outputs import STDOUT, check_output, partial_path, writer_errors


def free_space(folder: Path) -> int:
    """Bytes free on the disk of a folder that is there or will be made."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def need_space(folder: Path, size: int, what: str) -> None:
    """Refuse to start writing ``size`` bytes into a folder whose disk has fewer."""
    free = free_space(folder)
    if size > free:
        raise InputError(
            f"no space left for {what}: it takes {size / 1e6:.1f} MB and the disk of {folder} has "
            f"{free / 1e6:.1f} MB free; free some space or choose another folder"
        )


# ---------------------------------------------------------------- writing


@contextmanager
def replacing(
    path: Path,
    kind: str | None,
    size: int = 0,
    go_on: Callable[[Path], bool] | None = None,
    durable: bool = True,
) -> Iterator[int]:
    """The descriptor of a partial file, which takes the name ``path`` if the block succeeds.

    ``kind``: what the event of the file says. ``size``: about how many bytes it will have.
    ``durable``: wait for the disk, so that the file survives a power cut; a cache need not. A
    second writer of one file is refused. ``go_on`` is called when the partial file is locked: True
    continues what an earlier run left in it, otherwise the file is emptied. When the block fails,
    the partial file is removed; with ``go_on`` it stays if it holds something.
    """
    check_output(path)
    partial = partial_path(path)
    with writer_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = locked(partial, _take_own)
    try:
        with writer_errors(path):
            if go_on is None or not go_on(partial):
                os.ftruncate(lock, 0)  # before the space is measured: it may be what fills the disk
            need_space(path.parent, size - os.fstat(lock).st_size, str(path))
            yield lock
            if durable:
                os.fsync(lock)
            check_output(path)  # again: another program may have written a file there
            if machine.WINDOWS:  # where an open file cannot be renamed
                os.close(lock)
                lock = os.open(os.devnull, os.O_RDONLY)
            os.replace(partial, path)
        _sync_folder(path.parent)
        if durable:
            event("file", path=path, kind=kind)
    except BaseException:
        if go_on is None or os.fstat(lock).st_size == 0:
            with suppress(OSError):
                partial.unlink()
        raise
    finally:
        os.close(lock)


_waiting: ContextVar[list[tuple[bytes, Path]] | None] = ContextVar("files to write", default=None)


@contextmanager
def together() -> Iterator[None]:
    """What `write_bytes` is given in this block is checked at once and written when it ends.

    After an error none of it is written: a command with two results leaves both or none. A block
    inside another one ends with that. What waits is no argument: every writer of a small file would
    have to pass it on, and what it holds does not depend on it.
    """
    if _waiting.get() is not None:
        yield
        return
    waiting: list[tuple[bytes, Path]] = []
    before = _waiting.set(waiting)
    try:
        yield
    finally:
        _waiting.reset(before)
    for data, path in waiting:
        _write(data, path)


def write_bytes(data: bytes, path: Path, overwrite: bool = False) -> Path:
    """Write a small file that is not HDF5: text, JSON, a table, a picture. '-' stands for stdout.

    An existing file with the same bytes is left as it is. Another one raises `OutputExistsError`
    unless ``overwrite``. See `together`.
    """
    if path != STDOUT:
        if _holds(path, data):
            return path
        check_output(path)
        if path.exists() and not overwrite:
            raise OutputExistsError(
                f"{path} exists and holds something else; choose another path, or use --overwrite"
            )
    waiting = _waiting.get()
    if waiting is None:
        _write(data, path)
    else:
        waiting.append((data, path))
    return path


def _write(data: bytes, path: Path) -> None:
    if path == STDOUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    with (
        replacing(path, path.suffix[1:], len(data)) as place,
        os.fdopen(place, "wb", closefd=False) as file,
    ):
        file.write(data)


def _holds(path: Path, data: bytes) -> bool:
    try:
        status = path.stat()
        same_size = stat.S_ISREG(status.st_mode) and status.st_size == len(data)
        return same_size and path.read_bytes() == data
    except (OSError, ValueError):
        return False


def write_text(text: str, path: Path, overwrite: bool = False) -> Path:
    """`write_bytes` of a text, see `as_bytes`."""
    return write_bytes(as_bytes(text), path, overwrite)


def as_bytes(text: str) -> bytes:
    """A text as UTF-8; what UTF-8 cannot hold becomes an escape."""
    return text.encode("utf-8", "backslashreplace")


def write_once(path: Path, data: bytes) -> bytes:
    """Write a private file unless it exists; returns the bytes that it then holds.

    It has mode 600 and folders that are made for it 700, whatever the umask. The file gets its
    name by a hard link, which fails where the name exists: of two writers one is first.
    """
    if not os.path.lexists(path):
        check_output(path)
    draft = path.with_name(f".{secrets.token_hex(8)}")
    try:
        with writer_errors(path):
            private_folder(path.parent)
            flags = machine.flags("WRONLY", "CREAT", "EXCL")
            with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
                if not machine.WINDOWS:  # where the folder decides who may read
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
    try:
        with suppress(FileNotFoundError):
            partial.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(source, partial)
        os.replace(partial, path)
        event("file", path=path, kind=kind)
        return path
    except OSError:
        with (
            replacing(path, kind, source.stat().st_size) as place,
            source.open("rb") as file,
            os.fdopen(place, "wb", closefd=False) as copy,
        ):
            shutil.copyfileobj(file, copy)
        return path
    finally:
        with suppress(OSError):
            partial.unlink()  # of two names of one file a rename leaves both


def second_name(source: Path, path: Path) -> None:
    """Make ``path`` a second name of ``source``, where that is free and the disk has such names."""
    with suppress(OSError):
        os.link(source, path)


def locked(path: Path, take: Callable[[Path, int], None]) -> int:
    """The descriptor of a file that is made if it is not there; ``take(path, it)`` locks it."""
    flags = machine.flags("RDWR", "CREAT", "NOFOLLOW", "NONBLOCK")
    while True:
        descriptor = os.open(path, flags, 0o666)
        try:
            take(path, descriptor)
        except (OSError, InputError):
            os.close(descriptor)
            raise
        # Who had it before may have renamed or removed it between our open and our lock.
        with suppress(FileNotFoundError):
            if os.lstat(path).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def _take_own(partial: Path, descriptor: int) -> None:
    """Lock a partial file; refused where it may be somebody else's, before it is truncated."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        raise InputError(
            f"{partial} is in the way: expected an unfinished file or nothing, found a device, a "
            "pipe or a file with other names; remove it"
        )
    if not machine.WINDOWS:  # where HDF5 could not write a locked file
        machine.lock(descriptor)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # some network file systems have no fsync of folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
