"""The features Φ of the softmax head. They belong to another head, which gathers ΦᵀΦ and ΦᵀY first.

A `SoftmaxFeatures` wraps that head: it goes through the head's phases, and then computes Φ for a
few rows at a time for the gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from ...math import codes as cd
from ...math import ridge as rr
from ...math.gram import FixedPoint, Rows, real
from ...math.ridge import Moments
from ...math.ridge_choice import Choice
from ...math.softmax import Buffers, Coded, Dense, Design
from ...values.arrays import F64, Array, Digest
from ...values.names import CROSS, GRAM
from ...values.statistics import ArraySpec, Statistics
from ..base import Block, Head, Source
from ..least_squares import Problem, fraction_bits
from ..linear import LinearHead
from ..options import LinearOptions, RandomFeaturesOptions
from ..random_features import Lift
from ..rounding import checked
from ..safle.head import CODES as COUNTED
from ..safle.head import HISTOGRAM, SafleHead
from ..safle.options import SafleOptions
from ..safle.system import CountedSystem
from .options import SoftmaxOptions

LIFTED, CODES = "lifted", "codes"  # the arrays of rows that are carried from round to round


@dataclass(frozen=True)
class CodedRows:
    """Codes (E, n) of rows, and the rows themselves if they are part of Φ."""

    codes: cd.Codes
    size: int
    raw: Rows | None

    def __len__(self) -> int:
        return int(self.codes.shape[1])

    def __getitem__(self, rows: slice) -> CodedRows:
        raw = None if self.raw is None else self.raw[rows]
        return CodedRows(self.codes[:, rows], self.size, raw)


Lifted = Any  # rows, or `CodedRows`: as `SoftmaxFeatures.lifted` gives them and `design` takes


@dataclass(frozen=True)
class SoftmaxFeatures:
    """Φ = [X, 1]: the linear head's features, with an intercept. ``head`` is the wrapped head."""

    intercept: ClassVar[bool] = True
    head: Head

    @property
    def key(self) -> str:
        """Key of the arrays that `lifted` returns for the next round, if any."""
        return ""

    def bind(self, dim: int, classes: int) -> Self:
        return replace(self, head=self.head.bind(dim, classes))

    def sums(self, blocks: Iterable[Block]) -> Mapping[str, Array]:
        """The additive arrays of the phase, summed over rows that arrive in blocks."""
        return self.head.gather(blocks)[0].arrays

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        """Those of `sums`, of features with so many fraction bits or real ones."""
        return self.head.array_specs(self.exact_bits(bits))

    def exact_bits(self, bits: int | None) -> int | None:
        """Fraction bits of Φ, made of features with ``bits``; None where Φ is real."""
        return bits

    def learned(self, total: Statistics) -> Self | None:
        """The features after the histograms; None after the last phase."""
        return None

    def columns(self, dim: int) -> int:
        """D of Φ, made of ``dim`` features."""
        return dim + 1

    def system(self, total: Statistics) -> tuple[F64, F64]:
        """ΦᵀΦ (D, D), C-ordered, its lower triangle filled; ΦᵀY (D, C)."""
        bits = fraction_bits(total)
        G = rr.gram_matrix(total.arrays[GRAM], bits)
        return G.T, rr.cross_matrix(total.arrays[CROSS], bits)

    def check(self, G: F64, H: F64, total: Statistics, ridge: float, own: F64 | None) -> None:
        """Refuse with `NumericalError` a `system` whose rounding would change the start's scores.

        ``ridge``: of the start; ``own``: the variances (D,) by which it is weighed, if it is.
        """
        n = self.head.dim
        if not total.context.noise:
            moments = Moments.of(np.diag(G)[:n].copy(), H[:n], total.class_counts)
            moments.check(ridge if own is None else ridge * own[:n], constant=True)

    def lifted(
        self, X: Rows, carried: Mapping[str, Array] | None = None
    ) -> tuple[Lifted, dict[str, Array]]:
        """The rows from which Φ is computed, and the arrays from which the next round may start."""
        return X, {}

    def design(self, rows: Lifted, buffers: Buffers) -> Design:
        """Φ of a few lifted rows; see `math.softmax.Buffers`."""
        return Dense(rows, buffers)

    def expanded(self, X: Rows) -> F64:
        """Φ (n, D) of a few rows, dense and without the intercept."""
        return real(self.lifted(X)[0])

    def arrays(self) -> dict[str, Array]:
        return self.head.arrays()

    def restore(self, arrays: Mapping[str, Array]) -> Self:
        """These with what they have learned, which is among the arrays of the softmax head."""
        return self


