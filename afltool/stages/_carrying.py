"""What rows carry from one round to the next, kept in a folder when asked. Not a stage itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..digest import Digest
from ..heads.base import Block, Head
from ..statistics import Statistics, Sum
from ..store.carried import CarriedRows

Numbered = tuple[NDArray[np.intp], Block]  # numbers of the rows in their file, the rows


class Carrying:
    """Gathers statistics, starting from what the round before left and leaving the same.

    ``task`` says which rows these are; folders are named by it and by the head's digest, so what
    another head or other rows left is never taken. Only the last round is kept.
    """

    def __init__(self, cache: Path, task: Any, head: Head, rows: int) -> None:
        self.head = head
        before = head.previous()
        self.old = cache / _name(task, before)
        self.before = None if before is None else CarriedRows.open(self.old, rows)
        self.after = CarriedRows(cache / _name(task, head), rows)

    def collect(self, blocks: Iterable[Numbered]) -> Statistics:
        """As `Head.collect`."""
        total: Sum | None = None
        for rows, (X, y) in blocks:
            carried = None if self.before is None else self.before.take(rows)
            part, left = self.head.gather(X, y, carried)
            self.after.put(rows, left)
            total = Sum(part) if total is None else total.add(part)
        assert total is not None
        return total.result()

    def finish(self) -> None:
        """The round is over: keep what it left, drop what the one before had left."""
        self.after.finish(self.old)


def _name(task: Any, head: Head | None) -> str:
    return Digest().json("task", [task, None if head is None else head.digest()]).hex()[:32]
