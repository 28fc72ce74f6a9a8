"""Which client owns which row: computed from labels, row ids and a seed alone, never from features.

    iid               rows shuffled and dealt evenly
    dirichlet         per class, shares of the clients drawn from Dirichlet(α)       (NIID-1, LDA)
    shards            rows sorted by label, cut into K·s shards, s dealt to a client (NIID-2)
    by-attribute      one client per value of a metadata column: hospital, user, camera
    file              the client of every row as somebody else decided it
    dirichlet-pfl     the split that the published AFL and DeepAFL programs make
    pathological-pfl  what those programs call sharding

Every partition is disjoint and complete: one client per row, and `assign` checks it. Rows are put
in canonical order (by row id) first, so the same ids in any order get the same clients. Partition,
held-out clients and label noise each have a random stream of their own: asking for noise or for
held-out clients leaves the rows where they are.

Sources: He et al., "AFL: A Single-Round Analytic Approach for Federated Learning with Pre-trained
Models", CVPR 2025 (section 4.1 and table 2: α, s, IID); Tang et al., "DeepAFL: Deep Analytic
Federated Learning", ICLR 2026 (appendix E.2); Bacellar et al., "SAFLe", CVPR 2026 (section 4).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .errors import InvalidDataError, NumericalError, UsageError

Ints = npt.NDArray[np.int64]
Clients = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
_Drawn = TypeVar("_Drawn")
_Scalar = TypeVar("_Scalar", bound=np.generic)

_PARTITION, _HELD_OUT, _LABEL_NOISE = 0, 1, 2  # purposes: the second word of every seed
_PFL_LEAST = 10  # what both published programs pass as the least rows of a client
_PFL_CLASSES = 10  # AFL's classes per client: its own option for them never reaches the split
_DRAWS, _DRAW_WORK = 1000, 80_000_000  # bounds of rejection: seconds, not forever


@dataclass(frozen=True, eq=False)
class Assignment:
    """A partition of n rows over K clients; rows stand in the caller's order.

    ``client`` (n,) int32: index into ``names``. ``names``: K names, "0" … "K-1" where clients are
    simulated. ``held_out`` (K,) bool: clients kept for validation. ``labels`` (n,) int64: the
    labels in force, after label noise.
    """

    client: Clients
    names: tuple[str, ...]
    held_out: npt.NDArray[np.bool_]
    labels: Ints


@dataclass(frozen=True, eq=False)
class Summary:
    """What a partition looks like; arrays are per client, ``counts`` is clients × classes, int64.

    ``mean_total_variation`` is `mean_total_variation` of ``counts``: 0 where every client looks
    like the pool, towards 1 where clients have nothing in common.
    """

    rows_per_client: Ints
    classes_per_client: Ints
    counts: Ints
    empty_clients: int
    min_rows: int
    median_rows: float
    max_rows: int
    mean_total_variation: float


@dataclass(frozen=True)
class _Options:
    """The validated options of one call; zeros stand where a scheme has no use for one."""

    n_classes: int
    seed: int
    clients: int = 0
    alpha: float = 0.0
    shards_per_client: int = 0
    min_size: int = 0
    max_draws: int = 0
    balance_cap: bool = False
    balance: bool = False
    top_up: bool = False


def canonical_order(row_ids: npt.NDArray[np.bytes_]) -> Ints:
    """Indices (n,) int64 that sort byte-string row ids; any permutation of the ids gives the same
    sorted rows.

    >>> canonical_order(np.array([b"b", b"c", b"a"])).tolist()
    [2, 0, 1]

    Raises `InvalidDataError` for ids that are not a non-empty 'S' vector, or not unique.
    """
    if row_ids.ndim != 1 or row_ids.dtype.kind != "S" or not row_ids.size:
        raise InvalidDataError(
            "row ids: expected a vector of at least one byte string, found shape "
            f"{row_ids.shape} of {row_ids.dtype}"
        )
    order = np.argsort(row_ids, kind="stable").astype(np.int64, copy=False)
    ranked = row_ids[order]
    twice = np.flatnonzero(ranked[1:] == ranked[:-1])
    if twice.size:
        raise InvalidDataError(
            f"row ids must be unique, but {bytes(ranked[twice[0]])!r} occurs more than once; "
            f"{twice.size} of {row_ids.size} ids repeat another. Give every row an id of its own"
        )
    return order


def assign(
    row_ids: npt.NDArray[np.bytes_],
    labels: npt.NDArray[np.integer[Any]],
    n_classes: int,
    *,
    scheme: str,
    clients: int | None = None,
    seed: int = 0,
    alpha: float | None = None,
    shards_per_client: int | None = None,
    min_size: int | None = None,
    held_out: float = 0.0,
    label_noise: float = 0.0,
    attribute: npt.NDArray[Any] | None = None,
    balance_cap: bool = False,
    balance: bool = False,
    top_up: bool = False,
    max_draws: int | None = None,
) -> Assignment:
    """Give each of n rows to one of K clients; the same ids, labels and options give the same.

    ``row_ids`` (n,) 'S', unique; ``labels`` (n,) integers in [0, ``n_classes``); both in the same
    order, which does not matter. ``scheme`` is one of `SCHEMES` and takes these options:

    ================  ==============================================================================
    iid               clients
    dirichlet         clients, alpha; min_size (0), balance_cap, max_draws
    shards            clients, shards_per_client
    by-attribute      attribute (n,): text or numbers, one value per row
    file              attribute (n,): client names; with clients = K they are the numbers 0 … K-1,
                      and a number that no row has is an empty client
    dirichlet-pfl     clients, alpha; min_size (10), top_up, max_draws
    pathological-pfl  clients; shards_per_client = classes per client (10), min_size (10), balance
    ================  ==============================================================================

    ``min_size``: draws are repeated until every client has that many rows, at most ``max_draws``
    times (by default 2 to 1,000 times, fewer the more there is to draw). ``held_out``: this share
    of the clients that have rows is marked, at least one, never all. ``label_noise`` τ: round(τ·n)
    rows get another class, uniformly over the C−1 others; the partition is made of the labels as
    they were. Both are rounded half up.

    Raises `UsageError` for unknown schemes and for options that are missing, out of range or not
    the scheme's; `InvalidDataError` for row ids, labels or attributes that cannot be used;
    `NumericalError` when no draw reached ``min_size``.
    """
    order = canonical_order(row_ids)
    true = _canonical_labels(labels, order, n_classes)
    values = {
        "clients": clients,
        "alpha": alpha,
        "shards_per_client": shards_per_client,
        "min_size": min_size,
        "max_draws": max_draws,
        "balance_cap": balance_cap,
        "balance": balance,
        "top_up": top_up,
    }
    options = _options(scheme, true.size, n_classes, seed, values, attribute is not None)
    _check_share("held-out", held_out, "clients")
    _check_share("label-noise", label_noise, "rows")
    if attribute is None:
        client, names = _SIMULATED[scheme](true, options), _numbers(options.clients)
    else:
        client, names = _named(attribute, order, options.clients)
    _check_complete(client, len(names))
    return Assignment(
        client=_callers_order(client, order),
        names=names,
        held_out=_held_out(client, len(names), held_out, seed),
        labels=_callers_order(_with_noise(true, n_classes, label_noise, seed), order),
    )


def summary(
    client: npt.NDArray[np.integer[Any]],
    labels: npt.NDArray[np.integer[Any]],
    n_clients: int,
    n_classes: int,
) -> Summary:
    """Count rows and classes per client; ``client`` and ``labels`` (n,) as in an `Assignment`."""
    cells = client.astype(np.int64) * n_classes + labels
    counts = np.bincount(cells, minlength=n_clients * n_classes).reshape(n_clients, n_classes)
    rows = counts.sum(axis=1)
    return Summary(
        rows_per_client=rows,
        classes_per_client=np.count_nonzero(counts, axis=1).astype(np.int64),
        counts=counts,
        empty_clients=int((rows == 0).sum()),
        min_rows=int(rows.min()),
        median_rows=float(np.median(rows)),
        max_rows=int(rows.max()),
        mean_total_variation=mean_total_variation(counts),
    )


def mean_total_variation(counts: npt.NDArray[np.integer[Any]]) -> float:
    """Mean over non-empty clients k of ½ Σ_c |counts_kc / n_k − counts_·c / n|, in [0, 1).

    ``counts`` is clients × classes; without any row the answer is 0.

    >>> mean_total_variation(np.array([[4, 0], [0, 4], [0, 0]]))
    0.5
    """
    rows = counts.sum(axis=1)
    full = rows > 0
    if not full.any():
        return 0.0
    distance = np.abs(counts[full] / rows[full, None] - counts.sum(axis=0) / rows.sum())
    return float(0.5 * distance.sum(axis=1).mean())


# -- schemes: labels in canonical order -> client per row ------------------------------------------


def _iid(labels: Ints, options: _Options) -> Clients:
    """A seeded shuffle dealt in turn: sizes differ by at most one row (AFL, table 2)."""
    rows = _stream(options.seed, _PARTITION).permutation(labels.size)
    return _place(rows, np.arange(labels.size) % options.clients)


def _shards(labels: Ints, options: _Options) -> Clients:
    """Rows by label (ties shuffled), cut into S = K·s shards, s to each client by a permutation.

    Row i of the sorted n lies in shard ⌊i·S/n⌋, so shards differ by at most one row. A client has
    at most s classes where every class is a whole number of shards. AFL section 4.1, NIID-2.
    """
    rng = _stream(options.seed, _PARTITION)
    rows = _by_label(labels, rng)
    shards = options.clients * options.shards_per_client
    owner = rng.permutation(shards) // options.shards_per_client
    return _place(rows, owner[np.arange(labels.size) * shards // labels.size])


def _dirichlet(labels: Ints, options: _Options) -> Clients:
    """For each class c a share p_c ~ Dirichlet(α, …, α) of its n_c rows to the K clients.

    The shuffled rows of c are cut at ⌊n_c Σ_{j≤k} p_cj + u_c⌋ with u_c uniform on [0, 1), so client
    k gets n_c·p_ck rows in the mean; without u_c the floors gather in the last client, half a row
    a class. With ``balance_cap`` classes go in turn and clients that hold at least n/K rows get
    none of the next class. Lin et al., "Ensemble Distillation for Robust Model Fusion in Federated
    Learning", NeurIPS 2020; AFL section 4.1.
    """
    sizes = np.bincount(labels, minlength=options.n_classes)
    sizes = sizes[sizes > 0]
    shuffle, *draws = _stream(options.seed, _PARTITION).spawn(4)

    def draw() -> tuple[Ints, Ints]:
        counts = _dirichlet_counts(sizes, options, *draws)
        return counts, counts.sum(axis=0)

    counts = _until_min_size(draw, options)
    cells = np.flatnonzero(counts)
    owners = np.repeat(cells % options.clients, counts.ravel()[cells])
    return _place(_by_label(labels, shuffle), owners)


def _dirichlet_counts(
    sizes: Ints,
    options: _Options,
    gammas: np.random.Generator,
    boosts: np.random.Generator,
    offsets: np.random.Generator,
) -> Ints:
    """Rows (classes, K) of one draw, every row of every class dealt out.

    Gamma variables of shape α underflow to zero for all clients at small α, and 0/0 follows; their
    logarithms do not: log G(α) = log G(α+1) − E/α with E ~ Exp(1) (Marsaglia & Tsang, "A simple
    method for generating gamma variables", ACM TOMS 2000, section 6).
    """
    counts = np.zeros((sizes.size, options.clients), np.int64)
    held = np.zeros(options.clients, np.int64)
    # A block stays in the processor's cache; under the cap a class must see the one before it.
    block = 1 if options.balance_cap else max(1, 2**17 // options.clients)
    for start in range(0, sizes.size, block):
        part = slice(start, start + block)
        shape = counts[part].shape
        logs = np.log(gammas.standard_gamma(options.alpha + 1, shape))
        logs -= boosts.standard_exponential(shape) / options.alpha
        if options.balance_cap:
            logs[:, held >= sizes.sum() / options.clients] = -np.inf
        counts[part] = _cut(logs, sizes[part], offsets.random((shape[0], 1)))
        held += counts[part].sum(axis=0)
    return counts


def _cut(logs: Floats, sizes: Ints, offsets: Floats) -> Ints:
    """Split sizes (c,) in proportions softmax(logs) (c, K), rounded by offsets (c, 1) in [0, 1)."""
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    total = np.cumsum(weights, axis=1)
    cuts = np.floor(total / total[:, -1:] * sizes[:, None] + offsets).astype(np.int64)
    # x/x · n is n exactly, so only n + u rounded up to n + 1 has to be taken back.
    counts: Ints = np.diff(np.minimum(cuts, sizes[:, None]), axis=1, prepend=0)
    return counts


def _dirichlet_pfl(labels: Ints, options: _Options) -> Clients:
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
    classes = _rows_per_class(labels, options.n_classes)

    def draw() -> tuple[Clients, Ints]:
        hand_out = _hand_out_topped_up if options.top_up else _hand_out
        client = hand_out(rng, classes, options, labels.size)
        return client, np.bincount(client, minlength=options.clients)

    return _until_min_size(draw, options)


def _hand_out(
    rng: np.random.RandomState, classes: list[Ints], options: _Options, n: int
) -> Clients:
    client = np.full(n, -1, np.int32)
    held = np.zeros(options.clients, np.int64)
    for rows in classes:
        shuffled, sizes = _legacy_class(rng, rows, held, options, n)
        client[shuffled] = np.repeat(np.arange(options.clients), sizes)
        held += sizes
    return client


def _hand_out_topped_up(
    rng: np.random.RandomState, classes: list[Ints], options: _Options, n: int
) -> Clients:
    lists: list[list[int]] = [[] for _ in range(options.clients)]
    held = np.zeros(options.clients, np.int64)
    for rows in classes:
        shuffled, sizes = _legacy_class(rng, rows, held, options, n)
        ends = np.cumsum(sizes)
        for k in np.flatnonzero(sizes):
            lists[k] += shuffled[ends[k] - sizes[k] : ends[k]].tolist()
        held += sizes
        _top_up(lists, held, options.min_size)
    return _place(
        np.concatenate([np.array(rows, np.int64) for rows in lists]),
        np.repeat(np.arange(held.size), held),
    )


def _legacy_class(
    rng: np.random.RandomState, rows: Ints, held: Ints, options: _Options, n: int
) -> tuple[Ints, Ints]:
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


def _top_up(lists: list[list[int]], held: Ints, least: int) -> None:
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


def _pathological_pfl(labels: Ints, options: _Options) -> Clients:
    """What the published AFL and DeepAFL programs call sharding, draw by draw.

    Each client may take s classes. Class after class, the first ⌈K/C·s⌉ clients with classes left
    get a slice of the class in canonical row order: random sizes from max(e/10, min_size/C) up to
    the even share e, the rest to the last of them; even sizes with ``balance``. The programs always
    run it with s = 10; their "IID" is s = C, which without ``balance`` gives the last client about
    half of all rows (He et al., CVPR 2025; Tang et al., ICLR 2026).
    """
    rng = np.random.RandomState(options.seed)
    client = np.full(labels.size, -1, np.int32)
    left = np.full(options.clients, options.shards_per_client)
    takers = math.ceil((options.clients / options.n_classes) * options.shards_per_client)
    for label, rows in enumerate(_rows_per_class(labels, options.n_classes)):
        chosen = np.flatnonzero(left > 0)[:takers]
        client[rows] = np.repeat(chosen, _slices(rng, label, rows.size, chosen.size, options))
        left[chosen] -= 1
    return client


def _slices(
    rng: np.random.RandomState, label: int, n: int, takers: int, options: _Options
) -> list[int]:
    if not takers:
        raise UsageError(
            f"pathological-pfl: no client has classes left for class {label} of "
            f"{options.n_classes}; {options.clients} clients × {options.shards_per_client} classes "
            "are used up. Take more clients or more shards-per-client"
        )
    even = n / takers
    low, high = int(max(even / 10, options.min_size / options.n_classes)), int(even)
    if options.balance or takers == 1:
        sizes = [high] * (takers - 1)
    elif low < high:
        sizes = rng.randint(low, high, takers - 1, dtype=np.int64).tolist()
    else:
        raise UsageError(
            f"pathological-pfl: class {label} has {n} rows for {takers} clients, so a slice would "
            f"be drawn from the empty range [{low}, {high}). Take fewer clients, a smaller "
            "min-size, or balance"
        )
    return [*sizes, n - sum(sizes)]


_SIMULATED: dict[str, Callable[[Ints, _Options], Clients]] = {
    "iid": _iid,
    "dirichlet": _dirichlet,
    "shards": _shards,
    "dirichlet-pfl": _dirichlet_pfl,
    "pathological-pfl": _pathological_pfl,
}
# Scheme -> what it needs, what it may have.
_TAKES: dict[str, tuple[set[str], set[str]]] = {
    "iid": ({"clients"}, set()),
    "dirichlet": ({"clients", "alpha"}, {"min_size", "balance_cap", "max_draws"}),
    "shards": ({"clients", "shards_per_client"}, set()),
    "by-attribute": ({"attribute"}, set()),
    "file": ({"attribute"}, {"clients"}),
    "dirichlet-pfl": ({"clients", "alpha"}, {"min_size", "top_up", "max_draws"}),
    "pathological-pfl": ({"clients"}, {"shards_per_client", "min_size", "balance"}),
}
_RANGES: dict[str, tuple[float, float]] = {
    "clients": (1, 2**31 - 1),
    "alpha": (1e-100, 1e100),
    "shards_per_client": (1, 2**31 - 1),
    "min_size": (0, 2**63 - 1),
    "max_draws": (1, 2**63 - 1),
}
SCHEMES: tuple[str, ...] = tuple(_TAKES)


# -- options and inputs ----------------------------------------------------------------------------


def _options(
    scheme: str, n: int, n_classes: int, seed: int, values: dict[str, Any], has_attribute: bool
) -> _Options:
    given = {name: value for name, value in values.items() if value is not None}
    _check_takes(scheme, given | ({"attribute": True} if has_attribute else {}))
    published = scheme.endswith("-pfl")
    # The legacy generator takes 32 bits of seed.
    _check_range("seed", seed, 0, 2**32 - 1 if published else 2**63 - 1)
    for name, (low, high) in _RANGES.items():
        _check_range(name, given.get(name, low), low, high)
    defaults = {"min_size": _PFL_LEAST, "shards_per_client": _PFL_CLASSES} if published else {}
    options = _Options(n_classes, seed, **(defaults | given))
    if "max_draws" in _TAKES[scheme][1] and options.clients * options.min_size > n:
        raise UsageError(
            f"{scheme}: {options.clients} clients of at least min-size = {options.min_size} rows "
            f"need {options.clients * options.min_size} rows, found {n}. Take fewer clients or a "
            "smaller min-size; an empty client is harmless, its statistics are zero"
        )
    # Measured: a topped-up draw moves rows through Python lists and costs six times a plain one.
    work = (6 if options.top_up else 1) * (n + 4 * options.clients * n_classes)
    return replace(options, max_draws=options.max_draws or min(max(_DRAW_WORK // work, 2), _DRAWS))


def _check_takes(scheme: str, given: dict[str, Any]) -> None:
    if scheme not in _TAKES:
        raise UsageError(f"scheme: expected one of {', '.join(SCHEMES)}, found {scheme!r}")
    needs, may = _TAKES[scheme]
    missing = sorted(needs - given.keys())
    foreign = sorted(name for name in given.keys() - needs - may if given[name])
    if missing or foreign:
        raise UsageError(
            f"scheme {scheme} "
            + (f"needs {_spoken(missing)}" if missing else f"does not take {_spoken(foreign)}")
            + f". It needs {_spoken(sorted(needs))}"
            + (f" and may have {_spoken(sorted(may))}" if may else "")
        )


def _spoken(names: list[str]) -> str:
    return ", ".join(name.replace("_", "-") for name in names)


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # NaN fails as well
        raise UsageError(
            f"{_spoken([name])}: expected a number from {low:g} to {high:g}, found {value!r}"
        )


def _check_share(name: str, value: float, of: str) -> None:
    if not 0 <= value < 1:
        raise UsageError(f"{name}: expected a share of the {of} in [0, 1), found {value!r}")


def _canonical_labels(labels: npt.NDArray[np.integer[Any]], order: Ints, n_classes: int) -> Ints:
    if labels.shape != order.shape or labels.dtype.kind not in "iu":
        raise InvalidDataError(
            f"labels: expected {order.size} integers, one per row id, found shape {labels.shape} "
            f"of {labels.dtype}"
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= n_classes:
        raise InvalidDataError(
            f"labels: expected 0 to {n_classes - 1} for {n_classes} classes, found {low} to {high}."
            " Check that the class list belongs to these labels"
        )
    return labels[order].astype(np.int64)


def _named(
    attribute: npt.NDArray[Any], order: Ints, clients: int
) -> tuple[Clients, tuple[str, ...]]:
    """Client per row, and the names: numerals in numeric order, other text by code point."""
    if attribute.shape != order.shape:
        raise InvalidDataError(
            f"attribute: expected {order.size} values, one per row id, found shape "
            f"{attribute.shape}"
        )
    values = attribute[order]
    if values.dtype.kind not in "SUbiuf":  # objects of several kinds have no order
        values = np.array([_text(value) for value in values.tolist()])
    kinds, codes = np.unique(values, return_inverse=True)
    found = [_text(value) for value in kinds.tolist()]
    if "" in found:
        raise InvalidDataError(
            f"attribute: expected a value in each of {order.size} rows, found "
            f"{int((codes == found.index('')).sum())} without one. Name a client for them"
        )
    names = _numbers(clients) if clients else _sorted_names(found)
    index = {name: k for k, name in enumerate(names)}
    strangers = [name for name in found if name not in index]
    if strangers:
        raise InvalidDataError(
            f"file: expected client names 0 to {clients - 1}, found {len(strangers)} others, such "
            f"as {strangers[0]!r}. Without a number of clients names are used as they are"
        )
    return np.array([index[name] for name in found], np.int32)[codes], names


def _text(value: object) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise InvalidDataError(f"attribute: expected UTF-8 text, found {value!r}") from error
    text = str(value)
    missing = not isinstance(value, str) and text in {"None", "nan", "<NA>", "NaT"}
    return "" if missing else text


def _sorted_names(names: list[str]) -> tuple[str, ...]:
    numerals = all(
        name.isascii() and name.isdigit() and (name == "0" or name[0] != "0") for name in names
    )
    return tuple(sorted(names, key=int) if numerals else sorted(names))


def _numbers(clients: int) -> tuple[str, ...]:
    return tuple(map(str, range(clients)))


# -- shared pieces ---------------------------------------------------------------------------------


def _stream(seed: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence([seed, purpose]))


def _place(rows: Ints, owners: npt.NDArray[np.integer[Any]]) -> Clients:
    """Client per row, where ``owners[i]`` owns row ``rows[i]``; a row left out stays at −1."""
    client = np.full(rows.size, -1, np.int32)
    client[rows] = owners
    return client


def _by_label(labels: Ints, rng: np.random.Generator) -> Ints:
    shuffled = rng.permutation(labels.size)
    return shuffled[np.argsort(labels[shuffled], kind="stable")]


def _rows_per_class(labels: Ints, n_classes: int) -> list[Ints]:
    ends = np.cumsum(np.bincount(labels, minlength=n_classes))
    return np.split(np.argsort(labels, kind="stable"), ends[:-1])


def _until_min_size(draw: Callable[[], tuple[_Drawn, Ints]], options: _Options) -> _Drawn:
    """The first draw whose smallest client has ``min_size`` rows; ``draw`` gives (it, sizes)."""
    best = 0
    for _ in range(options.max_draws):
        drawn, sizes = draw()
        smallest = int(sizes.min())
        if smallest >= options.min_size:
            return drawn
        best = max(best, smallest)
    raise NumericalError(
        f"expected every client to get at least min-size = {options.min_size} rows, found that in "
        f"0 of {options.max_draws} draws at α = {options.alpha:g} and K = {options.clients} "
        f"clients; the best draw gave its smallest client {best}. Take a larger alpha, fewer "
        "clients or a smaller min-size (an empty client is harmless, its statistics are zero), or "
        "allow more draws"
    )


def _check_complete(client: Clients, clients: int) -> None:
    lost = int(((client < 0) | (client >= clients)).sum())
    if lost:
        raise NumericalError(
            f"expected a client for each of {client.size} rows, found {lost} rows without one. "
            "This is a defect of afltool: please report the options that led here"
        )


def _held_out(client: Clients, clients: int, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Mark round(share · F) of the F clients with rows: an empty client would validate nothing."""
    marked = np.zeros(clients, np.bool_)
    if share:
        full = np.unique(client)
        if full.size < 2:
            raise UsageError(
                f"held-out: expected at least 2 clients with rows, found {full.size}; one has to "
                "stay for training. Take more clients or no held-out share"
            )
        wanted = min(max(int(share * full.size + 0.5), 1), full.size - 1)
        marked[_stream(seed, _HELD_OUT).permutation(full)[:wanted]] = True
    return marked


def _with_noise(labels: Ints, n_classes: int, share: float, seed: int) -> Ints:
    """Flip round(τ·n) labels: y ← (y + u) mod C with u uniform on 1 … C−1, so never to itself."""
    noisy = labels.copy()
    if share:
        if n_classes < 2:
            raise UsageError(
                f"label-noise: expected at least 2 classes, found {n_classes}; there is no other "
                "class to flip a label to"
            )
        rng = _stream(seed, _LABEL_NOISE)
        rows = rng.permutation(labels.size)[: int(share * labels.size + 0.5)]
        noisy[rows] = (labels[rows] + rng.integers(1, n_classes, rows.size)) % n_classes
    return noisy


def _callers_order(values: npt.NDArray[_Scalar], order: Ints) -> npt.NDArray[_Scalar]:
    result = np.empty_like(values)
    result[order] = values
    return result
