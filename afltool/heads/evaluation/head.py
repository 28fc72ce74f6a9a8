"""Evaluation as statistics: solved heads, whose "sums" are counts of the rows that they score.

It is a head only in that sites gather for it, and `local-stats`, rosters, masks and `aggregate`
treat it as one; it is never solved. One row changes, for each head, one cell of ``confusion`` and
of ``confidence``, at most one of ``ranks``, C of ``scores`` (one for each class), and one of
``groups``; of each pair of heads one of ``pairs``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...cache.cache import NOTHING, Carried
from ...errors import InvalidDataError, UsageError
from ...math.fixedpoint import Rows
from ...math.gram import check_labels
from ...math.metrics import counting
from ...values.arrays import I64, Array
from ...values.bins import PROBABILITIES, SCORES
from ...values.clients import Client, ClientId
from ...values.phases import Phase
from ...values.statistics import Statistics
from .. import make_head
from ..array_names import COUNTS
from ..base import NO_CLIENTS, Block, Gathered, Head, Shape, Source
from ..checks import probabilities
from ..rounds import Found
from .options import EvaluationOptions, written

GROUPS, PAIRS = "groups", "pairs"
NOT_SOLVED = (
    "a round of evaluation is not solved: read its total with afltool info, table, plot or report"
)


def of_head(name: str, number: int) -> str:
    """The name of an array of one of several heads."""
    return f"{name}-{number}"


def shapes_of(options: EvaluationOptions, classes: int) -> dict[str, tuple[int, ...]]:
    """The arrays of a round; their names end in the number of the head, from 0."""
    found: dict[str, tuple[int, ...]] = {}
    heads = len(options.bins)
    for number, bins in enumerate(options.bins):
        own = counting.shapes(classes, bins)
        if options.groups:
            own[GROUPS] = (len(options.groups), classes, classes)
        found |= {of_head(name, number): shape for name, shape in own.items()}
    return {**found, PAIRS: (heads * (heads - 1) // 2, 2, 2)} if heads > 1 else found


@dataclass(frozen=True, eq=False)
class Evaluation(Head):
    """Solved ``heads``, all of one feature space and list of classes."""

    name = "evaluation"
    of_sums = False
    options: EvaluationOptions
    heads: tuple[Head, ...] = ()

    @classmethod
    def begin(cls, options: Any, sources: Mapping[str, Source] | None = None) -> Self:
        named = options.described
        return cls(options, heads=tuple(make_head(one["name"], one["options"]) for one in named))

    @classmethod
    def of(
        cls, heads: Sequence[Head], bins: str | None, groups: Sequence[str], min_group: int
    ) -> Self:
        """That of solved heads; ``bins`` None: those that suit a head's scores."""
        usual = {True: str(PROBABILITIES), False: str(SCORES)}
        named = [
            {
                "name": one.name,
                "options": one.options.as_dict(),
                "digest": one.digest(),
                "probabilities": one.log_probabilities,
                "bins": bins or usual[one.log_probabilities],
            }
            for one in heads
        ]
        options = EvaluationOptions(heads=written(named), groups=tuple(groups), min_group=min_group)
        return cls(options, heads[0].dim, heads[0].classes, tuple(heads))

    def phase(self) -> Phase:
        return COUNTS

    def gather(
        self,
        blocks: Iterable[Block],
        client: Mapping[ClientId, Client] = NO_CLIENTS,
        carried: Carried = NOTHING,
    ) -> tuple[Statistics, Carried]:
        """Counts of a client's rows; with G groups the label of a row is class + C · group."""
        _, classes = self._bound()
        counts = np.zeros(classes, dtype=np.int64)
        found = {
            name: np.zeros(shape, np.int64)
            for name, shape in shapes_of(self.options, classes).items()
        }
        for X, labels in blocks:
            check_labels(labels, classes * max(1, len(self.options.groups)))
            for part in counting.parts(len(labels)):
                group, y = np.divmod(labels[part], classes)
                counts += np.bincount(y, minlength=classes)
                self._count(X[part], y, group, found)
        return Statistics(self.phase(), found, counts, clients=client), NOTHING

    def _count(self, X: Rows, y: I64, group: I64, found: dict[str, Array]) -> None:
        """Add a few rows of classes y (n,) and groups (n,)."""
        right = []
        for number, (head, bins) in enumerate(zip(self.heads, self.options.bins, strict=True)):
            S = head.scores(X)
            mine = {k: found[of_head(k, number)] for k in counting.shapes(S.shape[1], bins)}
            if not np.isfinite(S.sum()):
                raise InvalidDataError(f"the {head.name} head gives scores that are not finite")
            predicted = counting.count(mine, S, probabilities(head, S), y, bins)
            right.append(predicted == y)
            if self.options.groups:
                np.add.at(found[of_head(GROUPS, number)], (group, y, predicted), 1)
        for pair, (first, second) in enumerate(combinations(right, 2)):
            np.add.at(found[PAIRS], (pair, first.astype(int), second.astype(int)), 1)

    def shapes(self, bits: int | None) -> dict[str, Shape]:
        """All arrays are of integers, whatever the rows are."""
        found = shapes_of(self.options, self._bound()[1])
        return {name: (shape, "i") for name, shape in found.items()}

    # ------------------------------------------------------------ state

    def arrays(self) -> dict[str, Array]:
        """The arrays of every head, with its number behind their names."""
        named = ((n, one.arrays()) for n, one in enumerate(self.heads))
        return {of_head(name, n): a for n, own in named for name, a in own.items()}

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        restored = []
        for number, head in enumerate(self.heads):
            named = {k.rpartition("-"): a for k, a in arrays.items()}
            own = {name: a for (name, _, of), a in named.items() if of == str(number)}
            restored.append(head.restore(None, own))
        return replace(self, heads=tuple(restored))._checked(phase)

    def _bound_to(self, dim: int, classes: int) -> Self:
        heads = tuple(one.bind(dim, classes) for one in self.heads)
        for one, told in zip(heads, self.options.described, strict=True):
            if one.digest() != told["digest"]:
                raise InvalidDataError(
                    f"the {one.name} head in it has another digest than its options say"
                )
        return replace(self, dim=dim, classes=classes, heads=heads)

    # ------------------------------------------------------------ what it is not

    def _sums(self, blocks: Iterable[Block], carried: Carried) -> Gathered:
        raise UsageError(NOT_SOLVED)

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        raise UsageError(NOT_SOLVED)

    def scores(self, X: Rows) -> NDArray[np.float64]:
        raise UsageError(NOT_SOLVED)


HEAD = Evaluation
