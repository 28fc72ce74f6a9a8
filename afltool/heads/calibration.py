"""A solved head with a calibration: softmax of its scores gives probabilities.

p_c = f_c(v_c) is the chance of class c against all others, by counts of rows in bins of v_c: the
head's score, or the logit of its probability. Probabilities of a row are the p_c over their sum
where the head has probabilities, so that the identity leaves them alone. Of scores they are the
odds p_c / (1 − p_c) over their sum: the p_c alone would be too sure of nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from ..errors import InvalidDataError, NumericalError, UsageError
from ..math import calibration as cal
from ..math.gram import Rows
from ..options.evaluation import Calibration
from ..values.arrays import F64, I64, canonical_json
from ..values.parsed import ONE
from .base import Head, state
from .checks import reported_scores
from .holding import HoldingHead, description
from .options import HeadOptions

SHOWN = 20  # classes that a message names


@pydantic_dataclass(frozen=True, kw_only=True)
class CalibratedOptions(HeadOptions):
    """``head`` is JSON: name, options and digest of the head whose scores are calibrated."""

    head: str = Field(default="{}", description="JSON: name, options and digest of the head")
    method: Calibration = Field(default="platt", description="kind of the map")

    @property
    def described(self) -> list[dict[str, Any]]:
        """The head, as ``head`` says it; alone in a list."""
        return [json.loads(self.head)]


@dataclass(frozen=True, eq=False)
class CalibratedHead(HoldingHead):
    """One head and its calibration: ``slope`` and ``offset`` (C,), or ``knots`` and ``levels`` (C,
    K). ``own`` (C, B): rows of each class by the bin of their own score, with ``edges`` (B + 1,),
    for sets of classes."""

    name: ClassVar[str] = "calibrated"
    log_probabilities: ClassVar[bool] = True
    around: ClassVar[tuple[str, str]] = "of-", ""
    refusal: ClassVar[str] = "a calibrated head is solved: there is nothing left to gather"

    options: CalibratedOptions
    slope: F64 | None = state()
    offset: F64 | None = state()
    knots: F64 | None = state()
    levels: F64 | None = state()
    own: I64 | None = state(np.int64)
    edges: F64 | None = state()

    @property
    def inner(self) -> Head:
        """The head whose scores are calibrated."""
        return self.heads[0]

    @classmethod
    def of(cls, inner: Head, classes: Sequence[str], scores: I64, edges: F64, method: str) -> Self:
        """The calibration of a bound head from ``scores`` (C, 2, B), see `math.calibration`.

        ``classes``: their names. A map of each class needs rows of each: without any it would learn
        from the others' rows alone that the class never comes.
        """
        absent = [name for name, own in zip(classes, scores[:, 1], strict=True) if not own.any()]
        if absent and method != "temperature":
            more = f" and {len(absent) - SHOWN} more" if len(absent) > SHOWN else ""
            raise InvalidDataError(
                f"Rows of {len(absent)} of {len(classes)} classes were not counted: "
                f"{', '.join(absent[:SHOWN])}{more}. The method {method} fits a map to each class, "
                "so these would no longer be predicted. Count rows of every class, or choose the "
                "method temperature"
            )
        if inner.shared_part and method != "temperature":
            raise UsageError(
                f"all scores of a row have a part in common in {inner.name} heads of this rule, so "
                f"a map of each class ({method}) takes accuracy away: choose the method temperature"
            )
        how: Any = method
        options = CalibratedOptions(head=canonical_json(description(inner)), method=how)
        middle = (edges[:-1] + edges[1:]) / 2
        x = cal.logit(middle) if inner.log_probabilities else middle
        return cls(
            options, inner.dim, inner.classes, (inner,),
            own=scores[:, 1], edges=edges, **_map(x, scores, method),
        )  # fmt: skip

    # ------------------------------------------------------------ scores

    def values(self, X: Rows) -> F64:
        """The head's probabilities, or else its scores, of rows X: (n, C)."""
        return reported_scores(self.inner, self.inner.scores(X))

    def of_values(self, V: F64) -> F64:
        """The scores (n, C) of `values`."""
        known, ratios = self.arrays(), self.inner.log_probabilities
        x = cal.logit(V) if ratios else V
        if self.slope is not None:
            z: F64 = x * known["slope"] + known["offset"]
            return np.minimum(z, 0.0) - np.log1p(np.exp(-np.abs(z))) if ratios else z
        every = zip(x.T, known["knots"], known["levels"], strict=True)
        p = np.column_stack([np.interp(*one) for one in every])
        return np.log(p) if ratios else cal.logit(p)

    def scores(self, X: Rows) -> NDArray[np.float64]:
        return self.of_values(self.values(X))

    def kept(self, V: F64, coverage: float, per_class: bool) -> NDArray[np.bool_]:
        """Which classes are in the set of each row, by its `values` (n, C).

        A new row's class is in its set with a chance of ``coverage`` at least, and of at most 1 /
        (n + 1) and the share of the rows in one bin more; ``per_class``: for rows of each class.
        """
        own = self.arrays()["own"]
        if not per_class:
            own = np.broadcast_to(own.sum(axis=0), own.shape)
        first = np.array([cal.bin_to_keep(one, coverage) for one in own])
        least = np.where(first == 0, -np.inf, np.floor(self.arrays()["edges"][first] * ONE))
        above: NDArray[np.bool_] = np.rint(V * ONE) > least
        return above

    def changed(self, scores: I64) -> tuple[int, int] | None:
        """At least and at most how many of the counted rows (C, 2, B) have another class than by
        the head; None where the counts do not tell.

        They do where the values of a row add up to 1: one above ½ is the highest, and the others
        are no more than what it leaves. Of two classes they are all of it.
        """
        counted, E = scores.sum(axis=1), self.arrays()["edges"].copy()
        ones, two = self.inner.log_probabilities, len(counted) == 2
        mirrored = two and np.array_equal(counted[0], counted[1][::-1])
        if not (ones or mirrored) or not np.allclose(E + E[::-1], 1.0, rtol=0, atol=1e-9):
            return None
        if not ones:  # bins at the ends have what lies beyond
            E[[0, -1]] += [-1e9, 1e9]
        F = self.of_values(np.tile(E[:, None], len(counted)))
        low, high = np.minimum(F[:-1], F[1:]), np.maximum(F[:-1], F[1:])  # of each bin
        top = high[::-1] if two else np.maximum.accumulate(high)[::-1]
        rows = counted.T * (E[:-1, None] > 0.5 - 1e-9)
        most = scores[:, 1].sum() - rows[_of_others(top) < low].sum()
        least = rows[_of_others(low[::-1]) > high].sum() if two else 0
        return int(least), int(most)

    # ------------------------------------------------------------ state

    def _state_shapes(self) -> dict[str, tuple[int | None, ...]]:
        by_line = {"slope": (self.classes,), "offset": (self.classes,)}
        by_knots = {"knots": (self.classes, None), "levels": (self.classes, None)}
        named = by_knots if self.options.method == "isotonic" else by_line
        return {**named, "own": (self.classes, None), "edges": (None,)}

    def phase(self) -> None:
        return None


