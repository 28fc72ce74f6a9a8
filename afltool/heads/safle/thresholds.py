"""The thresholds of the SAFLe head, which must be the same for all clients.

They come from one of four places: quantiles of federated histograms; quantiles of the rows of a
feature file (equal for equal rows); another head; or even steps over a range, which need no data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidDataError, MismatchError
from ...math import codes as cd
from ...math.gram import FixedPoint
from ...values.arrays import F64
from ..base import Source
from .options import SafleOptions


def each(options: SafleOptions) -> int:
    """T, the thresholds of one feature."""
    return len(cd.levels(options.bucketing, options.buckets))


def of_counts(counts: NDArray[np.int64], bits: int | None, options: SafleOptions) -> F64:
    """Quantiles (d, T) from counts (d, bins) of features with ``bits`` fraction bits."""
    return cd.quantiles(counts, cd.levels(options.bucketing, options.buckets), cd.grid(bits))


def of_source(source: Source, options: SafleOptions) -> F64:
    """Thresholds (d, T) from the file of --thresholds: those of a head, or quantiles of rows."""
    if source.kind == "head":
        thresholds = np.asarray(source.arrays.get("thresholds", np.empty((0, 0))), dtype=np.float64)
        if thresholds.ndim != 2 or thresholds.shape[1] != each(options):
            raise MismatchError(
                f"that head has {thresholds.shape[-1]} thresholds per feature; --bucketing "
                f"{options.bucketing} with --buckets {options.buckets} needs {each(options)}"
            )
        return thresholds
    counts, bits = None, None
    for X in source.blocks:
        bits = X.bits if isinstance(X, FixedPoint) else None
        of_block = cd.histogram(X)
        counts = of_block if counts is None else counts + of_block
    if counts is None:
        raise InvalidDataError("the file for --thresholds has no rows")
    return of_counts(counts, bits, options)
