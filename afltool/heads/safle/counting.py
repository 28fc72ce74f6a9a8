"""The counts of the SAFLe head, from rows that arrive in blocks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...math.codes import Coder
from ...math.counts import add_labels, add_pairs, add_sums, pair_count
from ...math.gram import FixedPoint, Rows, gram_and_cross, real
from ...values.arrays import Array

ROWS_AT_ONCE = 2**16  # rows whose pairs are counted together: fewer passes, E bytes a row
Counted = tuple[Array, dict[str, Array]]  # of a block of rows: its codes (E, n), and its counts


class Collector:
    """Adds up counts in place: one set of arrays in memory for any number of blocks."""

    def __init__(self, coder: Coder, classes: int, with_linear: bool) -> None:
        self.coder, self.classes, self.with_linear = coder, classes, with_linear
        groups, codes = coder.features.shape[0], coder.size - 1
        self.pairs = np.zeros((pair_count(groups), codes, codes), dtype=np.int64)
        self.shape = groups, coder.size, classes  # of the labels of each code
        self._sums: dict[str, Array] = {}
        self._waiting: list[Array] = []
        self._rows = 0

    def of(self, block: tuple[Rows, NDArray[np.int64]]) -> Counted:
        """What is counted of rows X (n, d) with labels y (n,), but pairs; in any thread."""
        X, y = block
        codes, labels = self.coder.codes(X), np.zeros(self.shape, dtype=np.int64)
        add_labels(codes, y, labels)
        return codes, {"labels": labels, **(self._raw(X, y, codes) if self.with_linear else {})}

    def add(self, counted: Counted) -> None:
        """Add what was counted of a block."""
        codes, sums = counted
        for name, a in sums.items():
            if name in self._sums:
                self._sums[name] += a
            else:
                self._sums[name] = a
        self._waiting.append(codes)
        self._rows += codes.shape[1]
        if self._rows >= ROWS_AT_ONCE:
            self._count_pairs()

    def result(self) -> dict[str, Array]:
        """The arrays of everything that was added."""
        self._count_pairs()
        return {**self._sums, "pairs": self.pairs}

    def _count_pairs(self) -> None:
        if self._rows:
            codes = np.concatenate(self._waiting, axis=1)
            add_pairs(codes, self.coder.size, self.pairs)
        self._waiting, self._rows = [], 0

    def _raw(self, X: Rows, y: NDArray[np.int64], codes: Array) -> dict[str, Array]:
        """The blocks xᵀx, xᵀY and Φᵀx of a hybrid: integers in fixed point."""
        G, H = gram_and_cross(X, y, self.classes)
        groups, size, _ = self.shape
        sums = np.zeros((groups, size - 1, len(H)), dtype=H.dtype)
        if not isinstance(X, FixedPoint):
            add_sums(codes, real(X), sums)
        else:
            for start in range(0, len(y), ROWS_AT_ONCE):  # whose sums of int16 fit into int32
                part = slice(start, start + ROWS_AT_ONCE)
                add_sums(codes[:, part], X.values[part].astype(np.int32), sums)
        return {"gram": G, "cross": H, "sums": sums}
