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
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..digest import Digest, array_kind
from ..errors import InvalidDataError, MismatchError, UsageError
from ..linalg.fixedpoint import FixedPoint, Rows
from ..statistics import Statistics, Sum
from .options import Options

Array = NDArray[Any]
Block = tuple[Rows, NDArray[np.int64]]
Shape = tuple[tuple[int, ...], str]  # of an additive array, with 'i' for integers, 'f' for reals
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
        self.report: dict[str, Any] = {}  # what absorb found; "phases" has an entry for each round

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

    @property
    def same_clients(self) -> bool:
        """Whether every round has to be of the same clients, with the same rows."""
        return False

    def previous(self) -> Head | None:
        """The head one phase earlier; None before the first."""
        return None

    def so_far(self) -> Head | None:
        """The solved head that the phases absorbed so far already make; None if they make none."""
        return self if self.phase() is None else None

    def yardsticks(self, phase: str, clients: int) -> dict[str, int]:
        """Bytes that a phase's statistics of so many clients are compared with, by their names."""
        return {}

    def solved_rounds(self) -> list[str]:
        """Phases after each of which a solved head was there that this one still holds, in order.

        The last one made `so_far`; the list is empty where that is None.
        """
        if self.so_far() is None:
            return []
        return [one["phase"] for one in self.report.get("phases", [])][-1:] or ["last"]

    def round_scores(self, X: Rows) -> Iterator[NDArray[np.float64]]:
        """Scores (n, C) of rows X (n, d) after each of `solved_rounds`."""
        solved = self.so_far()
        if solved is not None:
            yield solved.scores(X)

    # ------------------------------------------------------------ what fits together

    def shapes(self, bits: int | None) -> dict[str, Shape]:
        """Shape and kind ('i' or 'f') of each array that the current phase gathers, by name.

        ``bits``: fraction bits of fixed-point features, None for float32. They are those of the
        statistics of no rows; a head for which these cost something says them itself.
        """
        if self.dim is None:
            raise UsageError("bind the head to a number of features first")
        none = np.empty((0, self.dim), np.float32 if bits is None else np.int16)
        X = none if bits is None else FixedPoint(none, bits)
        found = self.collect([(X, np.empty(0, dtype=np.int64))])
        return {name: (a.shape, _kind(a)) for name, a in found.arrays.items()}

    def check_total(self, total: Statistics) -> None:
        """Refuse with `InvalidDataError` a total whose arrays are not those of the next phase.

        Nor may they have entries that are not finite.
        Reals in place of all integers are good: the pairwise law makes them.
        """
        if total.phase != self.phase():
            raise MismatchError(
                f"the total is of phase {total.phase!r}; the head's next one is {self.phase()!r}"
            )
        total.check_finite()
        wanted = self.shapes(total.context.space.get("fraction_bits"))
        found = {name: (a.shape, _kind(a)) for name, a in total.arrays.items()}
        if all(kind == "f" for _, kind in found.values()):
            wanted = {name: (shape, "f") for name, (shape, _) in wanted.items()}
        for name in sorted(wanted.keys() | found.keys()):
            if wanted.get(name) != found.get(name):
                raise InvalidDataError(
                    f"the arrays do not fit a {self.name} head of {self.dim} features and "
                    f"{self.classes} classes: {name!r} is {_said(found.get(name))}, expected "
                    f"{_said(wanted.get(name))}; make the statistics again"
                )

    # ------------------------------------------------------------ state, as files hold it

    def arrays(self) -> dict[str, Array]:
        """Everything that was learned so far, by name."""
        return {}

    def learned(self) -> dict[str, Array]:
        """Of `arrays` what clients need, and what the digest is of; the rest is for the server."""
        return self.arrays()

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
        unknown = sorted(set(changes) - set(self.options.as_dict()))
        if unknown:
            raise UsageError(
                f"the head {self.name!r} has no option --{unknown[0].replace('_', '-')}; `solve` "
                f"can change {_flags(self.options.changeable()) or 'none'} of it"
            )
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
        for name, array in sorted(self.learned().items()):
            digest.array(name, array, array_kind(array))
        return digest.hex()


def _flags(names: Iterable[str]) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in sorted(names))


def note_round(
    before: Head, after: Head, total: Statistics, seconds: float, **facts: Any
) -> dict[str, Any]:
    """Append to ``after.report["phases"]`` what every head says of a round; returns the entry.

    Bytes are those of the arrays that one client sends at the most (the total's numbers are the
    larger ones) and then gets; ``seconds`` is the server's solve. ``facts``: the head's own.
    """
    known = before.learned()
    new = [a for name, a in after.learned().items() if a is not known.get(name)]
    entry = {
        "phase": total.phase,
        "rows": total.rows,
        "clients": len(total.clients),
        **facts,
        "solve_seconds": round(seconds, 4),
        "upload_bytes": total.payload_bytes,
        "download_bytes": sum(a.nbytes for a in new),
    }
    rounds = [*before.report.get("phases", []), entry]
    after.report = {**after.report, "phases": rounds}
    return entry


def expect_shape(name: str, a: Array, shape: tuple[int | None, ...]) -> None:
    """Refuse with `InvalidDataError` a learned array of another shape; None stands for any size."""
    same = a.ndim == len(shape) and all(w in (None, n) for n, w in zip(a.shape, shape, strict=True))
    if not same:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise InvalidDataError(f"the array {name!r} of a head is {a.shape}, expected ({wanted})")


def _kind(a: Array) -> str:
    return "i" if np.issubdtype(a.dtype, np.integer) else "f"


def _said(found: Shape | None) -> str:
    if found is None:
        return "absent"
    return f"{found[0]} of {'integers' if found[1] == 'i' else 'reals'}"
