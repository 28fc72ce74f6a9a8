"""`assign`, the one entry point: canonical order, a scheme, held-out clients, label noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidDataError, NumericalError, UsageError
from ..options.partition import SCHEMES, PartitionOptions
from ..plugins import opened
from ..values.arrays import I64
from . import Assignment, schemes
from .schemes import Dealt, Owners, SchemeOptions, dirichlet_pfl, pathological_pfl, stream

_Deal = Callable[[I64, SchemeOptions], Dealt]
SCHEME: dict[str, _Deal] = {
    "iid": schemes.iid,
    "dirichlet": schemes.dirichlet,
    "shards": schemes.shards,
    "by-attribute": schemes.by_text,
    "file": schemes.by_text,
    "dirichlet-pfl": dirichlet_pfl,
    "pathological-pfl": pathological_pfl,
}


def scheme(name: str) -> _Deal:
    """``deal`` of a scheme, which may be a plug-in's; see `schemes`."""
    added: _Deal | None = opened(SCHEMES.group)[name].deal if name in SCHEMES.added else None
    return added or SCHEME[name]


def canonical_order(row_ids: npt.NDArray[np.bytes_]) -> I64:
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
    options: PartitionOptions,
    *,
    attribute: Sequence[str | None] | None = None,
) -> Assignment:
    """Give each of n rows to one of K clients; the same ids, labels and options give the same.

    ``row_ids`` (n,) 'S', unique; ``labels`` (n,) integers in [0, ``n_classes``); both in the same
    order, which does not matter. ``scheme`` is one of `SCHEMES` and takes these options:

    ================  ==============================================================================
    iid               clients
    dirichlet         clients, alpha; min_size (0)
    shards            clients, shards_per_client
    by-attribute      table, column; attribute (n,): its texts, one per row; each is a client
    file              table; column, clients; attribute (n,): its texts, the client names; with
                      clients = K they are the numbers 0 … K-1, and a number that no row has is an
                      empty client
    dirichlet-pfl     clients, alpha; min_size (10), top_up
    pathological-pfl  clients; shards_per_client = classes per client (10), min_size (10)
    ================  ==============================================================================

    ``min_size``: draws are repeated until every client has this many rows, up to 2 to 1,000 times
    (fewer for large problems). ``held_out``: this share of the clients that have rows is marked, at
    least one and never all. ``label_noise`` τ: round(τ·n) rows get another class, uniformly over
    the C−1 others; the partition itself uses the original labels. Both are rounded half up.

    Raises `UsageError` for unknown schemes and for options that are missing, out of range or not
    the scheme's; `InvalidDataError` for row ids, labels or attributes that cannot be used;
    `NumericalError` when no draw reached ``min_size``.
    """
    order = canonical_order(row_ids)
    true = _canonical_labels(labels, order, n_classes)
    texts = () if attribute is None else _in_order(attribute, order)
    o = options
    given = SchemeOptions.of(o, true.size, n_classes, texts)
    client, names = scheme(o.scheme)(true, given)
    client, names = np.asarray(client, np.int32), tuple(names)  # a plug-in may have others
    _check_complete(client, len(names))
    sorted_rows = Assignment(
        client=client,
        names=names,
        held_out=_held_out(client, len(names), o.held_out, o.seed),
        effective_labels=_with_noise(true, n_classes, o),
    )
    return sorted_rows.moved(order)


def _canonical_labels(labels: npt.NDArray[np.integer[Any]], order: I64, n_classes: int) -> I64:
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


def _in_order(attribute: Sequence[str | None], order: I64) -> tuple[str | None, ...]:
    if len(attribute) != order.size:
        raise InvalidDataError(
            f"attribute: expected {order.size} values, one per row id, found {len(attribute)}"
        )
    return tuple(attribute[i] for i in order.tolist())


def _check_complete(client: Owners, clients: int) -> None:
    lost = int(((client < 0) | (client >= clients)).sum())
    if lost:
        raise NumericalError(
            f"expected a client for each of {client.size} rows, found {lost} rows without one. "
            "This is a defect of afltool: please report the options that led here"
        )


def _held_out(client: Owners, clients: int, share: float, seed: int) -> npt.NDArray[np.bool_]:
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
        marked[stream(seed, schemes.HELD_OUT).permutation(full)[:wanted]] = True
    return marked


def _with_noise(labels: I64, n_classes: int, o: PartitionOptions) -> I64:
    """Flip round(τ·n) labels: y ← (y + u) mod C with u uniform on 1 … C−1, so never to itself."""
    noisy = labels.copy()
    if o.label_noise:
        if n_classes < 2:
            raise UsageError(
                f"label-noise: expected at least 2 classes, found {n_classes}; there is no other "
                "class to flip a label to"
            )
        rng = stream(o.seed, schemes.LABEL_NOISE)
        rows = rng.permutation(labels.size)[: int(o.label_noise * labels.size + 0.5)]
        noisy[rows] = (labels[rows] + rng.integers(1, n_classes, rows.size)) % n_classes
    return noisy
