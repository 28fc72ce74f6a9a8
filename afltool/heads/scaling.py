"""The round before all others: how features are brought to one scale; `import` takes its file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from pydantic.dataclasses import dataclass as pydantic_dataclass

from ..errors import InvalidDataError
from ..math import scaling
from ..math.gram import real
from ..memory import NOTHING, Carried
from ..options.features import UnitsOptions
from ..values.arrays import F64, I64
from ..values.names import Phase
from ..values.statistics import ArraySpec, Statistics
from .base import Block, Found, Gathered, Shape, Task, add_up, state
from .options import HeadOptions


@pydantic_dataclass(frozen=True, kw_only=True)
class ScalingOptions(UnitsOptions, HeadOptions):
    """How values are summed before features are scaled."""

    GONE: ClassVar[Mapping[str, Any]] = {"method": "standard", "bins": 0}


@dataclass(frozen=True, eq=False)
class ScalingHead(Task):
    """(x − centre) / spread, of real rows with NaN for missing values."""

    name: ClassVar[str] = "scaling"
    serves: ClassVar[str] = "afltool import ROWS --scale {} scales a site's rows"

    options: ScalingOptions
    centre: F64 | None = state()
    spread: F64 | None = state()
    mean: F64 | None = state()
    constant: I64 | None = state(np.int64)
    missing: I64 | None = state(np.int64)  # rows without a value, by feature

    def phase(self) -> Phase | None:
        return Phase("scaling") if self.centre is None else None

    def _state_shapes(self) -> Mapping[str, Shape]:
        names = () if self.phase() else ("centre", "spread", "mean", "constant", "missing")
        return dict.fromkeys(names, (self.dim,))

    def _sums(self, blocks: Iterable[Block], carried: Carried = NOTHING) -> Gathered:
        bits = self.options.unit_bits
        return add_up(scaling.sums(x, bits, i) for i, x in _parts(blocks)), NOTHING

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        """Those of `math.scaling.sums`, whatever type the features have."""
        dim = self._bound()[0]
        value = ArraySpec((dim,), "int", scaling.LIMIT)
        return {
            "counts": ArraySpec((dim,), "count", 1),
            "sums": value,
            "squares": replace(value, shape=(3, dim)),
        }

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        sums = dict(total.arrays)
        if not (full := sums["counts"] > 0).all():
            raise InvalidDataError(
                f"feature {int(full.argmin())} has no value in any of the {total.rows} rows "
                f"({int((~full).sum())} such features): leave it out at every site"
            )
        wrong = scaling.beyond(sums)
        if len(wrong):
            raise InvalidDataError(
                f"these cannot be the statistics of any {total.rows} rows: feature {wrong[0]} has "
                "a sum that its sum of squares does not allow; make them again"
            )
        state: dict[str, Any] = scaling.scale(sums, self.options.unit_bits)
        missing = total.rows - sums["counts"]
        facts = {
            "rows": total.rows,
            "constant_features": np.flatnonzero(state["constant"]).tolist(),
            "features_with_missing": np.flatnonzero(missing).tolist(),
        }
        return replace(self, **state, missing=missing), Found(head=facts)

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
