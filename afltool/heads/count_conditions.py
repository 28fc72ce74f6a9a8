"""Conditions on counts of rows and on gradients over rows; see `conditions`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..values.statistics import Statistics
from .array_names import CROSS
from .product_conditions import REACH, diagonal, fits, slack

PROBABILITY = 2.0**24  # units of one in a gradient of integers


def histogram(s: Statistics) -> Iterator[str]:
    """Every feature of every row is in one interval."""
    counts = s.arrays.get("histogram")
    if counts is None or counts.ndim != 2:
        return
    yield from _negative("histogram", counts)
    wrong = np.flatnonzero(np.einsum("jb->j", counts) != s.rows)
    if len(wrong):
        yield f"the counts of feature {wrong[0]} add up to {counts[wrong[0]].sum()}"


def codes(s: Statistics) -> Iterator[str]:
    """Every row has one code in each group; a pair of codes has no more rows than each code has."""
    labels, pairs = s.arrays.get("labels"), s.arrays.get("pairs")
    if labels is None or pairs is None or labels.ndim != 3 or pairs.ndim != 3:
        return
    _, size, classes = labels.shape
    if classes != len(s.class_counts) or pairs.shape[1:] != (size - 1, size - 1):
        return
    yield from _negative("labels", labels)
    yield from _negative("pairs", pairs)
    wrong = np.flatnonzero((np.einsum("jac->jc", labels) != s.class_counts).any(axis=1))
    if len(wrong):
        yield f"the codes of group {wrong[0]} do not add up to the rows of each class"
    rows = np.einsum("jac->ja", labels)
    yield from _pairs(pairs, rows[:, 1:], s.rows)
    yield from _sums(s, rows[:, 1:])


def _pairs(pairs: NDArray[np.int64], rows: NDArray[np.int64], everybody: int) -> Iterator[str]:
    """The pairs of one code add up to at most its rows; the other rows have code 0."""
    later, earlier = _pairs_of(len(rows))
    if len(pairs) != len(later) or not pairs.size:
        return
    # Five times as fast as `sum` along axes as short as these.
    of_later, of_earlier = np.einsum("pab->pa", pairs), np.einsum("pab->pb", pairs)
    beyond = ((of_later > rows[later]) | (of_earlier > rows[earlier])).any(axis=1)
    some = np.einsum("ja->j", rows)
    both = some[later] + some[earlier] - np.einsum("pa->p", of_later)
    wrong = beyond | (both > everybody)
    if wrong.any():
        p = int(wrong.argmax())
        yield f"groups {later[p]} and {earlier[p]} have more rows in pairs of codes than in codes"


@lru_cache(maxsize=1)
def _pairs_of(groups: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Groups j and l < j of each pair p = j(j−1)/2 + l."""
    return np.tril_indices(groups, -1)


def _sums(s: Statistics, rows: NDArray[np.int64]) -> Iterator[str]:
    """Sums of raw features over the rows of a code: as `cross_of_labels`."""
    sums = s.arrays.get("sums")
    if sums is None or not fits(s) or sums.shape != (*rows.shape, len(s.arrays[CROSS])):
        return
    factor, residue = slack(s)
    limit = factor * (diagonal(s) + residue)
    for group, of_group, counts in zip(range(len(sums)), sums, rows, strict=True):
        real = of_group.astype(np.float64)
        explained = np.einsum("vj,vj,v->j", real, real, 1.0 / np.maximum(counts, 1))
        if (explained > limit).any():
            yield f"sums over the codes of group {group} exceed what the sums of squares allow"
            return


def _negative(name: str, counts: NDArray[np.generic]) -> Iterator[str]:
    if counts.size and int(counts.min()) < 0:
        yield f"a count of {name!r} is {int(counts.min())}"


def gradient(s: Statistics) -> Iterator[str]:
    """Probabilities of a row add up to one, as its label does; a loss is not negative."""
    gradient, loss = s.arrays.get("gradient"), s.arrays.get("loss")
    if gradient is None or loss is None or gradient.ndim != 2:
        return
    unit = PROBABILITY if s.exact else 1.0
    least = float(loss.min(initial=0))
    if least < -s.rows * 1e-6 * unit:
        yield f"the loss is {least / unit:.6g}, below 0"
    if not s.exact:
        return
    # A probability is rounded to a unit: half a unit a class, for features of at most REACH.
    limit = s.rows * REACH * (0.5 * gradient.shape[1] + 1.0)
    over = np.abs(np.einsum("jc->j", gradient).astype(np.float64))
    if over.max(initial=0.0) > limit:
        j = int(over.argmax())
        yield f"the gradient of feature {j} adds up to {over[j]:.6g} over the classes, not about 0"
