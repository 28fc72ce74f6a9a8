"""HDF5 files that are whole or not there, although the library crashes when a disk is full.

Measured with h5py 3.16 and HDF5 2.0: a file that is killed while it is written keeps what was
flushed (libver below 1.10). The library does not survive a failed write, so it writes through
`_Disk`, which does not tell it.
"""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5s, h5t

from . import schema
from .atomic import replacing


@contextmanager
def writing(
    path: Path, kind: str, size: int = 0, go_on: Callable[[Path], bool] | None = None
) -> Iterator[h5py.File]:
    """An HDF5 file open for writing that takes its final name only if the block succeeds.

    The arguments are those of `replacing`.
    """
    with replacing(path, kind, size, go_on) as place:
        mode = "r+" if os.fstat(place).st_size else "w"
        disk = _Disk(place, "r+b", closefd=False)
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


class _Later:
    """A handler of Ctrl-C that only notes that it came."""

    def __init__(self) -> None:
        self.came: list[Any] = []

    def __call__(self, *signal_and_frame: Any) -> None:
        self.came.append(signal_and_frame)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block, which calls the HDF5 library to write.

    Raised in the middle of `_Disk.write` it would be a failed write to the library. A block inside
    another one has nothing left to do.
    """
    before, later = signal.getsignal(signal.SIGINT), _Later()
    main = threading.current_thread() is threading.main_thread()
    if isinstance(before, _Later) or not main or not callable(before):
        yield
        return
    signal.signal(signal.SIGINT, later)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if later.came:
            before(*later.came[0])


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


@undisturbed()
def put_attribute(file: h5py.File, name: str, value: str | int) -> None:
    """Write an attribute of the root group; texts get a fixed length."""
    known = np.asarray(np.bytes_(value.encode()) if isinstance(value, str) else value)
    if h5a.exists(file.id, name.encode()):
        file.attrs[name] = known[()]
        return
    kind = h5t.py_create(known.dtype, logical=True)
    h5a.create(file.id, name.encode(), kind, h5s.create(h5s.SCALAR)).write(known)
