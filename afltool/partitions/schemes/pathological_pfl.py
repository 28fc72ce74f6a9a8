"""What the published AFL and DeepAFL programs call sharding, row by row."""

from __future__ import annotations

import math

import numpy as np

from ...errors import UsageError
from ...values.arrays import I64
from ..common import Dealt, SchemeOptions, rows_per_class


def deal(labels: I64, options: SchemeOptions) -> Dealt:
    """Random slices of each class for the clients whose turn it is.

    Each client may take s classes. Class after class, the first ⌈K/C·s⌉ clients with classes left
    get a slice of the class in canonical row order: random sizes from max(e/10, min_size/C) up to
    the even share e, the rest to the last of them. The programs always run it with s = 10; their
    "IID" is s = C, which gives the last client about half of all rows (He et al., CVPR 2025;
    Tang et al., ICLR 2026).
    """
    rng = np.random.RandomState(options.seed)
    client = np.full(labels.size, -1, np.int32)
    left = np.full(options.clients, options.shards_per_client)
    takers = math.ceil((options.clients / options.n_classes) * options.shards_per_client)
    for label, rows in enumerate(rows_per_class(labels, options.n_classes)):
        chosen = np.flatnonzero(left > 0)[:takers]
        client[rows] = np.repeat(chosen, _slices(rng, label, rows.size, chosen.size, options))
        left[chosen] -= 1
    return client, options.numbers


def _slices(
    rng: np.random.RandomState, label: int, n: int, takers: int, options: SchemeOptions
) -> list[int]:
    if not takers:
        raise UsageError(
            f"pathological-pfl: no client has classes left for class {label} of "
            f"{options.n_classes}; {options.clients} clients × {options.shards_per_client} classes "
            "are used up. Take more clients or more shards-per-client"
        )
    even = n / takers
    low, high = int(max(even / 10, options.min_size / options.n_classes)), int(even)
    if low >= high and takers > 1:
        raise UsageError(
            f"pathological-pfl: class {label} has {n} rows for {takers} clients, so a slice would "
            f"be drawn from the empty range [{low}, {high}). Take fewer clients or a smaller "
            "min-size"
        )
    sizes = rng.randint(low, high, takers - 1, dtype=np.int64).tolist() if takers > 1 else []
    return [*sizes, n - sum(sizes)]
