"""What rounding takes from each feature, measured while rows pass by in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import numpy as np

from ..errors import InvalidDataError
from ..values.arrays import F64, Array

ENOUGH = 8  # steps of its range, of which a feature should keep as many
NOISE = 1e-12  # of a feature's size: what varies by less is a constant with rounding errors


class Rounding:
    """Of each of ``dim`` features: its range before and after, and the largest rounding error.

    A feature that does not vary loses nothing, nor does one that is known to be ``constant``.
    Blocks may come in any order and from any thread; the result does not depend on it.

    >>> found = Rounding(3)
    >>> x = np.array([[0.0, 0.001, 7.0], [1.0, 0.002, 7.0], [2.0, 0.003, 7.0]])
    >>> found.add(x, np.rint(x * 2) / 2)
    >>> found.lost.tolist()
    [False, True, False]
    """

    def __init__(self, dim: int, constant: Sequence[int] = ()) -> None:
        self._low, self._high = np.full((2, dim), np.inf), np.full((2, dim), -np.inf)
        self._known = np.isin(np.arange(dim), constant)
        self._error, self._lock = np.zeros(dim), Lock()

    def add(self, x: F64, rounded: Array) -> None:
        """Rows (n, d) as they were given, and as numbers that are stored."""
        if not len(x):
            return
        low, high = ([one(x, axis=0), one(rounded, axis=0)] for one in (np.min, np.max))
        error = np.abs(x - rounded).max(axis=0)
        with self._lock:
            self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)
            self._error = np.maximum(self._error, error)

    @property
    def varies(self) -> Array:
        """(d,) bool: whether the values that were given differ by more than `NOISE`."""
        low, high = self._low[0], self._high[0]
        size = np.maximum(np.abs(low), np.abs(high))
        return np.asarray((high - low > NOISE * size) & ~self._known)

    @property
    def lost(self) -> Array:
        """(d,) bool: features that vary, and of which rounding leaves a single value."""
        return np.asarray(self.varies & (self._low[1] == self._high[1]))

    @property
    def shares(self) -> F64:
        """(d,): the largest error as a part of the range."""
        none, range_ = np.zeros(len(self._error)), self._high[0] - self._low[0]
        return np.asarray(np.divide(self._error, range_, out=none, where=self.varies))

    @property
    def thin(self) -> Array:
        """(d,) bool: those that are rounded to fewer than `ENOUGH` steps of their range."""
        return np.asarray(self.shares > 0.5 / ENOUGH)

    def describe(self, columns: Sequence[str] | None = None) -> str:
        """The feature that loses most, and how many keep few steps."""
        shares, few, j = self.shares, int(self.thin.sum()), int(self.shares.argmax())
        name = f"feature {j}" if columns is None else f"the column {columns[j]!r}"
        lost = f"errors up to {100 * min(shares[j], 1.0):.3g} % of its range"
        if few:
            lost += f"; {few} of {len(shares)} features keep fewer than {ENOUGH} steps of theirs"
        return f"{name} ({lost})"

    def check(self, columns: Sequence[str] | None = None) -> None:
        """Refuse with `InvalidDataError` rounding that makes a feature constant which varies."""
        if self.lost.any():
            raise InvalidDataError(
                f"rounding makes {int(self.lost.sum())} of {len(self.lost)} features constant that "
                f"vary, such as {self.describe(columns)}",
                advice=": use --dtype float32 or more --fraction-bits, or scale the features at "
                "all sites (afltool scale, then import --scale); --allow-constant takes them as "
                "they are",
            )
