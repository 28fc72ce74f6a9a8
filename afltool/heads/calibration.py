"""A solved head with a calibration: softmax of its scores gives probabilities.

p_c = f_c(v_c) is the chance of class c against all others, by counts of rows in bins of v_c: the
head's score, or the logit of its probability. Probabilities of a row are the p_c over their sum
where the head has probabilities, else the odds p_c / (1 − p_c) over their sum.

``counts`` (2, B) of a class: rows by the bin of a score, which stands at the bin's middle; [1] of
those of the class, [0] of all others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass as pydantic_dataclass

from ..errors import InvalidDataError, NumericalError, UsageError
from ..math.gram import Rows
from ..options.base import option
from ..options.evaluation import Calibration
from ..values.arrays import F64, I64, Array, canonical_json
from ..values.names import Phase
from ..values.ridge_spec import ONE
from . import read_head
from .base import Classifier, FeatureMap, Shape, Stored, state
from .checks import compute_reported_scores
from .options import HeadOptions

OF = "of-"  # before the names of the held head's arrays
STEPS = 100  # of Newton's method, which takes about ten
NEAR = 1e-12  # how close to 0 and 1 a probability comes before its logit is taken


@pydantic_dataclass(frozen=True, kw_only=True)
class CalibratedOptions(HeadOptions):
    """``head`` is JSON: name, options and digest of the head whose scores are calibrated."""

    head: str = option("{}", "JSON: name, options and digest of the head")
    method: Calibration = option("platt", "type of the calibration map")


def description(head: Stored) -> dict[str, Any]:
    """What the options of something that holds a solved head say of it."""
    return {"name": head.name, "options": head.options.as_dict(), "digest": head.digest()}


@dataclass(frozen=True, eq=False)
class CalibratedHead(Classifier):
    """One head and its calibration: ``slope`` and ``offset`` (C,), or ``knots`` and ``levels`` (C,
    K). ``own`` (C, B): rows of each class by the bin of their own score, with ``edges`` (B + 1,),
    for sets of classes."""

    name = "calibrated"
    score_kind = "log-probabilities"

    options: CalibratedOptions
    inner: Classifier = field(kw_only=True)  # the head whose scores are calibrated
    slope: F64 | None = state()
    offset: F64 | None = state()
    knots: F64 | None = state()
    levels: F64 | None = state()
    own: I64 | None = state(np.int64)
    edges: F64 | None = state()

    @classmethod
    def begin(cls, options: Any) -> Self:
        described = json.loads(options.head)
        return cls(options, inner=read_head(described["name"], described["options"]))

    @classmethod
    def of(
        cls, inner: Classifier, classes: Sequence[str], scores: I64, edges: F64, method: str
    ) -> Self:
        """The calibration of a bound head from ``scores`` (C, 2, B) of ``classes``, see `platt`."""
        absent = [name for name, own in zip(classes, scores[:, 1], strict=True) if not own.any()]
        if absent and method != "temperature":
            raise InvalidDataError(
                f"Rows of {len(absent)} of {len(classes)} classes were not counted: "
                f"{', '.join(absent[:20])}. Count them, or choose the method temperature"
            )
        if inner.score_kind == "differences" and method != "temperature":
            why = f"a map of each class ({method}) takes accuracy away from this {inner.name} head"
            raise UsageError(f"{why}: choose the method temperature")
        options = {"head": canonical_json(description(inner)), "method": method}
        middle = (edges[:-1] + edges[1:]) / 2
        x = logit(middle) if inner.log_probabilities else middle
        learned: dict[str, Any] = {"own": scores[:, 1], "edges": edges, **_map(x, scores, method)}
        made = CalibratedOptions(**options)  # type: ignore[arg-type]  # checked there
        return cls(made, inner.dim, inner.classes, inner=inner, **learned)

    def values(self, X: Rows) -> F64:
        """The head's probabilities, or else its scores, of rows X: (n, C)."""
        return compute_reported_scores(self.inner, self.inner.decision_function(X))

    def calibrate_values(self, V: F64) -> F64:
        """The scores (n, C) of `values`."""
        known, ratios = self.state_dict(), self.inner.log_probabilities
        x = logit(V) if ratios else V
        if self.slope is not None:
            z: F64 = x * known["slope"] + known["offset"]
            return np.minimum(z, 0.0) - np.log1p(np.exp(-np.abs(z))) if ratios else z
        every = zip(x.T, known["knots"], known["levels"], strict=True)
        p = np.column_stack([np.interp(*one) for one in every])
        return np.log(p) if ratios else logit(p)

    def decision_function(self, X: Rows) -> F64:
        return self.calibrate_values(self.values(X))

    def prediction_sets(self, V: F64, coverage: float, per_class: bool) -> NDArray[np.bool_]:
        """Which classes are in the set of each row, by its `values` (n, C): its own with a chance
        of ``coverage`` at least, of all rows or ``per_class``, and at most 1/(n + 1) and the share
        of one bin more."""
        own = self.state_dict()["own"]
        if not per_class:
            own = np.broadcast_to(own.sum(axis=0), own.shape)
        first = np.array([bin_to_keep(one, coverage) for one in own])
        least = np.where(first == 0, -np.inf, np.floor(self.state_dict()["edges"][first] * ONE))
        above: NDArray[np.bool_] = np.rint(V * ONE) > least
        return above

    def _state_shapes(self) -> dict[str, Shape]:
        rows: dict[str, Shape] = {"own": (self.classes, None), "edges": (None,)}
        if self.options.method == "isotonic":
            return rows | dict.fromkeys(("knots", "levels"), (self.classes, None))
        return rows | dict.fromkeys(("slope", "offset"), (self.classes,))

    def state_dict(self) -> dict[str, Array]:
        theirs = {OF + name: a for name, a in self.inner.state_dict().items()}
        return {**super().state_dict(), **theirs}

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        theirs = {k.removeprefix(OF): a for k, a in arrays.items() if k.startswith(OF)}
        return replace(super().restore(phase, arrays), inner=self.inner.restore(None, theirs))

    def bind(self, dim: int, classes: int) -> Self:
        inner = self.inner.bind(dim, classes)
        if inner.digest() != json.loads(self.options.head)["digest"]:
            raise InvalidDataError(
                f"the {inner.name} head in it has another digest than its options say"
            )
        return Classifier.bind(replace(self, inner=inner), dim, classes)

    @property
    def features(self) -> FeatureMap:
        return self.inner.features


