"""Softmax regression: the first round's gram and cross, then rounds of small gradients.

The first sums give a start, the rescaled least-squares head, and a bound of the loss's curvature,
B = ½ΦᵀΦ + μN, which is factored once. Each further phase is one step that cannot raise the loss:

    W ← V − B⁻¹ (Φᵀ(softmax(ΦV) − Y) + μN V)

Clients send the gradient (D, C) at V and their loss sum. Nesterov's momentum moves V ahead of W; it
is reset when the loss rises. The bound is Böhning's, "Multinomial logistic regression algorithm",
Ann. Inst. Statist. Math. 44, 1992; the head is our own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ... import memory
from ...errors import InvalidDataError, MismatchError, UsageError
from ...math import softmax as sm
from ...math.blas import length
from ...math.gram import LARGEST_ENTRY, Rows, pieces
from ...math.ridge import Moments
from ...math.ridge_choice import Choice
from ...math.softmax import Bound, Dense
from ...values.arrays import F64, I64, Array, freeze
from ...values.names import PHASE, Phase
from ...values.statistics import ArraySpec, Statistics
from .. import base
from ..base import Accumulator, FeatureMap, Found, Head, Shape, State, require_solved, state
from ..least_squares import LinearInFeatures, with_rows
from ..options import FIXED
from ..problem import Problem, checked, fraction_bits, system_of
from ..projections import RandomFeatures
from .options import SoftmaxOptions

GRADIENT = "gradient"
# Least squares fits scores to 0 and 1, but softmax needs margins of several units (measured: 6).
START_SCALE = 6.0
ROWS_AT_ONCE = 256  # rows of Φ in float64 that stay in the cache for both products
# Objectives that differ by this share or less are equal, or rounding would choose the round.
EQUAL = 1e-12


class Gradients(sm.Gradients):
    """Sums of the gradient (D, C) at V and of the loss (1,), of the Φ of rows."""

    def __init__(self, features: FeatureMap, V: F64) -> None:
        super().__init__(V)
        self._features = features

    def add(self, X: Rows, y: I64, known: State | None) -> State:  # type: ignore[override]
        rows, left = self._features.rows(X, known)
        super().add((Dense(part), of) for part, of in pieces([(rows, y)], ROWS_AT_ONCE))
        return left


@dataclass(frozen=True, eq=False)
class SoftmaxHead(LinearInFeatures):
    """Penalized multinomial logistic regression; phases gram and gradient-1 … -R. Before round
    ``number``: ``factor``, the triangle of L of B = L Lᵀ; ``point`` V, where the gradient is
    gathered; ``step``, the last W; ``best``, the best one; ``covered``, the `marks` of clients in
    the bound; ``momentum``: Nesterov's t, the last objective, the value of ``best``;
    ``best_round``: its round, and whether held-out clients judge."""

    name = "softmax"
    score_kind = "log-probabilities"
    not_in_digest = ("covered",)
    options: SoftmaxOptions

    number: int = 0
    factor: F64 | None = state()
    point: F64 | None = state()
    step: F64 | None = state()
    best: F64 | None = state()
    covered: I64 | None = state(np.int64)
    momentum: F64 | None = state()
    best_round: I64 | None = state(np.int64, "best-round")

    @cached_property
    def features(self) -> FeatureMap:
        """Φ without the intercept, integers of fixed-point rows unless products are float32."""
        random = self.options.random()
        return base.RAW if random is None else RandomFeatures(random, "float64", FIXED)

    def phase(self) -> Phase | None:
        if self.weights is not None:
            return None
        return Phase.of(GRADIENT, self.number) if self.number else PHASE

    def schedule(self) -> tuple[Phase, ...]:
        later = (Phase.of(GRADIENT, r) for r in range(1, self.options.rounds + 1))
        return PHASE, *later

    @property
    def at_once(self) -> int:  # type: ignore[override]  # gradients are of whole blocks
        return sys.maxsize if self.number else super().at_once

    def accumulator(self) -> Accumulator:
        """First the products of the features; then gradient (D, C) and loss (1,)."""
        if self.point is None:
            return super().accumulator()
        return Gradients(self.features, self.point)

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        classes, exact = self._bound()[1], self.features.bits(bits) is not None
        if not self.number:
            return super().array_specs(bits)
        # Probabilities and losses are in units of 2^−24, features below 2^15; so is a row's
        # loss, unless its class has a probability of e^−32768.
        most = LARGEST_ENTRY << sm.BITS if exact else base.LARGEST_REAL
        loss = ArraySpec((1,), "int" if exact else "real", most)
        return {"gradient": replace(loss, shape=(self._side, classes)), "loss": loss}

    def decision_function(self, X: Rows) -> F64:
        """Φ W (n, C), float64; softmax of it gives the probabilities."""
        W, (rows, _) = require_solved(self.weights), self.features.rows(X)
        starts = range(0, max(len(rows), 1), ROWS_AT_ONCE)
        return sm.scores((Dense(rows[at : at + ROWS_AT_ONCE]) for at in starts), W)

    def round_scores(self, X: Rows) -> Iterator[tuple[Phase, F64]]:
        """The scores of the best weights so far; after the first phase, those of the start."""
        if self.weights is not None or self.best is not None:
            yield base.LAST, self._finish().decision_function(X)

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        number = (phase.number or 0) if phase is not None and phase.kind == GRADIENT else 0
        head = Head.restore(replace(self, number=number), phase, arrays)
        marked = head.covered  # compared, not subtracted: they are of 64 bits
        if marked is not None and not (marked[1:] > marked[:-1]).all():
            raise InvalidDataError("the array 'covered' of a head does not name each client once")
        return head

    def _state_shapes(self) -> Mapping[str, Shape]:
        side, classes = self._side, self._bound()[1]
        if not self.number:
            return super()._state_shapes()
        shapes: dict[str, Shape] = dict.fromkeys(("point", "step", "best"), (side, classes))
        shapes |= {"factor": (length(side),), "covered": (None,), "best-round": (2,)}
        return shapes | {"momentum": (3 if self.number > 1 else 1,)}

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """The start, or one step from a gradient."""
        return self._further(total, validation) if self.number else self._start(total)

    def _start(self, total: Statistics) -> tuple[Self, Found]:
        """V = s (G + 2μN)⁻¹ H from the factor of B = ½G + μN, which every later round uses."""
        columns = self._side
        memory.require_memory(14 * columns * columns, f"the curvature of {columns} columns")
        G, H = system_of(total)
        self._check_start(G, H, total)
        bound = Bound.of(G.T, self._penalty(total))  # C-ordered, its lower triangle filled
        V = 0.5 * START_SCALE * bound.solve(H)
        started = replace(self, factor=bound.factor, step=V, best=V, covered=base.marks(total))
        return started._before(1, V, [1.0], [0, 0]), Found(round={"features": columns}, sent=[V])

    def _check_start(self, G: F64, H: F64, total: Statistics) -> None:
        """Refuse with `NumericalError` sums whose rounding would change the start's scores."""
        ridge, random = 2.0 * self.options.penalty * total.rows, self.options.random()
        if total.context.noise:
            return
        if random is None:
            moments = Moments.of(np.diag(G)[:-1].copy(), H[:-1], total.class_counts)
            moments.check(ridge, constant=True)
        elif not total.exact:
            problem = Problem(G.T, H, total.rows, total.class_counts, True, drawn="float64")
            checked(problem, Choice(ridge), rows=random.compute)

    def _before(self, number: int, V: F64, momentum: list[float], best_round: list[int]) -> Self:
        """This head before a round."""
        small = np.array(momentum), np.array(best_round)
        freeze(small)  # so that the head's digest is computed once
        return replace(self, number=number, point=V, momentum=small[0], best_round=small[1])

    def _penalty(self, total: Statistics) -> F64:
        """μN, and 0 for the intercept: (D,)."""
        return sm.make_penalty(self.options.penalty, total.rows, self._side)

    def _further(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """One step from the point V; the next V is ahead of it, by Nesterov's momentum."""
        known = self.state_dict()
        V, (best_round, judged) = require_solved(self.point), known["best-round"]
        t, before, least = (*known["momentum"].tolist(), np.inf, np.inf)[:3]
        if self.number > 1 and judged != (validation is not None):
            raise UsageError("held-out clients judge rounds in all of them or in none: --validate")
        if beyond := len(np.setdiff1d(base.marks(total), known["covered"])):
            raise MismatchError(
                f"{beyond} of {len(total.clients)} clients were not in the first phase, or not "
                "with these rows: leave them out of this round, or begin again with them"
            )
        facts, gradient = self._measure(V, total, validation)
        objective, held = facts["objective"], facts["validation_loss"]
        W = V - Bound(known["factor"]).solve(gradient)  # never increases the penalized loss
        # The objective at W is at most that at V. The held-out loss is known at V only, so with
        # held-out clients V is kept.
        value, best = (objective, W) if held is None else (held, V)
        if value < (1.0 - EQUAL) * least:
            best_round, least = self.number, value
        else:
            best = known["best"]
        facts["restarted"] = objective > (1.0 + EQUAL) * before
        t = 1.0 if facts["restarted"] else t
        following = 0.5 * (1.0 + (1.0 + 4.0 * t * t) ** 0.5)
        ahead = W + (t - 1.0) / following * (W - known["step"])
        momentum, ours = [following, objective, least], [int(best_round), int(held is not None)]
        after = replace(self, step=W, best=best)
        after = after._before(self.number + 1, ahead, momentum, ours)
        after = after._finish() if self.number >= self.options.rounds else after
        return after, Found(head={"best_round": ours[0]}, round=facts, sent=[ahead])

    def _measure(
        self, V: F64, total: Statistics, validation: Statistics | None
    ) -> tuple[dict[str, Any], F64]:
        """Loss, objective and gradient norm at V, a row each; and the gradient with the penalty."""
        mu_n = self._penalty(total)[:, None]
        gradient, loss = self._real(total)
        gradient = gradient + mu_n * V
        held = None
        if validation is not None:
            held = self._real(with_rows(validation))[1] / validation.rows
        facts = {
            "loss": loss / total.rows,
            "objective": (loss + 0.5 * float((mu_n * V**2).sum())) / total.rows,
            "gradient_norm": float(np.linalg.norm(gradient)) / total.rows,
            "validation_loss": held,
        }
        return facts, gradient

    def _real(self, total: Statistics) -> tuple[F64, float]:
        """Gradient and loss of a total in units of one."""
        gradient, loss = total.arrays["gradient"], float(total.arrays["loss"][0])
        bits = fraction_bits(total)
        if bits is None:
            return gradient, loss
        return gradient * 2.0 ** -(bits + sm.BITS), loss * 2.0**-sm.BITS

    def _finish(self) -> Self:
        """The best weights, without what only rounds need; a head that is solved as it is."""
        if self.weights is not None:
            return self
        return replace(type(self)(self.options, self.dim, self.classes), weights=self.best)
