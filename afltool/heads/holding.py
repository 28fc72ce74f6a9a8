"""Heads that hold solved heads, and are not solved from sums: calibrated ones, evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from ..errors import InvalidDataError, UsageError
from ..memory import NOTHING, Carried
from ..values.arrays import Array
from ..values.names import Phase
from ..values.statistics import Statistics
from . import make_head
from .base import Block, Found, Gathered, Head, Source


def description(head: Head) -> dict[str, Any]:
    """What the options of a head that holds this one say of it."""
    return {"name": head.name, "options": head.options.as_dict(), "digest": head.digest()}


@dataclass(frozen=True, eq=False)
class HoldingHead(Head):
    """Solved ``heads``, all of one feature space and list of classes; options ``described``.

    ``around``: what is before and behind the names of their arrays, {} for the number of the head.
    """

    around: ClassVar[tuple[str, str]]
    refusal: ClassVar[str]
    options: Any
    heads: tuple[Head, ...] = ()

    @classmethod
    def begin(cls, options: Any, sources: Mapping[str, Source] | None = None) -> Self:
        described = options.described
        return cls(
            options, heads=tuple(make_head(one["name"], one["options"]) for one in described)
        )

    def arrays(self) -> dict[str, Array]:
        named = super().arrays()
        for number, head in enumerate(self.heads):
            before, behind = (text.format(number) for text in self.around)
            named |= {before + name + behind: array for name, array in head.arrays().items()}
        return named

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        heads = []
        for number, head in enumerate(self.heads):
            before, behind = (text.format(number) for text in self.around)
            own = {k for k in arrays if k.startswith(before) and k.endswith(behind)}
            named = {k.removeprefix(before).removesuffix(behind): arrays[k] for k in own}
            heads.append(head.restore(None, named))
        return replace(super().restore(phase, arrays), heads=tuple(heads))

    def _bound_to(self, dim: int, classes: int) -> Self:
        heads = tuple(one.bind(dim, classes) for one in self.heads)
        for one, described in zip(heads, self.options.described, strict=True):
            if one.digest() != described["digest"]:
                raise InvalidDataError(
                    f"the {one.name} head in it has another digest than its options say"
                )
        return replace(self, dim=dim, classes=classes, heads=heads)

    def _columns(self, dim: int) -> int:
        return max((one._columns(dim) for one in self.heads), default=dim)

    def _sums(self, blocks: Iterable[Block], carried: Carried = NOTHING) -> Gathered:
        raise UsageError(self.refusal)

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        raise UsageError(self.refusal)
