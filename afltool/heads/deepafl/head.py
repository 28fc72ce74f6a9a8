"""DeepAFL: residual layers of random features, each solved in closed form over two rounds.

Tang et al., "DeepAFL: Deep Analytic Federated Learning", ICLR 2026:

    Φ_0     = σ_0(X A)                         A random, from the seed             (2)
    F_t     = σ(Φ_t B_t)                       B_t random, from the seed           (6)
    Φ_{t+1} = Φ_t + F_t Ω_{t+1}                Ω learned in phase block-(t+1)      (9)
    scores  = Φ_T W_T                          W_t learned in phase weights-t      (5)

2T + 1 phases: weights-0, block-1, weights-1, …, weights-T (or T + 1 without learned blocks, as in
the other strategies of `--deepening`, see `network`). The module `network`
has the clients' sums, `solving` the server's part. Ω is kept as its two thin factors. Nothing
random is stored or sent. With held-out clients the number of layers is chosen by their squared
error, see `Learned.chosen`. With ``incremental`` the rounds weights-1, weights-2, … send thin
matrices, see `learned`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Self

from ... import cores
from ...errors import UsageError
from ...math.gram import Rows
from ...memory import Carried
from ...values.arrays import F64, Array
from ...values.names import Phase
from ...values.statistics import ArraySpec, Statistics
from ..base import Block, Facts, Found, Gathered, Head, add_up
from ..options import FIXED
from ..rounding import named
from .fixed import FixedLayers, FixedSums
from .learned import UNSEEN, Learned, every_phase
from .network import PHI, Layers, State, Sums, array_specs, of_block, of_state
from .options import WEIGHTS, DeepAFLOptions
from .solving import advance


@dataclass(frozen=True, eq=False)
class DeepAFLHead(Head):
    """The deep residual analytic network, learned layer by layer."""

    name = "deepafl"
    not_in_digest: ClassVar[tuple[str, ...]] = UNSEEN
    options: DeepAFLOptions

    learned: Learned = field(default_factory=Learned)

    @cached_property
    def network(self) -> Layers:
        """The layers that are drawn from the seed."""
        return (FixedLayers if self.options.compute == FIXED else Layers)(self.options)

    @cached_property
    def sums(self) -> Sums:
        """The number format of the sums."""
        return FixedSums(self.options) if self.options.compute == FIXED else Sums()

    def phase(self) -> Phase | None:
        return self.learned.phase(self.options)

    def _every_phase(self) -> tuple[Phase, ...]:
        return every_phase(self.options)

    # ------------------------------------------------------------ client side

    def _sums(self, blocks: Iterable[Block], carried: Carried) -> Gathered:
        """gram and cross of Φ_t and Y, or of F_{t−1} and the residual; float64, int64 if fixed.

        Keeps Φ_t (and F_t) of the rows, from which the next phase starts.
        """
        now = self.learned.layers(self.options)
        after = carried.following(self.network.key(now, self.learned))
        return add_up(self._each(blocks, carried, after)), after

    def _each(
        self, blocks: Iterable[Block], before: Carried, after: Carried
    ) -> Iterator[Mapping[str, Array]]:
        """The sums of each block; the rows' new state is put into ``after``."""
        o, learned, sums, network = self.options, self.learned, self.sums, self.network
        now, classes = learned.layers(o), self._bound()[1]
        phase = self.phase()
        weights = phase is not None and phase.kind == WEIGHTS
        begin = now - (weights and now > 0)
        key = network.key(begin, learned)

        def work(given: tuple[Block, State | None]) -> tuple[Mapping[str, Array], State]:
            (X, y), known = given
            state = known or network.at(X, begin, learned)
            P = network.step(state, begin, learned) if begin < now else None
            if weights:
                return of_state(o, sums, state, P, y, classes), state
            return of_block(network, sums, learned, state, y, classes), state

        given = ((one, before.take(key, i, len(one[1]))) for i, one in enumerate(blocks))
        done = cores.each(work, given, lambda one: self._each_room(len(one[0][1])), WHAT)
        for number, (gathered, state) in enumerate(done):
            after.put(number, state)
            yield gathered

    def _each_room(self, rows: int) -> int:
        """Bytes for the sums of so many rows: a square and two triangles, and the rows."""
        specs = self.array_specs(None).values()
        return self.room(rows) + 24 * sum(spec.size for spec in specs)

    def _columns(self, dim: int) -> int:
        phi, hidden = self.options.widths
        return dim + phi + hidden

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        return array_specs(self.options, self.learned, self._bound()[1], self.sums.exact)

    # ------------------------------------------------------------ server side

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """W_t, or Ω_t.

        ``validation`` chooses λ where W_t has several to choose from, and at the end the number of
        layers.
        """
        real = self.sums.read(total)
        seen = None if validation is None else self.sums.read(validation)
        with named(self.options.compute):
            learned, facts = advance(self.options, self.learned, real, seen)
        known, now = self.learned.arrays(), learned.arrays()
        sent = [a for k, a in now.items() if k.startswith(LEARNED) and k not in known]
        after, report = self._ended(learned, len(learned.weights) > len(self.learned.weights))
        return after, Found(head={"rows": total.rows, **report}, round=facts, sent=sent)

    def _ended(self, learned: Learned, maybe: bool = True) -> tuple[Self, Facts]:
        """The head that has learned this: the solved one if the network may end here and does."""
        layers = learned.chosen(self.options) if maybe else None
        if layers is None:
            return replace(self, learned=learned), {}
        by = {"layers": layers, "layers_by": "held-out clients"} if len(learned.errors) else {}
        return replace(self, learned=learned.solved(layers)), by

    # ------------------------------------------------------------ scores

    def scores(self, X: Rows) -> F64:
        """Φ_T W_T (n, C), products in the compute type."""
        if self.phase() is not None:
            raise UsageError("the head is not solved yet")
        last = len(self.learned.weights) - 1
        phi = self.network.at(X, last, self.learned)[PHI]
        return self.network.scores(phi, self.learned.weights[last])

    def round_scores(self, X: Rows) -> Iterator[tuple[Phase, F64]]:
        """Φ_t W_t for each t with a known W_t: the scores of networks with fewer layers."""
        for t, phi in enumerate(self._after_layers(X)):
            yield Phase.of(WEIGHTS, t), self.network.scores(phi, self.learned.weights[t])

    def round_features(self, X: Rows) -> Iterator[tuple[Phase, Array]]:
        for t, phi in enumerate(self._after_layers(X)):
            yield Phase.of(WEIGHTS, t), self.network.real(phi)

    def _after_layers(self, X: Rows) -> Iterator[Array]:
        """Φ_t (n, d_Φ) for each t with a known W_t; valid until the next."""
        state = self.network.begin(X) if self.learned.weights else {}
        for t in range(len(self.learned.weights)):
            if t:
                self.network.step(state, t - 1, self.learned)
            yield state[PHI]

    # ------------------------------------------------------------ state, as files hold it

    def arrays(self) -> dict[str, Array]:
        """W_t, Ω_t, Q_t; until the head is solved also the sums and errors that it still needs."""
        return self.learned.arrays()

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        """The head of a file; `InvalidDataError` when its arrays are not those of its phase."""
        return replace(self, learned=Learned.of(phase, arrays, self.options))._checked(phase)

    def _state_shapes(self) -> dict[str, tuple[int | None, ...]]:
        return (
            {}
            if not self.learned.weights
            else {"weights-0": (self.options.widths[0], self._bound()[1])}
        )


WHAT = "sums of random features"
LEARNED = ("weights-", "block-", "decoder-")  # what clients get; only the server needs the rest
HEAD = DeepAFLHead
