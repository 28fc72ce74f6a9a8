"""Exact sums by which features are brought to one scale, and what follows from them.

A value x stands as the integer q = round(x · 2^u), |q| < 2^47, so that sums do not depend on their
order. q² is summed in three limbs of 24 bits, q² = c0 + c1 2^24 + c2 2^48, with c0 < 2^24 and
c1 < 2^25. Bins of a histogram are as fine as the values are small: with B bins an octave one holds
a single q where |q| < 2B, and above that its width is below |q|/B. NaN is a missing value.
"""

from __future__ import annotations

from math import ceil, floor
from typing import Any

import numpy as np

from ..errors import InvalidDataError
from ..values.arrays import F64, I64, Array

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
    beyond = np.argwhere(np.abs(q) >= LIMIT)
    if len(beyond):
        row, column = beyond[0]
        raise InvalidDataError(
            f"row {first_row + row}, feature {column} is {x[row, column]:.6g}, beyond the range "
            f"±{LIMIT / 2.0**bits:.6g} of sums in units of 2^-{bits}: correct the value, or let "
            "all sites take fewer unit bits",
            feature=int(column),
        )
    return q


def sums(x: Array, bits: int, bins: int, first_row: int = 0) -> Sums:
    """The sums of at most `BLOCK` rows x (n, d), int64; NaN is left out.

    ``counts``, ``sums``, ``minimum``, ``maximum`` (d,), ``squares`` (3, d) and, with ``bins`` an
    octave, ``histogram`` (d, `width`). Of no values the minimum is 2^47, the maximum −2^47.
    """
    exact = rounded(x, bits, first_row)
    known = ~np.isnan(exact)
    q = np.where(known, exact, 0.0).astype(np.int64)
    high, low = np.divmod(np.abs(q), 1 << LIMB)
    middle, least = 2 * high * low, low * low
    part = (1 << LIMB) - 1
    limbs = least & part, (least >> LIMB) + (middle & part), (middle >> LIMB) + high * high
    found: Sums = {
        "counts": known.sum(axis=0, dtype=np.int64),
        "sums": q.sum(axis=0),
        "squares": np.stack([limb.sum(axis=0) for limb in limbs]),
        "minimum": np.where(known, q, LIMIT).min(axis=0, initial=LIMIT),
        "maximum": np.where(known, q, -LIMIT).max(axis=0, initial=-LIMIT),
    }
    if bins:
        size, dim = width(bins), q.shape[1]
        at = (bin_of(q, bins) + size * np.arange(dim))[known]
        found["histogram"] = np.bincount(at, minlength=dim * size).reshape(dim, size)
    return found


def _octave(bins: int) -> int:
    return bins.bit_length() - 1


def width(bins: int) -> int:
    """Bins of one feature: those of both signs and 0.

    >>> width(32)
    2751
    """
    return 2 * (REACH + 1 - _octave(bins)) * bins - 1


def bin_of(q: I64, bins: int) -> I64:
    """The bin of each q; a larger q is never in an earlier one.

    >>> bin_of(np.array([-64, 0, 63, 64, 65, 66]), 32) - width(32) // 2
    array([-64,   0,  63,  64,  64,  65])
    """
    size = np.abs(q)
    octave = np.maximum(np.frexp(size.astype(np.float64))[1] - 1 - _octave(bins), 0)
    found: I64 = width(bins) // 2 + np.sign(q) * ((size >> octave) + octave * bins)
    return found


def ends(at: int, bins: int) -> tuple[int, int]:
    """The least and the largest q in a bin.

    >>> ends(width(32) // 2 + 65, 32), ends(width(32) // 2 - 65, 32)
    ((66, 67), (-67, -66))
    """
    place = at - width(bins) // 2
    octave = max(abs(place) // bins - 1, 0)
    near = (abs(place) - octave * bins) << octave
    far = near + (1 << octave) - 1
    return (near, far) if place >= 0 else (-far, -near)


def quantile(counts: I64, p: float, bins: int) -> float:
    """The p-quantile of one feature's q (NumPy's linear rule), each value at its bin's middle.

    So it is off by less than the width of the widest bin that it comes from.
    """
    below = counts.cumsum()
    place = (int(below[-1]) - 1) * p

    def middle(rank: int) -> float:
        return sum(ends(int(np.searchsorted(below, rank, side="right")), bins)) / 2

    first = middle(floor(place))
    return first + (middle(ceil(place)) - first) * (place - floor(place))


def squares(sums: Sums) -> list[int]:
    """Σq² of each feature."""
    return [sum(int(c) << (LIMB * i) for i, c in enumerate(limbs)) for limbs in sums["squares"].T]


def scale(sums: Sums, bits: int, bins: int, method: str) -> Sums:
    """What sums give, each (d,): x → (x − ``centre``) / ``spread``, and the ``mean``.

    The spread is 1 where it would be 0, and there ``constant`` is 1. Every feature has a value.

    standard: Σx/n and √(Σx²/n − (Σx/n)²), each rounded once from the exact fraction; minmax: the
    least value and the range; robust: the median and the range from the first to the third
    quartile, within bins; none: 0 and 1. As scikit-learn's StandardScaler, MinMaxScaler and
    RobustScaler on all rows, rounded to units.
    """
    n, total = ([int(v) for v in sums[name]] for name in ("counts", "sums"))
    mean = np.array([t / (k << bits) for t, k in zip(total, n, strict=True)])
    if method == "standard":
        every = zip(n, total, squares(sums), strict=True)
        parts = [(k * s - t * t) / (k * k << 2 * bits) for k, t, s in every]
        centre, spread = mean, np.sqrt(parts)
    elif method == "none":
        centre, spread = np.zeros(len(n)), np.ones(len(n))
    else:
        ranges = _quartiles(sums, bins) if method == "robust" else _extremes(sums, bins)
        centre, spread = (np.array(one) / 2.0**bits for one in zip(*ranges, strict=True))
    same = spread == 0.0
    kept = {"centre": centre, "spread": np.where(same, 1.0, spread), "mean": mean}
    return {**kept, "constant": same.astype(np.int64)}


def _quartiles(sums: Sums, bins: int) -> list[tuple[float, float]]:
    if not bins:
        raise InvalidDataError("robust needs histograms, and these sums have none (0 bins)")
    each = [[quantile(row, p, bins) for p in (0.5, 0.25, 0.75)] for row in sums["histogram"]]
    return [(median, third - first) for median, first, third in each]


def told(sums: Sums) -> bool:
    """Whether minimum and maximum are in the sums; where sites told none they are ±`LIMIT`."""
    extremes = sums.get("minimum"), sums.get("maximum")
    return all(a is not None and bool((np.abs(a) < LIMIT).all()) for a in extremes)


def _extremes(sums: Sums, bins: int) -> list[Any]:
    """Least value and range; without them those of the first and the last bin with a value."""
    if told(sums):
        low, high = sums["minimum"], sums["maximum"]
    elif bins:
        used = [np.flatnonzero(row) for row in sums["histogram"]]
        low, high = np.array([(ends(u[0], bins)[0], ends(u[-1], bins)[1]) for u in used]).T
    else:
        raise InvalidDataError(
            "minmax needs extremes or histograms, and these sums have neither: sites told no "
            "extremes, and counted in 0 bins"
        )
    return list(zip(low, high - low, strict=True))
