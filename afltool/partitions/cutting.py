"""Which rows are for testing: drawn within each class, or whole groups with their classes balanced.

Rows are given in canonical order, so that a cut depends on ids, labels and the seed alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..values.arrays import I64

Chosen = NDArray[np.bool_]

ROWS, GROUPS = 3, 4  # purposes: the second word of a seed, as in `common`


def rows_for_testing(labels: I64, share: float, seed: int) -> Chosen:
    """Rows drawn at random within each class, bool (n,).

    In all round(share · n); of a class with m rows share · m, rounded down or up: those with the
    largest remainders are rounded up, the first class of equal ones.
    """
    rows = np.bincount(labels)
    wanted = share * rows
    taken = np.floor(wanted).astype(np.int64)
    rest = round(share * len(labels)) - int(taken.sum())
    taken[np.argsort(-(wanted - taken), kind="stable")[: max(rest, 0)]] += 1
    rng = np.random.default_rng([seed, ROWS])
    chosen = np.zeros(len(labels), bool)
    for k, count in enumerate(taken):
        chosen[rng.permutation(np.flatnonzero(labels == k))[:count]] = True
    return chosen


def groups_for_testing(labels: I64, groups: I64, share: float, seed: int) -> Chosen:
    """The rows of whole groups, bool (n,); ``groups`` (n,) number them from 0.

    Groups come in random order. Each goes where the shares of the classes that are for testing stay
    nearest to ``share``: with c rows of each class in the group, S in all groups so far (this one
    too) and T in those for testing, the side is chosen by Σ (T − share · S)² / rows of the class.
    So the number of rows differs from share · n by about half a group at the most.
    """
    counts = np.zeros((int(groups.max()) + 1, int(labels.max()) + 1))
    np.add.at(counts, (groups, labels), 1)
    weights = 1 / np.maximum(counts.sum(axis=0), 1)
    off, chosen = np.zeros(counts.shape[1]), np.zeros(len(counts), bool)  # off: T − share · S
    for group in np.random.default_rng([seed, GROUPS]).permutation(len(counts)):
        left = off - share * counts[group]
        taken = left + counts[group]
        chosen[group] = weights @ taken**2 < weights @ left**2
        off = taken if chosen[group] else left
    return chosen[groups]
