"""Deals the rows evenly at random."""

from __future__ import annotations

import numpy as np

from ...values.arrays import I64
from ..common import PARTITION, Dealt, SchemeOptions, place, stream


def deal(labels: I64, options: SchemeOptions) -> Dealt:
    """A seeded shuffle dealt in turn: sizes differ by at most one row (AFL, table 2)."""
    rows = stream(options.seed, PARTITION).permutation(labels.size)
    return place(rows, np.arange(labels.size) % options.clients), options.numbers
