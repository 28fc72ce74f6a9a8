"""Exact sums by which features are brought to one scale, and what follows from them.

A value x stands as the integer q = round(x · 2^u), |q| < 2^47, so that sums do not depend on their
order. q² is summed in three limbs of 24 bits, q² = c0 + c1 2^24 + c2 2^48, with c0 < 2^24 and
c1 < 2^25. NaN is a missing value.
"""

from __future__ import annotations

import numpy as np

from ..values.arrays import F64, I64, Array
from .gram import refuse_entries

REACH = 47  # bits of |q|
LIMIT = 2**REACH
LIMB = 24
BLOCK = 2**15  # rows summed at a time: their sums stay within int64
Sums = dict[str, Array]


def rounded(x: Array, bits: int, first_row: int = 0) -> F64:
    """q as float64 (n, d), exactly; NaN where a value is missing.

    Raises `InvalidDataError` for infinity and |q| ≥ 2^47, with row, feature and value.
    """
    q: F64 = np.rint(np.multiply(x, 2.0**bits, dtype=np.float64))
    why = (
        f", beyond the range ±{LIMIT / 2.0**bits:.6g} of sums in units of 2^-{bits}: correct the "
        "value, or let all sites take fewer unit bits"
    )
    refuse_entries(x, np.abs(q) >= LIMIT, first_row, why)
    return q


def sums(x: Array, bits: int, first_row: int = 0) -> Sums:
    """``counts``, ``sums`` (d,) and ``squares`` (3, d) of at most `BLOCK` rows x (n, d), int64.

    NaN is left out.
    """
    exact = rounded(x, bits, first_row)
    known = ~np.isnan(exact)
    q = np.where(known, exact, 0.0).astype(np.int64)
    high, low = np.divmod(np.abs(q), 1 << LIMB)
    middle, least = 2 * high * low, low * low
    part = (1 << LIMB) - 1
    limbs = least & part, (least >> LIMB) + (middle & part), (middle >> LIMB) + high * high
    return {
        "counts": known.sum(axis=0, dtype=np.int64),
        "sums": q.sum(axis=0),
        "squares": np.stack([limb.sum(axis=0) for limb in limbs]),
    }


def squares(sums: Sums) -> list[int]:
    """Σq² of each feature."""
    return [sum(int(c) << (LIMB * i) for i, c in enumerate(limbs)) for limbs in sums["squares"].T]


def beyond(sums: Sums) -> I64:
    """Features whose sums are beyond what their sums of squares allow: (Σq)² > n Σq²."""
    n, total = (sums[name].astype(object) for name in ("counts", "sums"))
    return np.flatnonzero(total**2 > n * squares(sums))


def scale(sums: Sums, bits: int) -> Sums:
    """What sums give, each (d,): x → (x − ``centre``) / ``spread``, and the ``mean``.

    Σx/n and √(Σx²/n − (Σx/n)²), each rounded once from the exact fraction, as scikit-learn's
    StandardScaler on all rows, rounded to units. The spread is 1 where it would be 0, and there
    ``constant`` is 1. Every feature has a value.
    """
    n, total = ([int(v) for v in sums[name]] for name in ("counts", "sums"))
    mean = np.array([t / (k << bits) for t, k in zip(total, n, strict=True)])
    every = zip(n, total, squares(sums), strict=True)
    spread = np.sqrt([(k * s - t * t) / (k * k << 2 * bits) for k, t, s in every])
    same = spread == 0.0
    kept = {"centre": mean, "spread": np.where(same, 1.0, spread), "mean": mean}
    return {**kept, "constant": same.astype(np.int64)}
