"""The interface of every head, which stages, runs and sessions use without asking which it is.

A head is a frozen value: options, the numbers of features and classes, and state. It has two roles:
a `Task` says what sites sum, and a `Classifier` scores rows. `bind` gives it the numbers, `gather`
sums a client's rows, `absorb` makes the next head of a total, until `phase` is None and
`decision_function` scores. docs/extending.md has what a head implements.
"""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property
from itertools import chain, count, takewhile
from typing import Any, ClassVar, Literal, Protocol, Self, TypeVar

import numpy as np

from .. import memory, parallel
from ..errors import InvalidDataError, MismatchError, NumericalError, UsageError
from ..math.blas import length
from ..math.gram import LARGEST_ENTRY, FixedPoint, Rows, check_labels, pieces
from ..memory import NOTHING, Carried
from ..values.arrays import F64, I64, Array, Digest, array_kind
from ..values.names import CROSS, GRAM, Phase
from ..values.statistics import ArraySpec, Client, ClientId, Context, Statistics, mark
from .options import HeadOptions

LARGEST_REAL = 2.0**384  # product of features: float32 is below 2^128, layers below 2^64
NOBODY = -1  # the class of a row that is refused, in a file that `export` writes
LAST = Phase("last")  # the round that a head was solved in; the list of rounds has its phase

Facts = Mapping[str, Any]
Shape = tuple[int | None, ...]  # None stands for any size
Block = tuple[Rows, I64]
State = dict[str, Array]  # of the rows of a block, from which the next round may start
Gathered = tuple[Mapping[str, Array], Carried]  # the sums, and what the next round may start from
NO_CLIENTS: Mapping[ClientId, Client] = {}
LearnedT = TypeVar("LearnedT")


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a solve found: figures of the ``head`` as it is now, and of this ``round``, to which
    `Task.absorb` adds phase, rows, clients and bytes; ``upload_bytes``, of the total, is an upper
    bound for a client. ``sent``: what each gets; None: all that is new in the head's arrays."""

    head: Facts = field(default_factory=dict)
    round: Facts = field(default_factory=dict)
    sent: Sequence[Array] | None = None

    def report(self, before: Facts, seconds: float | None = None) -> dict[str, Any]:
        """What the head's file says after this round, which took the server so many seconds;
        ``before``: what it said until then."""
        took = {} if seconds is None else {"solve_seconds": round(seconds, 4)}
        return {**self.head, "phases": [*before.get("phases", []), {**self.round, **took}]}


def state(kind: type[np.generic] = np.float64, name: str = "") -> Any:
    """A field of a head for a learned array, None until it is known; ``name``: its name in files,
    if not the field's."""
    return field(default=None, kw_only=True, metadata={"state": kind, "name": name})


class FeatureMap:
    """X ↦ Φ, what the scores of a head are linear in, without a constant; this one is Φ = X.

    A map that learns continues that of the round before: ``keys`` are of what its `rows` may start
    from and of what they leave, '' for nothing; equal keys stand for equal arrays of equal rows."""

    fewer: ClassVar[str] = "give fewer features"  # how to have fewer columns
    compute: str = ""  # number format of random features, by which a solve judges rounding

    @property
    def keys(self) -> tuple[str, str]:
        return "", ""

    def columns(self, dim: int) -> int:
        """D of Φ, made of ``dim`` features."""
        return dim

    def numbers(self, dim: int) -> int:
        """What a row becomes; so many numbers are in memory three times."""
        return self.columns(dim)

    def bits(self, given: int | None) -> int | None:
        """Fraction bits of Φ, made of features with so many; None where Φ is real."""
        return given

    def rows(self, X: Rows, known: State | None = None) -> tuple[Rows, State]:
        """Φ of rows (n, D), and what the next round may start from; ``known``: what was left."""
        return X, {}

    def each(self, X: Rows) -> Iterator[tuple[Phase, Rows]]:
        """Φ of a few rows after each round that has learned one, the last being their own; valid
        until the next."""
        yield LAST, self.rows(X)[0]


