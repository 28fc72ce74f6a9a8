"""The interface of every head, which stages, runs and sessions use without asking which it is.

A head is a frozen value: options, the numbers of features and classes, and state. Before any data
are seen it has only its options; `bind` gives it the numbers, `gather` sums a client's rows,
`absorb` makes the next head of a total, one phase further, until `phase` is None and `scores`
predict. docs/extending.md has what a head implements.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property
from itertools import chain, count, takewhile
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import cores
from ..errors import InvalidDataError, MismatchError, NumericalError, UsageError
from ..math.blas import length
from ..math.gram import LARGEST_ENTRY, FixedPoint, Rows, check_labels, real
from ..memory import NOTHING, Carried
from ..options.base import set_of
from ..values.arrays import I64, Array, Digest, array_kind
from ..values.names import CROSS, GRAM, Phase
from ..values.statistics import ArraySpec, Client, ClientId, Context, Statistics, Sum, mark
from .options import HeadOptions

LARGEST_REAL = 2.0**384  # product of features: float32 is below 2^128, layers below 2^64
NOBODY = -1  # the class of a row that is refused, in a file that `export` writes

Facts = Mapping[str, Any]
H = TypeVar("H", bound="Head")
LAST = Phase("last")  # the round that a head was solved in; the list of rounds has its phase


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a solve found: figures of the ``head`` as it is now, and of this ``round`` alone.

    ``sent``: what each client gets; None means all that is new in the head's arrays.
    """

    head: Facts = field(default_factory=dict)
    round: Facts = field(default_factory=dict)
    sent: Sequence[Array] | None = None


@dataclass(frozen=True)
class Round:
    """A round of a head.

    ``entry``: what the head's file says of it: phase, rows, clients; ``upload_bytes``, an upper
    bound for one client: the size of the total's arrays, whose numbers are larger;
    ``download_bytes``, the size of what each client gets; the ridge, the training error and further
    figures of the round, where there are any. ``head``: figures of the head after it.
    """

    entry: Facts
    head: Facts

    @classmethod
    def of(cls, total: Statistics, solved: Found, upload: int, download: int) -> Round:
        """The round that solved ``total``."""
        own, facts = {"upload_bytes": upload, "download_bytes": download}, dict(solved.round)
        own |= {name: facts.pop(name, solved.head.get(name)) for name in ("ridge", "training_mse")}
        own = {name: value for name, value in own.items() if value is not None}
        who = {"phase": total.phase, "rows": total.rows, "clients": len(total.clients)}
        return cls({**who, **own, **facts}, solved.head)

    def report(self, before: Facts, seconds: float | None = None) -> dict[str, Any]:
        """What the head's file says after this round; ``before``: what it said until then.

        ``seconds``: time of the server's solve, where somebody has taken it.
        """
        took = {} if seconds is None else {"solve_seconds": round(seconds, 4)}
        return {**self.head, "phases": [*before.get("phases", []), {**self.entry, **took}]}


Block = tuple[Rows, NDArray[np.int64]]
State = dict[str, Array]  # of the rows of a block, from which the next round may start
Gathered = tuple[Mapping[str, Array], Carried]  # the sums, and what the next round may start from
NO_CLIENTS: Mapping[ClientId, Client] = {}


@dataclass(frozen=True)
class Source:
    """A file that an option names (`HeadOptions.files`); `files.heads` opens it.

    ``kind`` is 'features', with the rows in ``blocks``, or 'head', with its learned ``arrays``.
    """

    kind: str
    digest: str
    blocks: Iterable[Rows] = ()
    arrays: Mapping[str, Array] = field(default_factory=dict)


def state(kind: type[np.generic] = np.float64, name: str = "") -> Any:
    """A field of a head that holds a learned array of this type, None until it is known.

    ``name``: what files call it, if not as the field.
    """
    return field(default=None, kw_only=True, metadata={"state": kind, "name": name})


