"""Which clients take part: a draw of a seed, and those of it that are asked for by number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..options.shards import Numbers, Part
from ..values.names import places_of_numbers


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
