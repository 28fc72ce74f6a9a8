"""SAFLe: a non-linear head from counts; it still needs one sum and one solve.

Bacellar et al., "Single-Round Scalable Analytic Federated Learning", CVPR 2026 (arXiv 2512.03336).
Thresholds make digits of features (3), a shuffle makes codes of digits (4), and scores are sums of
table rows, Σ_j W_j[idx_j] (5). By lemma 1 that is linear in the one-hot codes Φ, so the tables
solve (ΦᵀΦ + λI) W = ΦᵀY, whose entries are counts (12)–(18). With ``with_linear`` the raw
features are in the same problem, Φ⁺ = [x, Φ].

Phases: 'histogram' if the clients find the thresholds together, then 'codes'.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ... import cores
from ...errors import InvalidDataError, MismatchError, UsageError
from ...math import codes as cd
from ...math.counts import pair_count
from ...math.gram import FixedPoint, Rows, real
from ...memory import NOTHING, Carried
from ...progress import log
from ...values.arrays import F64, Array
from ...values.names import CROSS, Phase
from ...values.parsed import parse_ridge
from ...values.statistics import ArraySpec, Statistics
from ..base import (
    LAST,
    Block,
    Found,
    Gathered,
    Head,
    Source,
    add_up,
    expect_shape,
    products,
    state,
)
from .counting import Collector
from .options import BYTES_A_PAIR, SafleOptions
from .system import CountedSystem

HISTOGRAM, CODES = Phase("histogram"), Phase("codes")


@dataclass(frozen=True, eq=False)
class SafleHead(Head):
    """Tables of scores, looked up by codes of bucketed features.

    ``thresholds`` (d, T), once they are learned; ``digits`` (E, G) and ``tables`` (E, V, C), once
    the head is solved; ``linear`` (d, C) of a hybrid.
    """

    name = "safle"
    options: SafleOptions
    thresholds: F64 | None = state()
    digits: NDArray[np.int64] | None = state(np.int64)
    tables: F64 | None = state()
    linear: F64 | None = state()

    @classmethod
    def begin(cls, options: Any, sources: Mapping[str, Source] | None = None) -> Self:
        source = (sources or {}).get("thresholds")
        if source is None:
            return cls(options)
        named = replace(options, thresholds=f"{source.kind}:{source.digest}")
        return cls(named, thresholds=thresholds_of(source, options))

    # ------------------------------------------------------------ the four verbs

    def phase(self) -> Phase | None:
        if self.tables is not None:
            return None
        to_find = self.options.federated and self.thresholds is None
        return HISTOGRAM if to_find else CODES

    def every_phase(self) -> tuple[Phase, ...]:
        return HISTOGRAM, CODES

    def _sums(self, blocks: Iterable[Block], carried: Carried) -> Gathered:
        """The phase's additive arrays; those of codes are counted in place, block by block.

        histogram: ``histogram`` (d, bins). codes: ``labels`` (E, V, C) = ΦᵀY and ``pairs``
        (E(E−1)/2, V−1, V−1), the blocks of ΦᵀΦ; for a hybrid also ``gram`` (a triangle), ``cross``
        (d, C) and ``sums`` (E, V−1, d) = Φᵀx. Codes 0 follow from the others. All are integers
        (hybrids of float features: reals).
        """
        if self.phase() == HISTOGRAM:
            counts = cores.each(
                lambda b: cd.histogram(b[0]), blocks, lambda b: self.room(len(b[1]))
            )
            return add_up({HISTOGRAM: one} for one in counts), NOTHING
        self.options.check_room(self._bound()[0], solving=False)
        collector = Collector(self.coder(), self._bound()[1], self.options.with_linear)
        sums = 8 * math.prod(collector.shape)
        for counted in cores.each(collector.of, blocks, lambda b: sums + self.room(len(b[1]))):
            collector.add(counted)
        return collector.result(), NOTHING

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        o, (dim, classes) = self.options, self._bound()
        if self.phase() == HISTOGRAM:
            return {HISTOGRAM: ArraySpec((dim, len(cd.grid(bits))), "count", 1, cells=(1,))}
        experts, codes = o.experts_for(dim), o.size - 1
        specs = {
            "labels": ArraySpec((experts, o.size, classes), "count", 1, cells=(1, 2)),
            "pairs": ArraySpec((pair_count(experts), codes, codes), "count", 1),
        }
        if not o.with_linear:
            return specs
        raw = products(dim, classes, bits is not None)
        cross = raw[CROSS]
        return {**specs, **raw, "sums": ArraySpec((experts, codes, dim), cross.kind, cross.per_row)}

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """Thresholds from histograms, or tables from counts by a ridge regression."""
        self.options.check_room(self._bound()[0])
        if self.phase() == HISTOGRAM:
            return self._with_thresholds(total)
        return self._solved(total, validation)

    def scores(self, X: Rows) -> NDArray[np.float64]:
        """Σ_j W_j[idx_j] (+ x·W of a hybrid), float64 (n, C): E table rows added for each row."""
        if self.tables is None:
            raise UsageError("the head is not solved yet")
        out = np.zeros((len(X), self.tables.shape[2]))
        for table, row in zip(self.tables, self.coder().codes(X), strict=True):
            out += table[row]
        return out if self.linear is None else out + real(X) @ self.linear

    def round_features(self, X: Rows) -> Iterator[tuple[Phase, Array]]:
        """Φ (n, D), dense: the one-hot codes, after the rows themselves if they are fitted too."""
        if self.phase() is None:
            yield LAST, self.expanded(X)

    def expanded(self, X: Rows) -> NDArray[np.float64]:
        """Φ (n, D) or Φ⁺ = [x, Φ] (n, d + D), dense float64: for a few rows."""
        hot = cd.one_hot(self.coder().codes(X), self.options.size)
        return np.hstack([real(X), hot]) if self.options.with_linear else hot

    # ------------------------------------------------------------ state

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        head = super().restore(phase, arrays)
        if head.thresholds is not None:
            expect_shape("thresholds", head.thresholds, (None, self.options.each))
        end = 0 if head.digits is None else self.options.digits_for(len(arrays["thresholds"]))
        if head.digits is not None and not 0 <= head.digits.min() <= head.digits.max() < end:
            raise InvalidDataError(f"digits of a head run from 0 to {end - 1}; it has others")
        return head

    def _state_shapes(self) -> dict[str, tuple[int | None, ...]]:
        if self.tables is None:
            return {}
        o, (dim, classes) = self.options, self._bound()
        experts = o.experts_for(dim)
        shapes: dict[str, tuple[int | None, ...]] = {
            "thresholds": (dim, o.each),
            "digits": (experts, o.digits_of_code),
            "tables": (experts, o.size, classes),
        }
        return shapes | ({"linear": (dim, classes)} if o.with_linear else {})

    def bind(self, dim: int, classes: int) -> Self:
        if self.thresholds is not None and len(self.thresholds) != dim:
            raise MismatchError(
                f"the thresholds ({self.options.thresholds}) are for {len(self.thresholds)} "
                f"features; found {dim}"
            )
        return super().bind(dim, classes)

    # ------------------------------------------------------------ codes

    @property
    def digits_used(self) -> int:
        """The number of digits of a row, of d·L, that are part of a code."""
        o, (dim, _) = self.options, self._bound()
        return min(o.digits_for(dim), o.experts_for(dim) * o.digits_of_code)

    def coder(self) -> cd.Coder:
        """Rows → codes, once the thresholds are known."""
        return cd.coder(self._cuts(), self.options.bucketing, self.options.buckets, self._dealt())

    def _dealt(self) -> NDArray[np.int64]:
        if self.digits is not None:
            return self.digits
        o, (dim, _) = self.options, self._bound()
        return cd.deal(o.digits_for(dim), o.experts_for(dim), o.digits_of_code, o.seed)

    def _cuts(self) -> NDArray[np.float64]:
        """Thresholds (d, T), learned or in even steps; `UsageError` if their file is missing."""
        if self.thresholds is not None:
            return self.thresholds
        o, (dim, _) = self.options, self._bound()
        if o.steps is None:
            raise UsageError(
                f"this head has no thresholds ({o.thresholds}): give the head file that `afltool "
                "head` wrote"
            )
        return cd.even_thresholds(*o.steps, o.bucketing, o.buckets, dim)

    # ------------------------------------------------------------ solving

    def _with_thresholds(self, total: Statistics) -> tuple[Self, Found]:
        bits = total.context.space.get("fraction_bits")
        thresholds = _quantiles(total.arrays[HISTOGRAM], bits, self.options)
        self.say_digits()
        facts = {"rows": total.rows, "thresholds": "quantiles of federated histograms"}
        return replace(self, thresholds=thresholds), Found(head=facts)

    def _solved(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        o, (dim, classes) = self.options, self._bound()
        if not o.federated:  # otherwise the round before has already warned
            self.say_digits()
        held = None if validation is None else CountedSystem(validation).mean_squared_error
        W, report = CountedSystem(total).solve(parse_ridge(o.ridge), o.linear_ridge, held)
        raw = dim * o.with_linear
        solved = replace(
            self, thresholds=self._cuts(), digits=self._dealt(), linear=W[:raw] if raw else None,
            tables=W[raw:].reshape(-1, o.size, classes),
        )  # fmt: skip
        report |= {"rows": total.rows, "experts": o.experts_for(dim), "size": o.size}
        report |= o.figures(CODES, lambda: total.arrays)
        report |= {"digits": o.digits_for(dim), "digits_used": self.digits_used}
        return solved, Found(head=report)

    def say_digits(self) -> None:
        """Warn if codes leave digits out, and name the settings that would use all of them."""
        o, (dim, _) = self.options, self._bound()
        digits, used, every = o.digits_for(dim), self.digits_used, o.experts_for_all(dim)
        if used < digits:
            side = every * o.size + dim * o.with_linear
            log.warning(
                "safle: %d codes of %d digits use %d of the %d digits of a row, %d (%.0f %%) are "
                "left out; --experts %d uses all of them: %d columns, %.2g GB to solve",
                o.experts_for(dim), o.group_size, used, digits, digits - used,
                100 * (1 - used / digits), every, side, BYTES_A_PAIR * side**2 / 1e9,
            )  # fmt: skip


def thresholds_of(source: Source, options: SafleOptions) -> F64:
    """Thresholds (d, T) from the file of --thresholds: those of a head, or quantiles of rows.

    They are the same for all clients, since equal rows give equal ones.
    """
    if source.kind == "head":
        thresholds = np.asarray(source.arrays.get("thresholds", np.empty((0, 0))), dtype=np.float64)
        if thresholds.ndim != 2 or thresholds.shape[1] != options.each:
            raise MismatchError(
                f"that head has {thresholds.shape[-1]} thresholds per feature; --bucketing "
                f"{options.bucketing} with --buckets {options.buckets} needs {options.each}"
            )
        return thresholds
    counts, bits = None, None
    for X in source.blocks:
        bits = X.bits if isinstance(X, FixedPoint) else None
        of_block = cd.histogram(X)
        counts = of_block if counts is None else counts + of_block
    if counts is None:
        raise InvalidDataError("the file for --thresholds has no rows")
    return _quantiles(counts, bits, options)


def _quantiles(counts: Array, bits: int | None, options: SafleOptions) -> F64:
    """Quantiles (d, T) from counts (d, bins) of features with ``bits`` fraction bits."""
    return cd.quantiles(counts, cd.levels(options.bucketing, options.buckets), cd.grid(bits))


HEAD = SafleHead
