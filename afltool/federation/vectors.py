"""What a round sums: one flat vector of integers, whose length and meaning follow from the head.

So a message of a site has no header, no name and no digest: there is nothing that could tell more.
Class counts are in the first round of rows alone; they bound what later rounds of them may be.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidDataError, MismatchError, NumericalError
from ..heads.base import Head
from ..values.arrays import I64, Array
from ..values.statistics import ArraySpec, Statistics
from .agreement import Agreement
from .compute import is_same, total_from
from .envelope import canonical
from .masking import Words

COUNTS = "class counts"
INT64 = 2**63 - 1


@dataclass(frozen=True)
class Layout:
    """The arrays of a round, in order; ``first``: of these rows, with their class counts."""

    agreed: Agreement
    task: Head
    first: bool
    arrays: tuple[tuple[str, ArraySpec], ...]

    @classmethod
    def of(cls, agreed: Agreement, task: Head, first: bool) -> Layout:
        first |= not task.of_sums  # test rows are others
        specs = task.array_specs(agreed.space["fraction_bits"])
        if reals := [name for name, one in specs.items() if not one.exact]:
            raise InvalidDataError(
                f"a session sums integers, and {reals[0]!r} is real: --compute fixed"
            )
        rows = len(agreed.members) * agreed.max_rows
        if rows * max(one.per_row for one in specs.values()) > INT64:
            raise NumericalError(f"sums of {rows} rows might not fit into int64: lower --max-rows")
        counts = {COUNTS: ArraySpec((len(agreed.classes),), "count", 1)} if first else {}
        return cls(agreed, task, first, (*sorted(specs.items()), *counts.items()))

    @property
    def size(self) -> int:
        return sum(one.size for _, one in self.arrays)

    @property
    def phase(self) -> str:
        return str(self.task.phase())

    def flat(self, s: Statistics) -> Words:
        """The numbers of one site; its rows are within what was agreed."""
        x = self.joined(s)
        if not self.agreed.noise:
            self._check_rows(s.rows, 1)
            self.check(x.view(np.int64), s.rows)
        return x

    def _check_rows(self, rows: int, sites: int) -> None:
        o = self.agreed
        least = o.min_rows if self.task.of_sums else 0
        if self.first and not sites * least <= rows <= sites * o.max_rows:
            where = f"{sites} sites" if sites > 1 else "a site"
            raise InvalidDataError(
                f"{rows} rows at {where}; agreed: {least} to {o.max_rows} at each"
            )

    def joined(self, s: Statistics) -> Words:
        named = {**s.arrays, COUNTS: s.class_counts}
        shapes = [(name, named[name].shape) for name, _ in self.arrays if name in named]
        if shapes != [(name, one.shape) for name, one in self.arrays]:
            raise MismatchError("these statistics are not of the head that was agreed on")
        flat = [named[name].reshape(-1).astype(np.int64) for name, _ in self.arrays]
        return np.concatenate(flat).view(np.uint64)

    def _parts(self, x: I64) -> dict[str, Array]:
        at, parts = 0, dict[str, Array]()
        for name, one in self.arrays:
            parts[name] = x[at : (at := at + one.size)].reshape(one.shape)
        return parts

    def check(self, x: I64, rows: int) -> None:
        """Refuse numbers that so many rows cannot have."""
        for (name, one), part in zip(self.arrays, self._parts(x).values(), strict=True):
            low, high = (int(f(initial=0)) for f in (part.min, part.max))
            least = 0 if one.kind == "count" else -rows * one.per_row
            if low < least or high > rows * one.per_row:
                raise NumericalError(f"{rows} rows cannot have {name!r} from {low} to {high}")

    def check_site(self, x: Words, name: str) -> None:
        """Refuse numbers that no site can have."""
        if self.first:
            self.statistics(x, [name], None)
        else:
            self.check(x.view(np.int64), self.agreed.max_rows)

    def statistics(self, x: Words, names: Collection[str], counts: I64 | None) -> Statistics:
        """A sum over members, refused if no rows can have it; ``counts``: of the first round."""
        arrays = self._parts(x.view(np.int64))
        counts = arrays.pop(COUNTS, counts)
        assert counts is not None
        if not self.agreed.noise:
            self._check_rows(rows := int(counts.sum(dtype=np.int64)), len(names))
            self.check(x.view(np.int64), rows)
        return total_from(self.agreed, self.task, arrays, counts, names)


# ---------------------------------------------------------------- a head that the server has solved


def packed(before: Head, after: Head) -> bytes:
    """The arrays that a solve has made or changed, behind a line with their names."""
    known, arrays = before.arrays(), after.arrays()
    names = [n for n in sorted(arrays) if n not in known or not np.array_equal(arrays[n], known[n])]
    return canonical(names) + b"\n" + b"".join(arrays[name].tobytes() for name in names)


def largest_head(after: Head) -> int:
    """The most bytes that `packed` may have."""
    return sum(len(name) + 8 + a.nbytes for name, a in after.arrays().items()) + 8


def adopted(before: Head, mine: Head, total: Statistics, data: bytes) -> Head:
    """The head with the server's last bits, after comparing it with this site's own solve."""
    arrays, theirs = dict(mine.arrays()), dict(before.arrays())
    line, _, rest = data.partition(b"\n")
    try:
        for name in json.loads(line):
            a = arrays[name]
            theirs[name] = np.frombuffer(rest[: a.nbytes], a.dtype).reshape(a.shape)
            rest = rest[a.nbytes :]
        if rest or not arrays.keys() <= theirs.keys():
            raise ValueError
    except (ValueError, TypeError, LookupError, RecursionError):
        raise MismatchError("the server's head is no solution of the sums: other arrays") from None
    for name, a in arrays.items():
        if not is_same(name, a, theirs[name], before, total):
            raise MismatchError(
                f"the server's head is not the solution of the sums: its {name} differs from what "
                "this site has solved by more than unlike machines may; tell the others, and do "
                "not go on with this server"
            )
    return mine.restore(mine.phase(), {name: theirs[name] for name in arrays})
