"""Arrays that a run puts aside between two rounds, in a file without a name.

The file lies on the disk of the run's folder and is gone when the process ends, however it ends.
Nobody else can open it, so its bytes are not compared with checksums.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from .. import machine
from ..cache.cache import Carried
from ..errors import InputError
from ..values.arrays import Array
from .atomic import unnamed
from .outputs import why_not_written

Place = tuple[int, int]  # first byte, bytes


class Scratch:
    """Blocks by name. A place is used again by the next block of the same name and size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: int | None = None
        self._end = 0
        self._lock = Lock()
        self._places: dict[tuple[str, str, int], Place] = {}
        self._held: dict[str, dict[str, tuple[Place, tuple[int, ...], np.dtype[Any]]]] = {}

    def of(self, part: str) -> Carried:
        """The blocks of a part of the work, such as a client."""
        return _Part(self, part, "")

    def write(self, name: str, arrays: Mapping[str, Array]) -> None:
        """Put the arrays of a block aside; `InputError` when the disk is full."""
        with self._lock:
            if self._file is None:
                self._file = unnamed(self.folder)
        held = {}
        for array, value in arrays.items():
            data = np.ascontiguousarray(value)
            with self._lock:
                place = self._place(name, array, data.nbytes)
            self._write(data, place[0])
            held[array] = place, data.shape, data.dtype
        self._held[name] = held

    def take(self, name: str) -> dict[str, Array] | None:
        """The arrays of a block, which is then forgotten."""
        held = self._held.pop(name, None)
        if held is None or self._file is None:
            return None
        found: dict[str, Array] = {}
        for array, (place, shape, dtype) in held.items():
            found[array] = np.empty(shape, dtype)
            if not _read(self._file, found[array], place[0]):
                return None
        return found

    def close(self) -> None:
        """Give the space back."""
        if self._file is not None:
            os.close(self._file)
        self._file = None
        self._held.clear()

    def _place(self, name: str, array: str, size: int) -> Place:
        found = self._places.get((name, array, size))
        if found is None:
            found = self._places[name, array, size] = self._end, size
            self._end += size
        return found

    def _write(self, data: Array, at: int) -> None:
        assert self._file is not None
        left = data.reshape(-1).view(np.uint8).data
        try:
            while left:
                done = machine.write_at(self._file, left, at)
                left, at = left[done:], at + done
        except OSError as error:
            why = why_not_written(error, "give the run more --memory")
            raise InputError(f"cannot put rows aside in {self.folder}: {why}") from None


class _Part(Carried):
    """The blocks of one part, left under one key."""

    def __init__(self, scratch: Scratch, part: str, key: str) -> None:
        self._scratch, self._part, self._key = scratch, part, key

    def take(self, key: str, block: int, rows: int) -> dict[str, Array] | None:
        found = self._scratch.take(f"{self._part}/{block}") if key == self._key else None
        if found is None or any(len(a) != rows for a in found.values()):
            return None
        return found

    def following(self, key: str) -> Carried:
        return _Part(self._scratch, self._part, key)

    def put(self, block: int, arrays: Mapping[str, Array]) -> None:
        self._scratch.write(f"{self._part}/{block}", arrays)


def _read(file: int, into: Array, at: int) -> bool:
    left = into.reshape(-1).view(np.uint8).data
    while left:
        done = machine.read_into(file, left, at)
        if not done:
            return False
        left, at = left[done:], at + done
    return True
