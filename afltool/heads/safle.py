"""SAFLe: a non-linear head whose statistics are counts, so that it is still one sum and one solve.

Bacellar et al., "Single-Round Scalable Analytic Federated Learning", CVPR 2026 (arXiv 2512.03336).
Features become digits by thresholds (3), digits codes by a shuffle (4), and scores are sums of
table rows, Σ_j W_j[idx_j] (5). By lemma 1 that is linear in one-hot codes Φ, so that the tables
solve (ΦᵀΦ + λI) W = ΦᵀY from counts (12)–(18). ``with_linear`` solves for the raw features in the
same problem, Φ⁺ = [x, Φ].

Phases: 'histogram' if the thresholds are to be found together, then 'codes'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError, MismatchError, UsageError
from ..linalg import codes as cd
from ..linalg.fixedpoint import FixedPoint, Rows, real
from ..linalg.gram import check_labels
from ..memory import physical
from ..statistics import Statistics
from ._safle_counts import Collector
from ._safle_system import CountedSystem
from .base import Array, Block, Head, Source, expect_shape
from .options import SafleOptions

HISTOGRAM, CODES = "histogram", "codes"
DEFAULT_SIDE = 8192  # D = E·V that the default number of experts stays below
# What a client of the paper sends with K = 100 (its section on communication).
PAPER = {
    "the paper's client, CIFAR-100 at 67 %": 70_000_000,
    "the paper's client, Tiny-ImageNet at 62.3 %": 60_000_000,
}


class SafleHead(Head):
    """Tables of scores, looked up by codes of bucketed features."""

    name = "safle"
    options: SafleOptions

    def __init__(self, options: SafleOptions) -> None:
        super().__init__(options)
        self.thresholds: NDArray[np.float64] | None = None  # (d, T), once they are learned
        self.digits: NDArray[np.int64] | None = None  # (E, G), once the head is solved
        self.tables: NDArray[np.float64] | None = None  # (E, V, C)
        self.linear: NDArray[np.float64] | None = None  # (d, C) of a hybrid

    # ------------------------------------------------------------ the four verbs

    def phase(self) -> str | None:
        if self.tables is not None:
            return None
        to_find = self.options.thresholds == "federated" and self.thresholds is None
        return HISTOGRAM if to_find else CODES

    def statistics(self, X: Rows, y: NDArray[np.int64]) -> Statistics:
        """Counts of feature values on a grid, or of codes; see `collect`."""
        if self.phase() != HISTOGRAM:
            return self.collect([(X, y)])
        _, classes = self._bound()
        check_labels(y, classes)
        counts = np.bincount(y, minlength=classes).astype(np.int64)
        return Statistics(HISTOGRAM, {HISTOGRAM: cd.histogram(X)}, counts)

    def collect(self, blocks: Iterable[Block]) -> Statistics:
        """The phase's additive arrays; those of codes are counted in place, block by block.

        histogram: ``histogram`` (d, bins). codes: ``labels`` (E, V, C) = ΦᵀY and ``pairs``
        (E(E−1)/2, V−1, V−1), the blocks of ΦᵀΦ; for a hybrid also ``gram`` (a triangle), ``cross``
        (d, C) and ``sums`` (E, V−1, d) = Φᵀx. Codes 0 follow from the others. All are integers
        (hybrids of float features: reals).
        """
        if self.phase() == HISTOGRAM:
            return super().collect(blocks)
        _, classes = self._bound()
        need_memory(self.problem_side)
        collector = Collector(self.coder(), classes, self.options.with_linear)
        for X, y in blocks:
            check_labels(y, classes)
            collector.add(X, y)
        return collector.result(CODES)

    def absorb(self, total: Statistics, validation: Statistics | None = None) -> SafleHead:
        """Thresholds from histograms, or tables from counts by a ridge regression."""
        if total.rows == 0:
            raise InvalidDataError(
                f"the total of {len(total.clients)} clients has 0 rows: there is nothing to solve"
            )
        if self.phase() == HISTOGRAM:
            return self._with_thresholds(total)
        return self._solved(total, validation)

    def scores(self, X: Rows) -> NDArray[np.float64]:
        """Σ_j W_j[idx_j] (+ x·W of a hybrid), float64 (n, C): E additions of a table row a row."""
        if self.tables is None:
            raise UsageError("the head is not solved yet")
        out = np.zeros((len(X), self.tables.shape[2]))
        for table, row in zip(self.tables, self.coder().codes(X), strict=True):
            out += table[row]
        return out if self.linear is None else out + real(X) @ self.linear

    def yardsticks(self, phase: str, clients: int) -> dict[str, int]:
        """The whole matrix as dense float32, and what a client of the paper sends."""
        if phase != CODES:
            return {}
        dense = {"dense float32, D × D": 4 * self.problem_side**2}
        return dense | (PAPER if clients == 1 else {})

    # ------------------------------------------------------------ state

    def arrays(self) -> dict[str, Array]:
        named = {"thresholds": self.thresholds, "digits": self.digits}
        named |= {"tables": self.tables, "linear": self.linear}
        return {name: array for name, array in named.items() if array is not None}

    def restore(self, phase: str | None, arrays: Mapping[str, Array]) -> SafleHead:
        head = SafleHead(self.options)
        for name in ("thresholds", "tables", "linear"):
            if name in arrays:
                setattr(head, name, np.asarray(arrays[name], dtype=np.float64))
        if head.thresholds is not None:
            cuts = len(cd.levels(self.options.bucketing, self.options.buckets))
            expect_shape("thresholds", head.thresholds, (None, cuts))
        if phase is None:
            head.dim = len(arrays["thresholds"])
            head.digits = np.asarray(arrays["digits"], dtype=np.int64)
            head._check_solved()
        return head

    def _check_solved(self) -> None:
        """What a file holds of a solved head fits together, and every digit reads a threshold."""
        assert self.digits is not None
        o, d = self.options, self.dim
        expect_shape("digits", self.digits, (None, o.group_size))
        expect_shape("tables", np.asarray(self.tables), (len(self.digits), o.size, None))
        self.classes = np.asarray(self.tables).shape[2]
        if o.with_linear or self.linear is not None:
            expect_shape("linear", np.asarray(self.linear), (d, self.classes))
        end = (d or 0) * cd.digits_per_feature(o.bucketing, o.buckets)
        if not (0 <= self.digits.min(initial=0) <= self.digits.max(initial=0) < end):
            raise InvalidDataError(f"digits of a head run from 0 to {end - 1}; it has others")

    def bind(self, dim: int, classes: int) -> Self:
        if self.thresholds is not None and len(self.thresholds) != dim:
            raise MismatchError(
                f"the thresholds ({self.options.thresholds}) are of {len(self.thresholds)} "
                f"features; found {dim}"
            )
        return super().bind(dim, classes)

    def with_source(self, option: str, source: Source) -> Self:
        """Thresholds of another head, or the quantiles of a feature file."""
        head = copy(self)
        head.options = replace(self.options, thresholds=f"{source.kind}:{source.digest}")
        head.thresholds = self._of_head(source) if source.kind == "head" else self._of_rows(source)
        return head

    # ------------------------------------------------------------ thresholds and codes

    @property
    def side(self) -> int:
        """D = E·V, the columns of Φ."""
        return self._experts() * self.options.size

    def _bound(self) -> tuple[int, int]:
        if self.dim is None or self.classes is None:
            raise UsageError("bind the head to a number of classes first: head.bind(dim, classes)")
        return self.dim, self.classes

    def _experts(self) -> int:
        o, (d, _) = self.options, self._bound()
        if o.experts is not None:
            return o.experts
        assert o.group_size is not None
        once = d * cd.digits_per_feature(o.bucketing, o.buckets) // o.group_size
        return max(1, min(once, DEFAULT_SIDE // o.size))

    def _dealt(self) -> NDArray[np.int64]:
        if self.digits is not None:
            return self.digits
        o, (d, _) = self.options, self._bound()
        assert o.group_size is not None
        digits = d * cd.digits_per_feature(o.bucketing, o.buckets)
        return cd.deal(digits, self._experts(), o.group_size, o.seed)

    def _cuts(self) -> NDArray[np.float64]:
        """Thresholds (d, T), wherever they come from."""
        o = self.options
        if self.thresholds is not None:
            return self.thresholds
        if not o.thresholds.startswith("range:"):
            raise UsageError(
                f"this head lacks its thresholds ({o.thresholds}): give the head file that "
                "`afltool head` wrote"
            )
        return cd.even_thresholds(*o.range(), o.bucketing, o.buckets, self._bound()[0])

    def coder(self) -> cd.Coder:
        """Rows → codes, once the thresholds are known."""
        return cd.coder(self._cuts(), self.options.bucketing, self.options.buckets, self._dealt())

    def _of_head(self, source: Source) -> NDArray[np.float64]:
        wanted = len(cd.levels(self.options.bucketing, self.options.buckets))
        found = np.asarray(source.arrays.get("thresholds", np.empty((0, 0))), dtype=np.float64)
        if found.ndim != 2 or found.shape[1] != wanted:
            raise MismatchError(
                f"that head has {found.shape[-1]} thresholds a feature; --bucketing "
                f"{self.options.bucketing} with --buckets {self.options.buckets} needs {wanted}"
            )
        return found

    def _of_rows(self, source: Source) -> NDArray[np.float64]:
        counts, bits = None, None
        for X in source.blocks:
            bits = X.bits if isinstance(X, FixedPoint) else None
            found = cd.histogram(X)
            counts = found if counts is None else counts + found
        if counts is None:
            raise InvalidDataError("the file for --thresholds has no rows")
        return self._quantiles(counts, bits)

    def _quantiles(self, counts: NDArray[np.int64], bits: int | None) -> NDArray[np.float64]:
        shares = cd.levels(self.options.bucketing, self.options.buckets)
        return cd.quantiles(counts, shares, cd.grid(bits))

    # ------------------------------------------------------------ solving

    def _with_thresholds(self, total: Statistics) -> SafleHead:
        counts = total.arrays[HISTOGRAM]
        head = copy(self.bind(len(counts), len(total.class_counts)))
        head.thresholds = self._quantiles(counts, total.context.space.get("fraction_bits"))
        need_memory(head.problem_side)
        head.report = {"rows": total.rows, "thresholds": "quantiles of federated histograms"}
        return head

    @property
    def problem_side(self) -> int:
        """Columns of the whole problem: D, with the raw features d + D."""
        return self.side + (self._bound()[0] if self.options.with_linear else 0)

    def _solved(self, total: Statistics, validation: Statistics | None) -> SafleHead:
        classes = len(total.class_counts)
        bound = self.bind(self.dim or int(total.context.space["dim"]), classes)
        need_memory(bound.problem_side)
        o, head = self.options, copy(bound)
        found, wanted = total.arrays["labels"].shape, (bound._experts(), o.size, classes)
        if found != wanted:
            raise InvalidDataError(f"array 'labels' has the shape {found}; this head's is {wanted}")
        held = None if validation is None else CountedSystem(validation).mean_squared_error
        W, report = CountedSystem(total).solve(o.ridge, o.linear_ridge, held)
        raw = len(W) - bound.side
        head.thresholds, head.digits = bound._cuts(), bound._dealt()
        head.linear = W[:raw] if raw else None
        head.tables = W[raw:].reshape(-1, o.size, classes)
        head.report = {**report, "rows": total.rows, "experts": bound._experts(), "size": o.size}
        return head


def need_memory(side: int) -> None:
    """Refuse a problem whose solve does not fit: a float64 matrix and its counts, 12 D² bytes."""
    wanted = 12 * side * side
    have = physical()
    if wanted > have:
        fits = int((have / 12) ** 0.5)
        raise UsageError(
            f"{side} columns (--experts × table rows, and raw features) need {wanted / 1e9:.1f} GB "
            f"to be solved for: 8 D² bytes of matrix and 4 D² of counts; this machine has "
            f"{have / 1e9:.1f} GB, enough for {fits} columns: take fewer --experts or a smaller "
            "--group-size"
        )
