"""Local training, shared by every method: mini-batch gradient descent of a stack of clients.

    rows of the client in the byte order of their ids, permuted by its stream of the epoch
    for each batch B:   θ ← θ − η (∇ mean_B cross-entropy + what the method adds)

A client's batches are blocks of a width that depends on the client alone; a short batch is filled
up with rows of weight zero. Clients of one width are stacked, by their sizes and not by the number
of threads, and `torch.func` takes the gradients of a stack at once, by batched products. MKL's
kernels depend on where a matrix begins in memory, so every client's matrices begin at a multiple of
64 bytes: `align_rows` weights, and a multiple of 16 rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from ... import parallel
from ...values.arrays import I64
from .base import Method, Rows
from .clients import Clients, Purpose, permutation, stream
from .network import DenseLayers, Model, Tensor
from .settings import Settings

LINE = 16  # float32 numbers in 64 bytes, at whose multiples matrices begin
LANE = 64  # rows that narrow batches are filled up to a multiple of
CACHE, MOST = 1 << 20, 16  # most bytes, and most classifiers, of a stack


class Trainer:
    """Trains clients of a federation; each thread takes a stack of clients at a time."""

    def __init__(self, clients: Clients, network: DenseLayers, settings: Settings) -> None:
        self.clients, self.network, self.settings = clients, network, settings
        self.stack = max(1, min(MOST, CACHE // (4 * network.size)))

    def __call__(self, round: int, who: Sequence[int], start: Tensor, method: Method) -> Tensor:
        """θ (S, P) of the clients ``who``, trained from ``start`` (P,) or (S, P)."""
        starts = start.expand(len(who), -1)
        out = starts.new_empty(len(who), self.network.size)

        def work(places: Sequence[int]) -> None:
            stacked = [who[place] for place in places]
            out[places] = self._train(round, stacked, starts[places], method)

        map_on_threads(work, self._stacks(who))
        return out

    def _width(self, k: int) -> int:
        """Rows of client k's batches, including the filling rows."""
        n = -(-int(self.clients.sizes[k]) // LANE) * LANE
        return -(-min(self.settings.batch_size or n, n) // LINE) * LINE

    def _stacks(self, who: Sequence[int]) -> Iterator[list[int]]:
        """Places in ``who``: stacks of clients with one width and similar sizes, largest first."""
        keys = [(-self._width(k), -int(self.clients.sizes[k]), k) for k in who]
        order = sorted(range(len(who)), key=keys.__getitem__)
        for width, alike in groupby(order, lambda i: -keys[i][0]):
            places, most = list(alike), 1 if width > 4 * LANE else self.stack
            yield from (places[at : at + most] for at in range(0, len(places), most))

    def _train(self, round: int, stacked: Sequence[int], starts: Tensor, method: Method) -> Tensor:
        """θ (A, P) after the round.

        θ ← θ − η v with v ← m v + ∇ + λ θ, as PyTorch's SGD; v starts at 0 in every round.
        """
        from torch.func import grad, vmap

        s, rate = self.settings, self.settings.rate(round)
        kept = {"start": starts, **method.local(stacked)}
        slopes = vmap(grad(partial(self._loss, method)))
        theta, velocity = align_rows(starts), align_rows(starts.new_zeros(starts.shape))
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

    def _batches(
        self, round: int, stacked: Sequence[int], epoch: int
    ) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Clients with a batch, which come first, rows (A, B) and share (A, B) of each step."""
        import torch

        width = self._width(stacked[0])
        plans = [self._plan(round, k, epoch) for k in stacked]
        for number in range(max(map(len, plans))):
            here = [plan[number] for plan in plans if number < len(plan)]
            at, share = np.zeros((len(here), width), np.int64), np.zeros((len(here), width))
            for i, rows in enumerate(here):
                at[i, : len(rows)], share[i, : len(rows)] = rows, 1.0 / len(rows)
            shares = torch.from_numpy(share).to(self.clients.X.dtype)
            yield len(here), torch.from_numpy(at), shares

    def _plan(self, round: int, k: int, epoch: int) -> list[I64]:
        """The rows of each of client k's batches of an epoch."""
        s, rows = self.settings, self.clients.rows[k]
        words = stream(s.seed, Purpose.BATCHES, round, self.clients.keys[k], epoch)
        mixed, size = rows[permutation(words, len(rows))], s.batch_size or len(rows)
        parts = [mixed[at : at + size] for at in range(0, len(rows), size)]
        return parts[:-1] if s.drop_last and len(parts[-1]) < size else parts


def align_rows(theta: Tensor) -> Tensor:
    """A copy of θ (A, P) whose every row begins at a multiple of 64 bytes."""
    count, size = theta.shape
    return theta.new_empty(count, -(-size // LINE) * LINE)[:, :size].copy_(theta)


def map_on_threads(work: Callable[[Any], Any], parts: Iterable[Any]) -> list[Any]:
    """``work`` of each part, in order; each of the threads in use computes with one core."""
    import torch

    def alone(part: Any) -> Any:
        torch.set_num_threads(1)  # not back: the number of MKL's is that of all threads
        return work(part)

    with parallel.one_thread(torch):
        return list(parallel.map_threads(alone, parts))
