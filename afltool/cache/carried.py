"""What a head computed from a client's rows in one round, so that the next round starts from it.

It never leaves the client. It only saves time: what is missing is computed again. It is kept block
by block, under a key that says what it was made with, so that no head takes the arrays of another
head. A round takes block i of the round before and then puts its own block i.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..values.arrays import Array
from .memory import Room


class Carried:
    """Keeps nothing: every round starts from the features."""

    def take(self, key: str, block: int, rows: int) -> dict[str, Array] | None:
        """The arrays of block number ``block`` with ``rows`` rows, if they were put under this
        key; otherwise None. The caller owns them and may write into them; each block is given
        once."""
        return None

    def following(self, key: str) -> Carried:
        """An empty store for the arrays that the coming round puts under ``key``."""
        return self

    def put(self, block: int, arrays: Mapping[str, Array]) -> None:
        """Keep the arrays of a block, with one entry per row; blocks come in order, from 0 on."""


NOTHING = Carried()


class Remembered(Carried):
    """Keeps the arrays in memory, as long as there is room; ``beyond`` gets the other blocks."""

    def __init__(self, key: str = "", room: Room | None = None, beyond: Carried = NOTHING) -> None:
        self.key = key
        self.blocks: dict[int, dict[str, Array]] = {}
        self._room, self._beyond = room, beyond

    def take(self, key: str, block: int, rows: int) -> dict[str, Array] | None:
        if key != self.key:
            self.forget()  # no other caller will ask for these blocks
        found = self._removed(block)
        if found is None:
            return self._beyond.take(key, block, rows)
        return None if any(len(a) != rows for a in found.values()) else found

    def following(self, key: str) -> Remembered:
        return Remembered(key, self._room, self._beyond.following(key))

    def put(self, block: int, arrays: Mapping[str, Array]) -> None:
        if self._room is None or self._room.take(_size(arrays)):
            self.blocks[block] = dict(arrays)
        else:
            self._beyond.put(block, arrays)

    def forget(self) -> None:
        """Drop every block that is kept."""
        for block in list(self.blocks):
            self._removed(block)

    def _removed(self, block: int) -> dict[str, Array] | None:
        found = self.blocks.pop(block, None)
        if found is not None and self._room is not None:
            self._room.give(_size(found))
        return found


def _size(arrays: Mapping[str, Array]) -> int:
    return sum(np.asarray(a).nbytes for a in arrays.values())
