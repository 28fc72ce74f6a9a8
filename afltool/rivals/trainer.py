"""Local training, shared by every method: mini-batch gradient descent of a stack of clients.

    rows of the client in the byte order of their ids, permuted by its stream of the epoch
    for each batch B:   θ ← θ − η (∇ mean_B cross-entropy + what the method adds)

A client's batches are blocks of a width that depends on the client alone; a short batch is filled
up with rows of weight zero. Clients of one width are stacked, by their sizes and not by the number
of threads, and `torch.func` takes the gradients of a stack at once, by batched products. MKL's
kernels depend on where a matrix begins in memory, so every client's matrices begin at a multiple of
64 bytes: `aligned` weights, and a multiple of 16 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Method, Rows
from .clients import Clients
from .network import LINE, DenseLayers, Model, Tensor, aligned
from .settings import Settings
from .streams import Purpose, permutation, stream

LANE = 64  # rows that narrow batches are filled up to a multiple of
CACHE, MOST = 1 << 20, 16  # most bytes, and most classifiers, of a stack


class Trainer:
    """Trains clients of a federation in threads; each thread takes a stack of clients at a time."""

    def __init__(
        self, clients: Clients, network: DenseLayers, settings: Settings, threads: int
    ) -> None:
        self.clients, self.network, self.settings = clients, network, settings
        self.threads = threads
        self.stack = max(1, min(MOST, CACHE // (4 * network.size)))

    def __call__(self, round: int, who: Sequence[int], start: Tensor, method: Method) -> Tensor:
        """θ (S, P) of the clients ``who``, trained from ``start`` (P,) or (S, P)."""
        starts = start.expand(len(who), -1)
        out = starts.new_empty(len(who), self.network.size)
        at = {k: i for i, k in enumerate(who)}

        def work(stacked: Sequence[int]) -> None:
            places = [at[k] for k in stacked]
            out[places] = self._train(round, tuple(stacked), starts[places], method)

        on_threads(self.threads, work, self._stacks(who))
        return out

    def _width(self, k: int) -> int:
        """Rows of client k's batches, including the filling rows."""
        n = -(-int(self.clients.sizes[k]) // LANE) * LANE
        return -(-min(self.settings.batch_size or n, n) // LINE) * LINE

    def _stacks(self, who: Sequence[int]) -> list[list[int]]:
        """Stacks of clients with one width and similar sizes, the largest first."""
        ordered = sorted(who, key=lambda k: (-self._width(k), -self.clients.sizes[k], k))
        stacks: list[list[int]] = []
        for k in ordered:
            width = self._width(k)
            most = 1 if width > 4 * LANE else self.stack
            if not stacks or len(stacks[-1]) >= most or self._width(stacks[-1][0]) != width:
                stacks.append([])
            stacks[-1].append(k)
        return stacks

    def _train(
        self, round: int, stacked: tuple[int, ...], starts: Tensor, method: Method
    ) -> Tensor:
        """θ (A, P) after the round.

        θ ← θ − η v with v ← m v + ∇ + λ θ, as PyTorch's SGD; v starts at 0 in every round.
        """
        from torch.func import grad, vmap

        s, rate, kept = self.settings, self.settings.rate(round), method.local(stacked, starts)
        slopes = vmap(grad(partial(self._loss, method)))
        theta, velocity = aligned(starts), aligned(starts.new_zeros(starts.shape))
        for epoch in range(s.epochs):
            for number, (active, at, share) in enumerate(self._batches(round, stacked, epoch)):
                X = self.clients.X.index_select(0, at.view(-1)).view(*at.shape, -1)
                y = self.clients.y.index_select(0, at.view(-1)).view(at.shape)
                given = {name: a[:active] for name, a in kept.items()}
                given |= method.drawn(round, stacked[:active], epoch, number)
                model = self.network.model(theta[:active])
                moving = self.network.model(velocity[:active])
                found = slopes(model, X, y, share, given)
                for p, g, v in zip(model, found, moving, strict=True):
                    g = g.add(p, alpha=s.weight_decay) if s.weight_decay else g
                    p.sub_(v.mul_(s.momentum).add_(g) if s.momentum else g, alpha=rate)
        return theta

    def _loss(
        self, method: Method, model: Model, X: Tensor, y: Tensor, share: Tensor, given: Any
    ) -> Tensor:
        """Σ share · cross-entropy of one client, and what its method adds."""
        from torch.nn.functional import cross_entropy

        z, scores = self.network.forward(model, X)
        entropy = (share * cross_entropy(scores, y, reduction="none")).sum()
        return entropy + method.term(model, Rows(X, y, share, z, scores), given)

    def _batches(self, round: int, stacked: tuple[int, ...], epoch: int) -> list[Any]:
        """(clients with a batch, rows (A, B), share (A, B)) of each step; stacked by size."""
        import torch

        width = self._width(stacked[0])
        plans = [self._plan(round, k, epoch, width) for k in stacked]
        batches = []
        for number in range(max(len(plan[0]) for plan in plans)):
            here = [plan for plan in plans if number < len(plan[0])]
            at = torch.from_numpy(np.stack([plan[0][number] for plan in here]))
            share = torch.from_numpy(np.stack([plan[1][number] for plan in here]))
            batches.append((len(here), at, share.to(self.clients.X.dtype)))
        return batches

    def _plan(
        self, round: int, k: int, epoch: int, width: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Client k's batches of an epoch: rows (steps, B) and the share of each."""
        rows, seed = self.clients.rows[k], self.settings.seed
        words = stream(seed, Purpose.BATCHES, round, self.clients.keys[k], epoch)
        size = min(self.settings.batch_size or len(rows), len(rows))
        drop = self.settings.drop_last and self.settings.batch_size
        steps = len(rows) // self.settings.batch_size if drop else -(-len(rows) // size)
        at = np.zeros((steps, width), dtype=np.int64)
        share = np.zeros((steps, width))
        dealt = rows[permutation(words, len(rows))]
        for number in range(steps):
            part = dealt[number * size : (number + 1) * size]
            at[number, : len(part)], share[number, : len(part)] = part, 1.0 / len(part)
        return at, share


def on_threads(threads: int, work: Any, parts: Sequence[Any]) -> list[Any]:
    """``work`` of each part, in order; each thread computes with one core."""
    import torch

    def alone() -> None:
        torch.set_num_threads(1)

    before = torch.get_num_threads()
    try:
        if threads == 1 or len(parts) < 2:
            alone()
            return [work(part) for part in parts]
        with ThreadPoolExecutor(threads, initializer=alone) as pool:
            return list(pool.map(work, parts))
    finally:
        torch.set_num_threads(before)
