"""Gathering the counts of the SAFLe head: rows stream through, codes are kept for a while."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..linalg import accelerator
from ..linalg.codes import Coder
from ..linalg.counts import add_labels, add_pairs, add_sums, pair_count
from ..linalg.fixedpoint import FixedPoint, Rows, real
from ..linalg.gram import gram_and_cross
from ..statistics import Statistics
from .base import Array

ROWS_AT_ONCE = 2**16  # whose pairs are counted together: E bytes each, and fewer passes over pairs


class Collector:
    """Adds up counts in place; one set of arrays in memory however many blocks arrive."""

    def __init__(self, coder: Coder, classes: int, with_linear: bool) -> None:
        groups, size = coder.features.shape[0], coder.size
        self.coder, self.classes, self.with_linear = coder, classes, with_linear
        self.labels = np.zeros((groups, size, classes), dtype=np.int64)
        self.pairs = np.zeros((pair_count(groups), size - 1, size - 1), dtype=np.int64)
        self.class_counts = np.zeros(classes, dtype=np.int64)
        self.raw: dict[str, Array] = {}
        self._waiting: list[Array] = []
        self._rows = 0

    def add(self, X: Rows, y: NDArray[np.int64]) -> None:
        """Count a block of rows X (n, d) with labels y (n,)."""
        codes = self.coder.codes(X)
        add_labels(codes, y, self.labels)
        self.class_counts += np.bincount(y, minlength=self.classes)
        if self.with_linear:
            self._add_raw(X, y, codes)
        self._waiting.append(codes)
        self._rows += len(y)
        if self._rows >= ROWS_AT_ONCE:
            self._count_pairs()

    def result(self, phase: str) -> Statistics:
        """Everything that was added."""
        self._count_pairs()
        arrays = {"labels": self.labels, "pairs": self.pairs, **self.raw}
        return Statistics(phase, arrays, self.class_counts)

    def _count_pairs(self) -> None:
        if self._rows:
            self._add_pairs(np.concatenate(self._waiting, axis=1))
        self._waiting, self._rows = [], 0

    def _add_pairs(self, codes: Array) -> None:
        """On the GPU where there is one; the counts are the same."""
        size, device = self.coder.size, accelerator.gpu()
        needed = accelerator.pairs_bytes(len(codes), size, self._rows)
        if accelerator.fits(device, needed, "counts"):
            accelerator.add_pairs(codes, size, self.pairs, str(device))
        else:
            add_pairs(codes, size, self.pairs)

    def _add_raw(self, X: Rows, y: NDArray[np.int64], codes: Array) -> None:
        """The blocks xᵀx, xᵀY and Φᵀx of a hybrid: integers in fixed point."""
        G, H = gram_and_cross(X, y, self.classes)
        if not self.raw:
            shape = (len(self.labels), self.coder.size - 1, len(H))
            sums = np.zeros(shape, dtype=H.dtype)
            self.raw = {"gram": np.zeros_like(G), "cross": np.zeros_like(H), "sums": sums}
        self.raw["gram"] += G
        self.raw["cross"] += H
        if not isinstance(X, FixedPoint):
            add_sums(codes, real(X), self.raw["sums"])
            return
        for start in range(0, len(y), ROWS_AT_ONCE):  # whose sums of int16 fit into int32
            part = slice(start, start + ROWS_AT_ONCE)
            add_sums(codes[:, part], X.values[part].astype(np.int32), self.raw["sums"])
