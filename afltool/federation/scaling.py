"""The first round of a session that scales: sums of raw features, exact, and what follows of them.

x stands as q = round(x 2^u), |q| ≤ 2^31, with the agreed range |x| ≤ 2^m and u = 31 − m. Sent are
Σq and Σq², in two parts of 31 bits, and the class counts: no extremes, no bins, no counts of what
is missing. Mean and deviation are rounded once from exact fractions, so they have the same bits on
every machine, and nobody sends them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from ..errors import InvalidDataError, UsageError
from ..heads.base import Block, Found, Gathered, Head, add_up
from ..heads.options import HeadOptions
from ..math.gram import Rows, encode
from ..memory import NOTHING, Carried
from ..values.arrays import F64, Array
from ..values.names import Phase
from ..values.statistics import ArraySpec, Statistics

PART = 31
SUMS, SQUARES = "sums", "squares"
Z = tuple[F64, F64]


@dataclass(frozen=True, eq=False)
class Scaling(Head):
    """x → (x − ``mean``) / ``deviation``, each (d,); a constant feature has the deviation 1."""

    name: ClassVar[str] = "session-scale"
    reach: int = 0  # m
    found: Z | None = None

    @classmethod
    def within(cls, reach: int) -> Self:
        return cls(HeadOptions(), reach=reach)

    def phase(self) -> Phase | None:
        return Phase("scale") if self.found is None else None

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        dim, _ = self._bound()
        most = 1 << PART
        return {SUMS: ArraySpec((dim,), "int", most), SQUARES: ArraySpec((2, dim), "int", most)}

    def _sums(self, blocks: Iterable[Block], carried: Carried) -> Gathered:
        first, parts = 0, list[dict[str, Array]]()
        for X, _ in blocks:
            x = np.asarray(X, np.float64)
            beyond = np.argwhere(~(np.abs(x) <= 2.0**self.reach))
            if len(beyond):
                row, column = beyond[0]
                raise InvalidDataError(
                    f"row {first + row}, feature {column} is {x[row, column]:.6g}: expected a "
                    f"number within ±{2.0**self.reach:g}, as agreed"
                )
            q = np.rint(x * 2.0 ** (PART - self.reach)).astype(np.int64)
            halves = np.divmod(q * q, 1 << PART)[::-1]
            parts.append({SUMS: q.sum(0), SQUARES: np.stack([half.sum(0) for half in halves])})
            first += len(x)
        return add_up(parts), NOTHING

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """As scikit-learn's StandardScaler on all rows, rounded to units."""
        n, u = total.rows, PART - self.reach
        sums, (low, high) = total.arrays[SUMS].tolist(), total.arrays[SQUARES].tolist()
        squares = [a + (b << PART) for a, b in zip(low, high, strict=True)]
        spread = [(n * s - t * t) / (n * n << 2 * u) for t, s in zip(sums, squares, strict=True)]
        if min(spread) < 0:
            raise InvalidDataError("the sums of squares are too small: no rows have such sums")
        deviation = np.sqrt(np.array(spread))
        mean = np.array([t / (n << u) for t in sums])
        found = mean, np.where(deviation == 0, 1.0, deviation)
        return replace(self, found=found), Found()

    def scaled(self, X: Array, bits: int, first_row: int) -> Array:
        """Raw rows as int16 features with so many fraction bits; nothing is clipped."""
        assert self.found is not None
        mean, deviation = self.found
        return encode((np.asarray(X, np.float64) - mean) / deviation, bits, first_row)

    def scores(self, X: Rows) -> F64:
        raise UsageError("a scale gives no scores")
