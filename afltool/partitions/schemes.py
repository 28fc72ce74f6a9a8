"""The schemes that deal rows to clients, and what they share: draws, places, options.

A scheme is ``deal(labels, options)``: labels in canonical order → the client of each row, and the
names of the clients. To add one: a function, called as the scheme with underscores, and its line in
`afltool.options.partition.SCHEMES`. Last come those of the published AFL and DeepAFL programs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .. import memory
from ..errors import InvalidDataError, NumericalError, UsageError
from ..options.partition import PartitionOptions
from ..values.arrays import F64, I64
from ..values.names import check_name

Owners = npt.NDArray[np.int32]  # the client of each row, as an index
Dealt = tuple[Owners, tuple[str, ...]]  # client of each row; names of the clients
_Drawn = TypeVar("_Drawn")

PARTITION, HELD_OUT, LABEL_NOISE = 0, 1, 2  # purposes: the second word of every seed
_PFL_LEAST = 10  # the least rows of a client in both published programs
_PFL_CLASSES = 10  # classes a client in AFL's program, which ignores its own option for them
_DRAWS, _DRAW_WORK = 1000, 80_000_000  # limits of repeated draws, so that they end in seconds


@dataclass(frozen=True)
class SchemeOptions:
    """What a scheme is told; zeros stand where it has no use for a number."""

    n_classes: int
    seed: int
    clients: int
    alpha: float
    shards_per_client: int
    min_size: int
    max_draws: int  # of rejection, from the size of the problem
    top_up: bool
    attribute: tuple[str | None, ...]  # a text for each row, in canonical order

    @classmethod
    def of(
        cls, o: PartitionOptions, n: int, n_classes: int, attribute: tuple[str | None, ...]
    ) -> SchemeOptions:
        """The options for n rows; the published programs have defaults of their own."""
        published, clients = o.scheme.endswith("-pfl"), o.clients or 0
        least = o.min_size if o.min_size is not None else _PFL_LEAST if published else 0
        if o.alpha is not None and clients * least > n:
            raise UsageError(
                f"{o.scheme}: {clients} clients of at least min-size = {least} rows "
                f"need {clients * least} rows, found {n}. Take fewer clients or a smaller min-size"
            )
        memory.require_memory(
            (200 + 8 * n_classes) * clients + 24 * clients * (o.shards_per_client or 0),
            f"{o.scheme}: a partition among {clients} clients",
            "take fewer clients or a smaller shards-per-client",
        )
        draws = min(max(_DRAW_WORK // (n + 4 * clients * n_classes), 2), _DRAWS)
        shards = o.shards_per_client or (_PFL_CLASSES if published else 0)
        return cls(
            n_classes, o.seed, clients, o.alpha or 0.0, shards, least, draws, o.top_up,
            attribute,
        )  # fmt: skip

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of simulated clients."""
        return tuple(map(str, range(self.clients)))


def stream(seed: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence([seed, purpose]))


def place(rows: I64, owners: npt.NDArray[np.integer[Any]]) -> Owners:
    """Client per row, where ``owners[i]`` owns row ``rows[i]``; a row left out stays at −1."""
    client = np.full(rows.size, -1, np.int32)
    client[rows] = owners
    return client


def by_label(labels: I64, rng: np.random.Generator) -> I64:
    shuffled = rng.permutation(labels.size)
    return shuffled[np.argsort(labels[shuffled], kind="stable")]


def rows_per_class(labels: I64, n_classes: int) -> list[I64]:
    ends = np.cumsum(np.bincount(labels, minlength=n_classes))
    return np.split(np.argsort(labels, kind="stable"), ends[:-1])


def until_min_size(draw: Callable[[], tuple[_Drawn, I64]], options: SchemeOptions) -> _Drawn:
    """The first draw, of those and the rows of each client, whose smallest client is enough."""
    best = 0
    for _ in range(options.max_draws):
        drawn, sizes = draw()
        smallest = int(sizes.min())
        if smallest >= options.min_size:
            return drawn
        best = max(best, smallest)
    raise NumericalError(
        f"0 of {options.max_draws} draws at α = {options.alpha:g} and K = {options.clients} "
        f"clients gave each at least min-size = {options.min_size} rows; the best one gave its "
        f"smallest client {best}. Take a larger alpha, fewer clients or a smaller min-size"
    )


