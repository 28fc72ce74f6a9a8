"""What a client sends: sums over its rows, and who and what they are sums of."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import AflError, InvalidDataError, MismatchError, NumericalError, naming
from .arrays import Array, Digest, array_kind, narrowest
from .names import UPLOADED, Phase
from .text import difference

ONE_LIST = ". Give extract or import of all sites one list, --classes FILE"
MOST_ROWS = 2**53  # of all statistics together: float64 counts them, and int64 holds their sums


@dataclass(frozen=True, order=True)
class ClientId:
    """A client is known by its name within a partition; a real silo has no partition ('')."""

    name: str
    partition: str = ""

    def __str__(self) -> str:
        return self.name + f" (partition {self.partition[:12]})" * bool(self.partition)


@dataclass(frozen=True)
class Client:
    """What is recorded about one client: rows, γ (never inside the gram), where the rows lie."""

    rows: int | None  # None: unknown, as under masks
    gamma: float = 0.0
    source: str = ""  # digest of the feature file
    rows_digest: str = ""  # which rows the partition deals, whatever the backbone
    held_out: bool = False
    dealt_to: int = 0  # clients of its partition, held-out ones apart; 0: one of its own, unknown


def mark(who: ClientId, client: Client) -> str:
    """A short digest of a client and its rows, for head files, which must not say more of them."""
    known = [who.partition, who.name, client.rows, client.source]
    return Digest().json("client", known).hex()[:16]


def get_sources(clients: Mapping[ClientId, Client]) -> dict[str, ClientId]:
    """A client of each feature file that clients with rows come from."""
    return {c.source: who for who, c in clients.items() if c.source and c.rows != 0}


def same_source(
    known: Mapping[str, ClientId], clients: Mapping[ClientId, Client]
) -> tuple[ClientId, ClientId] | None:
    """One of ``known`` (`get_sources`) and one of ``clients`` that have rows in common; or None.

    Two clients of one feature file share rows unless one partition dealt them.
    """
    for who, client in clients.items():
        other = known.get(client.source) if client.rows != 0 else None
        if other is not None and (not who.partition or other.partition != who.partition):
            return other, who
    return None


@dataclass(frozen=True)
class ArraySpec:
    """What an array of statistics is, whatever rows it is of: said by the head that gathers it."""

    shape: tuple[int, ...]  # files, which repeat the rest, have that of the array
    #: Rows counted, from 0 on, or exact sums, both int64; float64.
    kind: Literal["count", "int", "real"]
    per_row: float = math.inf  # no row adds more to an entry, in magnitude and the array's units
    square: bool = False  # the last axis is the triangle of XᵀX, those before are of other rows
    rows_of: str = ""  # the array with the sums of squares of the features on the first axis
    by_class: bool = False  # the last axis is of classes; entries are sums over rows of a class
    cells: tuple[int, ...] = ()  # axes along which each row counts once: their sums are the rows

    @property
    def exact(self) -> bool:
        """Whether it holds integers."""
        return self.kind != "real"

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    def entry(self) -> dict[str, Any]:
        """What a header says of it: all but the shape, and what is not the default."""
        said = ((f, getattr(self, f.name)) for f in fields(self)[1:])
        return {f.name: value for f, value in said if value != f.default}

    @classmethod
    def of(cls, shape: tuple[int, ...], entry: Mapping[str, Any]) -> ArraySpec:
        """The inverse of `entry`."""
        return cls(shape, **{**entry, "cells": tuple(entry.get("cells", ()))})


@dataclass(frozen=True)
class Context:
    """What must be equal for two statistics to be added; plain JSON values."""

    space: Mapping[str, Any] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    head: Mapping[str, Any] = field(default_factory=dict)
    noise: Mapping[str, Any] = field(default_factory=dict)  # of differential privacy, if any

    def as_dict(self) -> dict[str, Any]:
        facts = {"space": self.space, "classes": list(self.classes), "head": self.head}
        return {**facts, "noise": self.noise} if self.noise else facts


@dataclass(frozen=True)
class Statistics:
    """Named additive arrays over rows, with row counts and clients.

    ``arrays``: integers (exact mode) or float64; symmetric matrices are one triangle.
    ``class_counts``: int64 (C,). ``specs``: what the arrays are; files up to 0.3 do not say it.

    Laws (exact for integers, up to rounding for float64):

    - associative      (a + b) + c = a + (b + c)
    - commutative      a + b = b + a
    - pooling          statistics(rows of a and b together) = a + b
    - subtraction      (a + b) − b = a
    - zero             a − a is exactly 0, and a + (b − b) = a

    Adding what does not belong together (another context, phase or shape; a client that is already
    in it, or its rows) raises `MismatchError`, integer overflow `NumericalError`.
    """

    phase: Phase
    arrays: Mapping[str, Array]
    class_counts: NDArray[np.int64]
    context: Context = field(default_factory=Context)
    clients: Mapping[ClientId, Client] = field(default_factory=dict)
    specs: Mapping[str, ArraySpec] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Number of rows summed over."""
        return int(self.class_counts.sum())

    @property
    def gammas(self) -> dict[float, int]:
        """How many clients carry which γ."""
        return dict(Counter(client.gamma for client in self.clients.values()))

    @property
    def exact(self) -> bool:
        """Whether every array holds integers, so that sums do not depend on their order."""
        return all(np.issubdtype(a.dtype, np.integer) for a in self.arrays.values())

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays.values())

    @property
    def payload_bytes(self) -> int:
        """Bytes of the arrays in the types that files hold them in, before any compression."""
        return sum(a.size * np.dtype(narrowest(a)).itemsize for a in self.arrays.values())

    def check_finite(self) -> None:
        """Refuse with `InvalidDataError` an array with NaN or infinite entries."""
        for name, array in self.arrays.items():
            if wrong := int((~np.isfinite(array)).sum()):
                raise InvalidDataError(
                    f"{wrong} entries of the array {name!r} are not finite: look at the features"
                )

    def __add__(self, other: Statistics) -> Statistics:
        return Sum(self).add(other).result()

    def __sub__(self, other: Statistics) -> Statistics:
        return Sum(self).subtract(other).result()

    def digest(self) -> str:
        """SHA-256 of phase, arrays and class counts; not of γ, clients or where they came from."""
        digest = Digest().text("phase", self.phase)
        for name in sorted(self.arrays):
            digest.array(name, self.arrays[name], array_kind(self.arrays[name]))
        return digest.array("class_counts", self.class_counts, "<i8").hex()


