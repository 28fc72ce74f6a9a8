"""The state that the softmax head's server keeps from one gradient round to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidDataError, MismatchError, UsageError
from ...math.gram import length
from ...math.softmax import Bound
from ...values.arrays import F64, Array, freeze
from ...values.clients import ClientId
from ...values.statistics import Statistics
from ..base import expect_shape, marks

GRADIENT = "gradient"
MATRICES = ("factor", "point", "step", "best")
VARIANCES = "variances"


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

    @classmethod
    def begin(
        cls, bound: Bound, start: F64, total: Statistics, variances: F64 | None = None
    ) -> Rounds:
        """The state before round 1, from the bound and start (D, C) of the first phases."""
        covered = marks(total)
        return cls(1, bound.factor, start, start, start, covered, variances=variances)

    def further(self, facts: Mapping[str, Any], gradient: F64, momentum: bool) -> Rounds:
        """One step from V; see `math.softmax.Bound`.

        ``gradient``: at V, with the penalty's. ``facts``: ``objective`` and ``validation_loss``
        (or None) at V. The momentum is reset when the objective has risen.
        """
        held = facts["validation_loss"]
        if self.number > 1 and self.validated != (held is not None):
            raise UsageError(
                "rounds are judged by held-out clients' loss in all of them or in none: give "
                "--validate (the sum over held-out clients of the same phase) as in the first round"
            )
        t = 1.0 if self.risen(facts) or not momentum else self.momentum
        following = 0.5 * (1.0 + (1.0 + 4.0 * t * t) ** 0.5) if momentum else 1.0
        W = Bound(self.factor).step(self.point, gradient)
        after = replace(
            self,
            number=self.number + 1,
            point=W + (t - 1.0) / following * (W - self.step),
            step=W,
            momentum=following,
            objective=facts["objective"],
            validated=held is not None,
        )
        value = facts["objective"] if held is None else held
        if self.least is not None and value >= self.least:
            return after
        # The objective at W is at most that at V. The held-out loss is known at V only, so with
        # held-out clients V is kept.
        best = W if held is None else self.point
        return replace(after, best=best, best_round=self.number, least=value)

    def risen(self, facts: Mapping[str, Any]) -> bool:
        """Whether the objective at V is above that of the round before."""
        return self.objective is not None and facts["objective"] > self.objective

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
        weighed = {} if self.variances is None else {VARIANCES: self.variances}
        small = {
            "momentum": np.array(momentum, dtype=np.float64),
            "best-round": np.array([self.best_round, self.validated], dtype=np.int64),
        }
        freeze(small.values())  # so that the head's digest is computed once
        return {
            **{name: getattr(self, name) for name in MATRICES},
            **weighed,
            "covered": self.covered,
            **small,
        }

    @classmethod
    def of(cls, number: int, arrays: Mapping[str, Array], standardised: bool = False) -> Rounds:
        """The inverse of `arrays`; `InvalidDataError` where they do not fit together."""
        side, classes = np.atleast_2d(arrays["point"]).shape
        shapes: dict[str, tuple[int | None, ...]] = {
            **dict.fromkeys(MATRICES, (side, classes)),
            "factor": (length(side),),
            "covered": (None,),
            "momentum": (3 if number > 1 else 1,),
            "best-round": (2,),
            **({VARIANCES: (side,)} if standardised else {}),
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
            if name in (*MATRICES, VARIANCES)
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
        return cls(number, covered=covered, **state)


def _marks_of(total: Statistics, who: ClientId) -> NDArray[np.int64]:
    return marks(replace(total, clients={who: total.clients[who]}))
