"""What a head made of a client's rows in one round, so that the next round starts from it.

It never leaves the client. It only saves time: what is missing is computed again. It is kept block
by block, under a key that says what it was made with, so that no head takes what another one left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Carried:
    """Keeps nothing: every round starts from the features."""

    def take(self, key: str, block: int, rows: int) -> dict[str, Array] | None:
        """Copies of the arrays of block number ``block`` with ``rows`` rows, if they were left
        under this key; otherwise None."""
        return None

    def following(self, key: str) -> Carried:
        """An empty place for what the coming round leaves under ``key``."""
        return self

    def put(self, block: int, arrays: Mapping[str, Array]) -> None:
        """Leave the arrays of a block, one entry a row; blocks come in order, from 0 on."""


NOTHING = Carried()


class Remembered(Carried):
    """Keeps the arrays in memory."""

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.blocks: list[dict[str, Array]] = []

    def take(self, key: str, block: int, rows: int) -> dict[str, Array] | None:
        if key != self.key or block >= len(self.blocks):
            return None
        found = self.blocks[block]
        if any(len(a) != rows for a in found.values()):
            return None
        return {name: np.array(a) for name, a in found.items()}

    def following(self, key: str) -> Remembered:
        return Remembered(key)

    def put(self, block: int, arrays: Mapping[str, Array]) -> None:
        self.blocks.append(dict(arrays))