def _map(x: F64, scores: I64, method: str) -> dict[str, F64]:
    """The arrays of a calibration: one line for all classes, one for each, or knots for each."""
    if method == "isotonic":
        maps = [isotonic(x, one) for one in scores]
        most = max(len(knots) for knots, _ in maps)
        padded = [[np.pad(a, (0, most - len(a)), "edge") for a in one] for one in maps]
        knots, levels = (np.array(a) for a in zip(*padded, strict=True))
        return {"knots": knots, "levels": levels}
    if method == "platt":
        lines = [platt(x, one) for one in scores]
    else:
        lines = [platt(x, scores.sum(axis=0))] * len(scores)
    slope, offset = (np.array(a) for a in zip(*lines, strict=True))
    if method == "temperature" and slope[0] <= 0:
        raise NumericalError("this head tells no classes apart on the rows that were counted")
    return {"slope": slope, "offset": offset}


def logit(p: F64) -> F64:
    """log p / (1 − p); p is kept `NEAR` away from 0 and 1."""
    inside = np.clip(p, NEAR, 1 - NEAR)
    logits: F64 = np.log(inside) - np.log1p(-inside)
    return logits


def platt(x: F64, counts: I64) -> tuple[float, float]:
    """a and b of p = 1 / (1 + exp(−(a x + b))), the most likely ones of rows at x (B,). Platt,
    1999, with targets (n₁ + 1) / (n₁ + 2) and 1 / (n₀ + 2); Newton's method with halved steps (Lin,
    Lin and Weng, 2007)."""
    n = counts.sum(axis=1)
    targets = np.array([1 / (n[0] + 2), (n[1] + 1) / (n[1] + 2)])
    rows, hits = counts.sum(axis=0), targets @ counts
    X = np.column_stack([x, np.ones_like(x)])
    w = np.zeros(2)

    def loss(w: F64) -> float:
        return float(rows @ np.logaddexp(0, X @ w) - hits @ (X @ w))

    for _ in range(STEPS):
        p = 1 / (1 + np.exp(-np.clip(X @ w, -700, 700)))
        slope, bend = X.T @ (rows * p - hits), (X.T * (rows * p * (1 - p))) @ X
        step = np.linalg.lstsq(bend, slope, rcond=None)[0]
        while loss(w - step) > loss(w) and np.abs(step).max() > 0:
            step = step / 2
        w = w - step
        if np.abs(step).max() <= 1e-10 * max(1.0, np.abs(w).max()):
            return float(w[0]), float(w[1])
    raise NumericalError(f"Platt's map does not settle after {STEPS} steps; take another method")


def isotonic(x: F64, counts: I64) -> tuple[F64, F64]:
    """Knots and levels of a rising map, linear between knots and level beyond: centered isotonic
    regression (Oron and Flournoy, 2017). Each block of pooled violators has its share of the class,
    1/(n + 2) away from 0 and 1, at its mean x."""
    from scipy.optimize import isotonic_regression  # whose import takes long

    rows = counts.sum(axis=0)
    used = np.flatnonzero(rows)
    n, near = rows[used].astype(np.float64), 1 / (rows.sum() + 2)
    fitted = isotonic_regression(counts[1, used] / n, weights=n)
    starts = fitted.blocks[:-1]
    knots = np.add.reduceat(n * x[used], starts) / np.add.reduceat(n, starts)
    return knots, np.clip(fitted.x[starts], near, 1 - near)


def bin_to_keep(own: I64, coverage: float) -> int:
    """The first bin of split conformal sets (Vovk et al., 2005), of classes with scores from it:
    ⌈(n + 1) coverage⌉ of n rows ``own`` (B,) have their own class's there; 0 where n is small."""
    wanted = ceil((int(own.sum()) + 1) * coverage - 1e-9)
    above = own[::-1].cumsum()[::-1]
    return max(int((above >= wanted).sum()) - 1, 0)


OPTIONS = CalibratedOptions
