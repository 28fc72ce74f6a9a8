"""Conditions on sums of products of rows: gram, cross and class sums; see `conditions`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..math.blas import length
from ..values.arrays import F64
from ..values.names import CROSS, GRAM
from ..values.statistics import Statistics

REACH = 2.0**15  # of |x̂|: int16 features, and the constant feature of an intercept
ROUNDING = 2.0**-24  # of float32, relative
SLACK, RESIDUE = 0.01, 1e-6


def fits(s: Statistics) -> bool:
    gram, cross = s.arrays.get(GRAM), s.arrays.get(CROSS)
    if gram is None or cross is None or cross.ndim != 2:
        return False
    return gram.shape == (length(len(cross)),) and cross.shape[1] == len(s.class_counts)


def diagonal(s: Statistics) -> F64:
    return s.arrays[GRAM][_ends(len(s.arrays[CROSS]))].astype(np.float64)


def _ends(side: int) -> NDArray[np.int64]:
    """Indices of the diagonal in a packed triangle."""
    i = np.arange(side)
    return i * (i + 3) // 2


def slack(s: Statistics) -> tuple[float, float]:
    """Factor and residue by which an inequality may be missed because of rounding."""
    if s.exact:
        return 1.0 + 1e-12, 0.0  # the check itself computes in float64
    residue = RESIDUE * float(np.abs(diagonal(s)).max(initial=0.0))
    return 1.0 + SLACK + 4.0 * ROUNDING * s.rows, residue


def gram_of_rows(s: Statistics) -> Iterator[str]:
    """A diagonal of squares, and rows below the diagonal by Cauchy and Schwarz."""
    if not fits(s):
        return
    gram, g = s.arrays[GRAM], diagonal(s)
    factor, residue = slack(s)
    j = int(g.argmin())
    if g[j] < -residue:
        yield f"the sum of squares of feature {j} is {g[j]:.6g}"
    j = int(g.argmax())
    if s.exact and g[j] > s.rows * REACH**2:
        yield f"the sum of squares of feature {j} is {g[j]:.6g}, beyond {s.rows * REACH**2:.6g}"
    starts = np.concatenate([[0], _ends(len(g))[:-1] + 1])
    highest = np.maximum.reduceat(gram, starts).astype(np.float64)
    lowest = np.minimum.reduceat(gram, starts).astype(np.float64)
    norms = np.sqrt(np.maximum(g, 0.0))
    limit = factor * norms * np.maximum.accumulate(norms) + residue
    i = int((np.maximum(highest, -lowest) - limit).argmax())
    if max(highest[i], -lowest[i]) > limit[i]:
        yield (
            f"a product of feature {i} with another sums to {max(highest[i], -lowest[i]):.6g}; "
            f"their sums of squares allow {limit[i]:.6g}"
        )
    yield from _without_squares(gram, g, residue)


def _without_squares(gram: NDArray[np.generic], g: F64, residue: float) -> Iterator[str]:
    """A feature that is 0 in all rows has products of 0 with the features after it, too."""
    for i in np.flatnonzero(g == 0):
        later = np.arange(i + 1, len(g))
        products = gram[later * (later + 1) // 2 + i].astype(np.float64)
        if np.abs(products).max(initial=0.0) > residue:
            yield f"feature {i} has no squares, but products with others"
            return


def cross_of_labels(s: Statistics) -> Iterator[str]:
    """Sums over the rows of a class are bounded by its row count and by the sums of squares."""
    if not fits(s):
        return
    cross, counts, g = s.arrays[CROSS], s.class_counts, diagonal(s)
    factor, residue = slack(s)
    if s.exact:
        yield from _column_reach(cross, counts)
        odd = np.flatnonzero((np.einsum("jc->j", cross) ^ s.arrays[GRAM][_ends(len(g))]) & 1)
        if len(odd):
            yield f"the sum of feature {odd[0]} is odd and its sum of squares even, or the reverse"
    real = cross.astype(np.float64)
    explained = np.einsum("jc,jc,c->j", real, real, 1.0 / np.maximum(counts, 1))
    j = int((explained - factor * (g + residue)).argmax())
    if explained[j] > factor * (g[j] + residue):
        yield (
            f"feature {j} has a sum of squares of {g[j]:.6g}; its sums over the classes need at "
            f"least {explained[j]:.6g}"
        )


def class_sums(s: Statistics) -> Iterator[str]:
    """Sums of each class: beside squares, beside a gram of each class, or alone."""
    cross, classes = s.arrays.get(CROSS), len(s.class_counts)
    if cross is None or cross.ndim != 2 or cross.shape[1] != classes:
        return
    squares, grams = s.arrays.get("squares"), s.arrays.get("grams")
    if squares is not None and squares.shape == cross.shape:
        yield from _squares(s, cross, squares)
    elif grams is not None and grams.shape == (classes, length(len(cross))):
        for c in range(classes):
            arrays = {GRAM: grams[c], CROSS: cross[:, c : c + 1]}
            one = replace(s, arrays=arrays, class_counts=s.class_counts[c : c + 1])
            for wrong in (*gram_of_rows(one), *cross_of_labels(one)):
                yield f"of class {c} {wrong}"
    elif GRAM not in s.arrays and s.exact:
        yield from _column_reach(cross, s.class_counts)


def _squares(
    s: Statistics, cross: NDArray[np.generic], squares: NDArray[np.generic]
) -> Iterator[str]:
    """(Σ x)² ≤ n_c Σ x² for each feature and class."""
    real = squares.astype(np.float64)
    residue = 0.0 if s.exact else RESIDUE * float(np.abs(real).max(initial=0.0))
    factor = 1.0 + (1e-12 if s.exact else SLACK)
    limit = factor * s.class_counts * (real + residue)
    wrong = (real < -residue) | (cross.astype(np.float64) ** 2 > np.maximum(limit, residue))
    if wrong.any():
        j, c = np.unravel_index(int(wrong.argmax()), wrong.shape)
        yield (
            f"feature {j} sums to {cross[j, c]:.6g} over the {s.class_counts[c]} rows of class "
            f"{c}, its squares to {squares[j, c]:.6g}"
        )
    if s.exact:
        yield from _column_reach(squares, s.class_counts, REACH**2)


def _column_reach(
    sums: NDArray[np.generic], counts: NDArray[np.int64], each: float = REACH
) -> Iterator[str]:
    """Integer sums over a class are at most as large as its number of rows allows."""
    largest = np.maximum(sums.max(axis=0), -sums.min(axis=0).astype(np.float64))
    c = int((largest - counts * each).argmax())
    if largest[c] > counts[c] * each:
        yield f"a feature sums to {largest[c]:.6g} over the {counts[c]} rows of class {c}"


def constant(s: Statistics) -> Iterator[str]:
    """The constant feature of an intercept is the last one; its sums are known."""
    head = s.context.head
    options = head.get("options", {})
    linear = options.get("intercept") or (
        head.get("name") == "softmax" and options.get("features") in ("raw", "random")
    )
    if not fits(s) or not linear:
        return
    bits = s.context.space.get("fraction_bits") if s.exact else 0
    one, factor = 2.0 ** (bits or 0), slack(s)[0]
    for what, values, wanted in (
        ("squares", diagonal(s)[-1:], np.array([s.rows * one * one])),
        ("values", s.arrays[CROSS][-1].astype(np.float64), s.class_counts * one),
    ):
        off = np.abs(values - wanted) > (factor - 1.0) * np.maximum(wanted, 1.0)
        if off.any():
            k = int(off.argmax())
            yield f"the {what} of the constant feature sum to {values[k]:.6g}, not {wanted[k]:.6g}"


def cross_of_residuals(s: Statistics) -> Iterator[str]:
    """For residuals only one thing is known: features that are 0 have products of 0 with them."""
    if not fits(s):
        return
    g, largest = diagonal(s), np.abs(s.arrays[CROSS].astype(np.float64)).max(axis=1)
    empty = (g == 0) & (largest > RESIDUE * largest.max())
    if empty.any():
        yield f"feature {int(empty.argmax())} has no squares, but a product with the residual"


def reconstruction(s: Statistics) -> Iterator[str]:
    """ΦᵀΦ_0 by Cauchy and Schwarz from gram and ‖Φ_0‖², where both are there."""
    energy, cross = s.arrays.get("energy"), s.arrays.get("reconstruction")
    if energy is None or cross is None or not fits(s):
        return
    factor, residue = slack(s)
    whole = float(energy.astype(np.float64).sum()) if energy.size else -1.0
    if whole < 0:
        yield f"'energy', a sum of squares, is {whole:.6g}"
    if len(cross) != len(s.arrays[CROSS]):
        return
    real = cross.astype(np.float64)
    squares = np.einsum("jk,jk->j", real, real)
    limit = factor * (diagonal(s) + residue) * (whole + residue)
    j = int((squares - limit).argmax())
    if squares[j] > limit[j]:
        yield f"row {j} of 'reconstruction' has squares of {squares[j]:.6g}, beyond {limit[j]:.6g}"
