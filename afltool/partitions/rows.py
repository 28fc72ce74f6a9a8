"""Which client owns which row, and what that looks like in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from ..values.arrays import I64
from ..values.digest import Digest


@dataclass(frozen=True, eq=False, kw_only=True)
class Assignment:
    """A client for each of n rows, in the caller's order.

    ``client`` (n,) int32: index into ``names``. ``names``: K names, "0" … "K-1" where clients are
    simulated. ``held_out`` (K,) bool: clients kept for validation. ``effective_labels`` (n,) int64:
    the labels that clients train with, after label noise.
    """

    client: NDArray[np.int32]
    names: tuple[str, ...]
    held_out: NDArray[np.bool_]
    effective_labels: I64

    def sizes(self) -> I64:
        """Rows of each client (K,)."""
        return np.bincount(self.client, minlength=len(self.names))

    def moved(self, order: I64) -> Assignment:
        """The same for rows in another order: row i is number ``order[i]`` there."""
        client, labels = np.empty_like(self.client), np.empty_like(self.effective_labels)
        client[order], labels[order] = self.client, self.effective_labels
        return Assignment(
            client=client, names=self.names, held_out=self.held_out, effective_labels=labels
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Partition(Assignment):
    """An assignment of rows that are known by their ids, in byte order of these.

    ``row_ids`` (n,) bytes; ``labels`` (n,) int64 as extracted; ``scheme``: its name and options.
    """

    row_ids: NDArray[np.bytes_]
    labels: I64
    classes: tuple[str, ...]
    scheme: Mapping[str, Any]

    def rows_digest(self) -> str:
        return rows_digest(self.row_ids, self.labels)

    def digest(self) -> str:
        digest = Digest().text("row_ids", b"\n".join(self.row_ids.tolist()))
        digest.array("labels", self.labels, "<i8")
        digest.array("effective_labels", self.effective_labels, "<i8")
        digest.array("client", self.client, "<i4").json("names", list(self.names))
        return digest.json("held_out", np.flatnonzero(self.held_out).tolist()).hex()


def rows_digest(sorted_ids: NDArray[np.bytes_], labels: I64) -> str:
    """SHA-256 of row ids in byte order and their labels: which rows, whatever the backbone."""
    ids = b"\n".join(sorted_ids.tolist())
    return Digest().text("row_ids", ids).array("labels", labels, "<i8").hex()


@dataclass(frozen=True, eq=False)
class Summary:
    """What a partition looks like; arrays are per client, ``counts`` is clients × classes, int64.

    ``mean_total_variation`` is `mean_total_variation` of ``counts``: 0 where every client looks
    like the pool, towards 1 where clients have nothing in common.
    """

    classes_per_client: I64
    counts: I64
    empty_clients: int
    min_rows: int
    median_rows: float
    max_rows: int
    mean_total_variation: float


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
