"""What the softmax head is fitted on: the rows' own features, random ones, or codes.

A map gathers what bounds the curvature, ΦᵀΦ, in the phases of the head that it borrows from, and
makes Φ of a few rows for the rounds that follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..linalg import codes as cd
from ..linalg import ridge as rr
from ..linalg.designs import Coded, Dense, Design
from ..linalg.fixedpoint import FixedPoint, Rows, typed
from ..linalg.gram import gram_and_cross
from ..statistics import Statistics, Sum
from ._safle_system import CountedSystem
from .base import Array, Block, Carried, Source
from .fixed_lift import FixedLift
from .least_squares import CROSS, GRAM, fraction_bits
from .linear import PHASE
from .random_features import RandomFeaturesHead
from .safle import HISTOGRAM, SafleHead
from .softmax_options import SoftmaxOptions

F64 = NDArray[np.float64]
LIFTED = "lifted"  # what rows carry from round to round


@dataclass(frozen=True)
class CodedRows:
    """Codes (E, n) of rows, and the rows themselves where they are part of Φ."""

    codes: cd.Codes
    size: int
    raw: Rows | None

    def __len__(self) -> int:
        return int(self.codes.shape[1])

    def __getitem__(self, rows: slice) -> CodedRows:
        raw = None if self.raw is None else self.raw[rows]
        return CodedRows(self.codes[:, rows], self.size, raw)


Lifted = Rows | CodedRows


class RawMap:
    """Φ = [X, 1]; one phase, the linear head's."""

    intercept: ClassVar[bool] = True
    rows_at_once: ClassVar[int] = 256  # of Φ in float64 in the cache, for both products
    carries: ClassVar[bool] = False  # whether `lifted` leaves something for the next round

    def __init__(self, options: SoftmaxOptions) -> None:
        self.options = options
        self.classes = 0

    def bind(self, dim: int, classes: int) -> Self:
        bound = copy(self)
        bound.classes = classes
        return bound

    def phase(self) -> str:
        """What to gather next, before the gradients."""
        return PHASE

    def learned(self, total: Statistics) -> Self | None:
        """The map with what a phase told; None if the total is of its last: see `system`."""
        return None

    def columns(self, dim: int) -> int:
        """D of Φ, made of ``dim`` features."""
        return dim + 1

    def collect(self, blocks: Iterable[Block]) -> Statistics:
        """Statistics of the phase of rows that arrive in blocks."""
        total: Sum | None = None
        for X, y in blocks:
            rows, _ = self.lifted(X)
            assert not isinstance(rows, CodedRows)
            G, H = gram_and_cross(rows, y, self.classes, intercept=True)
            counts = np.bincount(y, minlength=self.classes).astype(np.int64)
            part = Statistics(PHASE, {GRAM: G, CROSS: H}, counts)
            total = Sum(part) if total is None else total.add(part)
        assert total is not None
        return total.result()

    def system(self, total: Statistics) -> tuple[F64, F64, int | None]:
        """ΦᵀΦ (D, D), C-ordered, its lower triangle filled; ΦᵀY (D, C); bits of gradients."""
        bits = fraction_bits(total)
        G = rr.real_gram(total.arrays[GRAM], bits)
        return G.T, rr.real_cross(total.arrays[CROSS], bits), bits

    def lifted(self, X: Rows, carried: Carried | None = None) -> tuple[Lifted, Carried]:
        """The rows that Φ is made of, and what of them the next round may start from."""
        return X, {}

    def design(self, rows: Lifted) -> Design:
        """Φ of a few lifted rows."""
        assert not isinstance(rows, CodedRows)
        return Dense(rows)

    # ------------------------------------------------------------ state, as files hold it

    def arrays(self) -> dict[str, Array]:
        return {}

    def restore(self, arrays: Mapping[str, Array]) -> Self:
        return self

    def with_source(self, option: str, source: Source) -> Self:
        raise AssertionError("only codes read a file")


class RandomMap(RawMap):
    """Φ = [σ(XA + a), X if asked, 1]; one phase, the gram of these.

    Fixed-point rows are lifted to fixed-point rows, so all sums stay integers; with float features,
    or ``compute`` float32, they are reals.
    """

    carries: ClassVar[bool] = True

    def __init__(self, options: SoftmaxOptions) -> None:
        super().__init__(options)
        self.random = options.random()
        self._real = RandomFeaturesHead(self.random)
        self._fixed: FixedLift | None = None

    def columns(self, dim: int) -> int:
        return self.random.width + dim * self.random.with_linear + 1

    def lifted(self, X: Rows, carried: Carried | None = None) -> tuple[Lifted, Carried]:
        beside = self.random.with_linear
        if isinstance(X, FixedPoint) and self.random.compute == "float64":
            new = self._lift(X) if carried is None else carried[LIFTED]
            values = np.hstack([new, X.values]) if beside else new
            return FixedPoint(values, X.bits), {LIFTED: new}
        new = self._real.lift(X)[:, : self.random.width] if carried is None else carried[LIFTED]
        real: Array = np.hstack([new, typed(X, self.random.compute)]) if beside else new
        return real, {LIFTED: new}

    def _lift(self, X: FixedPoint) -> NDArray[np.int16]:
        if self._fixed is None:
            self._fixed = FixedLift(self.random, X.dim, X.bits)
        return self._fixed(X)


class CodesMap(RawMap):
    """Φ = [X if asked, one-hot codes]; the phases of the SAFLe head, whose counts are ΦᵀΦ.

    Every group of codes adds up to one, so that there is no need of an intercept.
    """

    intercept: ClassVar[bool] = False
    rows_at_once: ClassVar[int] = 256

    def __init__(self, options: SoftmaxOptions) -> None:
        super().__init__(options)
        self.head = SafleHead(options.safle())
        self._coder: cd.Coder | None = None

    def bind(self, dim: int, classes: int) -> Self:
        return self._with(self.head.bind(dim, classes))

    def _with(self, head: SafleHead) -> Self:
        other = copy(self)
        other.head, other._coder = head, None
        return other

    def phase(self) -> str:
        return str(self.head.phase())

    def learned(self, total: Statistics) -> Self | None:
        return self._with(self.head.absorb(total)) if self.phase() == HISTOGRAM else None

    def columns(self, dim: int) -> int:
        return self.head.problem_side

    def collect(self, blocks: Iterable[Block]) -> Statistics:
        return self.head.collect(blocks)

    def system(self, total: Statistics) -> tuple[F64, F64, int | None]:
        system = CountedSystem(total)
        bits = system.bits if system.raw else 0
        return system.matrix(), system.H, bits

    def lifted(self, X: Rows, carried: Carried | None = None) -> tuple[Lifted, Carried]:
        if self._coder is None:
            self._coder = self.head.coder()
        raw = X if self.head.options.with_linear else None
        return CodedRows(self._coder.codes(X), self._coder.size, raw), {}

    def design(self, rows: Lifted) -> Design:
        assert isinstance(rows, CodedRows)
        return Coded(rows.codes, rows.size, rows.raw)

    def arrays(self) -> dict[str, Array]:
        return self.head.arrays()

    def restore(self, arrays: Mapping[str, Array]) -> Self:
        return self._with(self.head.restore(self.phase(), arrays))

    def with_source(self, option: str, source: Source) -> Self:
        return self._with(self.head.with_source(option, source))


MAPS: dict[str, type[RawMap]] = {"raw": RawMap, "random": RandomMap, "safle": CodesMap}
