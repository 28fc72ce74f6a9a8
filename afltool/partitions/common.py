"""What the schemes share: types, random streams, placing rows, repeated draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..arrays import I64
from ..errors import NumericalError

Owners = npt.NDArray[np.int32]  # the client of each row, as an index
Dealt = tuple[Owners, tuple[str, ...]]  # client of each row; names of the clients
_Drawn = TypeVar("_Drawn")

PARTITION, HELD_OUT, LABEL_NOISE = 0, 1, 2  # purposes: the second word of every seed


@dataclass(frozen=True)
class SchemeOptions:
    """The validated options of one call; zeros stand where a scheme has no use for one."""

    n_classes: int
    seed: int
    clients: int = 0
    alpha: float = 0.0
    shards_per_client: int = 0
    min_size: int = 0
    max_draws: int = 0  # of rejection, from the size of the problem
    balance_cap: bool = False
    top_up: bool = False
    attribute: tuple[str | None, ...] = ()  # a text for each row, in canonical order

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of simulated clients."""
        return tuple(map(str, range(self.clients)))


def stream(seed: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence([seed, purpose]))


def place(rows: I64, owners: npt.NDArray[np.integer[Any]]) -> Owners:
    """Client per row, where ``owners[i]`` owns row ``rows[i]``; a row left out stays at −1."""
    client = np.full(rows.size, -1, np.int32)
    client[rows] = owners
    return client


def by_label(labels: I64, rng: np.random.Generator) -> I64:
    shuffled = rng.permutation(labels.size)
    return shuffled[np.argsort(labels[shuffled], kind="stable")]


def rows_per_class(labels: I64, n_classes: int) -> list[I64]:
    ends = np.cumsum(np.bincount(labels, minlength=n_classes))
    return np.split(np.argsort(labels, kind="stable"), ends[:-1])


def until_min_size(draw: Callable[[], tuple[_Drawn, I64]], options: SchemeOptions) -> _Drawn:
    """The first draw whose smallest client has ``min_size`` rows.

    ``draw`` returns a draw and the rows of each client.
    """
    best = 0
    for _ in range(options.max_draws):
        drawn, sizes = draw()
        smallest = int(sizes.min())
        if smallest >= options.min_size:
            return drawn
        best = max(best, smallest)
    raise NumericalError(
        f"expected every client to get at least min-size = {options.min_size} rows, found that in "
        f"0 of {options.max_draws} draws at α = {options.alpha:g} and K = {options.clients} "
        f"clients; the best draw gave its smallest client {best}. Take a larger alpha, fewer "
        "clients or a smaller min-size (an empty client is harmless, its statistics are zero)"
    )
