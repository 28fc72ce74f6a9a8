"""What is drawn of a partition: clients that take part, rows or groups that are for testing.

Rows are given in canonical order, so that a cut depends on ids, labels and the seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..options.shards import Numbers, Part
from ..values.arrays import I64
from ..values.names import places_of_numbers

Chosen = NDArray[np.bool_]
ROWS, GROUPS = 3, 4  # purposes: the second word of a seed, as in `schemes`


def draw_clients(
    held_out: NDArray[np.bool_], share: float, seed: int, draw: int, turn: int = 0
) -> list[int]:
    """The clients of a round: draw number ``draw`` of a seed, see `Options.draw_of`.

    Every held-out client stays; with a share of 1 nothing is drawn. With ``turn`` 1 the draw is
    repeated until it is not the one of turn 0, if there is another one.
    """
    if share == 1:
        return list(range(len(held_out)))
    training, kept = np.flatnonzero(~held_out), np.flatnonzero(held_out).tolist()
    count = max(1, round(share * len(training)))
    first = _drawn(training, count, [seed, draw])
    found, attempt = first, 0
    while turn and count < len(training) and found == first:
        attempt += 1
        found = _drawn(training, count, [seed, draw, attempt])
    return sorted([*found, *kept])


def _drawn(training: NDArray[np.intp], count: int, words: list[int]) -> list[int]:
    """So many of the clients, sorted, by the random numbers of these words."""
    drawn: list[int] = np.random.default_rng(words).permutation(training)[:count].tolist()
    return sorted(drawn)


def chosen_clients(
    drawn: Sequence[int], only: Part | Numbers | None, names: Sequence[str]
) -> list[int]:
    """Those of the drawn clients at the places that ``only`` has, or that part of them.

    `UsageError` for a place that is the name of another client.
    """
    if only is None:
        return list(drawn)
    if isinstance(only, Part):
        return list(drawn[only.of(len(drawn))])
    places, called = only.below(len(names)), places_of_numbers(names)
    for k in places if len(places) < len(names) else ():
        if called.get(k, k) != k:
            raise UsageError(
                f"--only {only}: {k} can be read in two ways: the client named "
                f"{names[called[k]]!r} is at place {called[k]} (from 0), and at place {k} is "
                f"{names[k]!r}; --only I/{len(names)} is the client at place I"
            )
    return [k for k in drawn if k in set(places)]


# ---------------------------------------------------------------- testing


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
