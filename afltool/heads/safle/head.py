"""SAFLe: a non-linear head from counts; it still needs one sum and one solve.

Bacellar et al., "Single-Round Scalable Analytic Federated Learning", CVPR 2026 (arXiv 2512.03336).
Thresholds make digits of features (3), a shuffle makes codes of digits (4), and scores are sums of
table rows, Σ_j W_j[idx_j] (5). By lemma 1 that is linear in the one-hot codes Φ, so the tables
solve (ΦᵀΦ + λI) W = ΦᵀY, whose entries are counts (12)–(18); with ``with_linear`` of Φ⁺ = [x, Φ].
Phases: 'histogram' if the clients find the thresholds together, then 'codes'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from ... import memory, parallel
from ...errors import InvalidDataError, UsageError
from ...math import codes as cd
from ...math.counts import add_labels, add_pairs, add_sums, density, pair_count
from ...math.gram import FixedPoint, Rows, gram_and_cross, real
from ...memory import NOTHING, Carried
from ...values.arrays import F64, I64, Array
from ...values.names import CROSS, GRAM, Phase
from ...values.ridge_spec import parse_ridge
from ...values.statistics import ArraySpec, Statistics
from .. import base
from ..base import Block, Found, Gathered, Head, Shape, State, require_solved, state
from ..least_squares import with_rows
from .options import FEDERATED, SafleOptions
from .system import CountedSystem

HISTOGRAM, CODES = Phase("histogram"), Phase("codes")
ROWS_AT_ONCE = 2**16  # rows whose pairs are counted together: fewer passes, E bytes a row


class Codes(base.FeatureMap):
    """The one-hot codes Φ, or Φ⁺ = [x, Φ] of a hybrid, dense float64: for a few rows."""

    fewer = "use fewer --experts or a smaller --group-size"

    def __init__(self, options: SafleOptions, coder: cd.Coder | None) -> None:
        self._options, self._coder = options, coder

    def columns(self, dim: int) -> int:
        return self._options.columns_for(dim)

    def numbers(self, dim: int) -> int:
        return dim  # sums and scores take the codes, of a byte or two

    def rows(self, X: Rows, known: State | None = None) -> tuple[Rows, State]:
        hot = cd.one_hot(require_solved(self._coder).codes(X), self._options.size)
        return np.hstack([real(X), hot]) if self._options.with_linear else hot, {}


@dataclass(frozen=True, eq=False)
class SafleHead(Head):
    """``thresholds`` (d, T), once they are learned; ``digits`` (E, G) and ``tables`` (E, V, C) of
    scores, once the head is solved; ``linear`` (d, C) of a hybrid."""

    name = "safle"
    options: SafleOptions
    thresholds: F64 | None = state()
    digits: I64 | None = state(np.int64)
    tables: F64 | None = state()
    linear: F64 | None = state()

    def phase(self) -> Phase | None:
        if self.tables is not None:
            return None
        to_find = self.options.federated and self.thresholds is None
        return HISTOGRAM if to_find else CODES

    @cached_property
    def features(self) -> base.FeatureMap:
        return Codes(self.options, None if self.phase() == HISTOGRAM else self.coder())

    def schedule(self) -> tuple[Phase, ...]:
        return (HISTOGRAM, CODES) if self.options.federated else (CODES,)

    def _part(self, X: Rows, y: I64, known: State | None) -> tuple[Mapping[str, Array], State]:
        """``histogram`` (d, bins)."""
        return {HISTOGRAM: cd.histogram(X)}, {}

    def _sums(self, blocks: Iterable[Block], carried: Carried) -> Gathered:
        """Of codes ``labels`` (E, V, C) = ΦᵀY and ``pairs`` (E(E−1)/2, V−1, V−1), the blocks of
        ΦᵀΦ, one set for all threads; for a hybrid also ``gram``, ``cross`` (d, C) and ``sums``
        (E, V−1, d) = Φᵀx. Codes 0 follow from the others. All integers, but of float hybrids."""
        if self.phase() == HISTOGRAM:
            return super()._sums(blocks, carried)
        columns = self.features.columns(self._bound()[0])
        memory.require_memory(4 * columns**2, f"counting pairs of {columns} columns", Codes.fewer)
        specs, coder = self.array_specs(None), self.coder()
        pairs = np.zeros(specs["pairs"].shape, np.int64)
        waiting: list[Array] = []

        def work(block: Block) -> tuple[State, Array]:
            codes = coder.codes(block[0])
            labels = np.zeros(specs["labels"].shape, np.int64)
            add_labels(codes, block[1], labels)
            raw = self._raw(*block, codes) if self.options.with_linear else {}
            return {"labels": labels, **raw}, codes

        def parts() -> Iterable[State]:
            size = 8 * specs["labels"].size
            for sums, codes in parallel.map_threads(
                work, blocks, lambda b: size + self.room(len(b[1]))
            ):
                waiting.append(codes)
                if sum(one.shape[1] for one in waiting) >= ROWS_AT_ONCE:
                    count_pairs()
                yield sums

        def count_pairs() -> None:
            add_pairs(np.concatenate(waiting, axis=1), coder.size, pairs)
            waiting.clear()

        sums = base.add_up(parts())
        if waiting:
            count_pairs()
        return {**sums, "pairs": pairs}, NOTHING

    def _raw(self, X: Rows, y: I64, codes: Array) -> State:
        """The blocks xᵀx, xᵀY and Φᵀx of a hybrid: integers in fixed point."""
        G, H = gram_and_cross(X, y, self._bound()[1])
        sums = np.zeros((len(codes), self.options.size - 1, len(H)), dtype=H.dtype)
        if not isinstance(X, FixedPoint):
            add_sums(codes, real(X), sums)
        else:
            for start in range(0, len(y), ROWS_AT_ONCE):  # whose sums of int16 fit into int32
                part = slice(start, start + ROWS_AT_ONCE)
                add_sums(codes[:, part], X.values[part].astype(np.int32), sums)
        return {GRAM: G, CROSS: H, "sums": sums}

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
        raw = base.products(dim, classes, bits is not None)
        cross = raw[CROSS]
        return {**specs, **raw, "sums": ArraySpec((experts, codes, dim), cross.kind, cross.per_row)}

    def decision_function(self, X: Rows) -> F64:
        """Σ_j W_j[idx_j] (+ x·W of a hybrid), float64 (n, C): E table rows added for each row."""
        tables = require_solved(self.tables)
        out = np.zeros((len(X), tables.shape[2]))
        for table, row in zip(tables, self.coder().codes(X), strict=True):
            out += table[row]
        return out if self.linear is None else out + real(X) @ self.linear

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        head = super().restore(phase, arrays)
        end = 0 if head.thresholds is None else self.options.digits_for(len(head.thresholds))
        if head.digits is not None and not 0 <= head.digits.min() <= head.digits.max() < end:
            raise InvalidDataError(f"digits of a head run from 0 to {end - 1}; it has others")
        return head

    def _state_shapes(self) -> Mapping[str, Shape]:
        o, (dim, classes) = self.options, self._bound()
        if self.tables is None:
            return {} if self.thresholds is None else {"thresholds": (dim, o.each)}
        experts = o.experts_for(dim)
        shapes: dict[str, Shape] = {
            "thresholds": (dim, o.each),
            "digits": (experts, o.digits_of_code),
            "tables": (experts, o.size, classes),
        }
        return shapes | ({"linear": (dim, classes)} if o.with_linear else {})

    def coder(self) -> cd.Coder:
        """Rows → codes, once the thresholds are known."""
        return cd.coder(
            self._cuts(), self.options.bucketing, self.options.buckets, self._assign_digits()
        )

    def _assign_digits(self) -> I64:
        if self.digits is not None:
            return self.digits
        o, (dim, _) = self.options, self._bound()
        return cd.assign_digits(o.digits_for(dim), o.experts_for(dim), o.digits_of_code, o.seed)

    def _cuts(self) -> F64:
        """Thresholds (d, T), learned or in even steps; `UsageError` if their file is missing."""
        if self.thresholds is not None:
            return self.thresholds
        o, (dim, _) = self.options, self._bound()
        if o.steps is None:
            raise UsageError(f"--thresholds is {FEDERATED} or range:LO:HI; found {o.thresholds!r}")
        low, high = o.steps
        return np.tile(low + (high - low) * cd.levels(o.bucketing, o.buckets), (dim, 1))

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """Thresholds from histograms, or tables from counts by a ridge regression."""
        o, (dim, classes) = self.options, self._bound()
        self.check_room()
        if self.phase() == HISTOGRAM:
            bits = total.context.space.get("fraction_bits")
            facts = {"rows": total.rows, "thresholds": "quantiles of federated histograms"}
            levels = cd.levels(o.bucketing, o.buckets)
            thresholds = cd.quantiles(total.arrays[HISTOGRAM], levels, cd.grid(bits))
            return replace(self, thresholds=thresholds), Found(head=facts)
        held = None
        if validation is not None:
            held = CountedSystem(with_rows(validation)).mean_squared_error
        assert o.ridge is not None  # the default is in
        W, report = CountedSystem(total).solve(parse_ridge(o.ridge), held)
        raw = dim * o.with_linear
        solved = replace(
            self, thresholds=self._cuts(), digits=self._assign_digits(),
            linear=W[:raw] if raw else None,
            tables=W[raw:].reshape(-1, o.size, classes),
        )  # fmt: skip
        report |= {"rows": total.rows, "experts": o.experts_for(dim), "size": o.size}
        report["density"] = density(total.arrays["labels"], total.arrays["pairs"])
        return solved, Found(head=report)
