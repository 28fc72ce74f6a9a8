"""What the schemes share: types, random streams, placing rows, repeated draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import NumericalError, UsageError
from ..options.partition import PartitionOptions
from ..values.arrays import I64

Owners = npt.NDArray[np.int32]  # the client of each row, as an index
Dealt = tuple[Owners, tuple[str, ...]]  # client of each row; names of the clients
_Drawn = TypeVar("_Drawn")

PARTITION, HELD_OUT, LABEL_NOISE = 0, 1, 2  # purposes: the second word of every seed
_PFL_LEAST = 10  # the least rows of a client in both published programs
_PFL_CLASSES = 10  # classes a client in AFL's program, which ignores its own option for them
_DRAWS, _DRAW_WORK = 1000, 80_000_000  # limits of repeated draws, so that they end in seconds


@dataclass(frozen=True)
class SchemeOptions:
    """What a scheme is told; zeros stand where it has no use for a number."""

    n_classes: int
    seed: int
    clients: int
    alpha: float
    shards_per_client: int
    min_size: int
    max_draws: int  # of rejection, from the size of the problem
    balance_cap: bool
    top_up: bool
    attribute: tuple[str | None, ...]  # a text for each row, in canonical order

    @classmethod
    def of(
        cls, o: PartitionOptions, n: int, n_classes: int, attribute: tuple[str | None, ...]
    ) -> SchemeOptions:
        """The options of a partition of n rows; the published programs have defaults of their own.

        Raises `UsageError` for more rows in the smallest clients than there are.
        """
        published, clients = o.scheme.endswith("-pfl"), o.clients or 0
        least = o.min_size if o.min_size is not None else _PFL_LEAST if published else 0
        if o.alpha is not None and clients * least > n:
            raise UsageError(
                f"{o.scheme}: {clients} clients of at least min-size = {least} rows "
                f"need {clients * least} rows, found {n}. Take fewer clients or a smaller min-size;"
                " an empty client is harmless, its statistics are zero"
            )
        # Measured: a topped-up draw moves rows through lists and costs six times a plain one.
        work = (6 if o.top_up else 1) * (n + 4 * clients * n_classes)
        draws = min(max(_DRAW_WORK // max(work, 1), 2), _DRAWS)
        shards = o.shards_per_client or (_PFL_CLASSES if published else 0)
        return cls(
            n_classes, o.seed, clients, o.alpha or 0.0, shards, least, draws, o.balance_cap,
            o.top_up, attribute,
        )  # fmt: skip

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
