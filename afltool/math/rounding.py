"""What rounding takes from each feature, measured while rows pass by in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError
from ..values.arrays import F64, I64, Array

ROWS = 64  # of a block, in which most features have enough values
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
        self._given, self._left = ([set[float]() for _ in range(dim)] for _ in range(2))

    def add(self, x: F64, rounded: Array) -> None:
        """Rows (n, d) as they were given, and as numbers that are stored."""
        if not len(x):
            return
        low, high, error = x.min(axis=0), x.max(axis=0), np.abs(x - rounded).max(axis=0)
        with self._lock:
            self._low, self._high = np.minimum(self._low, low), np.maximum(self._high, high)
            self._error = np.maximum(self._error, error)
            for part in (slice(0, ROWS), slice(ROWS, None)):  # most features need the first alone
                for j in (j for j, left in enumerate(self._left) if len(left) < ENOUGH):
                    self._given[j].update(np.unique(x[part, j])[:ENOUGH].tolist())
                    self._left[j].update(np.unique(rounded[part, j])[:ENOUGH].tolist())

    @property
    def _counts(self) -> tuple[I64, I64]:
        """Distinct values of each feature as it was given and as it is left, up to `ENOUGH`."""
        given, left = (
            [min(len(one), ENOUGH) for one in ones] for ones in (self._given, self._left)
        )
        return np.array(given), np.array(left)

    @property
    def varies(self) -> NDArray[np.bool_]:
        """(d,) bool: whether the values that were given differ by more than `NOISE`."""
        size = np.maximum(np.abs(self._low), np.abs(self._high))
        varies: NDArray[np.bool_] = ~self._known & (self._high - self._low > NOISE * size)
        return varies

    @property
    def lost(self) -> NDArray[np.bool_]:
        """(d,) bool: features that vary, and of which rounding leaves a single value."""
        lost: NDArray[np.bool_] = self.varies & (self._counts[1] == 1)
        return lost

    @property
    def thin(self) -> NDArray[np.bool_]:
        """(d,) bool: those that keep fewer than `ENOUGH` values, and fewer than they have."""
        given, left = self._counts
        thin: NDArray[np.bool_] = self.varies & (left < given)
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
        left = np.where(self.thin, self._counts[1], ENOUGH)
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
