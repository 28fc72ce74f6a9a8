"""Evaluation as statistics: solved heads, whose "sums" are counts of the rows that they score.

One row changes, for each head, one cell of ``confusion`` and of ``confidence``, at most one of
``ranks``, C of ``scores``, one of ``groups``; of many classes tallies in place of matrices.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Self

import numpy as np
from pydantic.dataclasses import dataclass as pydantic_dataclass

from ..errors import UsageError
from ..math.gram import Rows, pieces
from ..math.metrics import counting
from ..math.metrics.figures import SCORES_AT_ONCE
from ..memory import NOTHING, Carried
from ..options.base import option
from ..options.evaluation import LEAST
from ..values.arrays import I64, Array, canonical_json
from ..values.names import COUNTS, Phase
from ..values.ridge_spec import Bins, parse_bins, usual_bins
from ..values.statistics import ArraySpec, Statistics
from .base import Block, Classifier, FeatureMap, Found, Gathered, Task
from .calibration import description
from .checks import compute_reported_scores
from .options import HeadOptions

GROUPS, PAIRS = "groups", "pairs"


@pydantic_dataclass(frozen=True, kw_only=True)
class EvaluationOptions(HeadOptions):
    """Solved heads that are evaluated by counts. ``heads`` is a JSON list of objects: ``name``,
    ``options``, ``digest``, ``probabilities`` (whether its scores become such), ``bins``."""

    heads: str = option("[]", "JSON: the solved heads and the bins of each")
    groups: tuple[str, ...] = option((), "groups of rows that are counted apart")
    min_group: int = option(LEAST, "fewest rows of a group, or none", ge=1)

    def check(self) -> None:
        if len(set(self.groups)) < len(self.groups):
            raise UsageError(f"a group is named twice: {', '.join(self.groups)}")

    @property
    def described(self) -> list[dict[str, Any]]:
        """The heads, as ``heads`` says them."""
        heads: list[dict[str, Any]] = json.loads(self.heads)
        return heads

    @property
    def bins(self) -> list[Bins]:
        """The bins of each head's scores."""
        return [parse_bins(one["bins"]) for one in self.described]


def head_array_name(name: str, number: int) -> str:
    """The name of an array of one of several heads."""
    return f"{name}-{number}"


def round_shapes(
    options: EvaluationOptions, classes: int, many: bool | None = None
) -> dict[str, tuple[int, ...]]:
    """The arrays of a round, see `counting.shapes`; their names end in the number of the head."""
    shapes, heads = dict[str, tuple[int, ...]](), len(options.bins)
    for number, bins in enumerate(options.bins):
        own = counting.shapes(classes, bins, many)
        if options.groups:
            own[GROUPS] = (len(options.groups), *next(iter(own.values())))
        shapes |= {head_array_name(name, number): shape for name, shape in own.items()}
    return {**shapes, PAIRS: (heads * (heads - 1) // 2, 2, 2)} if heads > 1 else shapes


def _cells(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Axes of an array of a head along which each row is counted once, if it is."""
    if name == counting.TOP:  # of more classes a row may be in none
        return (0,) if shape[0] < counting.RANKS else ()
    once = {counting.CONFUSION: (0, 1), counting.SCORES: (1, 2), counting.CONFIDENCE: (0, 1)}
    return once.get(name, ())


@dataclass(frozen=True, eq=False)
class Evaluation(Task):
    """Solved ``heads``, all of one feature space and list of classes, and the counts of rows."""

    name = "evaluation"
    options: EvaluationOptions
    heads: tuple[Classifier, ...] = field(kw_only=True)

    @classmethod
    def begin(cls, options: Any) -> Self:
        raise UsageError("a round of evaluation is not solved: read its total with afltool table")

    @classmethod
    def of(
        cls, heads: Sequence[Classifier], bins: str | None, groups: Sequence[str], min_group: int
    ) -> Self:
        """That of solved heads; ``bins`` None: those that suit a head's scores."""
        sure = [one.log_probabilities for one in heads]
        named = canonical_json([
            {**description(one), "probabilities": p, "bins": bins or usual_bins(p)}
            for one, p in zip(heads, sure, strict=True)
        ])  # fmt: skip
        options = EvaluationOptions(heads=named, groups=tuple(groups), min_group=min_group)
        first = heads[0]
        return cls(options, first.dim, first.classes, groups=options.groups, heads=tuple(heads))

    def phase(self) -> Phase:
        return COUNTS

    def state_dict(self) -> dict[str, Array]:
        every = enumerate(self.heads)
        return {
            head_array_name(name, n): a for n, one in every for name, a in one.state_dict().items()
        }

    @property
    def features(self) -> FeatureMap:
        return max((one.features for one in self.heads), key=lambda f: f.numbers(self._bound()[0]))

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        """All arrays are counts, whatever the rows are."""
        return {
            name: ArraySpec(shape, "count", 1, cells=_cells(name.rpartition("-")[0], shape))
            for name, shape in round_shapes(self.options, self._bound()[1]).items()
        }

    def _sums(self, blocks: Iterable[Block], carried: Carried = NOTHING) -> Gathered:
        classes, specs = self._bound()[1], self.array_specs(None)
        sums: dict[str, Array] = {k: np.zeros(one.shape, np.int64) for k, one in specs.items()}
        for X, labels in pieces(blocks, max(1, SCORES_AT_ONCE // classes)):
            group, y = np.divmod(labels, classes)
            self._count(X, y, group, sums)
        return sums, NOTHING

    def _count(self, X: Rows, y: I64, group: I64, sums: dict[str, Array]) -> None:
        """Add rows of classes y (n,) and groups (n,)."""
        right = []
        for number, (head, bins) in enumerate(zip(self.heads, self.options.bins, strict=True)):
            S = head.decision_function(X)
            mine = {k: sums[head_array_name(k, number)] for k in counting.shapes(S.shape[1], bins)}
            predicted = counting.count(mine, S, compute_reported_scores(head, S), y, bins)
            right.append(predicted == y)
            if self.groups:
                counting.add_rows(sums[head_array_name(GROUPS, number)], y, predicted, group)
        for pair, (first, second) in enumerate(combinations(right, 2)):
            np.add.at(sums[PAIRS], (pair, first.astype(int), second.astype(int)), 1)

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        return self.begin(self.options), Found()


OPTIONS = EvaluationOptions