class Sum:
    """A running sum of statistics: constant memory however many are added.

    ``repeats``: add clients although their rows are in the sum by another name.

    >>> one = Statistics(Phase("gram"), {"gram": np.array([1, 2, 3])}, np.array([2]))
    >>> Sum(one).add(one).result().arrays["gram"]
    array([2, 4, 6])
    """

    def __init__(self, first: Statistics, repeats: bool = False) -> None:
        self._like, self._repeats = first, repeats
        self._arrays = {name: a.copy() for name, a in first.arrays.items()}
        self._bounds = {name: _largest(a) for name, a in first.arrays.items()}
        self._counts = first.class_counts.copy()
        self._clients = dict(first.clients)
        self._dealt = {c.rows_digest: who.partition for who, c in first.clients.items()}
        self._sources = get_sources(first.clients)

    def add(self, other: Statistics) -> Sum:
        """Add statistics of other clients."""
        self._check_addable(other)
        self._check_new(other)
        rows = int(self._counts.sum()) + other.rows
        if rows > MOST_ROWS:
            raise NumericalError(f"the sum would be of {rows} rows, more than 2^53")
        self._combine(other, np.add)
        self._clients.update(other.clients)
        self._sources.update(get_sources(other.clients))
        return self

    def subtract(self, other: Statistics) -> Sum:
        """Take clients out: exact for integers, with rounding residue for float64."""
        self._check_addable(other)
        self._check_known(other)
        self._combine(other, np.subtract)
        if not self._counts.any() and not other.context.noise:  # what is left of reals is rounding
            for array in self._arrays.values():
                array[...] = 0
        for who in other.clients:
            del self._clients[who]
        self._sources = get_sources(self._clients)
        return self

    def result(self) -> Statistics:
        """The sum so far (not to be used together with further additions)."""
        return replace(
            self._like, arrays=self._arrays, class_counts=self._counts, clients=self._clients
        )

    def _combine(self, other: Statistics, operation: Any) -> None:
        """a ← a ± b in place; integers that would wrap around are refused before they do."""
        for name, a in self._arrays.items():
            self._bounds[name] += _largest(other.arrays[name])
            if self._bounds[name] > np.iinfo(np.int64).max:
                raise NumericalError(
                    f"array {name!r} could exceed int64 ({self._bounds[name]:.3g})",
                    advice=": extract the features with fewer --fraction-bits",
                )
            operation(a, other.arrays[name], out=a)
        operation(self._counts, other.class_counts, out=self._counts)

    def _check_addable(self, other: Statistics) -> None:
        if other.phase == UPLOADED:
            advice = ": add them up by aggregate --law pairwise"
            raise MismatchError("these are weights of clients, and not sums", advice=advice)
        for ours, theirs in zip(_meaning(self._like), _meaning(other), strict=True):
            if ours and theirs and (where := difference(ours, theirs, "in the others", "in these")):
                raise MismatchError(
                    f"these statistics do not belong to the others: {where}; "
                    "make them again with the same backbone, options, classes and head",
                    advice=ONE_LIST if where.startswith("classes") else "",
                )

    def _check_new(self, other: Statistics) -> None:
        if twice := self._clients.keys() & other.clients.keys():
            n = f"{len(twice)} of its clients are in the sum already"
            raise MismatchError(f"client {min(twice)} is given twice ({n})")
        for who, client in other.clients.items():
            if self._dealt.setdefault(client.rows_digest, who.partition) != who.partition:
                raise MismatchError(
                    f"client {who} and clients in the sum come from two partitions of the same rows"
                    ": use the clients of one"
                )
        if not self._repeats and (both := same_source(self._sources, other.clients)):
            source = other.clients[both[1]].source[:12]
            text = f"clients {both[0]} and {both[1]} have the rows of the same feature file"
            fix = "; give each file once, or --allow-repeats if you mean it"
            raise MismatchError(f"{text} ({source})", advice=fix)

    def _check_known(self, other: Statistics) -> None:
        for who, client in other.clients.items():
            where = f"it is none of the {len(self._clients)} clients of this total, or taken out"
            if known := self._clients.get(who):
                where = difference(vars(known), vars(client), "in the sum", "in these statistics")
            if where:
                raise MismatchError(f"client {who} cannot be subtracted: {where}")
        if (self._counts < other.class_counts).any():
            worst = int((self._counts - other.class_counts).argmin())
            raise MismatchError(f"more rows would be subtracted than there are in class {worst}")