RAW = FeatureMap()


# ---------------------------------------------------------------- what files hold


@dataclass(frozen=True, eq=False)
class Stored(ABC):
    """Options, numbers of features and classes, and learned arrays, which are `state` fields."""

    name: ClassVar[str]
    #: Arrays that only say who may take part in later rounds, so no partition changes the digest.
    not_in_digest: ClassVar[tuple[str, ...]] = ()

    options: HeadOptions
    dim: int | None = None
    classes: int | None = None

    @classmethod
    def begin(cls, options: Any) -> Self:
        """The head before its first phase."""
        return cls(options)

    def phase(self) -> Phase | None:
        """What to gather next, or None when the head is solved."""
        return None

    def schedule(self) -> tuple[Phase, ...]:
        """The phases of such a head from its beginning, in order; it may end after some of them."""
        phase = self.phase()
        return () if phase is None else (phase,)

    @property
    def features(self) -> FeatureMap:
        """Φ, without the constant."""
        return RAW

    @property
    def one_round(self) -> bool:
        """Whether the first sum solves the head, so that later rows can still be added to it."""
        return len(self.schedule()) < 2

    def bind(self, dim: int, classes: int) -> Self:
        """The same head with d and C set, from 1 on; `MismatchError` for others than it has."""
        ours, what = (self.dim, self.classes), ("features", "classes")
        for mine, theirs, name in zip(ours, (dim, classes), what, strict=True):
            if theirs < 1:
                raise InvalidDataError(f"a head needs {name}, at least one; found {theirs}")
            if mine is not None and mine != theirs:
                raise MismatchError(f"the head is made for {mine} {name}; found {theirs}")
        if (dim, classes) == (self.dim, self.classes):
            return self
        bound = replace(self, dim=dim, classes=classes)
        named = bound.state_dict()
        for name, shape in bound._state_shapes().items():
            found = named[name].shape if name in named else (-1,) * len(shape)
            wanted = tuple(n if w is None else w for w, n in zip(shape, found, strict=False))
            if found != wanted or len(shape) != len(found) or name not in named:
                is_now = found if name in named else "absent"
                raise InvalidDataError(
                    f"the array {name!r} of a head is {is_now}, expected {shape}"
                )
        return bound

    def _bound(self) -> tuple[int, int]:
        """(d, C); `UsageError` before `bind`."""
        if self.dim is None or self.classes is None:
            raise UsageError("bind the head to a number of classes first: head.bind(dim, classes)")
        return self.dim, self.classes

    def _state_shapes(self) -> Mapping[str, Shape]:
        """The arrays that the state must have in this phase, by name; the head is bound."""
        return {}

    def room(self, rows: int) -> int:
        """Bytes that a thread takes for scores or sums of so many rows, beside rows and sums."""
        dim, classes = self._bound()
        return 24 * rows * (self.features.numbers(dim) + classes)

    def state_dict(self) -> dict[str, Array]:
        """Everything that later phases or scores depend on, by name."""
        named = {name: getattr(self, f.name) for name, f in self._state().items()}
        return {name: array for name, array in named.items() if array is not None}

    @classmethod
    def _state(cls) -> dict[str, Field[Any]]:
        """The fields that hold learned arrays, by the names of these."""
        own = (f for f in fields(cls) if "state" in f.metadata)
        return {f.metadata["name"] or f.name: f for f in own}

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        """This head with the state of a file (the inverse of `state_dict`).
        Raises `InvalidDataError` when the arrays are not those of the phase."""
        own = ((f, arrays[name]) for name, f in self._state().items() if name in arrays)
        known: dict[str, Any] = {f.name: np.asarray(a, f.metadata["state"]) for f, a in own}
        return replace(self, **known)._in_phase(phase)

    def _in_phase(self, phase: Phase | None) -> Self:
        """This head; `InvalidDataError` where it is not in that phase."""
        if self.phase() != phase:
            raise InvalidDataError(
                f"a head of phase {phase!r} holds the arrays of phase {self.phase()!r}"
            )
        return self

    def digest(self) -> str:
        """SHA-256 of the state and, until it is solved, the options but γ; once, if read-only."""
        changing = any(a.flags.writeable for a in self.state_dict().values())
        return self._digest() if changing else self._digest_once

    @cached_property
    def _digest_once(self) -> str:
        return self._digest()

    def _digest(self) -> str:
        digest = Digest().text("name", self.name).json("phase", self.phase())
        if self.phase() is not None:
            digest.json("options", _but_gamma(self.options))
        for name, array in sorted(self.state_dict().items()):
            if name not in self.not_in_digest:
                digest.array(name, array, array_kind(array))
        return digest.hex()


