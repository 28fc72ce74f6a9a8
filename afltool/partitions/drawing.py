"""Which clients take part: a draw of a seed, and those of it that are asked for by number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..options.shards import parse_shard
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


def chosen_clients(drawn: Sequence[int], only: str | None, names: Sequence[str]) -> list[int]:
    """Those of the drawn clients at the places that ``only`` has, or part I of N of them.

    `UsageError` for a place that is the name of another client.
    """
    if only is None:
        return list(drawn)
    if "/" in only:
        part, parts = parse_shard(only, "--only")
        n = len(drawn)
        return list(drawn[n * part // parts : n * (part + 1) // parts])
    places, called = parse_ranges(only, len(names)), places_of_numbers(names)
    for k in places if len(places) < len(names) else ():
        if called.get(k, k) != k:
            raise UsageError(
                f"--only {only}: {k} can be read in two ways: the client named "
                f"{names[called[k]]!r} is at place {called[k]} (from 0), and at place {k} is "
                f"{names[k]!r}; --only I/{len(names)} is the client at place I"
            )
    return [k for k in drawn if k in set(places)]


def parse_ranges(text: str, clients: int) -> list[int]:
    """Indices named by '0-9,12': ascending, each once.

    >>> parse_ranges("0-2,5", 10)
    [0, 1, 2, 5]
    """
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        try:
            first, last = int(low), int(high if dash else low)
        except ValueError:
            raise UsageError(
                f"--only takes clients such as 0-9 or 3,7-8, or a part I/N; found {text!r}"
            ) from None
        if not 0 <= first <= last < clients:
            raise UsageError(
                f"--only {text}: the {clients} clients are numbered 0 to {clients - 1}"
            )
        found.update(range(first, last + 1))
    return sorted(found)
