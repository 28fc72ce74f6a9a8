"""One-shot classifiers from class sums: one phase, integer sums, and late clients can be added.

Nearest class mean (Rocchio), linear discriminant analysis (Fisher, 1936), FedCGS (Guan et al.,
"Capture global feature statistics for one-shot federated learning", AAAI 2025), Fed3R, Gaussian
naive Bayes and quadratic discriminant analysis; see `rules`. Clients send XᵀY and, depending on the
rule, XᵀX, (X∘X)ᵀY or the XᵀX of each class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ... import cores
from ...cache import memory
from ...cache.cache import NOTHING, Carried
from ...errors import InvalidDataError, UsageError
from ...math.fixedpoint import FixedPoint, Rows, dim, real
from ...math.gram import Products, real_cross, row_product
from ...math.moments import Moments
from ...math.ridge import cross_matrix, gram_matrix
from ...math.triangle import length, pack, unpack
from ...values.arrays import F64, Array
from ...values.phases import Phase
from ...values.statistics import Statistics
from ..array_names import CROSS, GRAM
from ..base import Block, Gathered, Head, add_up, state
from ..least_squares import fraction_bits
from ..rounds import Found
from . import rules
from .options import DiscriminantOptions

CLASS_SUMS, SQUARES, GRAMS = Phase("class-sums"), "squares", "grams"
AT_ONCE = 4096  # rows: their squares of int16 add up below 2^53


@dataclass(frozen=True, eq=False)
class DiscriminantHead(Head):
    """A classifier from class sums; a class without rows is never predicted.

    ``counts``: rows of each class. Beside them a rule has ``weights``, or ``means`` with
    ``variances`` or ``factors``.
    """

    name = "discriminant"
    options: DiscriminantOptions
    counts: NDArray[np.int64] | None = state(np.int64)
    weights: F64 | None = state()
    means: F64 | None = state()
    variances: F64 | None = state()
    factors: F64 | None = state()

    @property
    def log_probabilities(self) -> bool:  # type: ignore[override]  # it depends on the rule
        """Whether softmax of the scores gives the rule's probabilities."""
        return self.options.rule in ("lda", "fedcgs", "naive-bayes", "qda")

    def phase(self) -> Phase | None:
        return CLASS_SUMS if self.counts is None else None

    # ------------------------------------------------------------ client side

    def _sums(self, blocks: Iterable[Block], carried: Carried) -> Gathered:
        d, classes = self._bound()
        size, what = 24 * AT_ONCE * d, f"class sums of {d} features"
        if self.options.rule == "qda":
            size, what = 16 * classes * length(d), f"{classes} grams of {d} features"
            memory.need(size, what)
        if self.options.rule in ("lda", "fedcgs", "fed3r"):
            G, H = Products.over(blocks, classes)
            return {GRAM: G, CROSS: H}, NOTHING
        return add_up(cores.each(self._part, _pieces(blocks), size, what)), NOTHING

    def _part(self, block: Block) -> dict[str, Array]:
        """The class sums of a few rows; exact integers of fixed-point rows."""
        (X, y), classes = block, self._bound()[1]
        values = X.values if isinstance(X, FixedPoint) else X
        kind = np.int64 if isinstance(X, FixedPoint) else np.float64
        wide = values.astype(np.float64)
        found = {CROSS: real_cross(wide, y, classes).astype(kind)}
        if self.options.rule == "naive-bayes":
            found[SQUARES] = real_cross(wide * wide, y, classes).astype(kind)
        if self.options.rule == "qda":
            found[GRAMS] = np.stack([_gram(X, y == c) for c in range(classes)])
        return found

    # ------------------------------------------------------------ server side

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """The classifier; `NumericalError` where a covariance is singular."""
        bits = fraction_bits(total)
        H = cross_matrix(total.arrays[CROSS], bits)
        if not total.context.noise:
            self._check_moments(total, H, bits)
        learned = self._learned(total, H, total.class_counts.astype(np.float64), bits)
        report = {"rule": self.options.rule, "rows": total.rows}
        return self._with(counts=total.class_counts, **learned), Found(head=report)

    def _check_moments(self, total: Statistics, H: F64, bits: int | None) -> None:
        """Refuse with `NumericalError` features that lie too far from zero for their deviation."""
        o = self.options
        if o.rule == "nearest-mean":
            rules.check_means(H, total.class_counts)
            return
        moments = Moments.of(self._squares(total, bits), H, total.class_counts)
        ridge = o.shrinkage * max(float(moments.centred.mean()), 0.0)
        if o.rule == "fed3r":
            ridge = o.lam
        if o.rule == "naive-bayes":
            ridge = rules.VARIANCE_FLOOR * max(float(moments.centred.max()), 0.0)
        moments.check(ridge, constant=True)

    def _squares(self, total: Statistics, bits: int | None) -> F64:
        """Σx² (d,) over all rows."""
        if self.options.rule == "naive-bayes":
            squares = total.arrays[SQUARES].sum(axis=1, dtype=np.float64)
            return np.asarray(squares if bits is None else squares * 4.0**-bits)
        packed = total.arrays[GRAMS] if self.options.rule == "qda" else [total.arrays[GRAM]]
        return np.asarray(np.sum([np.diag(gram_matrix(one, bits)) for one in packed], axis=0))

    def _learned(
        self, total: Statistics, H: F64, counts: F64, bits: int | None
    ) -> dict[str, Array]:
        o, scale = self.options, 1.0 if bits is None else 2.0 ** (-2 * bits)
        if o.rule == "nearest-mean":
            return {"weights": rules.nearest_mean(H, counts)}
        if o.rule == "naive-bayes":
            variance = rules.variances(total.arrays[SQUARES] * scale, H, counts)
            return {"means": rules.means_of(H, counts), "variances": variance}
        if o.rule == "qda":
            return self._quadratic(total.arrays[GRAMS], H, counts, bits)
        G = gram_matrix(total.arrays[GRAM], bits)
        if o.rule == "fed3r":
            return {"weights": rules.fed3r(G, H, counts, o.lam)}
        covariance = {"lda": rules.within, "fedcgs": rules.total}[o.rule](G, H, counts)
        return {"weights": rules.linear(covariance, H, counts, o.shrinkage)}

    def _quadratic(self, grams: Array, H: F64, counts: F64, bits: int | None) -> dict[str, Array]:
        M, s = rules.means_of(H, counts), self.options.shrinkage
        factors = np.zeros((len(counts), length(len(M))))
        for c in np.flatnonzero(counts):
            G_c = gram_matrix(grams[c], bits)
            factors[c] = pack(rules.quadratic_factor(G_c, M[:, c], counts[c], s))
        return {"means": M, "factors": factors}

    # ------------------------------------------------------------ scores

    def scores(self, X: Rows) -> F64:
        """Scores (n, C): log π + log density up to a constant of the row, except for these rules.

        nearest-mean: xᵀμ − ½‖μ‖²; fed3r: its normalised ridge scores. −∞ for a class without rows.
        """
        if self.counts is None:
            raise UsageError("the head is not solved yet")
        found = self._finite_scores(X, self.counts.astype(np.float64))
        found[:, self.counts == 0] = -np.inf
        return found

    def _finite_scores(self, rows: Rows, counts: F64) -> F64:
        if self.weights is not None:
            return np.asarray(row_product(rows, self.weights[:-1]) + self.weights[-1])
        X = real(rows)
        assert self.means is not None
        if self.variances is not None:
            return rules.naive_bayes_scores(X, self.means, self.variances, counts)
        assert self.factors is not None
        out, shares = np.zeros((len(X), len(counts))), rules.log_shares(counts)
        for c in np.flatnonzero(counts):
            L = np.tril(unpack(self.factors[c]))
            out[:, c] = rules.quadratic_score(X, self.means[:, c], L, shares[c])
        return out

    # ------------------------------------------------------------ state

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        head = super().restore(phase, arrays)
        if head.counts is not None and ((head.counts < 0).any() or not head.counts.any()):
            raise InvalidDataError("the class counts of a head are from 0 on, one above 0")
        return head

    def _state_shapes(self) -> dict[str, tuple[int | None, ...]]:
        if self.counts is None:
            return {}
        dim, classes = self._bound()
        beside: dict[str, dict[str, tuple[int | None, ...]]] = {
            "naive-bayes": {"means": (dim, classes), "variances": (dim, classes)},
            "qda": {"means": (dim, classes), "factors": (classes, length(dim))},
        }
        linear = {"weights": (dim + 1, classes)}
        return {"counts": (classes,), **beside.get(self.options.rule, linear)}


def _pieces(blocks: Iterable[Block]) -> Iterator[Block]:
    """A few rows at a time, so that their class sums are exact and their copies small."""
    for X, y in blocks:
        for at in range(0, max(len(y), 1), AT_ONCE):
            yield X[at : at + AT_ONCE], y[at : at + AT_ONCE]


def _gram(X: Rows, mine: NDArray[np.bool_]) -> Array:
    """The gram of some rows, a packed triangle."""
    rows = X[np.flatnonzero(mine)]
    if not len(rows):
        return np.zeros(length(dim(X)), np.int64 if isinstance(X, FixedPoint) else np.float64)
    return Products.like(X, 1).add(rows, np.zeros(len(rows), np.int64)).result()[0]


HEAD = DiscriminantHead
