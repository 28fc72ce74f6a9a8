"""Softmax regression: the statistics of another head first, then a few rounds of small gradients.

The first phases are those of the head whose features Φ are used (see `features`), usually gram and
cross. They give a start, the rescaled least-squares head, and a bound on the curvature of the loss,
B = ½ΦᵀΦ + μN, which is factored once. Each further phase is one step that cannot raise the loss:

    W ← V − B⁻¹ (Φᵀ(softmax(ΦV) − Y) + μN V)

With ``standardise`` the penalty of column j is μN var_j, in the loss and in the bound. Clients send
the gradient (D, C) at V and their loss sum. Nesterov's momentum moves V ahead of W; it is reset
when the loss rises. The bound is Böhning's, "Multinomial logistic regression algorithm", Ann. Inst.
Statist. Math. 44, 1992; the head is our own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from ... import memory
from ...errors import InvalidDataError, MismatchError, UsageError
from ...math import ridge as rr
from ...math import softmax as sm
from ...math.blas import length
from ...math.gram import LARGEST_ENTRY, Rows
from ...math.softmax import Bound, Design
from ...memory import Carried
from ...values.arrays import F64, I64, Array, freeze
from ...values.names import Phase
from ...values.statistics import ArraySpec, Statistics
from ..base import (
    LARGEST_REAL,
    LAST,
    Accumulator,
    Block,
    Found,
    Gathered,
    Head,
    Shape,
    Source,
    State,
    marks,
    state,
    unsolved,
)
from .features import CodedFeatures, Lifted, SoftmaxFeatures, features_of
from .options import SoftmaxOptions

GRADIENT = "gradient"
# Least squares fits scores to 0 and 1, but softmax needs margins of several units. Measured on
# Fashion-MNIST features: starts at 2, 6 and 10 times the least-squares head reach 89.18, 89.26
# and 89.13 % after 20 rounds.
START_SCALE = 6.0
ROWS_AT_ONCE = 256  # rows of Φ in float64 that stay in the cache for both products
# Objectives that differ by this share or less are equal: near the minimum rounding alone would
# choose the round, and with it digits of W, which objectives tell to the root of their precision.
EQUAL = 1e-12


class Gradients:
    """Sums of the gradient (D, C) at V and of the loss (1,), see `math.softmax.Gradients`."""

    def __init__(self, features: SoftmaxFeatures, V: F64, smoothing: float) -> None:
        self._features, self._sums = features, sm.Gradients(V, smoothing)

    @property
    def exact(self) -> bool:
        return self._sums.exact

    def add(self, X: Rows, y: I64, known: State | None) -> State:
        rows, left = self._features.lifted(X, known)
        cut = (y[at : at + ROWS_AT_ONCE] for at in range(0, max(len(y), 1), ROWS_AT_ONCE))
        designs = _designs(self._features, rows)
        self._sums.add(zip(designs, cut, strict=True))
        return left

    def taken(self) -> Mapping[str, Array]:
        return self._sums.taken()


def _designs(features: SoftmaxFeatures, rows: Lifted) -> Iterator[Design]:
    """Φ of a few rows at a time; at least one part, which may have no rows."""
    starts = range(0, max(len(rows), 1), ROWS_AT_ONCE)
    return (features.design(rows[at : at + ROWS_AT_ONCE]) for at in starts)


@dataclass(frozen=True, eq=False)
class SoftmaxHead(Head):
    """Penalised multinomial logistic regression; phases of the features, then gradient-1 … -R.

    Once the first phases are over, before round ``number``: ``factor``, the triangle of L of
    B = L Lᵀ; ``point`` V, at which the gradient is gathered, ``step``, the last W, and ``best``,
    the best W so far, all (D, C); ``covered``, the sorted `marks` of the clients whose rows are in
    the bound; ``variances`` (D,) of the columns of Φ, by which the penalty weighs them, if it does.
    ``momentum``: Nesterov's t; after a round also the objective of the round before and the value
    of ``best``, the held-out loss if there is one, else the objective. ``best_round``: the round
    that found it, and whether held-out clients judge.
    """

    name = "softmax"
    log_probabilities = True
    not_in_digest = ("covered",)
    options: SoftmaxOptions

    features: SoftmaxFeatures = field(kw_only=True)
    number: int = 0
    factor: F64 | None = state()
    point: F64 | None = state()
    step: F64 | None = state()
    best: F64 | None = state()
    covered: I64 | None = state(np.int64)
    variances: F64 | None = state()
    momentum: F64 | None = state()
    best_round: I64 | None = state(np.int64, "best-round")
    weights: F64 | None = state()  # (D, C), once the head is solved

    @classmethod
    def begin(cls, options: Any, sources: Mapping[str, Source] | None = None) -> Self:
        features = features_of(options, sources)
        read = features.head.options  # what a file held, by its digest
        named = replace(options, **{name: getattr(read, name) for name in sources or ()})
        return cls(named, features=features)

    def phase(self) -> Phase | None:
        if self.weights is not None:
            return None
        return Phase.of(GRADIENT, self.number) if self.number else self.features.head.phase()

    def schedule(self) -> tuple[Phase, ...]:
        later = (Phase.of(GRADIENT, r) for r in range(1, self.options.rounds + 1))
        return *self.features.head.schedule(), *later

    # ------------------------------------------------------------ client side

    @property
    def at_once(self) -> int:  # type: ignore[override]  # gradients are of whole blocks
        return super().at_once if self.number else self.features.at_once(self._bound()[0])

    def _keys(self) -> tuple[str, str]:
        key = self.features.key if self.number else ""
        return key, key

    def accumulator(self) -> Accumulator:
        """First the products of the features; then gradient (D, C) and loss (1,).

        Random features or codes of the rows are kept for the next round.
        """
        if self.point is None:
            return self.features.accumulator(self._bound()[1])
        return Gradients(self.features, self.point, self.options.label_smoothing)

    def _sums(self, blocks: Iterable[Block], carried: Carried) -> Gathered:
        if self.point is None and isinstance(self.features, CodedFeatures):
            return self.features.head._sums(blocks, carried)
        return super()._sums(blocks, carried)

    def _columns(self, dim: int) -> int:
        return dim + (self.options.width or 0)

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        dim, classes = self._bound()
        if not self.number:
            return self.features.array_specs(bits, dim, classes)
        loss = ArraySpec((1,), "real", LARGEST_REAL)
        if self.features.exact_bits(bits) is not None:
            # Probabilities and losses are in units of 2^−24, features below 2^15; so is a row's
            # loss, unless its class has a probability of e^−32768.
            loss = ArraySpec((1,), "int", LARGEST_ENTRY << sm.BITS)
        gradient = replace(loss, shape=(self.features.columns(dim), classes))
        return {"gradient": gradient, "loss": loss}

    # ------------------------------------------------------------ scores

    def decision_function(self, X: Rows) -> F64:
        """Φ W (n, C), float64; softmax of it gives the probabilities."""
        if self.weights is None:
            raise unsolved()
        rows, _ = self.features.lifted(X)
        return sm.scores(_designs(self.features, rows), self.weights)

    def affine(self) -> tuple[F64, F64] | None:
        W = self.weights
        return (W[:-1], W[-1]) if self.options.features == "raw" and W is not None else None

    def round_scores(self, X: Rows) -> Iterator[tuple[Phase, F64]]:
        """The scores of the best weights so far; after the first phases, those of the start."""
        if self.weights is not None or self.best is not None:
            yield LAST, self._solved().decision_function(X)

    def round_features(self, X: Rows) -> Iterator[tuple[Phase, Array]]:
        """Φ (n, D) without the intercept; no round of the gradient changes it."""
        if self.weights is not None or self.number:
            yield LAST, self.features.expanded(X)

    # ------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Array]:
        return {**self.features.head.state_dict(), **super().state_dict()}

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        number = (phase.number or 0) if phase is not None and phase.kind == GRADIENT else 0
        head = replace(self, features=self.features.restore(arrays), number=number)
        head = Head.restore(head, phase, arrays)
        if head.variances is not None and not (head.variances > 0).all():
            raise InvalidDataError("the array 'variances' of a head is not of positive numbers")
        marked = head.covered  # compared, not subtracted: they are of 64 bits
        if marked is not None and not (marked[1:] > marked[:-1]).all():
            raise InvalidDataError("the array 'covered' of a head does not name each client once")
        return head

    def _bound_to(self, dim: int, classes: int) -> Self:
        bound = super()._bound_to(dim, classes)
        return replace(bound, features=self.features.bind(dim, classes))

    def _state_shapes(self) -> Mapping[str, Shape]:
        dim, classes = self._bound()
        side = self.features.columns(dim)
        if self.weights is not None:
            return {"weights": (side, classes)}
        if not self.number:
            return {}
        shapes: dict[str, Shape] = dict.fromkeys(("point", "step", "best"), (side, classes))
        shapes |= {"factor": (length(side),), "covered": (None,), "best-round": (2,)}
        shapes |= {"momentum": (3 if self.number > 1 else 1,)}
        return shapes | ({"variances": (side,)} if self.options.standardise else {})

    # ------------------------------------------------------------ server side

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """Thresholds of the features, the start, or one step from a gradient."""
        if self.number:
            return self._further(total, validation)
        head = self.features.head
        if head.phase() == head.schedule()[-1]:
            return self._start(total)
        learned = head.absorb(total)[0]
        sent = list(learned.state_dict().values())
        return replace(self, features=replace(self.features, head=learned)), Found(sent=sent)

    def _start(self, total: Statistics) -> tuple[Self, Found]:
        """V = s (G + 2μN)⁻¹ H from the factor of B = ½G + μN, which every later round uses."""
        columns = self.features.columns(self._bound()[0])
        memory.need(14 * columns * columns, f"the curvature of {columns} columns")
        G, H = self.features.system(total)
        variances = None
        if self.options.standardise:  # 1 for a constant column; the columns of H add up to Σφ
            means = H.sum(axis=1) / total.rows
            variances = rr.spreads(np.diag(G) / total.rows, means) ** 2
        self.features.check(G, H, total, 2.0 * self.options.penalty * total.rows, variances)
        started = replace(self, variances=variances)
        bound = Bound.of(G, started._penalty(total, columns))
        V = 0.5 * START_SCALE * bound.solve(H)
        started = replace(started, factor=bound.factor, step=V, best=V, covered=marks(total))
        return started._before(1, V, [1.0], [0, 0]), Found(round={"features": columns}, sent=[V])

    def _before(self, number: int, V: F64, momentum: list[float], best_round: list[int]) -> Self:
        """This head before a round."""
        small = np.array(momentum), np.array(best_round)
        freeze(small)  # so that the head's digest is computed once
        return replace(self, number=number, point=V, momentum=small[0], best_round=small[1])

    def _penalty(self, total: Statistics, columns: int) -> F64:
        """μN, times the variances if there are any; 0 for the intercept: (D,)."""
        o, intercept = self.options, self.features.intercept
        return sm.penalty_of(o.penalty, total.rows, columns, intercept, self.variances)

    def _further(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """One step from the point V; the next V is ahead of it, by Nesterov's momentum."""
        known = self.state_dict()
        V, (best_round, judged) = self.point, known["best-round"]
        assert V is not None
        t, before, least = (*known["momentum"].tolist(), np.inf, np.inf)[:3]
        if self.number > 1 and judged != (validation is not None):
            raise UsageError(
                "rounds are judged by held-out clients' loss in all of them or in none: give "
                "--validate (the sum over held-out clients of the same phase) as in the first round"
            )
        if beyond := len(np.setdiff1d(marks(total), known["covered"])):
            raise MismatchError(
                f"{beyond} of {len(total.clients)} clients were not in the first phase, or not "
                "with these rows, so that its gram does not bound their loss: leave them out of "
                "this round, or begin again with them"
            )
        facts, gradient = self._measured(V, total, validation)
        objective, held = facts["objective"], facts["validation_loss"]
        W = V - Bound(known["factor"]).solve(gradient)  # never increases the penalised loss
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
        found = Found(head={"best_round": ours[0]}, round=facts, sent=[ahead])
        return (after._solved() if self._is_last(ours[0], facts) else after), found

    def _is_last(self, best_round: int, facts: Mapping[str, Any]) -> bool:
        o = self.options
        judged = facts["validation_loss"] is not None
        waited = judged and 0 < o.patience <= self.number - best_round
        return self.number >= o.rounds or facts["gradient_norm"] < o.tolerance or waited

    def _measured(
        self, V: F64, total: Statistics, validation: Statistics | None
    ) -> tuple[dict[str, Any], F64]:
        """Loss, objective and gradient norm at V, a row each; and the gradient with the penalty."""
        mu_n = self._penalty(total, len(V))[:, None]
        gradient, loss = self._real(total)
        gradient = gradient + mu_n * V
        if validation is not None and validation.rows == 0:
            raise InvalidDataError("the held-out clients have 0 rows: nothing to validate on")
        held = None if validation is None else self._real(validation)[1] / validation.rows
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
        bits = self.features.exact_bits(total.context.space.get("fraction_bits"))
        if not total.exact:
            return gradient, loss
        if bits is None:
            raise InvalidDataError("integer statistics without their number of fraction bits")
        return gradient * 2.0 ** -(bits + sm.BITS), loss * 2.0**-sm.BITS

    def _solved(self) -> Self:
        """The best weights, without what only rounds need; a head that is solved as it is."""
        if self.weights is not None:
            return self
        begun = type(self)(self.options, self.dim, self.classes, features=self.features)
        return replace(begun, weights=self.best)


HEAD = SoftmaxHead
