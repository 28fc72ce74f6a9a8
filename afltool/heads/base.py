"""The one interface of every head: four verbs; nothing else knows which head it runs.

    phase() -> str | None            what to gather next; None = solved
    statistics(X, y) -> Statistics   client side: additive over rows
    absorb(total) -> Head            server side: a new head, one phase further
    scores(X) -> (n, C)

A head is an immutable value. Before any data are seen it is only a name with options; `bind` tells
it the number of features and classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..digest import Digest, array_kind
from ..errors import MismatchError, UsageError
from ..linalg.fixedpoint import Rows
from ..statistics import Statistics, Sum
from .options import Options

Array = NDArray[Any]
Block = tuple[Rows, NDArray[np.int64]]
Carried = Mapping[str, Array]  # what a phase computed of rows, one entry a row, for the next one


@dataclass(frozen=True)
class Source:
    """A file that an option names (`Options.files`), opened by whoever may read files.

    ``kind`` is 'features', with the rows in ``blocks``, or 'head', with its learned ``arrays``.
    """

    kind: str
    digest: str
    blocks: Iterable[Rows] = ()
    arrays: Mapping[str, Array] = field(default_factory=dict)


class Head(ABC):
    """A classifier on frozen features, reached by phases of additive statistics."""

    name: ClassVar[str]

    def __init__(self, options: Options) -> None:
        self.options = options
        self.dim: int | None = None
        self.classes: int | None = None
        self.report: dict[str, Any] = {}  # what the last absorb found: rank, ridge, bytes …

    # ------------------------------------------------------------ the four verbs

    @abstractmethod
    def phase(self) -> str | None:
        """What to gather next, or None when the head is solved."""

    @abstractmethod
    def statistics(self, X: Rows, y: NDArray[np.int64]) -> Statistics:
        """Additive statistics of rows X (n, d) with labels y (n,), for the current phase."""

    @abstractmethod
    def absorb(self, total: Statistics, validation: Statistics | None = None) -> Head:
        """The head one phase further, from the sum over clients.

        ``validation``: the sum over held-out clients, for heads that choose something by it.
        """

    @abstractmethod
    def scores(self, X: Rows) -> NDArray[np.float64]:
        """Scores (n, C) of rows X (n, d); the class with the highest score is predicted."""

    def gather(
        self, X: Rows, y: NDArray[np.int64], carried: Carried | None = None
    ) -> tuple[Statistics, Carried]:
        """`statistics`, and what the next phase may start from instead of from X.

        ``carried`` is what the head one phase earlier (`previous`) gave for the same rows; its
        arrays may be overwritten. Heads that have nothing to carry give an empty mapping.
        """
        return self.statistics(X, y), {}

    def previous(self) -> Head | None:
        """The head one phase earlier; None before the first."""
        return None

    # ------------------------------------------------------------ state, as files hold it

    def arrays(self) -> dict[str, Array]:
        """Everything that was learned so far, by name."""
        return {}

    def restore(self, phase: str | None, arrays: Mapping[str, Array]) -> Self:
        """This head with the learned state of a file (the inverse of `arrays`)."""
        return self

    def with_source(self, option: str, source: Source) -> Self:
        """This head with what the file named by an option holds; the option then says which."""
        raise UsageError(f"the head {self.name!r} reads no file for --{option.replace('_', '-')}")

    # ------------------------------------------------------------ shared

    def bind(self, dim: int, classes: int) -> Self:
        """The same head, knowing d and C; `MismatchError` if it knows others already."""
        for mine, theirs, what in (
            (self.dim, dim, "features"),
            (self.classes, classes, "classes"),
        ):
            if mine is not None and mine != theirs:
                raise MismatchError(f"the head is made for {mine} {what}; found {theirs}")
        bound = copy(self)
        bound.dim, bound.classes = dim, classes
        return bound

    def collect(self, blocks: Iterable[Block]) -> Statistics:
        """Statistics of rows that arrive in blocks; one block is in memory at a time."""
        total: Sum | None = None
        for X, y in blocks:
            part = self.statistics(X, y)
            total = Sum(part) if total is None else total.add(part)
        if total is None:
            raise UsageError("there are no blocks to collect; give at least an empty one")
        return total.result()

    def with_options(self, **changes: Any) -> Self:
        """The same head with other options that the statistics do not depend on."""
        fixed = sorted(set(changes) - self.options.changeable())
        if fixed:
            raise UsageError(
                f"the head {self.name!r} fixes --{fixed[0].replace('_', '-')} before its first "
                "round (it is part of what the federation agreed on); start from another head"
            )
        other = copy(self)
        other.options = replace(self.options, **changes)
        return other

    def binding(self) -> dict[str, Any]:
        """What statistics for this head must have in common: all options but γ, the phase."""
        options = {k: v for k, v in self.options.as_dict().items() if k != "gamma"}
        return {
            "name": self.name,
            "options": options,
            "phase": self.phase(),
            "digest": self.digest(),
        }

    def digest(self) -> str:
        """SHA-256 of what is learned and, until the head is solved, of its options but γ."""
        digest = Digest().text("name", self.name).json("phase", self.phase())
        if self.phase() is not None:
            options = {k: v for k, v in self.options.as_dict().items() if k != "gamma"}
            digest.json("options", options)
        for name, array in sorted(self.arrays().items()):
            digest.array(name, array, array_kind(array))
        return digest.hex()