def iid(labels: I64, options: SchemeOptions) -> Dealt:
    """A seeded shuffle dealt in turn: sizes differ by at most one row (AFL, table 2)."""
    rows = stream(options.seed, PARTITION).permutation(labels.size)
    return place(rows, np.arange(labels.size) % options.clients), options.numbers


def dirichlet(labels: I64, options: SchemeOptions) -> Dealt:
    """For each class c a share p_c ~ Dirichlet(α, …, α) of its n_c rows to the K clients.

    The shuffled rows of c are cut at ⌊n_c Σ_{j≤k} p_cj + u_c⌋ with u_c uniform on [0, 1), so client
    k gets n_c·p_ck rows in the mean; without u_c the floors gather in the last client, half a row
    a class. Lin et al., "Ensemble Distillation for Robust Model Fusion in Federated Learning",
    NeurIPS 2020; AFL section 4.1.
    """
    sizes = np.bincount(labels, minlength=options.n_classes)
    sizes = sizes[sizes > 0]
    shuffle, *draws = stream(options.seed, PARTITION).spawn(4)

    def draw() -> tuple[I64, I64]:
        counts = _dirichlet_counts(sizes, options, draws)
        return counts, counts.sum(axis=0)

    counts = until_min_size(draw, options)
    cells = np.flatnonzero(counts)
    owners = np.repeat(cells % options.clients, counts.ravel()[cells])
    return place(by_label(labels, shuffle), owners), options.numbers