# ---------------------------------------------------------------- what sites sum


class Accumulator(Protocol):
    """The sums of rows that one thread takes; ``exact``: they are integers, in any order."""

    @property
    def exact(self) -> bool: ...

    def add(self, X: Rows, y: I64, known: State | None) -> State:
        """Add rows X (n, d) with labels y (n,); returns what the next round may start from, as
        ``known`` is what the round before has left."""

    def taken(self) -> Mapping[str, Array]:
        """The sums so far; it begins again at zero."""


Work = Callable[[Rows, I64, State | None], tuple[Mapping[str, Array], State]]


class Added:
    """The sums that ``work`` finds of each block: rows, labels, known → sums, left."""

    def __init__(self, work: Work) -> None:
        self.exact, self._work, self._parts = False, work, list[Mapping[str, Array]]()

    def add(self, X: Rows, y: I64, known: State | None) -> State:
        part, left = self._work(X, y, known)
        self.exact = all(number_kind(a) == "i" for a in part.values())
        self._parts = [add_up([*self._parts, part])]
        return left

    def taken(self) -> Mapping[str, Array]:
        return self._parts.pop()


@dataclass(frozen=True, eq=False)
class Task(Stored):
    """What sites sum of their rows, phase after phase, and what is made of the sums."""

    at_once: ClassVar[int] = sys.maxsize  # rows of a block that an accumulator takes together

    groups: tuple[str, ...] = field(default=(), kw_only=True)  # of the rows that it counts, if any

    def gather(
        self,
        blocks: Iterable[Block],
        client: Mapping[ClientId, Client] = NO_CLIENTS,
        carried: Carried = NOTHING,
    ) -> tuple[Statistics, Carried]:
        """Additive statistics of a client's rows, and what the next round may start from: of
        ``blocks`` of rows X (n, d) with int64 labels y (n,), class + C · group, and ``carried``,
        what the round before returned. `UsageError` when the head is solved or not bound,
        `InvalidDataError` for other labels."""
        phase, (_, classes) = self.phase(), self._bound()
        if phase is None:
            raise UsageError("the head is solved: there is nothing left to gather")
        counts = np.zeros(classes * max(1, len(self.groups)), dtype=np.int64)

        def counted() -> Iterator[Block]:
            for X, y in blocks:
                check_labels(y, len(counts))
                counts[:] += np.bincount(y, minlength=len(counts))
                yield X, y

        arrays, left = self._sums(counted(), carried)
        of_classes = counts.reshape(-1, classes).sum(axis=0)
        return Statistics(phase, arrays, of_classes, clients=client), left

    def accumulator(self) -> Accumulator:
        """What adds up the current phase's arrays, for a thread; by default what `_part` gives."""
        return Added(self._part)

    def _part(self, X: Rows, y: I64, known: State | None) -> tuple[Mapping[str, Array], State]:
        """The arrays of a block, and what the next round may start from; see `Accumulator.add`."""
        raise NotImplementedError(f"a {self.name} head has no `_part`, `accumulator` or `_sums`")

    def _sums(self, blocks: Iterable[Block], carried: Carried) -> Gathered:
        """The additive arrays of the current phase, summed over the blocks by all threads: integers
        in any order, reals in the order of the rows, on which their bits depend."""
        key, later = self.features.keys
        after = carried.following(later) if later else NOTHING
        size = 8 * sum(spec.size for spec in self.array_specs(None).values())
        memory.require_memory(2 * size, f"sums of a {self.name} head")
        spare = parallel.ThreadLocalPool(self.accumulator)

        def work(given: tuple[Rows, I64, State | None]) -> tuple[Mapping[str, Array], State]:
            with spare() as part:
                left = part.add(*given)
                return ({} if part.exact else part.taken()), left

        def real_parts() -> Iterator[Mapping[str, Array]]:
            cut = enumerate(pieces(blocks, self.at_once))
            given = ((X, y, carried.take(key, i, len(y)) if key else None) for i, (X, y) in cut)
            done = parallel.map_threads(work, given, lambda one: 3 * size + self.room(len(one[1])))
            for number, (sums, left) in enumerate(done):
                if later:
                    after.put(number, left)
                yield sums

        exact = (part.taken() for part in spare.made if part.exact)
        return add_up(filter(None, chain(real_parts(), exact))), after

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        """What each array is that the current phase gathers, by name; the head is bound. ``bits``:
        fraction bits of features, None for float32. By default it is read from the statistics of
        zero rows, without the bounds that masks need."""
        none = np.empty((0, self._bound()[0]), np.float32 if bits is None else np.int16)
        X = none if bits is None else FixedPoint(none, bits)
        sums, _ = self.gather([(X, np.empty(0, dtype=np.int64))])
        return {
            name: ArraySpec(a.shape, "int" if number_kind(a) == "i" else "real")
            for name, a in sums.arrays.items()
        }

    def check_room(self) -> None:
        """Refuse a solve for which this machine has too little memory; the head is bound."""
        columns = self.features.columns(self._bound()[0])
        memory.require_memory(
            12 * columns**2, f"solving for {columns} columns", self.features.fewer
        )

    def absorb(self, total: Statistics, validation: Statistics | None = None) -> tuple[Self, Found]:
        """The head one phase further, from the sum over clients, and what is recorded of the round;
        ``validation``: the sum over held-out clients, by which some choose. Raises `MismatchError`
        for a total of another phase, `InvalidDataError` for one of no rows or not finite,
        `NumericalError` where the numbers determine no answer, or NumPy or SciPy warns."""
        if total.phase != self.phase():
            raise MismatchError(
                f"the head's next phase is {self.phase()!r}; the total is of {total.phase!r}"
            )
        if total.rows == 0:
            raise InvalidDataError(
                f"the total of {len(total.clients)} clients has 0 rows: there is nothing to solve"
            )
        self._bound()
        for sums in (total, validation):
            if sums is not None:
                sums.check_finite()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)  # LinAlgWarning is one
                after, found = self._solve(total, validation)
        except (RuntimeWarning, np.linalg.LinAlgError) as error:
            why = f"the {self.name} head cannot be solved in float64: {str(error).rstrip('.')}"
            raise NumericalError(f"{why}; scale the features, afltool scale") from error
        known, both = self.state_dict(), {**found.head, **found.round}
        new = [a for name, a in after.state_dict().items() if a is not known.get(name)]
        entry: dict[str, Any] = {
            "phase": total.phase, "rows": total.rows, "clients": len(total.clients),
            "upload_bytes": total.payload_bytes,
            "download_bytes": sum(a.nbytes for a in (new if found.sent is None else found.sent)),
        }  # fmt: skip
        entry |= {k: both[k] for k in ("ridge", "training_mse") if both.get(k) is not None}
        return after, replace(found, round={**entry, **found.round})

    @abstractmethod
    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """The head one phase further, and what was found; the total has rows and fits."""


