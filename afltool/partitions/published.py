"""What the published AFL and DeepAFL programs do, row by row."""

from __future__ import annotations

import math

import numpy as np

from ..errors import UsageError
from ..values.arrays import I64
from .schemes import Dealt, Owners, SchemeOptions, place, rows_per_class, until_min_size


def dirichlet_pfl(labels: I64, options: SchemeOptions) -> Dealt:
    """The Dirichlet split of AFL's published program, draw by draw (He et al., CVPR 2025).

    From NumPy's legacy generator, for each class in turn: shuffle its rows, draw one Dirichlet(α),
    set the share of clients that hold at least n/K rows to zero, renormalise, cut at the floor of
    n_c times the cumulative sum; everything again until the smallest client has ``min_size`` rows
    (there the option --shred, 10). The rows of a class start in canonical order, which is the
    order of the published program where row ids sort like the data set. Shares that are all
    zero or not a number (tiny α) give the class to the last client, as 0/0 does there.

    ``top_up`` is DeepAFL's program (Tang et al., ICLR 2026): after each class the clients that
    share the smallest size are filled to ``min_size`` from the front of the largest one's rows.
    """
    rng = np.random.RandomState(options.seed)
    classes = rows_per_class(labels, options.n_classes)

    def draw() -> tuple[Owners, I64]:
        hand_out = _hand_out_topped_up if options.top_up else _hand_out
        client = hand_out(rng, classes, options, labels.size)
        return client, np.bincount(client, minlength=options.clients)

    return until_min_size(draw, options), options.numbers


def _hand_out(
    rng: np.random.RandomState, classes: list[I64], options: SchemeOptions, n: int
) -> Owners:
    client = np.full(n, -1, np.int32)
    held = np.zeros(options.clients, np.int64)
    for rows in classes:
        shuffled, sizes = _legacy_class(rng, rows, held, options, n)
        client[shuffled] = np.repeat(np.arange(options.clients), sizes)
        held += sizes
    return client


def _hand_out_topped_up(
    rng: np.random.RandomState, classes: list[I64], options: SchemeOptions, n: int
) -> Owners:
    lists: list[list[int]] = [[] for _ in range(options.clients)]
    held = np.zeros(options.clients, np.int64)
    for rows in classes:
        shuffled, sizes = _legacy_class(rng, rows, held, options, n)
        ends = np.cumsum(sizes)
        for k in np.flatnonzero(sizes):
            lists[k] += shuffled[ends[k] - sizes[k] : ends[k]].tolist()
        held += sizes
        _top_up(lists, held, options.min_size)
    return place(
        np.concatenate([np.array(rows, np.int64) for rows in lists]),
        np.repeat(np.arange(held.size), held),
    )


def _legacy_class(
    rng: np.random.RandomState, rows: I64, held: I64, options: SchemeOptions, n: int
) -> tuple[I64, I64]:
    """The shuffled rows of one class and how many of them each client gets: (n_c,) and (K,)."""
    shuffled = rows.copy()
    rng.shuffle(shuffled)
    shares = rng.dirichlet(np.repeat(options.alpha, options.clients))
    shares = shares * (held < n / options.clients)
    total = shares.sum()
    cuts = np.zeros(options.clients, np.int64)
    if total > 0:  # false for NaN too
        cuts = (np.cumsum(shares / total) * rows.size).astype(np.int64)
    cuts[-1] = rows.size
    return shuffled, np.diff(cuts, prepend=0)


def _top_up(lists: list[list[int]], held: I64, least: int) -> None:
    """Fill the clients of the smallest size to ``least`` from the largest, while it has rows."""
    missing = least - int(held.min())
    donor = int(held.argmax())
    for k in np.flatnonzero(held == held.min()) if missing > 0 else ():
        given, lists[donor] = lists[donor][:missing], lists[donor][missing:]
        lists[k] += given
        held[donor] -= len(given)
        held[k] += len(given)
        if not held[donor]:
            break


def pathological_pfl(labels: I64, options: SchemeOptions) -> Dealt:
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
