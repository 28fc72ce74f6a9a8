"""What a round sums and solves: the only module here that computes statistics and heads.

A site sends one flat vector of integers, whose length and meaning follow from the head: there is
nothing that could tell more. Class counts come in the first round of rows, and bound later ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from msgspec import msgpack

from ..errors import InvalidDataError, MismatchError, NumericalError
from ..heads import base, invariants, read_head
from ..heads.base import Block, Head, Task, binding
from ..math.blas import length, unpack
from ..math.ridge import gram_matrix
from ..values import names
from ..values.arrays import F64, I64, Array
from ..values.names import GRAM, Phase
from ..values.statistics import ArraySpec, Client, ClientId, Context, Statistics
from .agreement import Agreement, Named
from .masking import Words

CLOSE = 1e-9  # of the largest number of a column, where no system of equations is known
ROUNDINGS = 16  # of a solve by Cholesky, times (d + 8) ε: its backward error on any machine
LOSS_BITS = 24
SLACK = 2.0  # of the loss of a point that momentum has moved
COUNTS = "class counts"
H = TypeVar("H", bound=Task)


def first_head(agreed: Agreement) -> Head:
    """The head before its first round: of its name and options alone, nobody sends it."""
    head = read_head(agreed.head.name, agreed.head.options)
    head = head.bind(agreed.space["dim"], len(agreed.classes))
    if head.digest() != agreed.head.digest:
        raise MismatchError("this afltool makes another first head than was agreed on")
    return head


def describe_head(head: Head) -> Named:
    """What an agreement says of a head before its first round."""
    return Named(head.name, head.options.as_dict(), head.digest())


def compute_statistics(agreed: Agreement, head: Task, blocks: Iterable[Block]) -> Statistics:
    """What a site sums of its rows for a head."""
    context = Context(agreed.space, agreed.classes, binding(head))
    return base.statistics_of(head, blocks, {}, context)[0]


def solve_next(head: H, total: Statistics, ridge: float | None = None) -> H:
    """The head one phase further, as everybody solves it; ``ridge``: in place of its own."""
    if ridge is not None:
        options: Any = head.options  # of a head that has a ridge
        made = type(head).begin(replace(options, ridge=ridge))
        head = made.bind(head.dim or 0, head.classes or 0)
    return head.absorb(total)[0]


def check_point(own: Statistics, rows: int, classes: int) -> None:
    """Refuse a point at which this site's loss is above ln C for each of all ``rows``."""
    loss = own.arrays.get("loss")
    most = SLACK * rows * np.log(max(classes, 2))
    if loss is not None and float(loss[0]) * 2.0**-LOSS_BITS > most:
        raise MismatchError(
            f"the loss of this site's rows in {own.phase!r} is beyond {most:.4g}, which no honest "
            "head has: somebody has chosen the point; stop"
        )


@dataclass(frozen=True)
class Layout:
    """The arrays of a round, in order; ``first``: of these rows, with their class counts."""

    agreed: Agreement
    task: Task
    first: bool
    arrays: tuple[tuple[str, ArraySpec], ...]

    @classmethod
    def of(cls, agreed: Agreement, task: Task, first: bool) -> Layout:
        first |= task.phase() == names.COUNTS  # test rows are others
        specs = task.array_specs(agreed.space["fraction_bits"])
        if reals := [name for name, one in specs.items() if not one.exact]:
            raise InvalidDataError(f"sessions sum integers, {reals[0]!r} is real: --compute fixed")
        rows = len(agreed.members) * agreed.max_rows
        if rows * max(one.per_row for one in specs.values()) > 2**63 - 1:
            raise NumericalError(f"sums of {rows} rows might not fit into int64: lower --max-rows")
        counts = {COUNTS: ArraySpec((len(agreed.classes),), "count", 1)} if first else {}
        return cls(agreed, task, first, (*sorted(specs.items()), *counts.items()))

    @property
    def size(self) -> int:
        return sum(one.size for _, one in self.arrays)

    def joined(self, s: Statistics) -> Words:
        """The numbers of statistics that were gathered for this task."""
        named = {**s.arrays, COUNTS: s.class_counts}
        flat = [named[name].reshape(-1).astype(np.int64) for name, _ in self.arrays]
        return np.concatenate(flat).view(np.uint64)

    def check_rows(self, counts: I64, sites: int) -> None:
        """Refuse other numbers of rows than so many sites may have; with noise none is refused."""
        o, tested = self.agreed, self.task.phase() == names.COUNTS
        least = 0 if tested else o.min_rows
        if o.noise or not self.first:
            return
        rows, at = counts.astype(object).sum(), f"{sites} sites" if sites > 1 else "a site"
        if counts.min() < 0 or not sites * least <= rows <= sites * o.max_rows:
            raise InvalidDataError(f"{rows} rows at {at}; agreed: {least} to {o.max_rows} at each")

    def check_site(self, x: Words, name: str, counts: I64 | None) -> None:
        """Refuse numbers that no site can have; ``counts``: those of all sites, after round 1."""
        free = tuple((k, replace(one, cells=())) for k, one in self.arrays)  # fewer rows than those
        (self if counts is None else replace(self, arrays=free)).statistics(x, [name], counts)

    def statistics(self, x: Words, names: Collection[str], counts: I64 | None) -> Statistics:
        """A sum over members, refused if no rows can have it; ``counts``: of the first round."""
        at, parts, specs = 0, dict[str, Array](), dict(self.arrays)
        for name, one in self.arrays:
            parts[name] = x.view(np.int64)[at : (at := at + one.size)].reshape(one.shape)
        if specs.pop(COUNTS, None):
            counts = parts.pop(COUNTS)
        assert counts is not None
        self.check_rows(counts, len(names))
        clients = {ClientId(name): Client(None) for name in sorted(names)}
        context = Context(self.agreed.space, self.agreed.classes, binding(self.task))
        total = Statistics(Phase(str(self.task.phase())), parts, counts, context, clients, specs)
        if not self.agreed.noise:
            invariants.check(total)
        return total