# ---------------------------------------------------------------- what scores rows


@dataclass(frozen=True, eq=False)
class Classifier(Stored):
    """Scores of rows, once it is solved; the class with the highest one is predicted."""

    #: Of log-probabilities softmax gives the probabilities; of differences no single one counts.
    score_kind: ClassVar[Literal["values", "log-probabilities", "differences"]] = "values"

    @abstractmethod
    def decision_function(self, X: Rows) -> F64:
        """Scores (n, C) of rows X (n, d)."""

    @property
    def log_probabilities(self) -> bool:
        """Whether softmax turns the scores into probabilities."""
        return self.score_kind == "log-probabilities"

    def affine(self) -> tuple[Array, Array] | None:
        """W (d, C) and b (C,) of a solved head whose scores are xW + b; None of any other."""
        return None

    def round_scores(self, X: Rows) -> Iterator[tuple[Phase, F64]]:
        """Scores (n, C) of rows X (n, d) after each round that is still held here, in order, with
        its phase, or `LAST`; none before the first."""
        if self.phase() is None:
            yield LAST, self.decision_function(X)


@dataclass(frozen=True, eq=False)
class Head(Task, Classifier):
    """A classifier on frozen features, trained in phases, each of which needs one sum over clients:
    a frozen dataclass with `state` fields, `phase`, `_part`, `_solve` and `decision_function`."""