def _dirichlet_counts(
    sizes: I64, options: SchemeOptions, draws: Sequence[np.random.Generator]
) -> I64:
    """Rows (classes, K) of one draw, every row of every class dealt out.

    At small α gamma variables underflow to zero for all clients, their logarithms do not:
    log G(α) = log G(α+1) − E/α with E ~ Exp(1) (Marsaglia & Tsang, ACM TOMS 2000, section 6).
    """
    gammas, boosts, offsets = draws
    counts = np.zeros((sizes.size, options.clients), np.int64)
    block = max(1, 2**17 // options.clients)  # stays in the processor's cache
    for start in range(0, sizes.size, block):
        part = slice(start, start + block)
        shape = counts[part].shape
        logs = np.log(gammas.standard_gamma(options.alpha + 1, shape))
        logs -= boosts.standard_exponential(shape) / options.alpha
        counts[part] = _split_sizes(logs, sizes[part], offsets.random((shape[0], 1)))
    return counts


def _split_sizes(logs: F64, sizes: I64, offsets: F64) -> I64:
    """Split sizes (c,) in proportions softmax(logs) (c, K), rounded by offsets (c, 1) in [0, 1)."""
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    total = np.cumsum(weights, axis=1)
    cuts = np.floor(total / total[:, -1:] * sizes[:, None] + offsets).astype(np.int64)
    # x/x · n is n exactly, so only n + u rounded up to n + 1 has to be taken back.
    counts: I64 = np.diff(np.minimum(cuts, sizes[:, None]), axis=1, prepend=0)
    return counts


def shards(labels: I64, options: SchemeOptions) -> Dealt:
    """Rows by label (ties shuffled), cut into S = K·s shards, s to each client by a permutation.

    Row i of the sorted n lies in shard ⌊i·S/n⌋, so shards differ by at most one row. A client has
    at most s classes where every class is a whole number of shards. AFL section 4.1, NIID-2.
    """
    rng = stream(options.seed, PARTITION)
    rows = by_label(labels, rng)
    count = options.clients * options.shards_per_client
    owner = rng.permutation(count) // options.shards_per_client
    return place(rows, owner[np.arange(labels.size) * count // labels.size]), options.numbers


def file(labels: I64, options: SchemeOptions) -> Dealt:
    """Clients by name; with a number of clients K they are 0 … K−1, some of them without rows."""
    values = [name for name in options.attribute if name]
    if missing := labels.size - len(values):
        raise InvalidDataError(
            f"attribute: expected a value in each of {labels.size} rows, found {missing} "
            "without one. Name a client for them"
        )
    for name in set(values):
        check_name(name)
    names = options.numbers if options.clients else sort_names(values)
    index = {name: k for k, name in enumerate(names)}
    strangers = sorted(set(values) - index.keys())
    if strangers:
        raise InvalidDataError(
            f"file: expected client names 0 to {len(names) - 1}, found {len(strangers)} others, "
            f"such as {strangers[0]!r}. Without a number of clients names are used as they are"
        )
    return np.array([index[name] for name in values], np.int32), names


by_attribute = file


def sort_names(values: Sequence[str]) -> tuple[str, ...]:
    """The names: numerals without leading zeros by their numbers, if all are; else as texts.

    >>> sort_names(["10", "9", "9"]), sort_names(["10", "09"])
    (('9', '10'), ('09', '10'))
    """
    names = set(values)
    if all(re.fullmatch("0|[1-9][0-9]*", name) for name in names):
        return tuple(sorted(names, key=lambda name: (len(name), name)))
    return tuple(sorted(names))


def dirichlet_pfl(labels: I64, options: SchemeOptions) -> Dealt:
    """The Dirichlet split of AFL's published program, draw by draw (He et al., CVPR 2025).

    From NumPy's legacy generator, for each class in turn: shuffle its rows (from canonical order),
    draw one Dirichlet(α), set the share of clients that hold at least n/K rows to zero,
    renormalize, cut at the floor of n_c times the cumulative sum; everything again until the
    smallest client has ``min_size`` rows (there --shred, 10). Shares that are all zero (tiny α)
    give the class to the last client, as 0/0 does there; those whose sum is below 2^-1022, which
    end the published program, are divided by that sum.

    ``top_up`` is DeepAFL's program (Tang et al., ICLR 2026): after each class the clients that
    share the smallest size are filled to ``min_size`` from the front of the largest one's rows.
    """
    rng = np.random.RandomState(options.seed)
    classes = rows_per_class(labels, options.n_classes)

    def draw() -> tuple[Owners, I64]:
        client = _hand_out(rng, classes, options, labels.size)
        return client, np.bincount(client, minlength=options.clients)

    return until_min_size(draw, options), options.numbers


def _hand_out(
    rng: np.random.RandomState, classes: list[I64], options: SchemeOptions, n: int
) -> Owners:
    client, held = np.full(n, -1, np.int32), np.zeros(options.clients, np.int64)
    lists: list[list[int]] = [[] for _ in range(options.clients)]  # of the rows, to top up from
    for rows in classes:
        shuffled, sizes = _legacy_class(rng, rows, held, options, n)
        client[shuffled] = np.repeat(np.arange(options.clients), sizes)
        held += sizes
        if options.top_up:
            ends = np.cumsum(sizes)
            for k in np.flatnonzero(sizes):
                lists[k] += shuffled[ends[k] - sizes[k] : ends[k]].tolist()
            _top_up(client, lists, held, options.min_size)
    return client


def _legacy_class(
    rng: np.random.RandomState, rows: I64, held: I64, options: SchemeOptions, n: int
) -> tuple[I64, I64]:
    """The shuffled rows of one class and how many of them each client gets: (n_c,) and (K,)."""
    shuffled = rows.copy()
    rng.shuffle(shuffled)
    gammas = rng.standard_gamma(options.alpha, options.clients)
    total = np.cumsum(gammas)[-1]  # one after the other, as `rng.dirichlet` adds them up
    # It multiplies with the inverse, which is infinite below 2^-1022.
    shares = gammas * (1 / total) if total >= np.finfo(np.float64).tiny else gammas
    shares = shares * (held < n / options.clients)
    total = shares.sum()
    cuts = np.zeros(options.clients, np.int64)
    if total > 0:
        cuts = (np.cumsum(shares / total) * rows.size).astype(np.int64)
    cuts[-1] = rows.size
    return shuffled, np.diff(cuts, prepend=0)


def _top_up(client: Owners, lists: list[list[int]], held: I64, least: int) -> None:
    """Fill the clients of the smallest size to ``least`` from the largest, while it has rows."""
    missing = least - int(held.min())
    donor = int(held.argmax())
    for k in np.flatnonzero(held == held.min()) if missing > 0 else ():
        given, lists[donor] = lists[donor][:missing], lists[donor][missing:]
        lists[k] += given
        client[given] = k
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
            f"{options.n_classes}: take more clients or more shards-per-client"
        )
    even = n / takers
    low, high = int(max(even / 10, options.min_size / options.n_classes)), int(even)
    if low >= high and takers > 1:
        raise UsageError(
            f"pathological-pfl: class {label} has {n} rows for {takers} clients, so slices are of "
            f"the empty range [{low}, {high}). Take fewer clients or a smaller min-size"
        )
    sizes = rng.randint(low, high, takers - 1, dtype=np.int64).tolist() if takers > 1 else []
    return [*sizes, n - sum(sizes)]
