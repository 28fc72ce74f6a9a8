"""DeepAFL: residual layers of random features, each solved in closed form over two rounds.

Tang et al., "DeepAFL: Deep Analytic Federated Learning", ICLR 2026:

    Φ_0     = σ_0(X A)                         A random, from the seed             (2)
    F_t     = σ(Φ_t B_t)                       B_t random, from the seed           (6)
    Φ_{t+1} = Φ_t + F_t Ω_{t+1}                Ω learned in phase block-(t+1)      (9)
    scores  = Φ_T W_T                          W_t learned in phase weights-t      (5)

2T + 1 phases: weights-0, block-1, weights-1, …, weights-T (or one, see `replay`; or T + 1 without
learned blocks, as in the other strategies of `--deepening`, see `network`). The module
`gathering` has the clients' sums, `solving` the server's part. Ω is kept as its two thin factors.
Nothing random is stored or sent. With held-out clients the number of layers is chosen by their
squared error, see `Learned.chosen`. With ``incremental`` the rounds weights-1, weights-2, … send
thin matrices, see `incremental`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import ClassVar

from ...cache.carried import NOTHING, Carried
from ...errors import MismatchError, UsageError
from ...math.fixedpoint import Rows
from ...values.arrays import F64, Array
from ...values.phases import Phase
from ...values.statistics import Statistics
from ..base import Block, Gathered, Head, Shape, Source, add_up, note_round
from ..options import FIXED
from . import gathering, incremental
from .fixed import FixedLayers, FixedSums
from .learned import JOINT, Learned
from .network import PHI, Layers
from .options import WEIGHTS, DeepAFLOptions
from .replay import direct_mse, replayed
from .solving import Facts, advance
from .sums import Sums


class DeepAFLHead(Head):
    """The deep residual analytic network, learned layer by layer."""

    name = "deepafl"
    not_in_digest: ClassVar[tuple[str, ...]] = incremental.MARKS
    options: DeepAFLOptions

    def __init__(
        self, options: DeepAFLOptions, sources: Mapping[str, Source] | None = None
    ) -> None:
        super().__init__(options, sources)
        fixed = options.compute == FIXED
        self.network = FixedLayers(options) if fixed else Layers(options)
        self.sums = FixedSums(options) if fixed else Sums()
        self.learned = Learned()

    def phase(self) -> Phase | None:
        return self.learned.phase(self.options)

    # ------------------------------------------------------------ client side

    def _sums(self, blocks: Iterable[Block], carried: Carried) -> Gathered:
        """gram and cross of Φ_t and Y, or of F_{t−1} and the residual; float64, int64 if fixed.

        Keeps Φ_t (and F_t) of the rows, from which the next phase starts.
        """
        if self.phase() == JOINT:
            layers, (_, classes) = self.network.all_layers, self._bound()
            each = (gathering.of_weights(self.sums, layers(X), y, classes) for X, y in blocks)
            return add_up(each), NOTHING
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
        for number, (X, y) in enumerate(blocks):
            state = before.take(key, number, len(y)) or network.at(X, begin, learned)
            P = network.step(state, begin, learned) if begin < now else None
            if weights:
                yield gathering.of_state(o, sums, state, P, y, classes)
            else:
                yield gathering.of_block(network, sums, learned, state, y, classes)
            after.put(number, state)

    def shapes(self, bits: int | None) -> dict[str, Shape]:
        return gathering.shapes(self.options, self.learned, self._bound()[1], self.sums.kind)

    # ------------------------------------------------------------ server side

    def absorb(self, total: Statistics, validation: Statistics | None = None) -> DeepAFLHead:
        """Solve for W_t, or for Ω_t.

        ``validation`` chooses λ where W_t has several to choose from, and at the end the number of
        layers. Raises `MismatchError` for a total of another phase, `NumericalError` when the
        numbers do not determine an answer or there is too little memory.
        """
        if total.phase != self.phase():
            raise MismatchError(
                f"the head's next phase is {self.phase()!r}; the total is of {total.phase!r}"
            )
        begun, real = time.perf_counter(), self.sums.read(total)
        seen = None if validation is None else self.sums.read(validation)
        if total.phase == JOINT:
            return self._replayed(total, real, seen, begun)
        learned, facts = advance(self.options, self.learned, real, seen)
        after = self._after(learned, total, time.perf_counter() - begun, facts)
        return after._ended() if len(learned.weights) > len(self.learned.weights) else after

    def _after(
        self, learned: Learned, total: Statistics, seconds: float, facts: Facts
    ) -> DeepAFLHead:
        """This head one round further, with the round in its report."""
        after = copy(self)
        after.learned = learned
        sent = {k: a for k, a in learned.arrays().items() if k.startswith(LEARNED)}
        new = [a for k, a in sent.items() if k not in self.arrays()]
        note_round(self, after, total, seconds, new, **facts)
        after.report["rows"] = total.rows
        return after

    def _ended(self) -> DeepAFLHead:
        """The solved head if the network ends here; otherwise this head."""
        layers = self.learned.chosen(self.options)
        if layers is None:
            return self
        head = copy(self)
        head.learned = self.learned.solved(layers)
        if len(self.learned.errors):
            head.report = {**self.report, "layers": layers, "layers_by": "held-out clients"}
        return head

    def _replayed(
        self, total: Statistics, real: Statistics, validation: Statistics | None, begun: float
    ) -> DeepAFLHead:
        """The head after the one round of --single-round, ``real`` in units of one."""
        head, ridge = self, 0.0
        for learned, sums, seconds, facts in replayed(self.options, real, validation):
            head, ridge = head._after(learned, sums, seconds, facts), facts.get("ridge", ridge)
        rounds = [one | {"upload_bytes": 0, "download_bytes": 0} for one in head.report["phases"]]
        head = head._ended()
        report = {**head.report, "phases": []}
        note_round(self, head, total, time.perf_counter() - begun)
        upload = head.report["phases"][-1:]
        head.report = {**report, "phases": [*upload, *rounds]}  # the other rounds send nothing
        if ridge > 0:
            head.report["direct_ridge_mse"] = direct_mse(real, ridge)
        return head

    # ------------------------------------------------------------ scores

    def scores(self, X: Rows) -> F64:
        """Φ_T W_T (n, C), products in the compute type."""
        if self.phase() is not None:
            raise UsageError("the head is not solved yet")
        last = len(self.learned.weights) - 1
        phi = self.network.at(X, last, self.learned)[PHI]
        return self.network.scores(phi, self.learned.weights[last])

    def round_scores(self, X: Rows) -> Iterator[tuple[str, F64]]:
        """Φ_t W_t for each t with a known W_t: the scores of networks with fewer layers."""
        for t, phi in enumerate(self._after_layers(X)):
            yield Phase.of(WEIGHTS, t), self.network.scores(phi, self.learned.weights[t])

    def _round_features(self, X: Rows) -> Iterator[tuple[str, Array]]:
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

    def restore(self, phase: str | None, arrays: Mapping[str, Array]) -> DeepAFLHead:
        """The head of a file; `InvalidDataError` when its arrays are not those of its phase."""
        head = copy(self)
        head.learned = Learned.of(phase, arrays, self.options)
        if head.learned.weights:
            head.classes = head.learned.classes
        return head


LEARNED = ("weights-", "block-", "decoder-")  # what clients get; only the server needs the rest
HEAD = DeepAFLHead
