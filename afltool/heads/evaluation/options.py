"""What sites agree on before they count: which heads, in which bins, which groups of rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import UsageError
from ...options import option
from ...options.statistics import LEAST
from ...values.bins import Bins, parse_bins
from ...values.digest import canonical_json
from ..options import HeadOptions


@dataclass(frozen=True, kw_only=True)
class EvaluationOptions(HeadOptions):
    """Solved heads that are evaluated by counts; every site has the same ones.

    ``heads`` is a JSON list, an object for each head: ``name``, ``options``, ``digest``,
    ``probabilities`` (whether its scores become such), ``bins``.
    """

    shows_rows: ClassVar[bool] = False

    heads: str = option("[]", "JSON: name, options, digest and bins of each solved head")
    groups: tuple[str, ...] = option((), "groups of rows that are counted apart")
    min_group: int = option(LEAST, "fewest rows of a group, or none", at_least=1)

    def check(self) -> None:
        if len(set(self.groups)) < len(self.groups):
            raise UsageError(f"a group is named twice: {', '.join(self.groups)}")

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "groups": list(self.groups)}

    def row_groups(self) -> tuple[str, ...]:
        return self.groups

    def least_of_group(self) -> int:
        return self.min_group

    @property
    def described(self) -> list[dict[str, Any]]:
        """The heads, as ``heads`` says them."""
        found: list[dict[str, Any]] = json.loads(self.heads)
        return found

    @property
    def bins(self) -> list[Bins]:
        """The bins of each head's scores."""
        return [parse_bins(one["bins"]) for one in self.described]


def written(heads: Sequence[Mapping[str, Any]]) -> str:
    """``heads`` of the options, as one text for all who name the same."""
    return canonical_json(list(heads))


def changes_of_counts(shapes: Mapping[str, Sequence[int]]) -> list[tuple[str, float]]:
    """By how much one row changes each array, as a Euclidean norm.

    A row is in one cell of an array; in ``scores`` (C, 2, B) in one of each class, in ``pairs``
    (P, 2, 2) in one of each pair of heads.
    """
    several = ("scores", "pairs")
    return [
        (name, float(shape[0]) ** 0.5 if name.startswith(several) else 1.0)
        for name, shape in sorted(shapes.items())
    ]


OPTIONS = EvaluationOptions
