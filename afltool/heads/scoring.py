"""A pass over rows that a head scores: what is counted and kept of them; nothing is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import cores, progress
from ..math.gram import Rows
from ..math.metrics.counting import Metrics, score_metrics
from ..math.metrics.figures import Scored, cut
from ..values.arrays import I64
from ..values.names import Phase
from .base import LAST, Head
from .checks import reported_scores

if TYPE_CHECKING:
    from ..math.metrics.separability import Separability

AT_ONCE = 256  # rows whose features are made together: those of codes are dense here
LABEL, SCORES = "label", "scores"  # what is kept of rated rows: of their own class, or of every one


@dataclass(frozen=True)
class Scores:
    """What a pass over rows finds of a head.

    ``counted``: after each of its rounds, by phase, or `LAST`; ``predicted`` int64 (n,): the
    classes in the end; ``rated``: the rows with their scores, if these are kept, and with those of
    another head; ``apart``: scatters of the features of each layer.
    """

    counted: dict[Phase, Metrics]
    predicted: I64
    rated: list[Scored]
    apart: dict[Phase, Separability]


def score(
    head: Head,
    blocks: Iterable[tuple[int, Rows]],
    labels: I64,
    classes: int,
    *,
    rounds: bool = False,
    keep: str | None = None,
    other: Head | None = None,
    apart: bool = False,
) -> Scores:
    """Score rows with ``labels`` int64 (n,) block by block, as (first row, rows).

    ``rounds``: after each round that the head holds. ``keep``: `LABEL`, the score of each row's own
    and of its predicted class, or `SCORES`, those of all classes. ``other``: a head that scores the
    same rows. ``apart``: the features that the head makes are measured, too.
    """

    def of_block(given: tuple[int, Rows]) -> tuple[Rows, I64, dict[Phase, Metrics], I64, Any]:
        start, X = given
        y, S, after = labels[start : start + len(X)], np.empty((0, classes)), {}
        for phase, S in head.round_scores(X) if rounds else [(LAST, head.scores(X))]:
            after[phase], predicted = score_metrics(S, y)
        rated = [Scored.of(S, reported_scores(head, S), y, keep == SCORES)] if keep else []
        if other is not None:
            theirs = other.scores(X)
            rated.append(Scored.of(theirs, theirs, y, keep_scores=False))
        return X, y, after, predicted, rated

    counted: dict[Phase, Metrics] = {}
    found: dict[Phase, Separability] = {}
    predicted, rated, parts = [], [], cut(blocks, classes)
    with progress.task("evaluate", len(labels), "rows") as task:
        for X, y, after, own, both in cores.each(of_block, parts, lambda b: head.room(len(b[1]))):
            progress.stop_point()
            for phase, one in after.items():
                counted[phase] = counted[phase] + one if phase in counted else one
            predicted.append(own)
            rated.append(both)
            if apart:
                _set_apart(found, head, X, y, classes)
            task.advance(len(X))
    joined = [Scored.joined(one) for one in zip(*rated, strict=True)]
    return Scores(counted, np.concatenate(predicted), joined, found)


def _set_apart(apart: dict[Phase, Separability], head: Head, X: Rows, y: I64, classes: int) -> None:
    """Add the features that the head makes of these rows to the scatters of their layers."""
    from ..math.metrics.separability import Separability

    for start in range(0, len(y), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        for phase, phi in head.round_features(X[part]):
            if phase not in apart:
                apart[phase] = Separability(classes, phi.shape[1])
            apart[phase].add(phi, y[part])
