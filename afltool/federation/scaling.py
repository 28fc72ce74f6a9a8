"""The first round of a session that scales: sums of raw features, exact, and what follows of them.

x stands as q = round(x 2^u), |q| ≤ 2^31, with the agreed range |x| ≤ 2^m and u = 31 − m. Sent are
Σq and Σq², in two parts of 31 bits, and the class counts: no extremes, no bins, no counts of what
is missing. Mean and deviation are rounded once from exact fractions, so they have the same bits on
every machine, and nobody sends them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from ..errors import InvalidDataError
from ..heads import conditions
from ..heads.base import Block, Found, Gathered, add_up
from ..heads.scaling import ScalingHead, ScalingOptions
from ..math.gram import real
from ..memory import NOTHING, Carried
from ..values.arrays import Array
from ..values.statistics import ArraySpec, Statistics

PART = 31  # bits of |q|


@dataclass(frozen=True, eq=False)
class Scaling(ScalingHead):
    """x → (x − ``centre``) / ``spread``, each (d,), where no row lacks a value."""

    @classmethod
    def within(cls, reach: int) -> Self:
        """``reach``: m."""
        return cls(ScalingOptions(unit_bits=PART - reach))

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        (dim, _), most = self._bound(), 1 << PART
        return {"sums": ArraySpec((dim,), "int", most), "squares": ArraySpec((2, dim), "int", most)}

    def _sums(self, blocks: Iterable[Block], carried: Carried = NOTHING) -> Gathered:
        first, parts, bits = 0, list[dict[str, Array]](), self.options.unit_bits
        for X, _ in blocks:
            q = np.rint(real(X) * 2.0**bits)
            for row, column in np.argwhere(~(np.abs(q) <= 2.0**PART))[:1]:
                raise InvalidDataError(
                    f"row {first + row}, feature {column} is {real(X)[row, column]:.6g}: expected "
                    f"a number within ±{2.0 ** (PART - bits):g}, as agreed"
                )
            whole = q.astype(np.int64)
            high, low = np.divmod(whole * whole, 1 << PART)
            squares = np.stack([low.sum(0), high.sum(0)])
            parts.append({"sums": whole.sum(0), "squares": squares})
            first += len(q)
        return add_up(parts), NOTHING

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        low, high = total.arrays["squares"].astype(object)
        squares = np.stack([low + (high << PART), 0 * low, 0 * low])
        counts = np.full(len(low), total.rows)
        whole = replace(total, arrays={**total.arrays, "squares": squares, "counts": counts})
        conditions.check(whole)
        return super()._solve(whole, validation)
