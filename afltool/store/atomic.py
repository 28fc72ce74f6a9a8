"""HDF5 files that are whole or not there: written under a partial name, locked, synced, renamed.

Measured with h5py 3.16 and HDF5 2.0: a file that is killed while it is written keeps what was
flushed (libver below 1.10). The library crashes when a disk is full, so it writes through `_Disk`,
which does not tell it.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..errors import InputError
from . import schema


def partial_path(path: Path) -> Path:
    """Where the file that will be called ``path`` is written."""
    return path.with_name(path.name + schema.PARTIAL)


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


@contextmanager
def writing(
    path: Path, size: int = 0, go_on: Callable[[Path], bool] | None = None
) -> Iterator[h5py.File]:
    """An HDF5 file open for writing that takes its final name only if the block succeeds.

    ``size``: about how many bytes it will have. One writer per file: a second one is refused.
    ``go_on`` says, once the partial file is locked, whether what an earlier run left in it is
    gone on with. With it the partial file stays behind when the block fails; otherwise it is
    removed then.
    """
    partial = partial_path(path)
    with _writer_errors(path):
        have = partial.stat().st_size if go_on and partial.exists() else 0
        need_space(path.parent, size - have, str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _locked(partial)
    try:
        with _writer_errors(path):
            mode = "r+" if go_on is not None and go_on(partial) else "w"
            if mode == "w":
                os.ftruncate(lock, 0)
            disk = _Disk(lock, "r+b", closefd=False)
            file = None
            try:
                with undisturbed():
                    file = _File(disk, mode, libver=schema.LIBVER)
                yield file
                put_attribute(file, schema.COMPLETE, 1)
            finally:
                with undisturbed():
                    if file is not None:
                        file.close()
                disk.check()  # before any other error: that one would only follow from it
            os.fsync(lock)
            os.replace(partial, path)
        _sync_folder(path.parent)
    except BaseException:
        if go_on is None or os.fstat(lock).st_size == 0:
            with suppress(OSError):
                partial.unlink()
        raise
    finally:
        os.close(lock)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block, which calls the HDF5 library to write.

    Raised in the middle of `_Disk.write` it would be a failed write to the library.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[Any] = []
    signal.signal(signal.SIGINT, lambda *signal_and_frame: came.append(signal_and_frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(*came[0])


class _Disk(io.FileIO):
    """A file whose first failed write is kept for `check`; later ones are dropped.

    To the HDF5 library every write succeeds, and the file is left as a kill at the failed write
    would leave it. (Measured with HDF5 2.0: "No space left" in a flush makes the file impossible to
    close, prints a traceback at exit or ends in a segmentation fault.)
    """

    _failure: OSError | None = None

    def write(self, data: Any) -> int:
        left = memoryview(data)
        try:
            while left and not self._failure:
                left = left[super().write(left) :]
        except OSError as failure:
            self._failure = failure
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size) if not self._failure else 0
        except OSError as failure:
            self._failure = failure
            return 0

    def check(self) -> None:
        """Raise what made the first write fail, if any did."""
        if self._failure:
            raise self._failure


class _File(h5py.File):  # type: ignore[misc]  # h5py has no types: to mypy its File is Any
    """An HDF5 file on a `_Disk`, whose flush tells whether the disk has taken all."""

    def __init__(self, disk: _Disk, mode: str, **options: Any) -> None:
        self._disk = disk
        super().__init__(disk, mode, **options)

    def flush(self) -> None:
        with undisturbed():
            super().flush()
        self._disk.check()


def _locked(partial: Path) -> int:
    """Create or open the partial file and lock it; the lock is the open descriptor."""
    while True:
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise
        except OSError as error:  # a file system without locks (some NFS mounts)
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                os.close(descriptor)
                raise
        # The previous writer may have renamed the file between our open and our lock.
        with suppress(FileNotFoundError):
            if os.stat(partial).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # some network file systems have no fsync of folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _writer_errors(path: Path) -> Iterator[None]:
    """Turn the system's refusals into messages."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {path}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    number = error.errno
    if number == errno.EAGAIN:
        return "another process is writing it; wait for it to end"
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "no space left on the disk; free some space and run the command again"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "the folder does not allow it (read-only?); choose another one with -o"
    if number in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR):
        return f"{os.strerror(number)}: a folder and a file are mixed up in this path"
    return error.strerror or str(error)


@undisturbed()
def put_attribute(file: h5py.File, name: str, value: str | int) -> None:
    """Write an attribute of the root group; texts get a fixed length."""
    file.attrs[name] = np.bytes_(value.encode()) if isinstance(value, str) else value
