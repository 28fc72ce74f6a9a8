"""The rows of a simulated federation in memory, the client that owns each row, and random streams.

Every draw has a stream of its own, so that the order of the simulation cannot change it: Philox
(Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with key (seed, purpose) and
counter (·, round, client, epoch). A client is known by its name, not by its place, and the method
is no part of the key: FedProx with μ = 0 sees FedAvg's batches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np

from ...values.arrays import F64, I64, Array


class Purpose(IntEnum):
    """The purposes that numbers are drawn for."""

    BATCHES = 0
    PARTICIPANTS = 1
    GENERATED = 2  # labels and noise for FedGen's generator at a client
    GENERATOR = 3  # labels and noise for its training at the server


def client_key(name: str) -> int:
    """64 bits that stand for a client's name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def stream(
    seed: int, purpose: Purpose, round: int = 0, client: int = 0, epoch: int = 0
) -> np.random.Philox:
    """The words of one purpose in one epoch of one client's round."""
    key = np.array([seed, int(purpose)], dtype=np.uint64)
    counter = np.array([0, round, client, epoch], dtype=np.uint64)
    return np.random.Philox(key=key, counter=counter)


def permutation(words: np.random.Philox, n: int) -> I64:
    """0 … n−1 in random order, (n,): the order of n words."""
    return np.argsort(words.random_raw(n), kind="stable").astype(np.int64)


@dataclass(frozen=True)
class Clients:
    """Rows ``X`` (N, d), a tensor of float32 or float64, labels ``y`` (N,) int64 below ``classes``.

    ``rows``: for each client the indices of its rows in X, sorted by the bytes of their ids, so
    that the order of the file does not matter. Clients without rows have been left out.
    """

    X: Any
    y: Any
    rows: tuple[I64, ...]
    names: tuple[str, ...]
    classes: int

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def keys(self) -> tuple[int, ...]:
        """For each client the number that selects its random streams."""
        return tuple(map(client_key, self.names))

    @cached_property
    def sizes(self) -> I64:
        """Rows n_k of each client, (K,)."""
        return np.array([len(rows) for rows in self.rows], dtype=np.int64)

    @cached_property
    def shares(self) -> F64:
        """p_k = n_k / N, (K,)."""
        return np.asarray(self.sizes / self.sizes.sum())

    @cached_property
    def counts(self) -> I64:
        """Rows of each class at each client, (K, C)."""
        y = self.y.numpy()
        return np.stack([np.bincount(y[r], minlength=self.classes) for r in self.rows])

    def pooled(self) -> Clients:
        """All rows as one client."""
        return replace(self, rows=(np.concatenate(self.rows),), names=("all",))


def assigned_clients(
    X: Any, y: Any, order: Array, owner: Array, names: Sequence[str], classes: int, chosen: Array
) -> Clients:
    """The ``chosen`` clients that have rows.

    ``order`` (N,): the rows' places in X, in the byte order of their ids; ``owner`` (N,): the owner
    of each row in that order, as an index into ``names``.
    """
    places = np.asarray(order)[np.argsort(owner, kind="stable")].astype(np.int64)
    parts = np.split(places, np.bincount(owner, minlength=len(names)).cumsum()[:-1])
    kept = [k for k in chosen if len(parts[k])]
    return Clients(X, y, tuple(parts[k] for k in kept), tuple(names[k] for k in kept), classes)
