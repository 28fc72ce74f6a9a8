"""The round before all others: how features are brought to one scale; `import` takes its file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError, UsageError
from ..math import scaling
from ..math.gram import Rows, real
from ..memory import NOTHING, Carried
from ..options.features import MethodOptions, UnitsOptions
from ..values.arrays import F64, I64
from ..values.names import Phase
from ..values.statistics import ArraySpec, Statistics
from .base import Block, Found, Gathered, Head, add_up, state
from .options import HeadOptions


@dataclass(frozen=True, kw_only=True)
class ScalingOptions(MethodOptions, UnitsOptions, HeadOptions):
    """What is summed before features are scaled, and how they are scaled."""


@dataclass(frozen=True, eq=False)
class ScalingHead(Head):
    """(x − centre) / spread, of real rows with NaN for missing values."""

    name: ClassVar[str] = "scaling"
    serves: ClassVar[str] = "afltool import ROWS --scale {} scales a site's rows"

    options: ScalingOptions
    tells: bool = True  # minimum and maximum, which are of single rows and no sums
    centre: F64 | None = state()
    spread: F64 | None = state()
    mean: F64 | None = state()
    constant: I64 | None = state(np.int64)
    missing: I64 | None = state(np.int64)  # rows without a value, by feature

    def phase(self) -> Phase | None:
        return Phase("scaling") if self.centre is None else None

    def _state_shapes(self) -> dict[str, tuple[int | None, ...]]:
        names = () if self.phase() else ("centre", "spread", "mean", "constant", "missing")
        return dict.fromkeys(names, (self.dim,))

    def _sums(self, blocks: Iterable[Block], carried: Carried = NOTHING) -> Gathered:
        o = self.options
        sums = dict(add_up(scaling.sums(x, o.unit_bits, o.bins, i) for i, x in _parts(blocks)))
        return {name: sums[name] for name in self.array_specs(None)}, NOTHING

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        """Those of `math.scaling.sums`, whatever type the features have."""
        dim, o = self._bound()[0], self.options
        value = ArraySpec((dim,), "int", scaling.LIMIT)
        specs = {
            "counts": ArraySpec((dim,), "count", 1),
            "sums": value,
            "squares": replace(value, shape=(3, dim)),
        }
        if self.tells:
            specs |= {"minimum": value, "maximum": value}
        if o.bins:
            specs["histogram"] = ArraySpec((dim, scaling.width(o.bins)), "count", 1)
        return specs

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        o, sums = self.options, dict(total.arrays)
        if not (full := sums["counts"] > 0).all():
            raise InvalidDataError(
                f"feature {int(full.argmin())} has no value in any of the {total.rows} rows "
                f"({int((~full).sum())} such features): leave it out at every site"
            )
        state = scaling.scale(sums, o.unit_bits, o.bins, o.method)
        missing = total.rows - sums["counts"]
        exact = o.method != "robust" and (o.method != "minmax" or scaling.told(sums))
        facts = {
            "method": o.method,
            "rows": total.rows,
            "exact": exact,
            "constant_features": np.flatnonzero(state["constant"]).tolist(),
            "features_with_missing": np.flatnonzero(missing).tolist(),
        }
        return self._with(**state, missing=missing), Found(head=facts)

    def scores(self, X: Rows) -> NDArray[np.float64]:
        raise UsageError("a scaling gives no scores: afltool import --scale takes its file")

    # ------------------------------------------------------------ what import does with it

    def holes(self) -> list[int]:
        """Features that some row lacks."""
        return [int(j) for j in np.flatnonzero(self.arrays()["missing"])]

    def scaled(self, x: F64, missing: str, first_row: int = 0) -> F64:
        """Rows (n, d) as they are imported; with 'indicator' a 0/1 column for each of `holes`.

        ``missing``: what becomes of NaN: refused, or the mean over all sites.
        """
        known, lacks = self.arrays(), np.isnan(x)
        if missing == "refuse" and lacks.any():
            row, column = np.argwhere(lacks)[0]
            raise InvalidDataError(
                f"row {first_row + row}, feature {column} is missing (NaN), as {int(lacks.sum())} "
                "values here: --missing mean puts the mean of all sites there, --missing indicator "
                "also adds a column",
                feature=int(column),
            )
        rows = (np.where(lacks, known["mean"], x) - known["centre"]) / known["spread"]
        return np.hstack([rows, lacks[:, self.holes()]]) if missing == "indicator" else rows


def _parts(blocks: Iterable[Block]) -> Iterator[tuple[int, F64]]:
    """Rows, at most so many at a time that their sums fit, with the number of the first one."""
    first = 0
    for X, _ in blocks:
        x = real(X)
        for start in range(0, max(len(x), 1), scaling.BLOCK):
            yield first + start, x[start : start + scaling.BLOCK]
        first += len(x)


OPTIONS, HEAD = ScalingOptions, ScalingHead
