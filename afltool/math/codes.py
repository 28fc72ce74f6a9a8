"""Real features → codes: thresholds, digits, groups (Bacellar et al., CVPR 2026, equations 3–5).

A digit counts how many of its thresholds a feature exceeds, each with a sign,

    digit = Σ_s sign_s · [x > cut_s]  ∈ {0 … k−1},

and G digits, dealt by a seeded shuffle, make one code, idx = Σ_i digit_i k^i < V = k^G (4). With B
buckets a feature the three bucketings of the paper's table 2 are

    integer    1 digit, k = B       the bucket's number: B−1 cuts, all counted
    onehot     B digits, k = 2      1 in its bucket: its lower cut minus its upper one
    overlap    B digits, k = 2      one cut each: neighboring values share most digits
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..values.arrays import F64, I64, Array
from .counts import Codes, count_places
from .gram import LARGEST, PIECE, FixedPoint, Rows, check_finite, real, refuse_entries

TOGETHER = 2**18  # codes that are made together: threads wait for each other with fewer
STEPS = 16  # grid steps in an octave: quantiles are known to 1/16 of their value
FINE_BITS = 9  # resolution 2^−9 near zero where features are no integers
TOP_BITS = 24  # and their range, ±2^(24 − 9)


def levels(bucketing: str, buckets: int) -> F64:
    """Shares of the rows below each threshold: B for overlap, else the B−1 between buckets.

    >>> levels("onehot", 4)
    array([0.25, 0.5 , 0.75])
    """
    count = buckets + (bucketing == "overlap")
    return np.arange(1, count) / count


def assign_digits(digits: int, groups: int, group_size: int, seed: int) -> I64:
    """Which digits make up which code: (E, G) numbers below ``digits``, the first of as many
    shuffles as needed. NumPy has frozen ``RandomState``: the result is the same everywhere."""
    rng, wanted = np.random.RandomState(seed), groups * group_size
    shuffles = [rng.permutation(digits) for _ in range(-(-wanted // digits))]
    return np.concatenate(shuffles)[:wanted].reshape(groups, group_size).astype(np.int64)


@dataclass(frozen=True)
class Coder:
    """Turns rows into codes: ``features`` (E, G) that the digits read, ``cuts`` (E, G, S) and
    ``signs`` (S,), their thresholds and how they count, ``radix`` k."""

    features: I64
    cuts: F64
    signs: tuple[int, ...]
    radix: int

    @property
    def size(self) -> int:
        """V = k^G, the codes of one group."""
        return int(self.radix ** self.features.shape[1])

    def codes(self, X: Rows) -> Codes:
        """Codes (E, n), uint8 or uint16, of rows X (n, d): E·G·S comparisons a row. Raises
        `InvalidDataError` for NaN or infinite features."""
        columns, cuts = _comparable(X, self.cuts)
        groups, digits = self.features.shape
        out = np.zeros((groups, len(X)), np.uint8 if self.size <= 256 else np.uint16)
        together = max(1, TOGETHER // max(len(X), 1))
        for first in range(0, groups, together):
            part = slice(first, first + together)
            for i in range(digits):
                x = columns[self.features[part, i]]
                for cut, sign in zip(cuts[part, i].T, self.signs, strict=True):
                    step = (x > cut[:, None]).astype(out.dtype) * out.dtype.type(self.radix**i)
                    (np.add if sign > 0 else np.subtract)(out[part], step, out=out[part])
        return out


def coder(thresholds: F64, bucketing: str, buckets: int, dealt: I64) -> Coder:
    """A `Coder` from thresholds (d, T) and dealt digits (E, G); digit feature·L + l."""
    each = 1 if bucketing == "integer" else buckets
    feature, level = dealt // each, dealt % each
    if bucketing == "overlap":
        return Coder(feature, thresholds[feature, level][..., None], (1,), 2)
    if bucketing == "onehot":
        ends = np.full((len(thresholds), 1), np.inf)
        bounds = np.hstack([-ends, thresholds, ends])
        cuts = np.stack([bounds[feature, level], bounds[feature, level + 1]], axis=-1)
        return Coder(feature, cuts, (1, -1), 2)
    return Coder(feature, thresholds[feature], (1,) * thresholds.shape[1], buckets)


def one_hot(codes: Codes, size: int) -> F64:
    """Φ (n, E·V), dense: 1 where column j·V + v has idx_j = v, else 0; codes (E, n) below V.

    >>> one_hot(np.array([[1], [0]], dtype=np.uint8), 2)
    array([[0., 1., 1., 0.]])
    """
    groups, rows = codes.shape
    out = np.zeros((rows, groups * size))
    places = codes.T.astype(np.intp) + np.arange(groups) * size
    np.put_along_axis(out, places, 1.0, axis=1)
    return out


def _comparable(X: Rows, cuts: F64) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """Features as rows (d, n), and cuts of a type that compares with them exactly: for integers
    x̂ > t·2^f is x̂ > ⌊t·2^f⌋, and ±32767 bound every x̂."""
    if isinstance(X, FixedPoint):
        whole = np.floor(cuts * 2.0**X.bits).clip(-LARGEST - 1, LARGEST)
        return np.ascontiguousarray(X.values.T), whole.astype(np.int16)
    values = real(X)
    check_finite(values)
    return np.ascontiguousarray(values.T), cuts


def grid(bits: int | None) -> F64:
    """Edges of the bins (edge before, edge] of features: ascending, symmetric, in units of one.
    Every multiple of 2^−f up to 32·2^−f, then 16 to an octave, up to 32767·2^−f for features with f
    fraction bits and ±32768 for real ones."""
    top, fine = (TOP_BITS, FINE_BITS) if bits is None else (15, bits)
    octaves = [np.arange(STEPS, 2 * STEPS) << octave for octave in range(top - 4)]
    up = np.concatenate([np.arange(STEPS), *octaves, [1 << top]])
    return np.asarray(np.concatenate([-up[:0:-1], up]) * 2.0**-fine)


def histogram(X: Rows) -> I64:
    """Counts (d, bins) of each feature on the grid; additive over rows. Raises `InvalidDataError`
    for real features that are not finite or beyond the grid."""
    if isinstance(X, FixedPoint):
        every = np.arange(2**16, dtype=np.uint16).view(np.int16) * 2.0**-X.bits
        edges, rows = grid(X.bits), X.values.astype(np.int16, copy=False).view(np.uint16)
        table = np.searchsorted(edges, every)
        return _counts(rows, len(edges), lambda part: table[part])
    edges, values = grid(None), real(X)
    check_finite(values)
    why = f", beyond the ±{edges[-1]:g} in which thresholds are sought: scale the features"
    refuse_entries(values, np.abs(values) > edges[-1], 0, why)
    return _counts(values, len(edges), lambda part: np.searchsorted(edges, part))


def _counts(rows: Array, count: int, bins: Callable[[Array], Array]) -> I64:
    """Counts (d, count) of the bins of rows (n, d)."""
    dim = rows.shape[1]
    places, offsets = np.empty(rows.shape, np.int32), np.arange(dim) * count
    for start in range(0, len(rows), PIECE):  # the bins of a few rows stay in the cache
        places[start : start + PIECE] = bins(rows[start : start + PIECE]) + offsets
    return count_places(places.ravel(), dim * count).reshape(dim, count).astype(np.int64)


def quantiles(counts: I64, shares: F64, edges: F64) -> F64:
    """Per-feature quantiles (d, T) from counts (d, bins): the smallest edge that at least the share
    q of the rows does not exceed ('inverted_cdf', rounded up to the grid)."""
    below = counts.cumsum(axis=1)
    wanted = np.ceil(shares * below[:, -1:] - 1e-9)
    return np.asarray(edges[(below[:, None, :] < wanted[:, :, None]).sum(axis=2)])