def _of_others(F: F64) -> F64:
    """For each class the highest of the others, (n, C)."""
    highest, less = F.max(axis=1, keepdims=True), np.full((len(F), 1), -np.inf)
    second = np.partition(np.hstack([F, less]), -2, axis=1)[:, -2:-1]
    return np.asarray(np.where(highest == F, second, highest), np.float64)


def _map(x: F64, scores: I64, method: str) -> dict[str, F64]:
    """The arrays of a calibration: one line for all classes, one for each, or knots for each."""
    if method == "isotonic":
        maps = [cal.isotonic(x, one) for one in scores]
        most = max(len(knots) for knots, _ in maps)
        padded = [[np.pad(a, (0, most - len(a)), "edge") for a in one] for one in maps]
        knots, levels = (np.array(a) for a in zip(*padded, strict=True))
        return {"knots": knots, "levels": levels}
    if method == "platt":
        lines = [cal.platt(x, one) for one in scores]
    else:
        lines = [cal.platt(x, scores.sum(axis=0))] * len(scores)
    slope, offset = (np.array(a) for a in zip(*lines, strict=True))
    if method == "temperature" and slope[0] <= 0:
        raise NumericalError(
            "the scores of a row's own class are no higher than others: this head tells no classes "
            "apart on the rows that were counted"
        )
    return {"slope": slope, "offset": offset}


OPTIONS, HEAD = CalibratedOptions, CalibratedHead
