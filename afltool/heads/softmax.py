"""Softmax regression from the statistics that clients send anyway, in a few tiny rounds.

First phases: gram and cross, as for the heads that end in a linear system. They give a start (the
rescaled least-squares head) and a bound on the loss's curvature, B = ½ΦᵀΦ + μN, factored once, so
that each further phase is one safe step:

    W ← V − B⁻¹ (Φᵀ(softmax(ΦV) − Y) + μN V)

clients send the D × C gradient at V and their loss sum. Nesterov's momentum moves V ahead of W and
is given up for a round when the loss rises. Φ is of raw features, random ones or codes, see
`feature_maps`. Böhning, "Multinomial logistic regression algorithm", Ann. Inst. Statist. Math. 44,
1992; the head is our own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .. import memory
from ..errors import InvalidDataError, MismatchError, UsageError
from ..linalg import softmax as sm
from ..linalg.designs import Design
from ..linalg.fixedpoint import Rows
from ..linalg.gram import check_labels
from ..linalg.triangle import length
from ..statistics import Statistics
from ._softmax_rounds import Progress
from .base import Array, Block, Carried, Head, Source, expect_shape
from .feature_maps import MAPS, Lifted
from .softmax_options import SoftmaxOptions

F64 = NDArray[np.float64]
GRADIENT = "gradient-"
# Least squares fits scores to 0 and 1, softmax wants margins of several units. Measured on
# Fashion-MNIST features: starts at 2, 6 and 10 times the least-squares head reach 89.18, 89.26
# and 89.13 % after 20 rounds.
START_SCALE = 6.0


class SoftmaxHead(Head):
    """Penalised multinomial logistic regression; phases of the features, then gradient-1 … -R."""

    name = "softmax"
    options: SoftmaxOptions

    def __init__(self, options: SoftmaxOptions) -> None:
        super().__init__(options)
        self.map = MAPS[options.features](options)
        self.state: dict[str, Array] = {}  # factor, point, step, best while iterating; weights last
        self.round = 0  # whose gradient is to be gathered at the point

    # ------------------------------------------------------------ the four verbs

    def phase(self) -> str | None:
        if "weights" in self.state:
            return None
        return f"{GRADIENT}{self.round}" if self.round else self.map.phase()

    def statistics(self, X: Rows, y: NDArray[np.int64]) -> Statistics:
        """The features' counts or products first; then gradient (D, C) and loss (1,)."""
        return self.gather(X, y)[0]

    def gather(
        self, X: Rows, y: NDArray[np.int64], carried: Carried | None = None
    ) -> tuple[Statistics, Carried]:
        """`statistics`; random features of these rows are left for the next round."""
        if self.classes is None:
            raise UsageError("bind the head to a number of classes first: head.bind(dim, classes)")
        if not self.round:
            return self.map.collect([(X, y)]), {}
        check_labels(y, self.classes)
        rows, left = self.map.lifted(X, carried)
        parts = zip(self._designs(rows), _cut(y, self.map.rows_at_once), strict=True)
        gradient, loss = sm.gradient_and_loss(
            parts, self.state["point"], self.options.label_smoothing
        )
        counts = np.bincount(y, minlength=self.classes).astype(np.int64)
        return Statistics(str(self.phase()), {"gradient": gradient, "loss": loss}, counts), left

    def collect(self, blocks: Iterable[Block]) -> Statistics:
        """As `statistics`; counts of codes are counted in place."""
        return super().collect(blocks) if self.round else self.map.collect(blocks)

    def absorb(self, total: Statistics, validation: Statistics | None = None) -> SoftmaxHead:
        """What the features need to know, the start, or one step from a gradient."""
        if total.rows == 0:
            raise InvalidDataError("the total has 0 rows: there is nothing to solve")
        if total.phase != self.phase():
            raise MismatchError(
                f"the head's next phase is {self.phase()!r}; the total is of {total.phase!r}"
            )
        begun = time.perf_counter()
        if self.round:
            head = self._step(total, validation)
        else:
            learned = self.map.learned(total)
            head = self._start(total) if learned is None else self._with_map(learned, total)
        entry = head.report["phases"][-1]
        entry["solve_seconds"] = round(time.perf_counter() - begun, 4)
        return head

    def scores(self, X: Rows) -> F64:
        """Φ W (n, C), float64; softmax of it are the probabilities."""
        if "weights" not in self.state:
            raise UsageError("the head is not solved yet")
        rows, _ = self.map.lifted(X)
        return sm.scores(self._designs(rows), self.state["weights"])

    def so_far(self) -> SoftmaxHead | None:
        """The best head of the rounds so far; after the first phases the start."""
        if "best" not in self.state:
            return self if self.phase() is None else None
        return self._solved(self.state["best"], self.report)

    def previous(self) -> Head | None:
        """The head one round earlier, known by its digest alone."""
        before = self.report.get("before")
        return Earlier(self.options, before) if self.round > 1 and before else None

    # ------------------------------------------------------------ state

    def arrays(self) -> dict[str, Array]:
        return {**self.map.arrays(), **self.state}

    def restore(self, phase: str | None, arrays: Mapping[str, Array]) -> Self:
        head = copy(self)
        head.map = self.map.restore(arrays)
        known = ("factor", "point", "step", "best", "weights")
        head.state = {name: arrays[name] for name in known if name in arrays}
        if phase is not None and phase.startswith(GRADIENT):
            head.round = int(phase.removeprefix(GRADIENT))
        head._check_shapes()
        return head

    def _check_shapes(self) -> None:
        """What a file holds of the rounds fits together."""
        if not self.state:
            return
        wanted = {"factor", "point", "step", "best"} if self.round else {"weights"}
        side, self.classes = np.atleast_2d(self.state["point" if self.round else "weights"]).shape
        for name in sorted(wanted | self.state.keys()):
            shape = (length(side),) if name == "factor" else (side, self.classes)
            expect_shape(name, self.state[name], shape)

    def bind(self, dim: int, classes: int) -> Self:
        bound = super().bind(dim, classes)
        bound.map = self.map.bind(dim, classes)
        if self.state:
            name = "point" if self.round else "weights"
            expect_shape(name, self.state[name], (bound.map.columns(dim), classes))
        return bound

    def with_source(self, option: str, source: Source) -> Self:
        head = copy(self)
        head.map = self.map.with_source(option, source)
        thresholds = f"{source.kind}:{source.digest}"
        head.options = replace(self.options, thresholds=thresholds)
        return head

    def _designs(self, rows: Lifted) -> Iterator[Design]:
        """Φ of a few rows at a time; at least one, be it of no rows, which tells its type."""
        step = self.map.rows_at_once
        return (self.map.design(rows[at : at + step]) for at in range(0, max(len(rows), 1), step))

    # ------------------------------------------------------------ server side

    def _bound(self, total: Statistics) -> SoftmaxHead:
        dim = int(total.context.space["dim"]) if self.dim is None else self.dim
        return self.bind(dim, len(total.class_counts))

    def _with_map(self, learned: Any, total: Statistics) -> SoftmaxHead:
        """One phase further in what the features need to know."""
        head = self._bound(total)
        head.map = learned
        head.report = {"phases": [*self.report.get("phases", []), self._entry(total)]}
        return head

    def _start(self, total: Statistics) -> SoftmaxHead:
        """V = s (G + 2μN)⁻¹ H from the factor of B = ½G + μN, which every later round uses."""
        head = self._bound(total)
        assert head.dim is not None
        columns = head.map.columns(head.dim)
        memory.need(14 * columns * columns, f"the curvature of {columns} columns")
        G, H, bits = head.map.system(total)
        penalty = sm.penalty_of(self.options.penalty, total.rows, columns, head.map.intercept)
        bound = sm.Bound.of(G, penalty)
        start = 0.5 * START_SCALE * bound.solve(H)
        head.round = 1
        head.state = {"factor": bound.factor, "point": start, "step": start, "best": start}
        entry = {**self._entry(total, start), "features": columns}
        head.report = self._further(entry, Progress.begin(total, bits))
        return head

    def _step(self, total: Statistics, validation: Statistics | None) -> SoftmaxHead:
        """One majorise–minimise step from the point V, with momentum; see `Progress`."""
        o, V = self.options, self.state["point"]
        progress = Progress.of(self.report["progress"])
        progress.check_covered(total)
        mu_n = sm.penalty_of(o.penalty, total.rows, len(V), self.map.intercept)[:, None]
        facts, gradient = progress.measure(total, validation, V, mu_n)
        W = sm.Bound(self.state["factor"]).step(V, gradient)
        progress, share = progress.after(facts, momentum=not o.no_momentum)
        ahead = W + share * (W - self.state["step"])
        head = copy(self)
        head.round += 1
        head.state = {**self.state, "point": ahead, "step": W}
        if progress.best == self.round:
            # What the step promises: at most the objective at V. Nobody has looked at the
            # held-out loss there yet, so with validation the point itself is kept.
            head.state["best"] = W if validation is None else V
        head.report = self._further({**self._entry(total, ahead), **facts}, progress)
        done = self._finished(facts, progress, validation)
        return head._solved(head.state["best"], head.report) if done else head

    def _further(self, entry: dict[str, Any], progress: Progress) -> dict[str, Any]:
        """The report with one phase more."""
        phases = [*self.report.get("phases", []), entry]
        report = {"phases": phases, "progress": progress.as_dict()}
        return report | {"before": self.digest()} if self.map.carries else report

    def _finished(
        self, facts: Mapping[str, Any], progress: Progress, validation: Statistics | None
    ) -> bool:
        o = self.options
        waited = validation is not None and 0 < o.patience <= self.round - progress.best
        return self.round >= o.rounds or facts["gradient_norm"] < o.tolerance or waited

    def _solved(self, weights: Array, report: dict[str, Any]) -> SoftmaxHead:
        progress = {k: v for k, v in report["progress"].items() if k != "covered"}
        head = copy(self)
        head.state, head.round = {"weights": weights}, 0
        head.report = {"phases": report["phases"], "progress": progress}
        return head

    def _entry(self, total: Statistics, sent: Array | None = None) -> dict[str, Any]:
        """What every phase reports; ``sent``: what clients get of it."""
        down = self.map.arrays().get("thresholds") if sent is None else sent
        return {
            "phase": total.phase,
            "rows": total.rows,
            "clients": len(total.clients),
            "upload_bytes": total.payload_bytes,
            "download_bytes": 0 if down is None else down.nbytes,
        }


class Earlier(SoftmaxHead):
    """A head of which only the digest is left: enough to find what its rows left behind."""

    def __init__(self, options: SoftmaxOptions, digest: str) -> None:
        super().__init__(options)
        self._digest = digest

    def digest(self) -> str:
        return self._digest


def _cut(y: NDArray[np.int64], step: int) -> Iterator[NDArray[np.int64]]:
    return (y[at : at + step] for at in range(0, max(len(y), 1), step))
