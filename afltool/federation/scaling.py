"""The first round of a session that scales: sums of raw features, exact, and what follows of them.

x stands as q = round(x 2^u), |q| ≤ 2^31, with the agreed range |x| ≤ 2^m and u = 31 − m. Sent are
Σq and Σq², in two parts of 31 bits, and the class counts: no extremes, no bins, no counts of what
is missing. Mean and deviation are rounded once from exact fractions, so they have the same bits on
every machine, and nobody sends them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidDataError
from ..math.gram import check_labels, encode
from ..values.arrays import F64, I64, Array
from ..values.names import Phase
from ..values.statistics import Statistics
from .compute import ArraySpec

PART = 31
SUMS, SQUARES = "sums", "squares"
Raw = tuple[Array, I64]  # rows (n, d) as a site has them, and their labels (n,)


@dataclass(frozen=True)
class Scaling:
    """Sums for the scale of ``dim`` features within ±2^``reach``."""

    dim: int
    reach: int
    classes: int

    def phase(self) -> Phase:
        return Phase("scale")

    def digest(self) -> str:
        return f"scale {self.dim} {self.reach}"

    def specs(self) -> dict[str, ArraySpec]:
        most = 1 << PART
        return {SUMS: ArraySpec((self.dim,), "int", most),
                SQUARES: ArraySpec((2, self.dim), "int", most)}  # fmt: skip

    def statistics_of(self, blocks: Iterable[Raw]) -> Statistics:
        sums, squares = np.zeros(self.dim, np.int64), np.zeros((2, self.dim), np.int64)
        counts, first = np.zeros(self.classes, np.int64), 0
        for X, y in blocks:
            check_labels(y, self.classes)
            x = np.asarray(X, np.float64)
            beyond = np.argwhere(~(np.abs(x) <= 2.0**self.reach))
            if len(beyond):
                row, column = beyond[0]
                raise InvalidDataError(
                    f"row {first + row}, feature {column} is {x[row, column]:.6g}: expected a "
                    f"number within ±{2.0**self.reach:g}, as agreed"
                )
            q = np.rint(x * 2.0 ** (PART - self.reach)).astype(np.int64)
            high, low = np.divmod(q * q, 1 << PART)
            sums += q.sum(axis=0)
            squares += np.stack([low.sum(axis=0), high.sum(axis=0)])
            counts += np.bincount(y, minlength=self.classes)
            first += len(x)
        return Statistics(self.phase(), {SUMS: sums, SQUARES: squares}, counts)


@dataclass(frozen=True)
class Scale:
    """x → (x − ``mean``) / ``deviation``, each (d,); a constant feature has the deviation 1."""

    mean: F64
    deviation: F64

    @classmethod
    def of(cls, total: Statistics, reach: int) -> Scale:
        """As scikit-learn's StandardScaler on all rows, rounded to units."""
        n, u = total.rows, PART - reach
        if not n:
            raise InvalidDataError("there are 0 rows: nothing to scale by")
        low, high = (part.tolist() for part in total.arrays[SQUARES])
        sums = total.arrays[SUMS].tolist()
        squares = [a + (b << PART) for a, b in zip(low, high, strict=True)]
        mean = np.array([t / (n << u) for t in sums])
        spread = [(n * s - t * t) / (n * n << 2 * u) for t, s in zip(sums, squares, strict=True)]
        if min(spread) < 0:
            raise InvalidDataError(
                "the sums of squares are too small for the sums: no rows have them"
            )
        deviation = np.sqrt(np.array(spread))
        return cls(mean, np.where(deviation == 0, 1.0, deviation))

    def rows(self, X: Array, bits: int, first_row: int) -> I64:
        """Raw rows as the session's int16 features; nothing is clipped."""
        z = (np.asarray(X, np.float64) - self.mean) / self.deviation
        return np.asarray(encode(z, bits, first_row))
