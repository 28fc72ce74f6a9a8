"""What a round sums: one flat vector of integers, whose length and meaning follow from the head.

So a message of a site has no header, no name and no digest: there is nothing that could tell more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..errors import InvalidDataError, MismatchError, NumericalError
from ..heads.base import Head, binding
from ..values.arrays import Array
from ..values.names import Phase
from ..values.statistics import Client, ClientId, Context, Statistics
from .agreement import Agreement
from .masking import Words

CLOSE = 1e-9  # of a head's numbers, by the largest: what another machine's solve may differ


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the arrays that a head's next phase gathers, in order."""

    phase: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, agreed: Agreement, head: Head) -> Layout:
        found = head.shapes(agreed.space["fraction_bits"])
        if reals := [name for name, (_, kind) in found.items() if kind != "i"]:
            raise InvalidDataError(
                f"a session sums integers, and {reals[0]!r} is real: --compute fixed"
            )
        named = sorted((name, shape) for name, (shape, _) in found.items())
        return cls(str(head.phase()), (*named, ("class counts", (len(agreed.classes),))))

    @property
    def size(self) -> int:
        return sum(prod(shape) for _, shape in self.shapes)

    def flat(self, agreed: Agreement, s: Statistics) -> Words:
        """The numbers of one site; its rows and its largest number are within what was agreed."""
        if not agreed.min_rows <= s.rows <= agreed.max_rows:
            raise InvalidDataError(f"{s.rows} rows; agreed: {agreed.min_rows} to {agreed.max_rows}")
        x = self.joined(s).view(np.int64)
        if len(x) and max(int(x.max()), -int(x.min())) > agreed.limit:
            raise NumericalError("a number of this site is too large: use fewer --fraction-bits")
        return x.view(np.uint64)

    def joined(self, s: Statistics) -> Words:
        named = {**s.arrays, "class counts": s.class_counts}
        if [(name, named[name].shape) for name, _ in self.shapes] != list(self.shapes):
            raise MismatchError("these statistics are not of the head that was agreed on")
        flat = [named[name].reshape(-1).astype(np.int64) for name, _ in self.shapes]
        return np.concatenate(flat).view(np.uint64)

    def statistics(
        self, agreed: Agreement, head: Head, x: Words, names: Iterable[str]
    ) -> Statistics:
        """A sum over members, as any other stage has it."""
        x, at, arrays = x.view(np.int64), 0, dict[str, Array]()
        if len(x) and max(int(x.max()), -int(x.min())) > agreed.limit * len(agreed.members):
            raise NumericalError("the sum makes no sense: a member has masked something else")
        for name, shape in self.shapes:
            arrays[name] = x[at : (at := at + prod(shape))].reshape(shape)
        counts = arrays.pop("class counts")
        context = Context(agreed.space, agreed.classes, binding(head))
        clients = {ClientId(name): Client(None) for name in sorted(names)}
        return Statistics(Phase(self.phase), arrays, counts, context, clients)


# ---------------------------------------------------------------- a head that the server has solved


def news(before: Head, after: Head) -> list[tuple[str, Array]]:
    """The arrays that a solve has made or changed."""
    known = before.arrays()
    return [
        (name, a)
        for name, a in sorted(after.arrays().items())
        if name not in known or not np.array_equal(a, known[name])
    ]


def packed(before: Head, after: Head) -> bytes:
    return b"".join(a.tobytes() for _, a in news(before, after))


def adopted(before: Head, mine: Head, data: bytes) -> Head:
    """The head with the server's last bits, after comparing it with this site's own solve."""
    mine_new, at, arrays = news(before, mine), 0, dict[str, Any](mine.arrays())
    if len(data) != sum(a.nbytes for _, a in mine_new):
        raise MismatchError("the server's head is not the solution of the sums: other arrays")
    for name, a in mine_new:
        theirs = np.frombuffer(data, a.dtype, a.size, at).reshape(a.shape)
        at += a.nbytes
        same = np.array_equal(theirs, a)
        if a.dtype.kind == "f" and not same:
            same = bool(np.abs(theirs - a).max() <= CLOSE * np.abs(a).max())
        if not same:
            raise MismatchError(
                f"the server's head is not the solution of the sums: its {name} differs from what "
                "this site has solved; tell the others, and do not go on with this server"
            )
        arrays[name] = theirs
    return mine.restore(mine.phase(), arrays)
