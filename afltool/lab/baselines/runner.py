"""The rounds of a baseline: draw participants, train, merge, measure."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import NumericalError
from ...values.arrays import F64, I64
from ...values.names import Phase
from . import method_class
from .base import Method, first_weights
from .clients import Clients, Purpose, permutation, stream
from .network import DenseLayers, Tensor
from .settings import Settings
from .trainer import Trainer, on_threads

FLOAT32 = 4  # bytes of a number in a message
SCORED_AT_ONCE = 2048  # rows whose scores are made at a time
Round = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """Rows to measure on: X (n, d), a tensor, and labels y (n,)."""

    X: Any
    y: I64


@dataclass
class State:
    """All that is kept between rounds.

    ``memory``: the ``weights``, those of the round that held-out clients like ``best``, and what
    the method keeps; ``rounds``: cost and accuracies of every round.
    """

    memory: dict[str, Tensor]
    rounds: list[Round] = field(default_factory=list)

    @property
    def weights(self) -> Tensor:
        return self.memory["weights"]


class Run:
    """One method on one federation; `advance` makes a round, `state` is what a checkpoint keeps."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        clients: Clients,
        test: Measured,
        held_out: Measured | None = None,
        *,
        threads: int = 1,
    ) -> None:
        """``threads`` do not change the result."""
        cls = method_class(name)
        self.clients = clients.pooled() if cls.pools else clients
        self.settings, self.test, self.held_out = settings, test, held_out
        self.threads = threads
        widths = settings.widths(clients.dim, clients.classes)
        self.network = DenseLayers(widths, not settings.no_bias)
        self.method: Method = cls(settings, self.clients, self.network, threads)
        self.notes = self.method.notes()
        self.trainer = Trainer(self.clients, self.network, settings, threads)
        weights = first_weights(self.network, settings.seed, clients.X.dtype)
        self.method.begin(weights)
        self.state = State(self.method.memory)
        self.state.memory["weights"] = weights

    @property
    def round(self) -> int:
        """Number of finished rounds."""
        return len(self.state.rounds)

    def resume(self, state: State) -> None:
        """Continue from the state that an earlier run kept."""
        self.state, self.method.memory = state, state.memory

    def advance(self) -> None:
        """One round, whose cost and, if it is measured, accuracies are added to the state.

        Raises `NumericalError` when weights are no longer finite, before they are kept.
        """
        on_threads(1, lambda _: self._advance(), [None])

    def _advance(self) -> None:
        number, start, method = self.round + 1, self.state.weights, self.method
        who = self.participants(number)
        begun = time.process_time()
        trained = self.trainer(number, who, method.starts(who, start), method)
        between = time.process_time()
        merged = method.merge(number, who, start, trained)
        entry = {
            "phase": Phase.of("round", number),
            "clients": len(who),
            "rows": int(self.clients.sizes[who].sum()),
            "gather_seconds": round(between - begun, 6),
            "solve_seconds": round(time.process_time() - between, 6),
            "upload_bytes": FLOAT32 * method.upload(number),
            "download_bytes": FLOAT32 * method.download(number),
        }
        if bad := int((~merged.isfinite()).sum()):
            rate = self.settings.rate(number)
            raise NumericalError(
                f"round {number}: {bad} of {len(merged)} weights are not finite: the descent "
                f"diverges at the learning rate {rate:g}; try --lr {rate / 10:g}"
            )
        self.state.memory["weights"] = merged
        if number % self.settings.every == 0 or number == self.settings.rounds:
            entry |= self._measured()
        self.state.rounds.append(entry)

    def participants(self, round: int) -> list[int]:
        """The clients of a round, ascending; at least one."""
        K, share = len(self.clients), self.settings.participation
        if share == 1:
            return list(range(K))
        words = stream(self.settings.seed, Purpose.PARTICIPANTS, round)
        drawn = permutation(words, K)[: max(1, int(share * K + 0.5))]
        return sorted(drawn.tolist())

    def _measured(self) -> Round:
        heads, facts = self.method.heads(self.state.weights), Round()
        if self.held_out is not None:
            value = float(self.accuracies(heads, self.held_out).mean())
            if value > max(
                (one.get("held_out_top1", -1.0) for one in self.state.rounds), default=-1.0
            ):
                self.state.memory["best"] = self.state.weights.clone()
            facts["held_out_top1"] = value
        each = self.accuracies(heads, self.test)
        facts["top1"] = float(each.mean())
        if len(heads) > 1:
            facts |= {"top1_max": float(each.max()), "top1_spread": float(each.std(ddof=1))}
        return facts

    def by_client(self) -> dict[str, float]:
        """After the last round: the accuracy on the test rows of every client that has its own
        head; none for a method with one head."""
        heads = self.method.heads(self.state.weights)
        if len(heads) == 1:
            return {}
        each = self.accuracies(heads, self.test)
        return dict(zip(self.clients.names, each.tolist(), strict=True))

    def accuracies(self, heads: Tensor, rows: Measured) -> F64:
        """Share of rows that each of the heads (M, P) predicts, (M,)."""

        def hits(at: int) -> list[int]:
            X, y = rows.X[at : at + SCORED_AT_ONCE], rows.y[at : at + SCORED_AT_ONCE]
            scores = (self.network.forward(self.network.model(head), X)[1] for head in heads)
            return [(S.numpy().argmax(axis=1) == y).sum() for S in scores]

        found = on_threads(self.threads, hits, range(0, len(rows.y), SCORED_AT_ONCE))
        return np.asarray(np.sum(found, axis=0) / len(rows.y))
