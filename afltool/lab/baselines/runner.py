"""The rounds of a baseline: draw participants, train, merge, measure."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from ... import parallel
from ...errors import NumericalError
from ...values.arrays import F64, I64
from ...values.names import Phase
from . import method_class
from .base import Method
from .clients import Clients, Purpose, permutation, stream
from .network import DenseLayers, Tensor, first_weights
from .settings import Settings
from .trainer import Trainer, map_on_threads

FLOAT32 = 4  # bytes of a number in a message
SCORED_AT_ONCE = 2048  # rows whose scores are made at a time
Round = dict[str, Any]


class Measured(NamedTuple):
    """Rows to measure on: X (n, d), a tensor, and labels y (n,)."""

    X: Tensor
    y: I64


class Run:
    """One method on one federation; `advance` makes a round.

    ``weights`` (P,) after the last round, ``best`` (P,) of the round that the ``held_out`` rows
    like best, ``rounds``: cost and accuracies of every round. Threads do not change the result.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        clients: Clients,
        test: Measured,
        held_out: Measured | None = None,
    ) -> None:
        cls = method_class(name)
        self.clients = clients.pooled() if cls.pools else clients
        self.settings, self.test, self.held_out = settings, test, held_out
        widths = settings.widths(clients.X.shape[1], clients.classes)
        self.network = DenseLayers(widths, not settings.no_bias)
        self.trainer = Trainer(self.clients, self.network, settings)
        self.weights = self.best = first_weights(self.network, settings.seed, clients.X.dtype)
        self.rounds: list[Round] = []
        self.method: Method = cls(settings, self.clients, self.network)
        self.method.begin(self.weights)

    def advance(self) -> None:
        """One round; `NumericalError` when weights are no longer finite."""
        import torch

        with parallel.one_thread(torch):
            self.rounds.append(self._round())

    def _round(self) -> Round:
        number, start, method = len(self.rounds) + 1, self.weights, self.method
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
        self.weights = merged
        if number % self.settings.every == 0 or number == self.settings.rounds:
            entry |= self._measure()
        return entry

    def participants(self, round: int) -> list[int]:
        """The clients of a round, ascending; at least one."""
        K, share = len(self.clients), self.settings.participation
        if share == 1:
            return list(range(K))
        words = stream(self.settings.seed, Purpose.PARTICIPANTS, round)
        drawn = permutation(words, K)[: max(1, int(share * K + 0.5))]
        return sorted(drawn.tolist())

    def _measure(self) -> Round:
        heads, facts = self.method.heads(self.weights), Round()
        if self.held_out is not None:
            value = float(self.accuracies(heads, self.held_out).mean())
            if all(value > one.get("held_out_top1", -1.0) for one in self.rounds):
                self.best = self.weights
            facts["held_out_top1"] = value
        each = self.accuracies(heads, self.test)
        facts["top1"] = float(each.mean())
        if len(heads) > 1:
            facts |= {"top1_max": float(each.max()), "top1_spread": float(each.std(ddof=1))}
        return facts

    def accuracies(self, heads: Tensor, rows: Measured) -> F64:
        """Share of rows that each of the heads (M, P) predicts, (M,)."""

        def hits(at: int) -> list[int]:
            X, y = rows.X[at : at + SCORED_AT_ONCE], rows.y[at : at + SCORED_AT_ONCE]
            scores = (self.network.forward(self.network.model(head), X)[1] for head in heads)
            return [(S.numpy().argmax(axis=1) == y).sum() for S in scores]

        found = map_on_threads(hits, range(0, len(rows.y), SCORED_AT_ONCE))
        return np.asarray(np.sum(found, axis=0) / len(rows.y))