def total_of(
    parts: Iterable[tuple[object, Statistics]],
    leaving: Iterable[tuple[object, Statistics]] = (),
    repeats: bool = False,
) -> Statistics:
    """Σ ``parts`` − Σ ``leaving``, one of them in memory at a time beside the sum.

    For integers any order and grouping gives the same bits. ``parts``: at least one, each with what
    an error calls it; ``leaving``: of clients that are in the sum. ``repeats``: as of `Sum`. Errors
    as of `Statistics`.
    """
    stream = iter(parts)
    total = Sum(next(stream)[1], repeats)
    for pairs, combine in ((stream, total.add), (leaving, total.subtract)):
        for name, part in pairs:
            with naming(name, AflError):
                combine(part)
    return total.result()


def _meaning(s: Statistics) -> tuple[dict[str, Any], ...]:
    """What statistics that are added have in common; what is empty is not known."""
    named = {**s.arrays, "class_counts": s.class_counts}
    arrays = {name: f"{a.shape} {array_kind(a)}" for name, a in named.items()}
    specs = {name: spec.entry() for name, spec in s.specs.items()}
    return {"phase": s.phase}, s.context.as_dict(), {"arrays": arrays}, specs


def _largest(a: Array) -> int:
    """Largest magnitude of an integer array; 0 for reals, which have no bound to keep."""
    if array_kind(a) == "<f8" or not a.size:
        return 0
    return max(int(a.max()), -int(a.min()))