@dataclass(frozen=True, eq=False)
class Head(ABC):
    """A classifier on frozen features. It is trained in phases; each needs one sum over clients.

    A new head is a frozen dataclass whose learned arrays are `state` fields; it implements `phase`,
    `_sums`, `_solve` and `scores`.
    """

    name: ClassVar[str]
    log_probabilities: ClassVar[bool] = False  # whether softmax turns the scores into probabilities
    shared_part: ClassVar[bool] = False  # whether all scores of a row have a part in common
    of_sums: ClassVar[bool] = True  # it is solved from sums; else the sums are the result
    serves: ClassVar[str] = "afltool evaluate {} TEST.h5 measures the accuracy"  # once it is solved
    #: Arrays that only say who may take part in later rounds. They are not in the digest, so that
    #: every partition of the same rows gives the same digest.
    not_in_digest: ClassVar[tuple[str, ...]] = ()

    options: HeadOptions
    dim: int | None = None
    classes: int | None = None

    @classmethod
    def begin(cls, options: Any, sources: Mapping[str, Source] | None = None) -> Self:
        """The head before its first phase.

        ``sources``: the contents of the files that its options name, by option.
        """
        return cls(options)

    # ------------------------------------------------------------ the four verbs

    @abstractmethod
    def phase(self) -> Phase | None:
        """What to gather next, or None when the head is solved."""

    def phases(self) -> tuple[Phase, ...]:
        """The next phase and all that may follow it, in order: some of them, if it ends early."""
        next_one, every = self.phase(), self.every_phase()
        return () if next_one is None else every[every.index(next_one) :]

    def every_phase(self) -> tuple[Phase, ...]:
        """The phases of such a head from its beginning; of one that has several."""
        phase = self.phase()
        return () if phase is None else (phase,)

    def gather(
        self,
        blocks: Iterable[Block],
        client: Mapping[ClientId, Client] = NO_CLIENTS,
        carried: Carried = NOTHING,
    ) -> tuple[Statistics, Carried]:
        """Additive statistics of a client's rows, and what the next round may start from.

        ``blocks``: rows X (n, d) with int64 labels y (n,). There is at least one block, which may
        have no rows; one block is in memory at a time. ``client``: the clients that own the rows.
        ``carried``: what this method returned one round earlier for the same blocks. Raises
        `UsageError` when the head is solved or not bound, `InvalidDataError` for a label outside
        0 … C−1; of rows in G groups a label is class + C · group.
        """
        phase, (_, classes) = self.phase(), self._bound()
        if phase is None:
            raise UsageError("the head is solved: there is nothing left to gather")
        counts = np.zeros(classes, dtype=np.int64)
        rows = _counted(blocks, counts, max(1, len(self.options.row_groups())))
        arrays, left = self._sums(rows, carried)
        return Statistics(phase, arrays, counts, clients=client), left

    @abstractmethod
    def _sums(self, blocks: Iterable[Block], carried: Carried) -> Gathered:
        """The additive arrays of the current phase, summed over the blocks.

        The labels are in range; `add_up` adds the arrays of single blocks.
        """

    def _each(
        self,
        work: Callable[[Rows, I64, Any], tuple[Mapping[str, Array], State]],
        blocks: Iterable[Block],
        size: int,
        what: str,
        known: tuple[Carried, str] = (NOTHING, ""),
        after: Carried = NOTHING,
    ) -> Iterator[Mapping[str, Array]]:
        """The sums of each block, by all threads, in the order of the blocks.

        ``work``: rows, labels and what the round before has left of them, or None → sums, and what
        is left for the next round. ``known``: what holds that, and its key; ``after`` takes it.
        ``size``: bytes that a thread takes for the sums, for ``what``.
        """
        before, key = known
        given = ((*one, before.take(key, i, len(one[1]))) for i, one in enumerate(blocks))
        done = cores.each(
            lambda one: work(*one), given, lambda one: size + self.room(len(one[1])), what
        )
        for number, (sums, left) in enumerate(done):
            after.put(number, left)
            yield sums

    def absorb(self, total: Statistics, validation: Statistics | None = None) -> tuple[Self, Round]:
        """The head one phase further, from the sum over clients, and what is recorded of the round.

        ``validation``: the sum over held-out clients, for heads that choose something by it. Raises
        `MismatchError` for a total of another phase, `InvalidDataError` for one of no rows or with
        a sum that is not finite, and `NumericalError` when the numbers do not determine an answer,
        or NumPy or SciPy warns: nothing that overflowed, and no 0/0, gets into a head.
        """
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
                after, facts = self._solve(total, validation)
        except (RuntimeWarning, np.linalg.LinAlgError) as error:
            raise NumericalError(
                f"the {self.name} head cannot be solved in float64: {str(error).rstrip('.')}; look "
                "at the features: are they very large, or very different in size?"
            ) from error
        known = self.arrays()
        new = [a for name, a in after.arrays().items() if a is not known.get(name)]
        download = sum(a.nbytes for a in (new if facts.sent is None else facts.sent))
        return after, Round.of(total, facts, total.payload_bytes, download)

    @abstractmethod
    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """The head one phase further, and what was found; the total has rows and fits."""

    @abstractmethod
    def scores(self, X: Rows) -> NDArray[np.float64]:
        """Scores (n, C) of rows X (n, d); the class with the highest score is predicted."""

    def affine(self) -> tuple[Array, Array] | None:
        """W (d, C) and b (C,) of a solved head whose scores are xW + b; None of any other."""
        return None

    def round_scores(self, X: Rows) -> Iterator[tuple[Phase, NDArray[np.float64]]]:
        """Scores (n, C) of rows X (n, d) after each round, with the round's phase, in order.

        Only the rounds whose solved head is still held here; empty if there is none. The phase is
        `LAST` where the head does not hold it.
        """
        if self.phase() is None:
            yield LAST, self.scores(X)

    def round_features(self, X: Rows) -> Iterator[tuple[Phase, Array]]:
        """The features (n, m) that the scores after each round are made of, with its phase.

        Of a few rows at a time: they may be much wider than the rows. A head that makes none has
        the rows themselves.
        """
        if self.phase() is None:
            yield LAST, real(X)

    # ------------------------------------------------------------ memory

    def room(self, rows: int) -> int:
        """Bytes that a thread takes for scores or sums of so many rows, beside rows and sums."""
        dim, classes = self._bound()
        return 24 * rows * (self._columns(dim) + classes)

    def _columns(self, dim: int) -> int:
        """Numbers that a row becomes; so many are in memory three times."""
        return dim

    # ------------------------------------------------------------ what fits together

    def bind(self, dim: int, classes: int) -> Self:
        """The same head with d and C set, from 1 on; `MismatchError` for others than it has."""
        for mine, theirs, what in (
            (self.dim, dim, "features"),
            (self.classes, classes, "classes"),
        ):
            if theirs < 1:
                raise InvalidDataError(f"a head needs {what}, at least one; found {theirs}")
            if mine is not None and mine != theirs:
                raise MismatchError(f"the head is made for {mine} {what}; found {theirs}")
        if (dim, classes) == (self.dim, self.classes):
            return self
        bound = self._bound_to(dim, classes)
        named = bound.arrays()
        for name, shape in bound._state_shapes().items():
            expect_shape(name, named.get(name), shape)
        return bound

    def _bound_to(self, dim: int, classes: int) -> Self:
        return replace(self, dim=dim, classes=classes)

    def _state_shapes(self) -> dict[str, tuple[int | None, ...]]:
        """The arrays that the state must have in this phase, by name; the head is bound."""
        return {}

    def _bound(self) -> tuple[int, int]:
        """(d, C); `UsageError` before `bind`."""
        if self.dim is None or self.classes is None:
            raise UsageError("bind the head to a number of classes first: head.bind(dim, classes)")
        return self.dim, self.classes

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        """What each array is that the current phase gathers, by name; the head is bound.

        ``bits``: fraction bits of fixed-point features, None for float32. By default shapes and
        kinds are read from the statistics of zero rows, and no bound of a row is known; a head that
        overrides this says its bounds, without which no masks can hide its sums.
        """
        none = np.empty((0, self._bound()[0]), np.float32 if bits is None else np.int16)
        X = none if bits is None else FixedPoint(none, bits)
        sums, _ = self.gather([(X, np.empty(0, dtype=np.int64))])
        return {
            name: ArraySpec(a.shape, "int" if number_kind(a) == "i" else "real")
            for name, a in sums.arrays.items()
        }

    # ------------------------------------------------------------ state, as files hold it

    def arrays(self) -> dict[str, Array]:
        """Everything that later phases or scores depend on, by name; nothing else is kept."""
        named = {name: getattr(self, f.name) for name, f in self._state().items()}
        return {name: array for name, array in named.items() if array is not None}

    @classmethod
    def _state(cls) -> dict[str, Field[Any]]:
        """The fields that hold learned arrays, by the names of these."""
        own = (f for f in fields(cls) if "state" in f.metadata)
        return {f.metadata["name"] or f.name: f for f in own}

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        """This head with the state of a file (the inverse of `arrays`).

        Raises `InvalidDataError` when the arrays are not those of the phase.
        """
        own = ((f, arrays[name]) for name, f in self._state().items() if name in arrays)
        known = {f.name: np.asarray(a, f.metadata["state"]) for f, a in own}
        return self._with(**known)._checked(phase)

    def _with(self, **values: Any) -> Self:
        return replace(self, **values)

    def _checked(self, phase: Phase | None) -> Self:
        """This head; `InvalidDataError` where it is not in that phase."""
        if self.phase() != phase:
            raise InvalidDataError(
                f"a head of phase {phase!r} holds the arrays of phase {self.phase()!r}"
            )
        return self

    def digest(self) -> str:
        """SHA-256 of its state and, until the head is solved, of its options but γ.

        Computed only once for read-only arrays.
        """
        changing = any(a.flags.writeable for a in self.arrays().values())
        return self._digest() if changing else self._digest_once

    @cached_property
    def _digest_once(self) -> str:
        return self._digest()

    def _digest(self) -> str:
        digest = Digest().text("name", self.name).json("phase", self.phase())
        if self.phase() is not None:
            digest.json("options", _but_gamma(self.options))
        named = {k: a for k, a in self.arrays().items() if k not in self.not_in_digest}
        for name, array in sorted(named.items()):
            digest.array(name, array, array_kind(array))
        return digest.hex()


