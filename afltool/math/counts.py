"""Co-occurrence counts of codes: the blocks of ΦᵀΦ and ΦᵀY where Φ is one-hot, as integers.

Row n has one code c[j, n] ∈ {0 … V−1} in each of E groups, and Φ = [φ_1 … φ_E] holds their one-hot
vectors (Bacellar et al., CVPR 2026, lemma 1). ΦᵀΦ then consists of counts, int64,

    labels[j, a, c]       rows of class c with code a in group j          (ΦᵀY)
    pairs[p, a−1, b−1]    rows with code a ≥ 1 in group j and b ≥ 1 in l  p = j(j−1)/2 + l, l < j

The diagonal of ΦᵀΦ is the sums of labels over classes; the rest of a group's own block is 0. Pairs
leave codes 0 out, because a group's codes add up to all rows: what is missing follows from the
labels (`with_margins`). Φ is never built: N·E²/2 increments instead of N·(E·V)²/2 multiply–adds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from .. import parallel
from ..values.arrays import F64, I64, Array

Codes = NDArray[np.unsignedinteger[Any]]  # (E, n), uint8 or uint16

CELLS = 2**15  # of the histograms filled at a time: 256 kB, within the second-level cache
SUM_BYTES = 2**19  # of sums of real features that are added to at a time
INDICES = 2**31 - 1  # that SciPy's sparse matrices count with, int32
LABELS = 2**22  # codes that are counted with their labels at a time
KEYS = 2**19  # rows times groups l counted at a time; with fewer, threads wait for each other


def pair_count(groups: int) -> int:
    """Number of pairs of different groups, E(E−1)/2: the length of ``pairs``."""
    return groups * (groups - 1) // 2


def add_labels(codes: Codes, y: I64, counts: I64) -> None:
    """counts[j, a, c] += rows of class c with code a in group j (ΦᵀY); counts (E, V, C)."""
    groups, size, classes = counts.shape
    kind = np.int32 if counts.size <= INDICES else np.int64
    offsets = np.arange(groups, dtype=kind)[:, None] * (size * classes)
    step = max(1, LABELS // groups)
    for start in range(0, len(y), step):
        part = slice(start, start + step)
        places = codes[:, part].astype(kind) * classes + (offsets + y[part].astype(kind))
        counts += count_places(places.ravel(), counts.size).reshape(counts.shape)


def add_pairs(codes: Codes, size: int, counts: I64) -> None:
    """counts[p, a−1, b−1] += rows with codes a and b in the groups of pair p: ``codes`` (E, n)
    below V = ``size``, ``counts`` (E(E−1)/2, V−1, V−1). A few groups j at a time are one number in
    base V, counted against group l in one histogram, whose marginals tell them apart."""
    groups, rows = codes.shape
    together = bundle(size, rows)
    if codes.size and codes.max() >= size:
        raise ValueError(f"codes are below {size}; found {codes.max()}")

    def count(first: int) -> None:
        js = range(first, min(first + together, groups))
        key = _number(codes[first : js.stop], size) * size
        cells = size ** (len(js) + 1)
        step = max(1, CELLS // cells)
        for start in range(0, js.stop - 1, step):
            ls = range(start, min(start + step, js.stop - 1))
            table = _histogram(key, codes[ls.start : ls.stop], cells)
            _add_marginals(table.reshape(len(ls), -1, size), js, ls, size, counts)

    for _ in parallel.map_threads(count, range(1, groups, together)[::-1]):
        pass


def count_places(places: Array, cells: int) -> Array:
    """How often each of 0 … cells−1 is among the places, int32 (cells,): columns of a sparse
    matrix, in half of the time of ``np.bincount``, which keeps the interpreter's lock."""
    one, ones = (np.ones(n, np.int32) for n in (1, len(places)))
    ends = np.array([0, len(places)], places.dtype)
    column: Any = scipy.sparse.csc_matrix((ones, places, ends), (cells, 1)) @ one
    return np.asarray(column)


def bundle(size: int, rows: int) -> int:
    """The best number b of groups to count as one: rows/b increments and V^(b+1) cells a pair.

    A cell costs about a quarter of an increment (measured, see benchmarks/bench_counts.py).

    >>> bundle(8, 60_000), bundle(32, 60_000), bundle(32, 600)
    (3, 2, 1)
    """
    fitting = [b for b in (1, 2, 3, 4) if b == 1 or size ** (b + 1) <= CELLS]
    return min(fitting, key=lambda b: rows / b + size ** (b + 1) / 4)


def _number(codes: Codes, size: int) -> Array:
    """Several codes of each row as one number in base V, the first group leading; (n,)."""
    kind = np.int32 if size ** (len(codes) + 1) <= INDICES else np.int64
    key: Array = np.zeros(codes.shape[1], kind)
    for row in codes:
        key *= size
        key += row
    return key


