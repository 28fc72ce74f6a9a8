"""The rounds of a baseline: draw participants, train, merge, measure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from ..errors import NumericalError
from ..values.names import Phase
from . import method_class
from .base import FLOAT32, Method, first_weights
from .clients import Clients
from .network import DenseLayers, Tensor
from .settings import Settings
from .streams import Purpose, permutation, stream
from .trainer import Trainer, on_threads

SCORED_AT_ONCE = 2048  # rows whose scores are made at a time
Round = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """Rows to measure on: X (n, d), a tensor, and labels y (n,)."""

    X: Any
    y: NDArray[np.int64]


@dataclass
class State:
    """All that is kept between rounds. ``best``: the weights of the round with the best accuracy
    on held-out clients so far; ``rounds``: cost and accuracies of every round."""

    weights: Tensor
    memory: dict[str, Tensor]
    best: Tensor | None = None
    rounds: list[Round] = field(default_factory=list)

    def arrays(self) -> dict[str, Tensor]:
        """Every tensor by name, for a checkpoint."""
        best = {} if self.best is None else {"best": self.best}
        return {"weights": self.weights, **best, **{f"of-{k}": v for k, v in self.memory.items()}}

    @classmethod
    def of(cls, arrays: Mapping[str, Tensor], rounds: list[Round]) -> State:
        """The inverse of `arrays`."""
        memory = {k.removeprefix("of-"): v for k, v in arrays.items() if k.startswith("of-")}
        return cls(arrays["weights"], memory, arrays.get("best"), rounds)


class Run:
    """One method on one federation; `advance` makes a round, `state` is what a checkpoint keeps."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        clients: Clients,
        test: Measured | None = None,
        held_out: Measured | None = None,
        *,
        threads: int = 1,
    ) -> None:
        """``threads`` do not change the result."""
        cls = method_class(name)
        self.clients = clients.pooled() if cls.pools else clients
        self.settings, self.test, self.held_out = settings, test, held_out
        self.threads = threads
        self.network = DenseLayers(
            settings.widths(clients.dim, clients.classes), not settings.no_bias
        )
        self.method: Method = cls(settings, self.clients, self.network, threads)
        self.trainer = Trainer(self.clients, self.network, settings, threads)
        weights = first_weights(self.network, settings.seed, clients.X.dtype)
        self.method.begin(weights)
        self.state = State(weights, self.method.memory)

    @property
    def round(self) -> int:
        """Number of finished rounds."""
        return len(self.state.rounds)

    def resume(self, state: State) -> None:
        """Continue from the state that an earlier run kept."""
        self.state, self.method.memory = state, state.memory

    def advance(self) -> Round:
        """One round; returns its cost and, in rounds that are measured, the accuracies.

        Raises `NumericalError` when weights are no longer finite, before they are kept.
        """
        facts: Round = on_threads(1, lambda _: self._advance(), [None])[0]
        return facts

    def _advance(self) -> Round:
        number, start = self.round + 1, self.state.weights
        who = self.participants(number)
        begun = time.process_time()
        trained = self.trainer(number, who, self.method.starts(who, start), self.method)
        clients_done = time.process_time()
        merged = self.method.merge(number, who, start, trained)
        server = time.process_time() - clients_done
        self._check_finite(number, merged)
        self.state.weights = merged
        entry = {
            "phase": Phase.of("round", number),
            "clients": len(who),
            "rows": int(self.clients.sizes[who].sum()),
            "gather_seconds": round(clients_done - begun, 6),
            "solve_seconds": round(server, 6),
            "upload_bytes": FLOAT32 * self.method.upload(number),
            "download_bytes": FLOAT32 * self.method.download(number),
        }
        if number % self.settings.every == 0 or number == self.settings.rounds:
            entry |= self._measured(number)
        self.state.rounds.append(entry)
        return entry

    def participants(self, round: int) -> list[int]:
        """The clients of a round, ascending; at least one."""
        K, share = len(self.clients), self.settings.participation
        if share == 1:
            return list(range(K))
        words = stream(self.settings.seed, Purpose.PARTICIPANTS, round)
        drawn = permutation(words, K)[: max(1, int(share * K + 0.5))]
        return sorted(drawn.tolist())

    def _check_finite(self, number: int, weights: Tensor) -> None:
        bad = int((~weights.isfinite()).sum())
        if bad:
            rate = self.settings.rate(number)
            raise NumericalError(
                f"round {number}: {bad} of {len(weights)} weights are not finite: the descent "
                f"diverges at the learning rate {rate:g}; try --lr {rate / 10:g}"
            )

    def _measured(self, number: int) -> Round:
        heads = self.method.heads(self.state.weights)
        facts: Round = {}
        if self.held_out is not None:
            value = float(self.accuracies(heads, self.held_out).mean())
            before = [one.get("held_out_top1", -1.0) for one in self.state.rounds]
            if value > max(before, default=-1.0):
                self.state.best = self.state.weights.clone()
            facts["held_out_top1"] = value
        if self.test is not None:
            each = self.accuracies(heads, self.test)
            facts["top1"] = float(each.mean())
            if len(heads) > 1:
                facts |= {"top1_max": float(each.max()), "top1_spread": float(each.std(ddof=1))}
        return facts

    def by_client(self) -> dict[str, float]:
        """After the last round: the accuracy on the test rows of every client that has its own
        head; none for a method with one head."""
        heads = self.method.heads(self.state.weights)
        if self.test is None or len(heads) != len(self.clients) or len(heads) == 1:
            return {}
        each = self.accuracies(heads, self.test)
        return dict(zip(self.clients.names, each.tolist(), strict=True))

    def accuracies(self, heads: Tensor, rows: Measured) -> NDArray[np.float64]:
        """Share of rows that each of the heads (M, P) predicts, (M,)."""

        def hits(at: int) -> list[int]:
            X, y = rows.X[at : at + SCORED_AT_ONCE], rows.y[at : at + SCORED_AT_ONCE]
            scores = (self.network.forward(self.network.model(head), X)[1] for head in heads)
            return [(S.numpy().argmax(axis=1) == y).sum() for S in scores]

        found = on_threads(self.threads, hits, range(0, len(rows.y), SCORED_AT_ONCE))
        return np.asarray(np.sum(found, axis=0) / len(rows.y))


ADDED_AT_ONCE = 8192  # rows whose products are added to the gram together


def curvature(clients: Clients, bias: bool) -> float:
    """λ_max of X̃ᵀX̃/N, X̃ = (X, 1) where there is a bias, over all training rows.

    Raises `NumericalError` for rows that no gradient can learn from: all 0, or with squares that
    float32 does not hold.
    """
    at = np.concatenate(clients.rows)
    d = clients.dim + bias
    G = np.zeros((d, d))
    for start in range(0, len(at), ADDED_AT_ONCE):
        X = clients.X[at[start : start + ADDED_AT_ONCE]].numpy()
        rows = np.hstack([X, np.ones((len(X), 1), X.dtype)]) if bias else X
        with np.errstate(over="ignore", invalid="ignore"):  # looked at below
            G += rows.T @ rows
    if not np.isfinite(G).all() or not G.any():
        what = "are all 0" if not G.any() else "have squares beyond the range of float32"
        raise NumericalError(f"the training features {what}: look at them, or scale them")
    top = linalg.eigvalsh(G, subset_by_index=[d - 1, d - 1])
    return float(top[0]) / len(at)


def stability(rate: float, top: float, classes: int) -> float:
    """η λ_max / C: gradient descent on a linear head oscillates at W = 0 where it exceeds 2."""
    return rate * top / classes