# ---------------------------------------------------------------- what a round computes
# Stages, runs and federations compute by these two and `values.statistics.total_of` alone.


def statistics_of(
    head: Head,
    blocks: Iterable[Block],
    clients: Mapping[ClientId, Client],
    context: Context,
    carried: Carried = NOTHING,
) -> tuple[Statistics, Carried]:
    """`Head.gather` of rows, for sums that have ``context`` in common: ``Context(space, classes,
    binding(head))``. `NumericalError`: integers could exceed int64."""
    sums, left = head.gather(blocks, clients, carried)
    specs = head.array_specs(context.space.get("fraction_bits"))
    return replace(sums, context=context, specs=specs), left


def solved(head: H, total: Statistics, validation: Statistics | None = None) -> tuple[H, Round]:
    """`Head.absorb` of the sum over clients."""
    return head.absorb(total, validation)


# ---------------------------------------------------------------- what every head has in common


def binding(head: Head) -> dict[str, Any]:
    """What statistics for a head must have in common: all options but γ, the phase, the state."""
    return {
        "name": head.name,
        "options": _but_gamma(head.options),
        "phase": head.phase(),
        "digest": head.digest(),
    }


def sums_of(head: Head) -> str:
    """A digest of what the sums of the next phase depend on.

    Not γ, nor an option that only `absorb` uses: what earlier solves made of it is in the arrays.
    Nor who may take part.
    """
    at_solve = set_of(type(head.options), "AT_SOLVE")
    options = {k: v for k, v in _but_gamma(head.options).items() if k not in at_solve}
    digest = Digest().json("of", [head.name, head.phase(), options])
    for name, array in sorted(head.arrays().items()):
        if name not in head.not_in_digest:
            digest.array(name, array, array_kind(array))
    return digest.hex()