@dataclass(frozen=True)
class RandomFeatures(SoftmaxFeatures):
    """Φ = [σ(XA + a), X if asked, 1]: the linear head on rows that are lifted.

    Fixed-point rows are lifted to fixed-point rows, so all sums stay integers; with float features,
    or ``compute`` float32, they are reals. ``compute`` fixed refuses float features.
    """

    options: RandomFeaturesOptions

    @cached_property
    def key(self) -> str:
        return Digest().json(LIFTED, self.options.as_dict()).hex()

    @cached_property
    def _lift(self) -> Lift:
        return Lift(self.options)

    def bind(self, dim: int, classes: int) -> Self:
        return super().bind(self.columns(dim) - 1, classes)

    def columns(self, dim: int) -> int:
        return self.options.width + dim * self.options.with_linear + 1

    def exact_bits(self, bits: int | None) -> int | None:
        return None if self.options.compute == "float32" else bits

    def sums(self, blocks: Iterable[Block]) -> Mapping[str, Array]:
        return super().sums((self.lifted(X)[0], y) for X, y in blocks)

    def check(self, G: F64, H: F64, total: Statistics, ridge: float, own: F64 | None) -> None:
        if total.exact or total.context.noise:
            return
        rows, scaled = self.options.compute, own is not None
        problem = Problem(G, H, total.rows, total.class_counts, True, scaled, "float64")
        checked(problem, Choice(ridge), rows=rows)

    def lifted(
        self, X: Rows, carried: Mapping[str, Array] | None = None
    ) -> tuple[Lifted, dict[str, Array]]:
        exact = isinstance(X, FixedPoint) and self.options.compute != "float32"
        rows = X if exact else self._lift.rows(X)
        new = self._lift(rows) if carried is None else carried[LIFTED]
        return self._lift.beside(new, rows), {LIFTED: new}


@dataclass(frozen=True)
class CodedFeatures(SoftmaxFeatures):
    """Φ = [X if asked, one-hot codes]: those of the SAFLe head, whose counts are ΦᵀΦ.

    The codes of each group add up to one, so no intercept is needed.
    """

    intercept: ClassVar[bool] = False
    head: SafleHead

    @cached_property
    def key(self) -> str:
        key = Digest().json(CODES, self.head.options.as_dict())
        for name, array in self.head.arrays().items():  # the thresholds, once they are learned
            key.array(name, array, "<f8")
        return key.hex()

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        return self.head.array_specs(bits)

    def exact_bits(self, bits: int | None) -> int | None:
        """Codes alone are integers in units of one, of any features."""
        return bits if self.head.options.with_linear else 0

    @cached_property
    def coder(self) -> cd.Coder:
        return self.head.coder()

    def learned(self, total: Statistics) -> Self | None:
        if self.head.phase() != HISTOGRAM:
            return None
        return replace(self, head=self.head.absorb(total)[0])

    def restore(self, arrays: Mapping[str, Array]) -> Self:
        learned = {name: a for name, a in arrays.items() if name == "thresholds"}
        phase = COUNTED if learned else self.head.phase()
        return replace(self, head=self.head.restore(phase, learned))

    def columns(self, dim: int) -> int:
        return self.head.options.columns_for(dim)

    def system(self, total: Statistics) -> tuple[F64, F64]:
        if not self.head.options.federated:  # else the round before has said it
            self.head.say_digits()
        system = CountedSystem(total)
        return system.matrix(), system.H

    def check(self, G: F64, H: F64, total: Statistics, ridge: float, own: F64 | None) -> None:
        if self.head.options.with_linear:
            super().check(G, H, total, ridge, own)

    def lifted(
        self, X: Rows, carried: Mapping[str, Array] | None = None
    ) -> tuple[Lifted, dict[str, Array]]:
        if carried is None:
            carried = {CODES: np.ascontiguousarray(self.coder.codes(X).T)}
        raw = X if self.head.options.with_linear else None
        return CodedRows(carried[CODES].T, self.coder.size, raw), dict(carried)

    def design(self, rows: Lifted, buffers: Buffers) -> Design:
        return Coded(rows.codes, rows.size, rows.raw, buffers)

    def expanded(self, X: Rows) -> F64:
        return self.head.expanded(X)


def features_of(
    options: SoftmaxOptions, sources: Mapping[str, Source] | None = None
) -> SoftmaxFeatures:
    """The features that --features names. ``sources``: the opened files that options name."""
    wrapped, linear = options.wrapped(), LinearHead(LinearOptions(intercept=True))
    if isinstance(wrapped, SafleOptions):
        return CodedFeatures(SafleHead.begin(wrapped, sources))
    if isinstance(wrapped, RandomFeaturesOptions):
        return RandomFeatures(linear, wrapped)
    return SoftmaxFeatures(linear)
