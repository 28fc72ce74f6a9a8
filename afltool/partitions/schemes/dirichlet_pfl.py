"""The Dirichlet split of the published AFL and DeepAFL programs, row by row."""

from __future__ import annotations

import numpy as np

from ...values.arrays import I64
from ..common import Dealt, Owners, SchemeOptions, place, rows_per_class, until_min_size


def deal(labels: I64, options: SchemeOptions) -> Dealt:
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