def _but_gamma(options: HeadOptions) -> dict[str, Any]:
    return {k: v for k, v in options.as_dict().items() if k != "gamma"}


# ---------------------------------------------------------------- for those who write a head


def numbered(arrays: Mapping[str, Array], name: str, first: int = 0) -> tuple[Array, ...]:
    """The arrays ``name`` with {} = first, first + 1, …, as long as there are any."""
    names = map(name.format, count(first))
    return tuple(arrays[one] for one in takewhile(arrays.__contains__, names))


def products(side: int, classes: int, exact: bool) -> dict[str, ArraySpec]:
    """What XᵀX, one triangle, and XᵀY (side, C) are, of features and one-hot labels.

    ``exact``: of int16 features, and a constant one of at most 2^15.
    """
    squares, sums = (LARGEST_ENTRY**2, LARGEST_ENTRY) if exact else (LARGEST_REAL, LARGEST_REAL)
    kind: Literal["int", "real"] = "int" if exact else "real"
    return {
        GRAM: ArraySpec((length(side),), kind, squares, square=True),
        CROSS: ArraySpec((side, classes), kind, sums, rows_of=GRAM, by_class=True),
    }


def add_up(parts: Iterable[Mapping[str, Array]]) -> Mapping[str, Array]:
    """The sum of additive arrays by name, one part in memory at a time; at least one part.

    `cores.each` makes the parts of blocks by all threads, in the order of the blocks.
    """
    total: Sum | None = None
    for part in parts:
        one = Statistics(Phase(), part, np.zeros(0, dtype=np.int64))
        total = Sum(one) if total is None else total.add(one)
    if total is None:
        raise UsageError("there are no blocks to gather; give at least an empty one")
    return total.result().arrays


