"""The state that the softmax head's server keeps from one gradient round to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidDataError, MismatchError, UsageError
from ...math.blas import length
from ...math.softmax import Bound
from ...values.arrays import F64, Array, freeze
from ...values.statistics import ClientId, Statistics
from ..base import expect_shape, marks
from .options import SoftmaxOptions

GRADIENT = "gradient"
MATRICES = ("factor", "point", "step", "best")
VARIANCES = "variances"
OF_LBFGS = ("gradient", "counted")
# A step of L-BFGS is kept if the objective falls by this share of what its slope foretells
# (Nocedal and Wright, Numerical Optimization, 2006, (3.4)); else it is shortened.
ENOUGH = 1e-4
# Objectives that differ by this share or less are equal: near the minimum rounding alone would
# choose the round, and with it digits of W, which objectives tell to the root of their precision.
EQUAL = 1e-12


@dataclass(frozen=True)
class Rounds:
    """The state before round ``number``, in which the gradient at ``point`` is gathered.

    ``factor``: the triangle of L, B = L Lᵀ, which bounds the curvature. ``point`` V, ``step`` the
    last W and ``best`` the best W so far, all (D, C). ``covered``: the sorted `marks` of the
    clients whose rows are in the bound. ``variances`` (D,): of the columns of Φ, by which the
    penalty weighs them, if it does. ``momentum``: Nesterov's t. ``best_round``: the round that
    found ``best``, by the held-out loss if there is one (``validated``), else by the objective;
    ``least`` is that value. ``objective``: that of the round before. The last two are None before
    round 1.

    With L-BFGS ``step`` is the last V that was kept, ``objective`` and ``gradient`` (D, C) are its,
    and ``counted`` are the `marks` of the clients that gave them.
    """

    number: int
    factor: F64
    point: F64
    step: F64
    best: F64
    covered: NDArray[np.int64]
    momentum: float = 1.0
    best_round: int = 0
    validated: bool = False
    objective: float | None = None
    least: float | None = None
    variances: F64 | None = field(default=None, kw_only=True)
    gradient: F64 | None = field(default=None, kw_only=True)
    counted: NDArray[np.int64] | None = field(default=None, kw_only=True)

    @classmethod
    def begin(
        cls, bound: Bound, start: F64, total: Statistics, variances: F64 | None = None
    ) -> Rounds:
        """The state before round 1, from the bound and start (D, C) of the first phases."""
        covered = marks(total)
        return cls(1, bound.factor, start, start, start, covered, variances=variances)

    def further(
        self, facts: Mapping[str, Any], gradient: F64, total: Statistics, options: SoftmaxOptions
    ) -> Rounds:
        """The state after one step from V.

        ``gradient``: at V, with the penalty's. ``facts``: ``objective`` and ``validation_loss``
        (or None) at V. The next V is ahead of the step by Nesterov's momentum, which is reset when
        the objective has risen, or L-BFGS finds it (`_learned`).
        """
        held = facts["validation_loss"]
        if self.number > 1 and self.validated != (held is not None):
            raise UsageError(
                "rounds are judged by held-out clients' loss in all of them or in none: give "
                "--validate (the sum over held-out clients of the same phase) as in the first round"
            )
        bound = Bound(self.factor)
        bounded = bound.solve(gradient)
        W = self.point - bounded  # never increases the penalised loss
        if options.lbfgs:
            after = self._learned(facts["objective"], gradient, bounded, total, bound)
        else:
            after = self._ahead(W, self.risen(facts), not options.no_momentum, facts["objective"])
        after = replace(after, number=self.number + 1, validated=held is not None)
        value = facts["objective"] if held is None else held
        if self.least is not None and value >= (1.0 - EQUAL) * self.least:
            return after
        # The objective at W is at most that at V. The held-out loss is known at V only, so with
        # held-out clients V is kept.
        best = W if held is None else self.point
        return replace(after, best=best, best_round=self.number, least=value)

    def _ahead(self, W: F64, risen: bool, momentum: bool, objective: float) -> Rounds:
        t = 1.0 if risen or not momentum else self.momentum
        following = 0.5 * (1.0 + (1.0 + 4.0 * t * t) ** 0.5) if momentum else 1.0
        point = W + (t - 1.0) / following * (W - self.step)
        return replace(self, point=point, step=W, momentum=following, objective=objective)

    def _learned(
        self, objective: float, gradient: F64, bounded: F64, total: Statistics, bound: Bound
    ) -> Rounds:
        """The next V by L-BFGS with one pair: s, how V moved, and y, how the gradient changed.

        Its first matrix is γ B⁻¹, γ = ⟨s, y⟩/⟨y, B⁻¹y⟩; ``bounded`` = B⁻¹ gradient. Where the
        objective has not fallen enough V goes back, to where the parabola through both objectives
        and the slope is least. Gradients of other clients are not compared.
        """
        counted = marks(total)
        kept = replace(
            self, step=self.point, gradient=gradient, counted=counted, objective=objective
        )
        known = self.counted is not None and np.array_equal(counted, self.counted)
        if self.gradient is None or self.objective is None or not known:
            return replace(kept, point=self.point - bounded)
        s = self.point - self.step
        slope = _dot(self.gradient, s) / total.rows
        risen = objective - self.objective
        if risen > ENOUGH * slope + EQUAL * self.objective:
            share = np.clip(-slope / (2.0 * (risen - slope)), 0.1, 0.5)
            return replace(self, point=self.step + share * s)
        y = gradient - self.gradient
        moved = bound.solve(y)
        sy, yy = _dot(s, y), _dot(y, moved)
        if sy <= 0.0 or yy <= 0.0:  # rounding: the objective is convex
            return replace(kept, point=self.point - bounded)
        first = _dot(s, gradient) / sy
        q = sy / yy * (bounded - first * moved)
        return replace(kept, point=self.point - q - s * (first - _dot(y, q) / sy))

    def risen(self, facts: Mapping[str, Any]) -> bool:
        """Whether the objective at V is above that of the round before."""
        before = self.objective
        return before is not None and facts["objective"] > (1.0 + EQUAL) * before

    def check_covered(self, total: Statistics) -> None:
        """Refuse clients whose rows are not in the gram: with their gradient a step could be too
        long."""
        beyond = np.setdiff1d(marks(total), self.covered)
        if len(beyond):
            names = [who for who in total.clients if np.isin(_marks_of(total, who), beyond).any()]
            raise MismatchError(
                f"{len(names)} of {len(total.clients)} clients, such as {min(names)}, were not "
                "in the first phase, or not with these rows, so that its gram does not bound their "
                "loss: leave them out of this round, or begin again with them"
            )

    # ------------------------------------------------------------ as files hold it

    def arrays(self) -> dict[str, Array]:
        momentum = [x for x in (self.momentum, self.objective, self.least) if x is not None]
        more = {name: getattr(self, name) for name in (VARIANCES, *OF_LBFGS)}
        small = {
            "momentum": np.array(momentum, dtype=np.float64),
            "best-round": np.array([self.best_round, self.validated], dtype=np.int64),
        }
        freeze(small.values())  # so that the head's digest is computed once
        return {
            **{name: getattr(self, name) for name in MATRICES},
            **{name: array for name, array in more.items() if array is not None},
            "covered": self.covered,
            **small,
        }

    @classmethod
    def of(
        cls,
        number: int,
        arrays: Mapping[str, Array],
        standardised: bool = False,
        lbfgs: bool = False,
    ) -> Rounds:
        """The inverse of `arrays`; `InvalidDataError` where they do not fit together."""
        side, classes = np.atleast_2d(arrays["point"]).shape
        shapes: dict[str, tuple[int | None, ...]] = {
            **dict.fromkeys(MATRICES, (side, classes)),
            "factor": (length(side),),
            "covered": (None,),
            "momentum": (3 if number > 1 else 1,),
            "best-round": (2,),
            **({VARIANCES: (side,)} if standardised else {}),
            **({"gradient": (side, classes), "counted": (None,)} if lbfgs and number > 1 else {}),
        }
        for name, shape in shapes.items():
            expect_shape(name, arrays[name], shape)
        best_round, validated = (int(x) for x in arrays["best-round"])
        if not 0 <= best_round < number or validated not in (0, 1):
            raise InvalidDataError(
                f"the array 'best-round' of a head in round {number} is [{best_round}, {validated}]"
            )
        covered = np.asarray(arrays["covered"])
        if not len(covered) or (np.diff(covered.astype(object)) <= 0).any():
            raise InvalidDataError(
                "the array 'covered' of a head does not name its clients once each, in order"
            )
        state: dict[str, Any] = {
            name: np.asarray(arrays[name], np.float64)
            for name in shapes
            if name in (*MATRICES, VARIANCES, "gradient")
        }
        variances = state.get(VARIANCES, np.ones(1))
        if not (np.isfinite(variances) & (variances > 0)).all():
            raise InvalidDataError(
                f"the array '{VARIANCES}' of a head is not of positive numbers: the least is "
                f"{variances.min()}"
            )
        for name, value in zip(
            ("momentum", "objective", "least"), arrays["momentum"], strict=False
        ):
            state[name] = float(value)
        state |= {"best_round": best_round, "validated": bool(validated)}
        if "counted" in shapes:
            state["counted"] = np.asarray(arrays["counted"])
        return cls(number, covered=covered, **state)


def _dot(a: F64, b: F64) -> float:
    return float((a * b).sum())  # BLAS would add in an order that follows its threads


def _marks_of(total: Statistics, who: ClientId) -> NDArray[np.int64]:
    return marks(replace(total, clients={who: total.clients[who]}))
