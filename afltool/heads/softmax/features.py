"""The features Φ of the softmax head. They belong to another head, which gathers ΦᵀΦ and ΦᵀY first.

Its phases are gone through first; then Φ is computed for a few rows at a time for the gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ...math import codes as cd
from ...math.gram import FixedPoint, Rows, real, together
from ...math.ridge import Moments
from ...math.ridge_choice import Choice
from ...math.softmax import Coded, Dense, Design
from ...values.arrays import F64, Array, Digest
from ...values.statistics import ArraySpec, Statistics
from ..base import Accumulator, Head, Source, products
from ..least_squares import LinearHead, Problem, Sums, system_of
from ..options import LinearOptions, RandomFeaturesOptions
from ..random_features import Lift
from ..rounding import checked
from ..safle.head import CODES as COUNTED
from ..safle.head import SafleHead
from ..safle.system import CountedSystem
from .options import SoftmaxOptions

LIFTED, CODES = "lifted", "codes"  # the arrays of rows that are carried from round to round
Kept = dict[str, Array]


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


def far(G: F64, H: F64, total: Statistics, dim: int, ridge: float, own: F64 | None) -> None:
    """Refuse with `NumericalError` raw features, the first columns, that lie too far from zero."""
    if not total.context.noise:
        moments = Moments.of(np.diag(G)[:dim].copy(), H[:dim], total.class_counts)
        moments.check(ridge if own is None else ridge * own[:dim], constant=True)


@dataclass(frozen=True)
class SoftmaxFeatures:
    """Φ = [X, 1], or [σ(XA + a), X if asked, 1] with ``options`` of random features.

    ``head``: the linear head on them, with an intercept. Fixed-point rows are lifted to fixed-point
    rows, so all sums stay integers; with float features, or ``compute`` float32, they are reals.
    ``compute`` fixed refuses float features.
    """

    head: Head
    options: RandomFeaturesOptions | None = None
    intercept: bool = True

    @cached_property
    def key(self) -> str:
        """Key of the arrays that `lifted` returns for the next round, if any."""
        o = self.options
        return "" if o is None else Digest().json(LIFTED, o.as_dict()).hex()

    @cached_property
    def _lift(self) -> Lift:
        assert self.options is not None
        return Lift(self.options)

    def bind(self, dim: int, classes: int) -> Self:
        return replace(self, head=self.head.bind(self.columns(dim) - 1, classes))

    def at_once(self, dim: int) -> int:
        """Rows whose sums are taken together in the first phases."""
        return together(self.columns(dim))

    def accumulator(self, classes: int) -> Accumulator:
        """The sums of the first phases."""
        return Sums(classes, True, lambda X: self.lifted(X)[0])

    def array_specs(self, bits: int | None, dim: int, classes: int) -> dict[str, ArraySpec]:
        """Those of the first phases, of features with so many fraction bits or real ones."""
        return products(self.columns(dim), classes, self.exact_bits(bits) is not None)

    def exact_bits(self, bits: int | None) -> int | None:
        """Fraction bits of Φ, made of features with ``bits``; None where Φ is real."""
        return None if self.options is not None and self.options.compute == "float32" else bits

    def columns(self, dim: int) -> int:
        """D of Φ, made of ``dim`` features."""
        return dim + 1 if self.options is None else self.options.side(dim) + 1

    def system(self, total: Statistics) -> tuple[F64, F64]:
        """ΦᵀΦ (D, D), C-ordered, its lower triangle filled; ΦᵀY (D, C)."""
        G, H = system_of(total)
        return G.T, H

    def check(self, G: F64, H: F64, total: Statistics, ridge: float, own: F64 | None) -> None:
        """Refuse with `NumericalError` a `system` whose rounding would change the start's scores.

        ``ridge``: of the start; ``own``: the variances (D,) by which it is weighed, if it is.
        """
        if self.options is None:
            far(G, H, total, len(H) - 1, ridge, own)
        elif not (total.exact or total.context.noise):
            scaled = own is not None
            problem = Problem(G, H, total.rows, total.class_counts, True, scaled, "float64")
            checked(problem, Choice(ridge), rows=self.options.compute)

    def lifted(self, X: Rows, known: Mapping[str, Array] | None = None) -> tuple[Lifted, Kept]:
        """The rows from which Φ is computed, and the arrays from which the next round may start."""
        if self.options is None:
            return X, {}
        exact = isinstance(X, FixedPoint) and self.options.compute != "float32"
        rows = X if exact else self._lift.rows(X)
        new = self._lift(rows) if known is None else known[LIFTED]
        return self._lift.beside(new, rows), {LIFTED: new}

    def design(self, rows: Lifted) -> Design:
        """Φ of a few lifted rows."""
        return Dense(rows)

    def expanded(self, X: Rows) -> F64:
        """Φ (n, D) of a few rows, dense and without the intercept."""
        return real(self.lifted(X)[0])

    def restore(self, arrays: Mapping[str, Array]) -> Self:
        """These with what they have learned, which is among the arrays of the softmax head."""
        return self


@dataclass(frozen=True)
class CodedFeatures(SoftmaxFeatures):
    """Φ = [X if asked, one-hot codes]: those of the SAFLe head, whose counts are ΦᵀΦ.

    The codes of each group add up to one, so no intercept is needed.
    """

    head: SafleHead
    intercept: bool = False

    @cached_property
    def key(self) -> str:
        key = Digest().json(CODES, self.head.options.as_dict())
        for name, array in self.head.state_dict().items():  # the thresholds, once they are learned
            key.array(name, array, "<f8")
        return key.hex()

    def bind(self, dim: int, classes: int) -> Self:
        return replace(self, head=self.head.bind(dim, classes))

    def array_specs(self, bits: int | None, dim: int, classes: int) -> dict[str, ArraySpec]:
        return self.head.array_specs(bits)

    def exact_bits(self, bits: int | None) -> int | None:
        """Codes alone are integers in units of one, of any features."""
        return bits if self.head.options.with_linear else 0

    @cached_property
    def coder(self) -> cd.Coder:
        return self.head.coder()

    def restore(self, arrays: Mapping[str, Array]) -> Self:
        learned = {name: a for name, a in arrays.items() if name == "thresholds"}
        phase = COUNTED if learned else self.head.phase()
        return replace(self, head=self.head.restore(phase, learned))

    def columns(self, dim: int) -> int:
        return self.head.options.columns_for(dim)

    def system(self, total: Statistics) -> tuple[F64, F64]:
        self.head.say_digits()
        system = CountedSystem(total)
        return system.matrix(), system.H

    def check(self, G: F64, H: F64, total: Statistics, ridge: float, own: F64 | None) -> None:
        if self.head.options.with_linear:
            far(G, H, total, self.head._bound()[0], ridge, own)

    def lifted(self, X: Rows, known: Mapping[str, Array] | None = None) -> tuple[Lifted, Kept]:
        codes = np.ascontiguousarray(self.coder.codes(X).T) if known is None else known[CODES]
        raw = X if self.head.options.with_linear else None
        return CodedRows(codes.T, self.coder.size, raw), {CODES: codes}

    def design(self, rows: Lifted) -> Design:
        return Coded(rows.codes, rows.size, rows.raw)

    def expanded(self, X: Rows) -> F64:
        return np.asarray(self.head._features_of(X))


def features_of(
    options: SoftmaxOptions, sources: Mapping[str, Source] | None = None
) -> SoftmaxFeatures:
    """The features that --features names. ``sources``: the opened files that options name."""
    wrapped = options.wrapped()
    if options.features == "safle":
        return CodedFeatures(SafleHead.begin(wrapped, sources))
    random = wrapped if isinstance(wrapped, RandomFeaturesOptions) else None
    return SoftmaxFeatures(LinearHead(LinearOptions(intercept=True)), random)