def require_solved(learned: LearnedT | None) -> LearnedT:
    """What a head has learned; `UsageError` where it is asked for scores before it has."""
    if learned is None:
        raise UsageError("the head is not solved yet")
    return learned


def statistics_of(
    head: Task,
    blocks: Iterable[Block],
    clients: Mapping[ClientId, Client],
    context: Context,
    carried: Carried = NOTHING,
) -> tuple[Statistics, Carried]:
    """`Task.gather` of rows, for sums with one ``Context(space, classes, binding(head))``."""
    sums, left = head.gather(blocks, clients, carried)
    specs = head.array_specs(context.space.get("fraction_bits"))
    return replace(sums, context=context, specs=specs), left


def binding(head: Stored) -> dict[str, Any]:
    """What statistics for a head must have in common: all options but γ, the phase, the state."""
    return {
        "name": head.name,
        "options": _but_gamma(head.options),
        "phase": head.phase(),
        "digest": head.digest(),
    }


def _but_gamma(options: HeadOptions) -> dict[str, Any]:
    return {k: v for k, v in options.as_dict().items() if k != "gamma"}


def numbered_arrays(arrays: Mapping[str, Array], name: str, first: int = 0) -> tuple[Array, ...]:
    """The arrays ``name`` with {} = first, first + 1, …, as long as there are any."""
    names = map(name.format, count(first))
    return tuple(arrays[one] for one in takewhile(arrays.__contains__, names))


def products(side: int, classes: int, exact: bool) -> dict[str, ArraySpec]:
    """What XᵀX, one triangle, and XᵀY (side, C) are; ``exact``: of int16 features."""
    squares, sums = (LARGEST_ENTRY**2, LARGEST_ENTRY) if exact else (LARGEST_REAL, LARGEST_REAL)
    kind: Literal["int", "real"] = "int" if exact else "real"
    return {
        GRAM: ArraySpec((length(side),), kind, squares, square=True),
        CROSS: ArraySpec((side, classes), kind, sums, rows_of=GRAM, by_class=True),
    }


def add_up(parts: Iterable[Mapping[str, Array]]) -> Mapping[str, Array]:
    """The sum of additive arrays by name, one part in memory at a time; at least one part."""
    total: Mapping[str, Array] | None = None
    for number, part in enumerate(parts):
        if total is None:
            total = part
        elif number == 1:  # the first part's arrays may be somebody's
            total = {name: np.asarray(a + part[name]) for name, a in total.items()}
        else:
            for name, array in part.items():
                np.add(total[name], array, out=total[name])
    if total is None:
        raise UsageError("there are no blocks to gather; give at least an empty one")
    return total


def marks(statistics: Statistics) -> I64:
    """A number for each client and its rows, sorted, by which a later round knows them again."""
    numbers = [int(mark(who, client), 16) for who, client in statistics.clients.items()]
    return np.sort(np.array(numbers, dtype=np.uint64).astype(np.int64))


def number_kind(a: Array) -> str:
    """'i' for integers, 'f' for reals."""
    return "i" if np.issubdtype(a.dtype, np.integer) else "f"
