"""The cache of `local-stats`: what a head computed from rows in one round, one file a task.

It only saves time: a block that is missing or damaged is computed again. The file is written under
a partial name with ordinary writes, so that a full disk is an error, and gets its name at the end
of the round. No result depends on it, so it has no format version: raw arrays one after the other,
an index of them as JSON, the SHA-256 of the index, its length. The index has the SHA-256 of every
array.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from io import BufferedReader
from math import prod
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Self

import numpy as np

from ..cache.cache import Carried
from ..errors import InputError
from ..progress import log
from ..values.arrays import Array
from ..values.json_text import json_text
from .atomic import replacing
from .outputs import why_not_written

ArrayPlace = dict[str, Any]  # at, shape, dtype, sha256
SUFFIX = ".rows"
TAIL = 32 + 8  # SHA-256 of the index, its length
DTYPES = ("<f4", "<f8", "<i2", "|u1", "<u2")


class CarriedFile:
    """The blocks that a task kept in the last round, and a place for those of this round.

    Used as a context: at its end the new blocks replace the old ones, unless there was an error.
    """

    def __init__(self, folder: Path, task: str) -> None:
        self.path = folder / (task + SUFFIX)
        self._old: BufferedReader | None = None
        self._new: BinaryIO | None = None
        self._key, self._known = "", dict[str, dict[str, ArrayPlace]]()
        self._left: dict[str, Any] = {}
        self._warned = False
        self._files = ExitStack()
        self.lock = Lock()  # of the places in both files

    def of(self, part: str) -> Carried:
        """The blocks of a part of the task, such as a client."""
        return _Part(self, part)

    def __enter__(self) -> Self:
        with suppress(FileNotFoundError):
            try:
                self._old = self._files.enter_context(self.path.open("rb"))
                self._key, self._known = _index(self._old)
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                if isinstance(error, FileNotFoundError):
                    raise
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

    # ------------------------------------------------------------ reading

    def read(self, key: str, name: str, rows: int) -> dict[str, Array] | None:
        """The arrays of a block, checked by their digests; None if they are absent or damaged."""
        block = self._known.get(name) if key == self._key else None
        if block is None or self._old is None:
            return None
        try:
            found = {array: _array(self._old, entry, rows) for array, entry in block.items()}
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._damaged(str(error))
            return None
        whole = {array: a for array, a in found.items() if a is not None}
        return whole if len(whole) == len(found) else None

    def _damaged(self, what: str) -> None:
        if not self._warned:
            log.warning("%s is damaged (%s): its rows are computed again", self.path, what)
        self._warned = True

    # ------------------------------------------------------------ writing

    def begin(self, key: str) -> None:
        """Open the file of this round; `InputError` when it cannot be written."""
        if self._new is not None:
            return
        self._left = {"key": key, "blocks": {}}
        try:
            place = self._files.enter_context(replacing(self.path, None, durable=False))
        except InputError as error:
            raise InputError(f"{error}; or give another --cache, or none") from None
        self._new = os.fdopen(place, "wb", closefd=False)

    def write(self, name: str, arrays: Mapping[str, Array]) -> None:
        """Keep the arrays of a block for the next round."""
        assert self._new is not None  # `begin` was called
        block: dict[str, ArrayPlace] = {}
        for array, value in arrays.items():
            data = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
            try:
                at = self._new.tell()
                self._new.write(data.data)
            except OSError as error:
                raise self._unwritable(error) from None
            sha256 = hashlib.sha256(data.data).hexdigest()
            block[array] = {"at": at, "shape": data.shape, "dtype": data.dtype.str, "sha": sha256}
        self._left["blocks"][name] = block

    def _finish(self, file: BinaryIO) -> None:
        index = json_text(self._left).encode()
        try:
            file.write(index + hashlib.sha256(index).digest() + len(index).to_bytes(8, "little"))
            file.flush()
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> InputError:
        why = why_not_written(error, "leave --cache out")
        return InputError(f"cannot write {self.path}: {why}")


class _Part(Carried):
    """The blocks of one part of a `CarriedFile`."""

    def __init__(self, file: CarriedFile, part: str) -> None:
        self._file, self._part = file, part

    def take(self, key: str, block: int, rows: int) -> dict[str, Array] | None:
        with self._file.lock:
            return self._file.read(key, f"{self._part}/{block}", rows)

    def following(self, key: str) -> Carried:
        with self._file.lock:
            self._file.begin(key)
        return self

    def put(self, block: int, arrays: Mapping[str, Array]) -> None:
        with self._file.lock:
            self._file.write(f"{self._part}/{block}", arrays)


def _index(file: BufferedReader) -> tuple[str, dict[str, dict[str, ArrayPlace]]]:
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


def _array(file: BufferedReader, entry: ArrayPlace, rows: int) -> Array | None:
    """An array of the file; None for another number of rows, `ValueError` for a wrong digest."""
    shape, kind = tuple(entry["shape"]), entry["dtype"]
    if shape[:1] != (rows,):
        return None
    if kind not in DTYPES:
        raise ValueError(f"an array of type {kind!r}")
    file.seek(entry["at"])
    data = bytearray(prod(shape) * np.dtype(kind).itemsize)
    file.readinto(data)  # what is missing stays 0, and the digest differs
    if hashlib.sha256(data).hexdigest() != entry["sha"]:
        raise ValueError("an array does not match its checksum")
    return np.frombuffer(data, kind).reshape(shape)