def _histogram(key: Array, codes: Codes, cells: int) -> Array:
    """Rows for each group l and key + code, (groups l · cells,)."""
    total: Array = np.zeros(len(codes) * cells, np.int32)  # a call has fewer than 2^31 rows
    offsets = np.arange(len(codes), dtype=key.dtype)[:, None] * cells
    step = max(1, KEYS // len(codes))
    for start in range(0, len(key), step):
        places = codes[:, start : start + step] + (offsets + key[start : start + step])
        np.add(total, count_places(places.ravel(), len(total)), out=total)
    return total


def _add_marginals(table: Array, js: range, ls: range, size: int, counts: I64) -> None:
    """I64 of each group j from a histogram of several: sums over the codes of the others."""
    for place, j in enumerate(js):
        before, after = size**place, size ** (len(js) - place - 1)
        parts = table.reshape(len(ls), before, size, after, size)
        kept = min(ls.stop, j) - ls.start
        if kept > 0:
            first = pair_count(j) + ls.start
            margin = parts[:kept].sum(axis=(1, 3), dtype=table.dtype)  # no cell counts a row twice
            counts[first : first + kept] += margin[:, 1:, 1:]


def add_sums(codes: Codes, values: Array, sums: Array) -> None:
    """sums[j, a−1] += sum of the rows with code a ≥ 1 in group j (Φᵀx); (E, V−1, d), in place.
    ``values`` (n, d): float64, or integers, whose sums of n rows must fit their type."""
    (rows, dim), (groups, size) = values.shape, (len(sums), sums.shape[1] + 1)
    fitting = (SUM_BYTES // (size * dim * values.itemsize), INDICES // max(rows, 1))
    together = max(1, min(fitting))
    for first in range(0, groups, together):
        part = codes[first : first + together]
        places = part.T + np.arange(len(part), dtype=np.int32) * size
        starts = np.arange(rows + 1, dtype=np.int32) * len(part)
        ones = np.ones(part.size, dtype=values.dtype)
        entries = ones, places.ravel(), starts
        turned = scipy.sparse.csc_matrix(entries, shape=(len(part) * size, rows))
        sums[first : first + together] += (turned @ values).reshape(-1, size, dim)[:, 1:]


def with_margins(labels: I64, pairs: I64, j: int) -> I64:
    """The blocks of group j with all groups before it, (j, V, V), from pairs without codes 0: each
    row of a block adds up to the rows with that code in group j, each column likewise."""
    size = labels.shape[1]
    block = np.empty((j, size, size), dtype=np.int64)
    block[:, 1:, 1:] = pairs[pair_count(j) : pair_count(j + 1)]
    block[:, 0, 1:] = labels[:j, 1:].sum(axis=2) - block[:, 1:, 1:].sum(axis=1)
    block[:, :, 0] = labels[j].sum(axis=1)
    block[:, :, 0] -= block[:, :, 1:].sum(axis=2)
    return block


def _group_rows(labels: I64, pairs: I64, j: int) -> I64:
    """Those rows of ΦᵀΦ that belong to group j, left of its own block: (V, j·V)."""
    return with_margins(labels, pairs, j).transpose(1, 0, 2).reshape(labels.shape[1], -1)


def fill_lower(labels: I64, pairs: I64, out: F64) -> None:
    """ΦᵀΦ into the lower triangle of ``out`` (D, D), which is 0; the upper one is not touched."""
    groups, size, _ = labels.shape
    for j in range(1, groups):
        out[j * size : (j + 1) * size, : j * size] = _group_rows(labels, pairs, j)
    out.flat[:: len(out) + 1] = labels.sum(axis=2).ravel()


def density(labels: I64, pairs: I64) -> float:
    """The share of the D² entries of ΦᵀΦ that are not 0, without the matrix."""
    groups, size, _ = labels.shape
    blocks = sum(np.count_nonzero(with_margins(labels, pairs, j)) for j in range(1, groups))
    return float((np.count_nonzero(labels.sum(axis=2)) + 2 * blocks) / (groups * size) ** 2)


def quadratic(labels: I64, pairs: I64, W: F64) -> float:
    """tr(Wᵀ ΦᵀΦ W) for W (D, C), without the matrix."""
    groups, size, _ = labels.shape
    total = float((labels.sum(axis=2).reshape(-1, 1) * W**2).sum())
    for j in range(1, groups):
        rows = _group_rows(labels, pairs, j).astype(np.float64)
        total += 2.0 * float((W[j * size : (j + 1) * size] * (rows @ W[: j * size])).sum())
    return total
