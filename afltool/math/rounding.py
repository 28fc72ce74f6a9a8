"""What rounding takes from each feature, measured while rows pass by in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError
from ..values.arrays import F64, I64, Array

ROWS = 64  # looked at together
ENOUGH = 8  # distinct values of a feature are counted up to here
NOISE = 1e-12  # of a feature's size: what varies by less is a constant with rounding errors


class Rounding:
    """Of each of ``dim`` features: its range, the largest rounding error, distinct values left.

    A feature that does not vary loses nothing, nor does one that is known to be ``constant``.
    Blocks may come in any order and from any thread; the result does not depend on it.

    >>> found = Rounding(3)
    >>> x = np.array([[0.0, 0.001, 7.0], [1.0, 0.002, 7.0], [2.0, 0.003, 7.0]])
    >>> found.add(x, np.rint(x * 2) / 2)
    >>> found.lost.tolist()
    [False, True, False]
    >>> found.said(["age", "dose", "site"]).partition(";")[0]
    "the column 'dose' (errors up to 100 % of its range, distinct values left: 1"
    """

    def __init__(self, dim: int, constant: Sequence[int] = ()) -> None:
        self._low, self._high = np.full(dim, np.inf), np.full(dim, -np.inf)
        self._known = np.isin(np.arange(dim), constant)
        self._error, self._lock = np.zeros(dim), Lock()
        self._given, self._left = _Distinct(dim), _Distinct(dim)

    def add(self, x: F64, rounded: Array) -> None:
        """Rows (n, d) as they were given, and as numbers that are stored."""
        if not len(x):
            return
        low, high, error = x.min(axis=0), x.max(axis=0), np.abs(x - rounded).max(axis=0)
        with self._lock:
            self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)
            self._error = np.maximum(self._error, error)
            still = self._left.few()  # of the others no count can be too small
            self._given.add(x, still)
            self._left.add(rounded, still)

    @property
    def varies(self) -> NDArray[np.bool_]:
        """(d,) bool: whether the values that were given differ by more than `NOISE`."""
        size = np.maximum(np.abs(self._low), np.abs(self._high))
        varies: NDArray[np.bool_] = ~self._known & (self._high - self._low > NOISE * size)
        return varies

    @property
    def lost(self) -> NDArray[np.bool_]:
        """(d,) bool: features that vary, and of which rounding leaves a single value."""
        lost: NDArray[np.bool_] = self.varies & (self._left.count == 1)
        return lost

    @property
    def thin(self) -> NDArray[np.bool_]:
        """(d,) bool: those that keep fewer than `ENOUGH` values, and fewer than they have."""
        thin: NDArray[np.bool_] = self.varies & (self._left.count < self._given.count)
        return thin

    @property
    def exact(self) -> bool:
        """Whether every number is stored as it was given."""
        return not self._error.any()

    def said(self, columns: Sequence[str] | None = None) -> str:
        """The feature that loses most, what is left of it, and how many keep few values."""
        share = np.divide(
            self._error, self._high - self._low, out=np.zeros(len(self._low)), where=self.varies
        )
        left = np.where(self.thin, self._left.count, ENOUGH)
        j, few = int(np.lexsort((-share, left))[0]), int(self.thin.sum())
        name = f"feature {j}" if columns is None else f"the column {columns[j]!r}"
        lost = f"errors up to {100 * min(share[j], 1.0):.3g} % of its range"
        if few:
            lost += f", distinct values left: {left[j]}"
            lost += f"; {few} of {len(left)} features keep fewer than {ENOUGH}"
        return f"{name} ({lost})"

    def check(self, columns: Sequence[str] | None = None) -> None:
        """Refuse with `InvalidDataError` rounding that makes a feature constant which varies."""
        if self.lost.any():
            raise InvalidDataError(
                f"rounding makes {int(self.lost.sum())} of {len(self.lost)} features constant that "
                f"vary, such as {self.said(columns)}",
                advice=": use --dtype float32 or more --fraction-bits, or scale the features at "
                "all sites (afltool scale, then import --scale); --allow-constant takes them as "
                "they are",
            )


class _Distinct:
    """The distinct values of each feature, counted up to `ENOUGH`."""

    def __init__(self, dim: int) -> None:
        self.count = np.zeros(dim, np.int64)
        self._seen = np.empty((dim, 0))

    def few(self) -> I64:
        """Features of which more values may come."""
        return np.flatnonzero(self.count < ENOUGH)

    def add(self, x: Array, features: I64) -> None:
        """Values (n, d), of which only these features are looked at."""
        if not self._seen.size:
            self._seen = np.repeat(x[:1].T, ENOUGH, axis=1).astype(np.float64)
        for start in range(0, len(x), ROWS):  # most features have enough in the first few rows
            features = features[self.count[features] < ENOUGH]
            part, seen = x[start : start + ROWS, features], self._seen[features]
            new = np.full(part.shape, True)
            for k in range(self.count[features].max(initial=0)):
                new &= part != seen[:, k]
            if new.any():
                self._merge(np.hstack([seen, part[new.any(axis=1)].T]), features)

    def _merge(self, values: Array, features: I64) -> None:
        """``values``: (features, any number), those that were seen among them."""
        values.sort(axis=1)
        first = np.diff(values, axis=1, prepend=np.nan) != 0
        rank = first.cumsum(axis=1) - 1
        rows, at = (first & (rank < ENOUGH)).nonzero()
        self._seen[features[rows], rank[rows, at]] = values[rows, at]
        self.count[features] = np.minimum(rank[:, -1] + 1, ENOUGH)
