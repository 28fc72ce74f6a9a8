"""Sorts the rows by label, cuts them into shards and deals the shards."""

from __future__ import annotations

import numpy as np

from ...values.arrays import I64
from ..common import PARTITION, Dealt, SchemeOptions, by_label, place, stream


def deal(labels: I64, options: SchemeOptions) -> Dealt:
    """Rows by label (ties shuffled), cut into S = K·s shards, s to each client by a permutation.

    Row i of the sorted n lies in shard ⌊i·S/n⌋, so shards differ by at most one row. A client has
    at most s classes where every class is a whole number of shards. AFL section 4.1, NIID-2.
    """
    rng = stream(options.seed, PARTITION)
    rows = by_label(labels, rng)
    shards = options.clients * options.shards_per_client
    owner = rng.permutation(shards) // options.shards_per_client
    return place(rows, owner[np.arange(labels.size) * shards // labels.size]), options.numbers
