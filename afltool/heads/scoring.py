"""A pass over rows that a head scores: what is counted and kept of them; nothing is written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import parallel, progress
from ..math.gram import Rows, real
from ..math.metrics.counting import Metrics, score_metrics
from ..math.metrics.figures import Scored, cut_blocks
from ..values.arrays import F64, I64
from ..values.names import MEASURES, Phase
from .base import LAST, Head
from .checks import compute_reported_scores

AT_ONCE = 256  # rows whose features are made together: those of codes are dense here
LABEL, SCORES = "label", "scores"  # what is kept of rated rows: of their own class, or of every one


@dataclass(frozen=True)
class Scores:
    """What a pass over rows finds of a head: what is ``counted`` after each round, by phase, or
    `LAST`; the ``predicted`` classes, int64 (n,); the ``rated`` rows, of this head and another one;
    scatters of each layer's features, ``apart``."""

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
    """Score rows with ``labels`` int64 (n,) block by block, as (first row, rows). ``rounds``: after
    each round that the head holds; ``keep``: `LABEL`, the score of each row's own and predicted
    class, or `SCORES`, of all; ``apart``: measure the head's features, too."""

    def of_block(given: tuple[int, Rows]) -> tuple[Rows, I64, dict[Phase, Metrics], I64, Any]:
        start, X = given
        y, S, after = labels[start : start + len(X)], np.empty((0, classes)), {}
        for phase, S in head.round_scores(X) if rounds else [(LAST, head.decision_function(X))]:
            after[phase], predicted = score_metrics(S, y)
        rated = [Scored.of(S, compute_reported_scores(head, S), y, keep == SCORES)] if keep else []
        if other is not None:
            theirs = other.decision_function(X)
            rated.append(Scored.of(theirs, theirs, y, keep_scores=False))
        return X, y, after, predicted, rated

    counted: dict[Phase, Metrics] = {}
    found: dict[Phase, Separability] = {}
    predicted, rated, parts = [], [], cut_blocks(blocks, classes)
    with progress.task("evaluate", len(labels), "rows") as task:
        for X, y, after, own, both in parallel.map_threads(
            of_block, parts, lambda b: head.room(len(b[1]))
        ):
            progress.stop_point()
            for phase, one in after.items():
                counted[phase] = counted[phase] + one if phase in counted else one
            predicted.append(own)
            rated.append(both)
            if apart:
                _add_scatters(found, head, X, y, classes)
            task.advance(len(X))
    joined = [Scored.join(one) for one in zip(*rated, strict=True)]
    return Scores(counted, np.concatenate(predicted), joined, found)


def _add_scatters(
    apart: dict[Phase, Separability], head: Head, X: Rows, y: I64, classes: int
) -> None:
    """Add the features that the head makes of these rows to the scatters of their layers."""
    for start in range(0, len(y), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        for phase, phi in head.features.each(X[part]):
            if phase not in apart:
                apart[phase] = Separability(classes, phi.shape[1])
            apart[phase].add(phi, y[part])


class Separability:
    """Means and scatters of the classes; each block of rows is added, none is kept.

    Tang et al., "DeepAFL", ICLR 2026, appendix R.2, as docs/decisions/deepafl.md reads it. With n_c
    rows, mean μ_c and scatter S_c = Σ‖x − μ_c‖² of each of the C classes that have rows, N = Σn_c,
    S = ΣS_c, μ the mean of all rows and μ̄ the mean of the C means:

        CSR = (S / N) / (mean of ‖μ_a − μ_b‖² over all pairs a ≠ b)
        IFS = (S / (N − C)) / (Σ‖μ_c − μ̄‖² / C)
        DM  = S / Σ n_c ‖μ_c − μ‖²

    Lower is better. Memory: C·(m + 2) float64 for m features.
    """

    def __init__(self, classes: int, width: int) -> None:
        self.width, self.counts = width, np.zeros(classes, dtype=np.int64)
        self.means: F64 = np.zeros((classes, width))
        self.scatters: F64 = np.zeros(classes)

    def add(self, X: Rows, y: I64) -> None:
        """Add rows X (n, m) of classes y (n,), by the formula of Chan, Golub and LeVeque, "Updating
        formulae and a pairwise algorithm for computing sample variances", 1982: no cancellation."""
        order = np.argsort(y, kind="stable")
        present, starts, n = np.unique(y[order], return_index=True, return_counts=True)
        if not len(present):
            return
        rows = real(X)[order]
        means = np.add.reduceat(rows, starts, axis=0) / n[:, None]
        rows -= np.repeat(means, n, axis=0)
        scatters = np.add.reduceat(np.einsum("ij,ij->i", rows, rows), starts)
        before = self.counts[present]
        moved, share = means - self.means[present], n / (before + n)
        self.scatters[present] += scatters + before * share * np.einsum("ij,ij->i", moved, moved)
        self.means[present] += share[:, None] * moved
        self.counts[present] += n

    def figures(self) -> dict[str, float | None]:
        """The measures by name; None where rows determine none: IFS needs more rows than classes,
        all need two classes whose means differ."""
        seen = self.counts > 0
        n, means, within = self.counts[seen], self.means[seen], float(self.scatters.sum())
        classes, total = len(n), int(n.sum())
        apart = float(((means - means.mean(axis=0)) ** 2).sum()) if classes else 0.0
        if classes < 2 or apart == 0:
            return dict.fromkeys(MEASURES)
        between = float(n @ ((means - n @ means / total) ** 2).sum(axis=1))
        pairs = 2 * apart / (classes - 1)  # the mean over pairs, because Σ_{a≠b} is 2C·apart
        return {
            "csr": within / total / pairs,
            "ifs": within / (total - classes) / (apart / classes) if total > classes else None,
            "dm": within / between,
        }
