"""`assign`, the one entry point: canonical order, a scheme, held-out clients, label noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidDataError, NumericalError, UsageError
from ..options.partition import SCHEMES, PartitionOptions
from ..plugins import entry_points
from ..values.arrays import I64
from . import Assignment, schemes
from .schemes import Owners, SchemeOptions, stream


def canonical_order(row_ids: npt.NDArray[np.bytes_]) -> I64:
    """Indices (n,) int64 that sort byte-string row ids, which are unique.

    >>> canonical_order(np.array([b"b", b"c", b"a"])).tolist()
    [2, 0, 1]
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

    ``row_ids`` (n,) 'S', unique; ``labels`` (n,) integers in [0, ``n_classes``); ``attribute`` (n,)
    for by-attribute and file: the name of each row's client; with clients = K these are 0 … K-1,
    and a number that no row has is an empty client.

    ``held_out``: this share of the clients that have rows is marked, at least one and never all.
    ``label_noise`` τ: round(τ·n) rows get another class, uniformly over the C−1 others; the
    partition itself uses the original labels. Both are rounded half up.

    Raises `UsageError`, `InvalidDataError`; `NumericalError`: no draw reached ``min_size``.
    """
    order = canonical_order(row_ids)
    if labels.dtype.kind not in "iu" or not 0 <= labels.min() <= labels.max() < n_classes:
        raise InvalidDataError(
            f"labels: expected integers from 0 to {n_classes - 1} for {n_classes} classes, found "
            f"{labels.min()} to {labels.max()} of {labels.dtype}"
        )
    true, o = labels[order].astype(np.int64), options
    texts = tuple(attribute[i] for i in order.tolist()) if attribute is not None else ()
    told = SchemeOptions.of(options, true.size, n_classes, texts)
    own, function = o.scheme not in SCHEMES.added, o.scheme.replace("-", "_")
    deal = getattr(schemes, function) if own else entry_points(SCHEMES.group)[o.scheme].load().deal
    client, names = deal(true, told)
    client, names = np.asarray(client, np.int32), tuple(names)  # a plug-in may have others
    if lost := int(((client < 0) | (client >= len(names))).sum()):
        raise NumericalError(
            f"expected a client for each of {client.size} rows, found {lost} rows without one; "
            "please report"
        )
    held_out = _mark_held_out(client, len(names), o.held_out, o.seed)
    noisy = _with_noise(true, n_classes, o)
    return Assignment(client=client, names=names, held_out=held_out, effective_labels=noisy).moved(
        order
    )


def _mark_held_out(client: Owners, clients: int, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """Mark round(share · F) of the F clients with rows: an empty client would validate nothing."""
    marked = np.zeros(clients, np.bool_)
    if share:
        full = np.unique(client)
        if full.size < 2:
            raise UsageError(
                f"--held-out: expected at least 2 clients with rows, found {full.size}; one has to "
                "stay for training"
            )
        wanted = min(max(int(share * full.size + 0.5), 1), full.size - 1)
        marked[stream(seed, schemes.HELD_OUT).permutation(full)[:wanted]] = True
    return marked


def _with_noise(labels: I64, n_classes: int, o: PartitionOptions) -> I64:
    """Flip round(τ·n) labels: y ← (y + u) mod C with u uniform on 1 … C−1, so never to itself."""
    noisy = labels.copy()
    if o.label_noise:
        if n_classes < 2:
            raise UsageError(f"--label-noise: expected at least 2 classes, found {n_classes}")
        rng = stream(o.seed, schemes.LABEL_NOISE)
        rows = rng.permutation(labels.size)[: int(o.label_noise * labels.size + 0.5)]
        noisy[rows] = (labels[rows] + rng.integers(1, n_classes, rows.size)) % n_classes
    return noisy