def pack_arrays(before: Head, after: Head) -> bytes:
    """The arrays that a solve has made or changed, by name."""
    known, arrays = before.state_dict(), after.state_dict()
    names = [n for n in sorted(arrays) if n not in known or not np.array_equal(arrays[n], known[n])]
    return msgpack.encode({name: arrays[name].tobytes() for name in names})


def adopt_last_bits(before: Head, mine: Head, total: Statistics, data: bytes) -> Head:
    """The head with the server's last bits, after comparing it with this site's own solve."""
    arrays, theirs = mine.state_dict(), dict(before.state_dict())
    try:
        for name, raw in msgpack.decode(data, type=dict[str, bytes]).items():
            theirs[name] = np.frombuffer(raw, arrays[name].dtype).reshape(arrays[name].shape)
        theirs = {name: theirs[name] for name in arrays}
    except (ValueError, LookupError, RecursionError):
        raise MismatchError("the server's head is no solution of the sums: other arrays") from None
    for name, a in arrays.items():
        if not is_same(name, a, theirs[name], before, total):
            raise MismatchError(
                f"the server's head is not the solution of the sums: its {name} differs by more "
                "than unlike machines may; tell the others, and leave this server"
            )
    return mine.restore(mine.phase(), theirs)


def is_same(name: str, mine: Array, theirs: Array, before: Head, total: Statistics) -> bool:
    """Whether an array of a head is one that another machine may have solved.

    Reals that solve a system M W = … have a small backward error, M (W' − W) beside ‖M‖‖W‖, column
    by column, however ill-conditioned M is; other reals are nearly equal.
    """
    if np.array_equal(mine, theirs):
        return True
    if mine.dtype.kind != "f" or mine.shape != theirs.shape or not np.isfinite(theirs).all():
        return False
    W, other = (a.reshape(len(a), -1) if a.ndim else a.reshape(1, 1) for a in (mine, theirs))
    if name == "factor" and mine.ndim == 1:  # a triangle of L, M = L Lᵀ
        L, K = (np.tril(unpack(a)) for a in (mine, theirs))
        apart = np.abs(L @ L.T - K @ K.T).max()
        return bool(apart <= _backward(len(L)) * np.abs(L @ L.T).max())
    solves = name.partition("-")[0] in ("weights", "point", "step", "best")
    M = _system(before, total, len(W)) if solves else None
    if M is None:
        return bool((np.abs(other - W).max(0) <= CLOSE * np.abs(W).max(0)).all())
    most = _backward(len(M)) * np.linalg.norm(M) * np.linalg.norm(W, axis=0)
    return bool((np.linalg.norm(M @ (other - W), axis=0) <= most).all())


def _backward(side: int) -> float:
    return ROUNDINGS * (side + 8) * float(np.finfo(float).eps)


def _system(before: Head, total: Statistics, side: int) -> F64 | None:
    """The matrix M (side, side) of what a round solves: a gram, or a bound of the curvature."""
    factor, gram = before.state_dict().get("factor"), total.arrays.get(GRAM)
    if factor is not None and factor.shape == (length(side),):
        L = np.tril(unpack(factor))
        return np.asarray(L @ L.T)
    if gram is not None and gram.shape == (length(side),):
        G = gram_matrix(gram, total.context.space.get("fraction_bits"))
        ridge = getattr(before.options, "ridge", 0.0)
        least = _backward(side) * float(np.linalg.norm(G))
        known = float(ridge) if isinstance(ridge, int | float) else 0.0  # a rule finds its own
        return G + max(known, least) * np.eye(side)  # or nothing bounds a feature that no row has
    return None
