"""What a partition looks like, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..values.arrays import I64


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
