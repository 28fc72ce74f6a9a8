"""Where heads put rows aside between two rounds: the cache of `local-stats`, a run's own file.

Both only save time: a block that is missing or damaged is computed again. A file of the cache is
written under a partial name with ordinary writes, so that a full disk is an error, and gets its
name at the end of the round. No result depends on it, so it has no format version: raw arrays one
after the other, an index of them as JSON, the SHA-256 of the index, its length. The index has the
SHA-256 of every array.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from io import FileIO
from math import prod
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Self

import numpy as np

from ..errors import InputError
from ..memory import Carried
from ..progress import log
from ..values.arrays import Array
from ..values.text import json_text
from .atomic import replacing
from .outputs import why_not_written, writer_errors

ArrayPlace = dict[str, Any]  # at, shape, dtype, sha
SUFFIX = ".rows"
TAIL = 32 + 8  # SHA-256 of the index, its length
DTYPES = ("<f4", "<f8", "<i2", "|u1", "<u2")


class _Blocks(ABC):
    """Blocks of arrays by name, in a file."""

    def __init__(self) -> None:
        self.lock = Lock()  # of the places in it

    def of(self, part: str) -> Carried:
        """The blocks of a part of the work, such as a client."""
        return _Part(self, part, "")

    @abstractmethod
    def take(self, key: str, name: str, rows: int) -> dict[str, Array] | None: ...

    @abstractmethod
    def put(self, key: str, name: str, arrays: Mapping[str, Array]) -> None: ...


class _Part(Carried):
    """The blocks of one part, which are put under one key."""

    def __init__(self, blocks: _Blocks, part: str, key: str) -> None:
        self._blocks, self._part, self._key = blocks, part, key

    def take(self, key: str, block: int, rows: int) -> dict[str, Array] | None:
        with self._blocks.lock:
            return self._blocks.take(key, f"{self._part}/{block}", rows)

    def following(self, key: str) -> Carried:
        return _Part(self._blocks, self._part, key)

    def put(self, block: int, arrays: Mapping[str, Array]) -> None:
        with self._blocks.lock:
            self._blocks.put(self._key, f"{self._part}/{block}", arrays)


class CarriedFile(_Blocks):
    """The blocks that a task kept in the last round, and a place for those of this round.

    Used as a context: at its end the new blocks replace the old ones, unless there was an error.
    """

    def __init__(self, folder: Path, task: str) -> None:
        super().__init__()
        self.path = folder / (task + SUFFIX)
        self._old: BinaryIO | None = None
        self._new: BinaryIO | None = None
        self._key, self._known = "", dict[str, dict[str, ArrayPlace]]()
        self._left: dict[str, Any] = {}
        self._warned = False
        self._files = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._old = self._files.enter_context(self.path.open("rb"))
            self._key, self._known = _index(self._old)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            self._damaged(str(error))
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if error is None and self._new is not None:
                self._finish(self._new)
        except BaseException:
            self._files.__exit__(*sys.exc_info())
            raise
        self._files.__exit__(kind, error, trace)  # the new file gets its name, or goes

    def take(self, key: str, name: str, rows: int) -> dict[str, Array] | None:
        """The arrays of a block, checked by their digests; None if they are absent or damaged."""
        block = self._known.get(name) if key == self._key else None
        if block is None or self._old is None:
            return None
        try:
            arrays = {array: _array(self._old, entry, rows) for array, entry in block.items()}
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._damaged(str(error))
            return None
        whole = {array: a for array, a in arrays.items() if a is not None}
        return whole if len(whole) == len(arrays) else None

    def _damaged(self, what: str) -> None:
        if not self._warned:
            log.warning("%s is damaged (%s): its rows are computed again", self.path, what)
        self._warned = True

    def put(self, key: str, name: str, arrays: Mapping[str, Array]) -> None:
        """Keep the arrays of a block for the next round; `InputError` where that cannot be."""
        file = self._begun(key)
        block: dict[str, ArrayPlace] = {}
        for array, value in arrays.items():
            data = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
            with self._writing():
                at = file.tell()
                file.write(data.data)
            sha256 = hashlib.sha256(data.data).hexdigest()
            block[array] = {"at": at, "shape": data.shape, "dtype": data.dtype.str, "sha": sha256}
        self._left["blocks"][name] = block

    def _begun(self, key: str) -> BinaryIO:
        """The file of this round."""
        if self._new is None:
            self._left = {"key": key, "blocks": {}}
            try:
                place = self._files.enter_context(replacing(self.path, None, durable=False))
            except InputError as error:
                raise InputError(f"{error}; or give another --cache, or none") from None
            self._new = os.fdopen(place, "wb", closefd=False)
        return self._new

    def _finish(self, file: BinaryIO) -> None:
        index = json_text(self._left).encode()
        with self._writing():
            file.write(index + hashlib.sha256(index).digest() + len(index).to_bytes(8, "little"))
            file.flush()

    def _writing(self) -> AbstractContextManager[None]:
        return _refusals(f"write {self.path}", "leave --cache out")


class Scratch(_Blocks):
    """Blocks in a file without a name on the disk of ``folder``, for as long as the process lives.

    Nobody else can open it, so its bytes are not compared with checksums. A place is used again by
    the next block of the same name and size.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self._file: FileIO | None = None
        self._end = 0
        self._places: dict[tuple[str, str, int], int] = {}
        self._held: dict[
            str, tuple[str, dict[str, tuple[int, tuple[int, ...], np.dtype[Any]]]]
        ] = {}

    def put(self, key: str, name: str, arrays: Mapping[str, Array]) -> None:
        """Put the arrays of a block aside; `InputError` when the disk is full."""
        if self._file is None:
            with writer_errors(self.folder / "scratch"):
                where = self.folder
                self._file = tempfile.TemporaryFile("w+b", 0, dir=where)  # noqa: SIM115 - kept open
        held = {}
        for array, value in arrays.items():
            data = np.ascontiguousarray(value)
            at = self._places.setdefault((name, array, data.nbytes), self._end)
            self._end = max(self._end, at + data.nbytes)
            with _refusals(f"put rows aside in {self.folder}", "give the run more --memory"):
                self._file.seek(at)
                _through(self._file.write, data)
            held[array] = at, data.shape, data.dtype
        self._held[name] = key, held

    def take(self, key: str, name: str, rows: int) -> dict[str, Array] | None:
        """The arrays of a block, which is then forgotten."""
        left, held = self._held.pop(name, ("", {}))
        arrays: dict[str, Array] = {}
        for array, (at, shape, dtype) in held.items() if left == key else ():
            if self._file is None or shape[0] != rows:
                return None
            arrays[array] = np.empty(shape, dtype)
            self._file.seek(at)
            if not _through(self._file.readinto, arrays[array]):
                return None
        return arrays or None

    def close(self) -> None:
        """Give the space back."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self._held.clear()


@contextmanager
def _refusals(what: str, instead: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot {what}: {why_not_written(error, instead)}") from None


def _through(step: Callable[[memoryview], int | None], array: Array) -> bool:
    """Write or read a whole array, as much at a time as the system takes."""
    left = array.reshape(-1).view(np.uint8).data
    while left:
        done = step(left)
        if not done:
            return False
        left = left[done:]
    return True


def _index(file: BinaryIO) -> tuple[str, dict[str, dict[str, ArrayPlace]]]:
    """Key and blocks of a file; `ValueError` when its end is not as it was written."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - TAIL, 0))
    tail = file.read(TAIL)
    length = int.from_bytes(tail[32:], "little")
    if len(tail) < TAIL or not 0 < length <= size - TAIL:
        raise ValueError("its end is not an index")
    file.seek(size - TAIL - length)
    data = file.read(length)
    if hashlib.sha256(data).digest() != tail[:32]:
        raise ValueError("its index does not match its checksum")
    index = json.loads(data)
    return index["key"], index["blocks"]


def _array(file: BinaryIO, entry: ArrayPlace, rows: int) -> Array | None:
    """An array of the file; None for another number of rows, `ValueError` for a wrong digest."""
    shape, kind = tuple(entry["shape"]), entry["dtype"]
    if shape[:1] != (rows,):
        return None
    if kind not in DTYPES:
        raise ValueError(f"an array of type {kind!r}")
    file.seek(entry["at"])
    data = bytearray(file.read(prod(shape) * np.dtype(kind).itemsize))  # its caller writes into it
    if hashlib.sha256(data).hexdigest() != entry["sha"]:
        raise ValueError("an array does not match its checksum")
    return np.frombuffer(data, kind).reshape(shape)
