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
from numpy.typing import NDArray

from ... import cores, memory
from ...errors import InvalidDataError, UsageError
from ...math import ridge as rr
from ...math import softmax as sm
from ...math.gram import LARGEST_ENTRY, Rows
from ...math.softmax import Buffers, Design
from ...memory import NOTHING, Carried
from ...values.arrays import F64, Array
from ...values.names import Phase
from ...values.statistics import ArraySpec, Statistics
from ..base import LARGEST_REAL, LAST, Block, Found, Head, Source, add_up, state
from .features import Lifted, SoftmaxFeatures, features_of
from .options import SoftmaxOptions
from .rounds import GRADIENT, Rounds

# Least squares fits scores to 0 and 1, but softmax needs margins of several units. Measured on
# Fashion-MNIST features: starts at 2, 6 and 10 times the least-squares head reach 89.18, 89.26
# and 89.13 % after 20 rounds.
START_SCALE = 6.0
ROWS_AT_ONCE = 256  # rows of Φ in float64 that stay in the cache for both products


@dataclass(frozen=True, eq=False)
class SoftmaxHead(Head):
    """Penalised multinomial logistic regression; phases of the features, then gradient-1 … -R."""

    name = "softmax"
    log_probabilities = True
    not_in_digest = ("covered", "counted")
    options: SoftmaxOptions

    features: SoftmaxFeatures = field(kw_only=True)
    rounds: Rounds | None = None  # once the first phases are over
    weights: F64 | None = state()  # (D, C), once the head is solved

    @classmethod
    def begin(cls, options: Any, sources: Mapping[str, Source] | None = None) -> Self:
        features = features_of(options, sources)
        read = features.head.options  # what a file held, by its digest
        named = replace(options, **{name: getattr(read, name) for name in sources or ()})
        return cls(named, features=features)

    # ------------------------------------------------------------ the four verbs

    def phase(self) -> Phase | None:
        if self.weights is not None:
            return None
        if self.rounds is None:
            return self.features.phase()
        return Phase.of(GRADIENT, self.rounds.number)

    def every_phase(self) -> tuple[Phase, ...]:
        first = self.features.head.phases()
        return *first, *(Phase.of(GRADIENT, r) for r in range(1, self.options.rounds + 1))

    def _sums(
        self, blocks: Iterable[Block], carried: Carried
    ) -> tuple[Mapping[str, Array], Carried]:
        """First the counts or products of the features; then gradient (D, C) and loss (1,).

        Random features or codes of the rows are kept for the next round.
        """
        if self.rounds is None:
            return self.features.sums(blocks), NOTHING
        key = self.features.key
        after = carried.following(key) if key else NOTHING
        return add_up(self._gradients(blocks, carried, after)), after

    def _gradients(
        self, blocks: Iterable[Block], before: Carried, after: Carried
    ) -> Iterator[Mapping[str, Array]]:
        """Gradients and losses at V: of each block, or exact ones of all that a thread took."""
        assert self.rounds is not None
        key, V, smoothing = self.features.key, self.rounds.point, self.options.label_smoothing
        spare = cores.Spare(lambda: sm.Gradients(V, smoothing))

        def work(given: tuple[Block, Mapping[str, Array] | None]) -> tuple[Any, Any]:
            (X, y), known = given
            rows, left = self.features.lifted(X, known)
            with spare() as part:
                part.add(zip(self._designs(rows, part.buffers), _cut(y), strict=True))
                return left, None if part.exact else part.taken()

        given = ((one, before.take(key, i, len(one[1]))) for i, one in enumerate(blocks))
        what = f"gradients of {len(V)} columns"
        done = cores.each(work, given, lambda one: 16 * V.size + self.room(len(one[0][1])), what)
        for number, (left, sums) in enumerate(done):
            after.put(number, left)
            if sums is not None:
                yield sums
        yield from (part.taken() for part in spare.made if part.exact)

    def _columns(self, dim: int) -> int:
        return dim + (self.options.width or 0)

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        if self.rounds is None:
            return self.features.array_specs(bits)
        dim, classes = self._bound()
        loss = ArraySpec((1,), "real", LARGEST_REAL)
        if self.features.exact_bits(bits) is not None:
            # Probabilities and losses are in units of 2^−24, features below 2^15; so is a row's
            # loss, unless its class has a probability of e^−32768.
            loss = ArraySpec((1,), "int", LARGEST_ENTRY << sm.BITS)
        return {
            "gradient": replace(loss, shape=(self.features.columns(dim), classes)),
            "loss": loss,
        }

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """Thresholds of the features, the start, or one step from a gradient."""
        if self.rounds is not None:
            return self._step(self.rounds, total, validation)
        learned = self.features.learned(total)
        if learned is None:
            return self._start(total)
        return replace(self, features=learned), Found(sent=[learned.arrays()["thresholds"]])

    def scores(self, X: Rows) -> F64:
        """Φ W (n, C), float64; softmax of it gives the probabilities."""
        if self.weights is None:
            raise UsageError("the head is not solved yet")
        rows, _ = self.features.lifted(X)
        return sm.scores(self._designs(rows, Buffers()), self.weights)

    def affine(self) -> tuple[F64, F64] | None:
        W = self.weights
        plain = type(self.features) is SoftmaxFeatures
        return (W[:-1], W[-1]) if plain and W is not None else None

    def round_scores(self, X: Rows) -> Iterator[tuple[Phase, F64]]:
        """The scores of the best weights so far; after the first phases, those of the start."""
        solved = self if self.rounds is None else self._solved(self.rounds.best)
        if solved.weights is not None:
            yield LAST, solved.scores(X)

    def round_features(self, X: Rows) -> Iterator[tuple[Phase, Array]]:
        """Φ (n, D) without the intercept; no round of the gradient changes it."""
        if self.weights is not None or self.rounds is not None:
            yield LAST, self.features.expanded(X)

    # ------------------------------------------------------------ state

    def arrays(self) -> dict[str, Array]:
        rounds = {} if self.rounds is None else self.rounds.arrays()
        return {**self.features.arrays(), **rounds, **super().arrays()}

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        rounds = None
        if phase is not None and phase.kind == GRADIENT:
            rounds = Rounds.of(
                phase.number or 0, arrays, self.options.standardise, self.options.lbfgs
            )
        features = self.features.restore(arrays)
        return Head.restore(replace(self, features=features, rounds=rounds), phase, arrays)

    def _bound_to(self, dim: int, classes: int) -> Self:
        bound = super()._bound_to(dim, classes)
        return replace(bound, features=self.features.bind(dim, classes))

    def _state_shapes(self) -> dict[str, tuple[int | None, ...]]:
        dim, classes = self._bound()
        name = "weights" if self.rounds is None else "point"
        learned = self.weights is not None or self.rounds is not None
        return {name: (self.features.columns(dim), classes)} if learned else {}

    def _designs(self, rows: Lifted, buffers: Buffers) -> Iterator[Design]:
        """Φ of a few rows at a time; at least one part, which may have no rows."""
        starts = range(0, max(len(rows), 1), ROWS_AT_ONCE)
        return (self.features.design(rows[at : at + ROWS_AT_ONCE], buffers) for at in starts)

    # ------------------------------------------------------------ server side

    def _start(self, total: Statistics) -> tuple[Self, Found]:
        """V = s (G + 2μN)⁻¹ H from the factor of B = ½G + μN, which every later round uses."""
        columns = self.features.columns(self._bound()[0])
        memory.need(14 * columns * columns, f"the curvature of {columns} columns")
        G, H = self.features.system(total)
        variances = _variances(G, H, total.rows) if self.options.standardise else None
        self.features.check(G, H, total, 2.0 * self.options.penalty * total.rows, variances)
        bound = sm.Bound.of(G, self._penalty(total, columns, variances))
        start = 0.5 * START_SCALE * bound.solve(H)
        rounds = Rounds.begin(bound, start, total, variances)
        return replace(self, rounds=rounds), Found(round={"features": columns}, sent=[start])

    def _step(
        self, before: Rounds, total: Statistics, validation: Statistics | None
    ) -> tuple[Self, Found]:
        """One step from the point V; see `Rounds`."""
        before.check_covered(total)
        facts, gradient = self._measured(before, total, validation)
        rounds = before.further(facts, gradient, total, self.options)
        facts["restarted"] = not self.options.no_momentum and before.risen(facts)
        result = Found(head={"best_round": rounds.best_round}, round=facts, sent=[rounds.point])
        if self._finished(before, facts, rounds):
            return self._solved(rounds.best), result
        return replace(self, rounds=rounds), result

    def _measured(
        self, before: Rounds, total: Statistics, validation: Statistics | None
    ) -> tuple[dict[str, Any], F64]:
        """Loss, objective and gradient norm at V, a row each; and the gradient with the penalty."""
        V = before.point
        mu_n = self._penalty(total, len(V), before.variances)[:, None]
        gradient, loss = self._real(total)
        gradient = gradient + mu_n * V
        held = None if validation is None else self._held_out_loss(validation)
        facts = {
            "loss": loss / total.rows,
            "objective": (loss + 0.5 * float((mu_n * V**2).sum())) / total.rows,
            "gradient_norm": float(np.linalg.norm(gradient)) / total.rows,
            "validation_loss": held,
        }
        return facts, gradient

    def _penalty(self, total: Statistics, columns: int, variances: F64 | None) -> F64:
        o, intercept = self.options, self.features.intercept
        return sm.penalty_of(o.penalty, total.rows, columns, intercept, variances)

    def _real(self, total: Statistics) -> tuple[F64, float]:
        """Gradient and loss of a total in units of one."""
        gradient, loss = total.arrays["gradient"], float(total.arrays["loss"][0])
        bits = self.features.bits(total)
        if bits is None:
            return gradient, loss
        return gradient * 2.0 ** -(bits + sm.BITS), loss * 2.0**-sm.BITS

    def _held_out_loss(self, validation: Statistics) -> float:
        if validation.rows == 0:
            raise InvalidDataError("the held-out clients have 0 rows: nothing to validate on")
        return self._real(validation)[1] / validation.rows

    def _finished(self, before: Rounds, facts: Mapping[str, Any], after: Rounds) -> bool:
        o = self.options
        waited = after.validated and 0 < o.patience <= before.number - after.best_round
        return before.number >= o.rounds or facts["gradient_norm"] < o.tolerance or waited

    def _solved(self, weights: F64) -> Self:
        return replace(self, weights=weights, rounds=None)


def _variances(G: F64, H: F64, rows: int) -> F64:
    """Variances (D,) of the columns of Φ, 1 for a constant one; the columns of H add up to Σφ."""
    variances: F64 = rr.spreads(np.diag(G) / rows, H.sum(axis=1) / rows) ** 2
    return variances


def _cut(y: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    return (y[at : at + ROWS_AT_ONCE] for at in range(0, max(len(y), 1), ROWS_AT_ONCE))


HEAD = SoftmaxHead
