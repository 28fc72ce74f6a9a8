"""SAFLe: a non-linear head from counts; it still needs one sum and one solve.

Bacellar et al., "Single-Round Scalable Analytic Federated Learning", CVPR 2026 (arXiv 2512.03336).
Thresholds make digits of features (3), a shuffle makes codes of digits (4), and scores are sums of
table rows, Σ_j W_j[idx_j] (5). By lemma 1 that is linear in the one-hot codes Φ, so the tables
solve (ΦᵀΦ + λI) W = ΦᵀY, whose entries are counts (12)–(18). With ``with_linear`` the raw
features are in the same problem, Φ⁺ = [x, Φ].

Phases: 'histogram' if the clients find the thresholds together, then 'codes'.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ...cache.carried import NOTHING, Carried
from ...errors import InvalidDataError, MismatchError, UsageError
from ...math import codes as cd
from ...math.fixedpoint import Rows, real
from ...progress import log
from ...values.arrays import Array
from ...values.phases import Phase
from ...values.statistics import Statistics
from ..base import Block, Gathered, Head, Source, add_up, expect_shape
from . import thresholds as th
from .counting import Collector
from .options import BYTES_A_PAIR, DEFAULT_SIDE, FEDERATED, SafleOptions
from .system import CountedSystem

HISTOGRAM, CODES = Phase("histogram"), Phase("codes")


class SafleHead(Head):
    """Tables of scores, looked up by codes of bucketed features."""

    name = "safle"
    options: SafleOptions

    def __init__(
        self,
        options: SafleOptions,
        sources: Mapping[str, Source] | None = None,
        most: int = DEFAULT_SIDE,
    ) -> None:
        """``most``: limit of E·V for the default number of codes."""
        super().__init__(options, sources)
        self._most = most
        self.thresholds: NDArray[np.float64] | None = None  # (d, T), once they are learned
        self.digits: NDArray[np.int64] | None = None  # (E, G), once the head is solved
        self.tables: NDArray[np.float64] | None = None  # (E, V, C)
        self.linear: NDArray[np.float64] | None = None  # (d, C) of a hybrid
        source = (sources or {}).get("thresholds")
        if source is not None:
            self.options = replace(options, thresholds=f"{source.kind}:{source.digest}")
            self.thresholds = th.of_source(source, options)

    # ------------------------------------------------------------ the four verbs

    def phase(self) -> Phase | None:
        if self.tables is not None:
            return None
        to_find = self.options.cuts == FEDERATED and self.thresholds is None
        return HISTOGRAM if to_find else CODES

    def _sums(self, blocks: Iterable[Block], carried: Carried) -> Gathered:
        """The phase's additive arrays; those of codes are counted in place, block by block.

        histogram: ``histogram`` (d, bins). codes: ``labels`` (E, V, C) = ΦᵀY and ``pairs``
        (E(E−1)/2, V−1, V−1), the blocks of ΦᵀΦ; for a hybrid also ``gram`` (a triangle), ``cross``
        (d, C) and ``sums`` (E, V−1, d) = Φᵀx. Codes 0 follow from the others. All are integers
        (hybrids of float features: reals).
        """
        if self.phase() == HISTOGRAM:
            return add_up({HISTOGRAM: cd.histogram(X)} for X, _ in blocks), NOTHING
        self.options.check_room(self._bound()[0], self._most, solving=False)
        collector = Collector(self.coder(), self._bound()[1], self.options.with_linear)
        for X, y in blocks:
            collector.add(X, y)
        return collector.result(), NOTHING

    def absorb(self, total: Statistics, validation: Statistics | None = None) -> SafleHead:
        """Thresholds from histograms, or tables from counts by a ridge regression."""
        if total.rows == 0:
            raise InvalidDataError(
                f"the total of {len(total.clients)} clients has 0 rows: there is nothing to solve"
            )
        self.options.check_room(self._bound()[0], self._most)
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

    def _round_features(self, X: Rows) -> Iterator[tuple[str, Array]]:
        """Φ (n, D), dense: the one-hot codes, after the rows themselves if they are fitted too."""
        if self.phase() is None:
            yield self._last_round(), self.expanded(X)

    def expanded(self, X: Rows) -> NDArray[np.float64]:
        """Φ (n, D) or Φ⁺ = [x, Φ] (n, d + D), dense float64: for a few rows."""
        hot = cd.one_hot(self.coder().codes(X), self.options.size)
        return np.hstack([real(X), hot]) if self.options.with_linear else hot

    # ------------------------------------------------------------ state

    def arrays(self) -> dict[str, Array]:
        named = {"thresholds": self.thresholds, "digits": self.digits}
        named |= {"tables": self.tables, "linear": self.linear}
        return {name: array for name, array in named.items() if array is not None}

    def restore(self, phase: str | None, arrays: Mapping[str, Array]) -> SafleHead:
        head = SafleHead(self.options, most=self._most)
        for name in ("thresholds", "tables", "linear"):
            if name in arrays:
                setattr(head, name, np.asarray(arrays[name], dtype=np.float64))
        if head.thresholds is not None:
            expect_shape("thresholds", head.thresholds, (None, th.each(self.options)))
        if phase is None:
            head.dim = len(arrays["thresholds"])
            head.digits = np.asarray(arrays["digits"], dtype=np.int64)
            head._check_solved()
        return head

    def _check_solved(self) -> None:
        """Refuse arrays of a file that do not fit together, or digits that are out of range."""
        digits, tables, o = np.asarray(self.digits), np.asarray(self.tables), self.options
        expect_shape("digits", digits, (None, o.group_size))
        expect_shape("tables", tables, (len(digits), o.size, None))
        self.classes = tables.shape[2]
        if o.with_linear or self.linear is not None:
            expect_shape("linear", np.asarray(self.linear), (self.dim, self.classes))
        end = o.digits_for(self.dim or 0)
        if not (0 <= digits.min(initial=0) <= digits.max(initial=0) < end):
            raise InvalidDataError(f"digits of a head run from 0 to {end - 1}; it has others")

    def bind(self, dim: int, classes: int) -> Self:
        if self.thresholds is not None and len(self.thresholds) != dim:
            raise MismatchError(
                f"the thresholds ({self.options.thresholds}) are for {len(self.thresholds)} "
                f"features; found {dim}"
            )
        return super().bind(dim, classes)

    # ------------------------------------------------------------ codes

    @property
    def experts(self) -> int:
        """E, the codes of a row."""
        return self.options.experts_for(self._bound()[0], self._most)

    @property
    def side(self) -> int:
        """D = E·V, the columns of Φ."""
        return self.experts * self.options.size

    @property
    def problem_side(self) -> int:
        """Columns of the whole problem: D, or d + D with the raw features."""
        return self.options.columns_for(self._bound()[0], self._most)

    @property
    def digits_used(self) -> int:
        """The number of digits of a row, of d·L, that are part of a code."""
        digits = self.options.digits_for(self._bound()[0])
        return min(digits, self.experts * self.options.digits_of_code)

    def coder(self) -> cd.Coder:
        """Rows → codes, once the thresholds are known."""
        return cd.coder(self._cuts(), self.options.bucketing, self.options.buckets, self._dealt())

    def _dealt(self) -> NDArray[np.int64]:
        if self.digits is not None:
            return self.digits
        o = self.options
        return cd.deal(o.digits_for(self._bound()[0]), self.experts, o.digits_of_code, o.seed)

    def _cuts(self) -> NDArray[np.float64]:
        """Thresholds (d, T), learned or in even steps; `UsageError` if their file is missing."""
        if self.thresholds is not None:
            return self.thresholds
        if not self.options.cuts.startswith("range:"):
            raise UsageError(
                f"this head has no thresholds ({self.options.thresholds}): give the head file "
                "that `afltool head` wrote"
            )
        o, (dim, _) = self.options, self._bound()
        return cd.even_thresholds(*o.range(), o.bucketing, o.buckets, dim)

    # ------------------------------------------------------------ solving

    def _with_thresholds(self, total: Statistics) -> SafleHead:
        bits = total.context.space.get("fraction_bits")
        head = copy(self)
        head.thresholds = th.of_counts(total.arrays[HISTOGRAM], bits, self.options)
        head.report = {"rows": total.rows, "thresholds": "quantiles of federated histograms"}
        head.say_digits()
        return head

    def _solved(self, total: Statistics, validation: Statistics | None) -> SafleHead:
        o, classes, head = self.options, self._bound()[1], copy(self)
        if o.cuts != FEDERATED:  # otherwise the round before has already warned
            self.say_digits()
        held = None if validation is None else CountedSystem(validation).mean_squared_error
        W, report = CountedSystem(total).solve(o.ridge, o.linear_ridge, held)
        raw = len(W) - self.side
        head.thresholds, head.digits = self._cuts(), self._dealt()
        head.linear = W[:raw] if raw else None
        head.tables = W[raw:].reshape(-1, o.size, classes)
        head.report = {**report, "rows": total.rows, "experts": self.experts, "size": o.size}
        head.report |= o.figures(CODES, lambda: total.arrays)
        head.report |= {"digits": o.digits_for(head._bound()[0]), "digits_used": self.digits_used}
        return head

    def say_digits(self) -> None:
        """Warn if codes leave digits out, and name the settings that would use all of them."""
        o, (dim, _) = self.options, self._bound()
        digits, used, every = o.digits_for(dim), self.digits_used, o.experts_for_all(dim)
        if used < digits:
            side = every * o.size + dim * o.with_linear
            log.warning(
                "safle: %d codes of %d digits use %d of the %d digits of a row, %d (%.0f %%) are "
                "left out; --experts %d uses all of them: %d columns, %.2g GB to solve",
                self.experts, o.group_size, used, digits, digits - used,
                100 * (1 - used / digits), every, side, BYTES_A_PAIR * side**2 / 1e9,
            )  # fmt: skip


HEAD = SafleHead