def marks(statistics: Statistics) -> NDArray[np.int64]:
    """A number for each client and its rows, sorted, by which a later round knows them again."""
    numbers = [int(mark(who, client), 16) for who, client in statistics.clients.items()]
    return np.sort(np.array(numbers, dtype=np.uint64).astype(np.int64))


def expect_shape(name: str, a: Array | None, shape: tuple[int | None, ...]) -> None:
    """Refuse with `InvalidDataError` a learned array of another shape; None stands for any size."""
    if a is None:
        raise InvalidDataError(f"the array {name!r} of a head is absent")
    same = a.ndim == len(shape) and all(w in (None, n) for n, w in zip(a.shape, shape, strict=True))
    if not same:
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise InvalidDataError(f"the array {name!r} of a head is {a.shape}, expected ({wanted})")


# ---------------------------------------------------------------- details


def _counted(blocks: Iterable[Block], counts: NDArray[np.int64], groups: int) -> Iterator[Block]:
    """The same blocks; checks the labels of each and adds their counts to ``counts`` (C,)."""
    stream = iter(blocks)
    first = next(stream, None)
    if first is None:
        raise UsageError("there are no blocks to gather; give at least an empty one")
    for X, y in chain([first], stream):
        check_labels(y, groups * len(counts))
        of_block = np.bincount(y, minlength=groups * len(counts))
        counts += of_block.reshape(groups, -1).sum(axis=0)
        yield X, y


def number_kind(a: Array) -> str:
    """'i' for integers, 'f' for reals."""
    return "i" if np.issubdtype(a.dtype, np.integer) else "f"
