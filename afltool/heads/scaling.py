"""The round before all others: how features are brought to one scale; `import` takes its file.

A value x stands as the integer q = round(x · 2^u), |q| < 2^47, so that sums are exact. q² is summed
in three limbs of 24 bits, q² = c0 + c1 2^24 + c2 2^48 with c1 < 2^25. NaN is a missing value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from pydantic.dataclasses import dataclass as pydantic_dataclass

from ..errors import InvalidDataError
from ..math.gram import pieces, real, refuse_entries
from ..memory import NOTHING, Carried
from ..options.base import option
from ..options.features import UNITS
from ..values.arrays import F64, I64, Array
from ..values.names import Phase
from ..values.statistics import ArraySpec, Statistics
from .base import Block, Found, Gathered, Shape, Task, add_up, state
from .options import HeadOptions

REACH = 47  # bits of |q|
LIMIT = 2**REACH
LIMB = 24
BLOCK = 2**15  # rows summed at a time: their sums stay within int64
Sums = dict[str, Array]


@pydantic_dataclass(frozen=True, kw_only=True)
class ScalingOptions(HeadOptions):
    """How values are summed before features are scaled."""

    GONE: ClassVar[Mapping[str, Any]] = {"method": "standard", "bins": 0}

    unit_bits: int = option(24, UNITS, ge=0, le=40)


@dataclass(frozen=True, eq=False)
class ScalingHead(Task):
    """(x − centre) / spread, of real rows with NaN for missing values."""

    name = "scaling"

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
        return add_up(compute_sums(x, bits, i) for i, x in _parts(blocks)), NOTHING

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        """Those of `math.sums`, whatever type the features have."""
        dim = self._bound()[0]
        value = ArraySpec((dim,), "int", LIMIT)
        return {
            "counts": ArraySpec((dim,), "count", 1),
            "sums": value,
            "squares": replace(value, shape=(3, dim)),
        }

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        sums = dict(total.arrays)
        if not (full := sums["counts"] > 0).all():
            why = f"feature {int(full.argmin())} has no value in any of the {total.rows} rows"
            raise InvalidDataError(f"{why}: leave it out at every site")
        n, q = (sums[name].astype(object) for name in ("counts", "sums"))
        if len(wrong := np.flatnonzero(q**2 > n * squares(sums))):
            raise InvalidDataError(
                f"these cannot be the statistics of any {total.rows} rows: the sum of feature "
                f"{wrong[0]} is beyond what its sum of squares allows; make them again"
            )
        state: dict[str, Any] = compute_scale(sums, self.options.unit_bits)
        missing = total.rows - sums["counts"]
        facts = {
            "rows": total.rows,
            "constant_features": np.flatnonzero(state["constant"]).tolist(),
            "features_with_missing": np.flatnonzero(missing).tolist(),
        }
        return replace(self, **state, missing=missing), Found(head=facts)

    def holes(self) -> list[int]:
        """Features that some row lacks."""
        return [int(j) for j in np.flatnonzero(self.state_dict()["missing"])]

    def transform(self, x: F64, missing: str, first_row: int = 0) -> F64:
        """Rows (n, d) as they are imported; ``missing``: NaN is refused, or the mean of all sites,
        with 'indicator' beside a 0/1 column for each of `holes`."""
        known, lacks = self.state_dict(), np.isnan(x)
        if missing == "refuse" and lacks.any():
            row, column = np.argwhere(lacks)[0]
            raise InvalidDataError(
                f"row {first_row + row}, feature {column} is missing (NaN), as {int(lacks.sum())} "
                "values here: give --missing mean or indicator",
                feature=int(column),
            )
        rows = (np.where(lacks, known["mean"], x) - known["centre"]) / known["spread"]
        return np.hstack([rows, lacks[:, self.holes()]]) if missing == "indicator" else rows


def _parts(blocks: Iterable[Block]) -> Iterator[tuple[int, F64]]:
    """Rows, at most so many at a time that their sums fit, with the number of the first one."""
    first = 0
    for X, y in pieces(blocks, BLOCK):
        yield first, real(X)
        first += len(y)


def round_values(x: Array, bits: int, first_row: int = 0) -> F64:
    """q as float64 (n, d), exactly; NaN where a value is missing.
    Raises `InvalidDataError` for infinity and |q| ≥ 2^47, with row, feature and value."""
    q: F64 = np.rint(np.multiply(x, 2.0**bits, dtype=np.float64))
    why = (
        f", beyond the range ±{LIMIT / 2.0**bits:.6g} of sums in units of 2^-{bits}: correct the "
        "value, or let all sites take fewer unit bits"
    )
    refuse_entries(x, np.abs(q) >= LIMIT, first_row, why)
    return q


def compute_sums(x: Array, bits: int, first_row: int = 0) -> Sums:
    """``counts``, ``sums`` (d,) and ``squares`` (3, d) of at most `BLOCK` rows x (n, d), int64."""
    exact = round_values(x, bits, first_row)
    known = ~np.isnan(exact)
    q = np.where(known, exact, 0.0).astype(np.int64)
    high, low = np.divmod(np.abs(q), 1 << LIMB)
    middle, least = 2 * high * low, low * low
    part = (1 << LIMB) - 1
    limbs = least & part, (least >> LIMB) + (middle & part), (middle >> LIMB) + high * high
    return {
        "counts": known.sum(axis=0, dtype=np.int64),
        "sums": q.sum(axis=0),
        "squares": np.stack([limb.sum(axis=0) for limb in limbs]),
    }


def squares(sums: Sums) -> list[int]:
    """Σq² of each feature."""
    return [sum(int(c) << (LIMB * i) for i, c in enumerate(limbs)) for limbs in sums["squares"].T]


def compute_scale(sums: Sums, bits: int) -> Sums:
    """What sums give, each (d,): ``centre`` and ``mean`` Σx/n, ``spread`` √(Σx²/n − (Σx/n)²), each
    rounded once from the exact fraction, as StandardScaler's; 1 instead of 0, and there
    ``constant`` is 1."""
    n, total = ([int(v) for v in sums[name]] for name in ("counts", "sums"))
    mean = np.array([t / (k << bits) for t, k in zip(total, n, strict=True)])
    every = zip(n, total, squares(sums), strict=True)
    spread = np.sqrt([(k * s - t * t) / (k * k << 2 * bits) for k, t, s in every])
    same = spread == 0.0
    scale = {"centre": mean, "spread": np.where(same, 1.0, spread)}
    return {**scale, "mean": mean, "constant": same.astype(np.int64)}


OPTIONS = ScalingOptions
