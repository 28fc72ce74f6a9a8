"""The rows of a simulated federation in memory, and the client that owns each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .streams import client_key


@dataclass(frozen=True)
class Clients:
    """Rows ``X`` (N, d), a tensor of float32 or float64, labels ``y`` (N,) int64 below ``classes``.

    ``rows``: for each client the indices of its rows in X, sorted by the bytes of their ids, so
    that the order of the file does not matter. Clients without rows have been left out.
    """

    X: Any
    y: Any
    rows: tuple[NDArray[np.int64], ...]
    names: tuple[str, ...]
    classes: int

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def dim(self) -> int:
        return int(self.X.shape[1])

    @cached_property
    def keys(self) -> tuple[int, ...]:
        """For each client the number that selects its random streams."""
        return tuple(map(client_key, self.names))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Rows n_k of each client, (K,)."""
        return np.array([len(rows) for rows in self.rows], dtype=np.int64)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """p_k = n_k / N, (K,)."""
        return np.asarray(self.sizes / self.sizes.sum())

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Rows of each class at each client, (K, C)."""
        y = self.y.numpy()
        return np.stack([np.bincount(y[r], minlength=self.classes) for r in self.rows])

    def of(self, k: int) -> tuple[Any, Any]:
        """Client k's rows (n_k, d) and labels (n_k,), copied."""
        at = tensor(self.rows[k])
        return self.X.index_select(0, at), self.y.index_select(0, at)

    def pooled(self) -> Clients:
        """All rows as one client."""
        return replace(self, rows=(np.concatenate(self.rows),), names=("all",))


def tensor(a: NDArray[Any]) -> Any:
    """An array as a tensor, which shares its memory."""
    import torch

    return torch.from_numpy(a)


def dealt(
    X: Any,
    y: Any,
    order: NDArray[Any],
    owner: NDArray[Any],
    names: Sequence[str],
    classes: int,
    chosen: Sequence[int],
) -> Clients:
    """The ``chosen`` clients that have rows.

    ``order`` (N,): the rows' places in X, in the byte order of their ids; ``owner`` (N,): the owner
    of each row in that order, as an index into ``names``.
    """
    sorted_by_owner = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[sorted_by_owner], np.arange(len(names) + 1))
    places = np.asarray(order)[sorted_by_owner].astype(np.int64)
    parts = {k: places[ends[k] : ends[k + 1]] for k in chosen}
    kept = [k for k in chosen if len(parts[k])]
    return Clients(X, y, tuple(parts[k] for k in kept), tuple(names[k] for k in kept), classes)
