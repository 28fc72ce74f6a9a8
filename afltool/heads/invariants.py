"""What the statistics of any rows satisfy, read from what their head says of each array.

docs/reliability.md derives them. With n rows, n_c of class c, and the words of `ArraySpec`:

    every array   finite, |entry| ≤ n per_row; counts ≥ 0
    cells         counts add up to n
    square        g_jj ≥ 0    |g_ij|² ≤ g_ii max_{k ≤ i} g_kk
    rows_of       h_jc = 0 where g_jj = 0; where ``by_class`` also Σ_c h_jc² / n_c ≤ g_jj

Integers satisfy them exactly. Reals, which are rounded and carry residues of clients taken out, get
a slack of 1 %, more with very many float32 rows, and 10⁻⁶ of the largest diagonal entry.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..errors import InvalidDataError
from ..math.blas import length
from ..values.arrays import F64, Array
from ..values.statistics import ArraySpec, Statistics

ROUNDING = 2.0**-24  # of float32, relative
SLACK, RESIDUE = 0.01, 1e-6


def check(s: Statistics) -> None:
    """Refuse with `InvalidDataError` statistics that no rows can have; about one pass."""
    if wrong := next(_violations(s), None):
        whose = f"client {min(s.clients)}" if s.clients else "statistics without clients"
        raise InvalidDataError(
            f"{whose}{' and others' * (len(s.clients) > 1)}: these cannot be the statistics of any "
            f"{s.rows} rows: {wrong}; make them again, or leave them out of the sum"
        )


def _violations(s: Statistics) -> Iterator[str]:
    noisy = bool(s.context.noise)  # added on purpose: these are no longer the sums of any rows
    every = sorted(s.arrays.items())
    ends = {name: (float(a.min(initial=0)), float(a.max(initial=0))) for name, a in every}
    for name in (k for k, both in ends.items() if not np.isfinite(both).all()):
        yield f"an entry of {name!r} is not finite"
    for name, a in every:
        spec, (low, high) = s.specs.get(name, ArraySpec(a.shape, "real")), ends[name]
        reach = s.rows * spec.per_row if s.rows else 0.0
        if spec.kind == "count" and low < 0 and not noisy:
            yield f"a count of {name!r} is {low:.6g}"
        if max(high, -low) > reach and not noisy:
            yield f"an entry of {name!r} is {max(high, -low):.4g}, beyond {reach:.4g}"
        if noisy or not (s.rows and a.size and a.ndim):
            continue
        if spec.cells and a.ndim > max(spec.cells):
            for wrong in np.setdiff1d(a.sum(axis=spec.cells), [s.rows])[:1]:
                yield f"the counts of {name!r} add up to {wrong}, not to the rows"
        if spec.square:
            for triangle in a.reshape(-1, a.shape[-1]):
                yield from _check_triangle(s, name, triangle)
        if spec.rows_of in s.arrays:
            yield from _check_products(s, name, a, spec)


def _slack(s: Statistics, g: F64) -> tuple[float, float]:
    """Factor and residue by which rounding may miss an inequality; the check is of float64."""
    if s.exact:
        return 1.0 + 1e-12, 0.0
    return 1.0 + SLACK + 4.0 * ROUNDING * s.rows, RESIDUE * float(np.abs(g).max(initial=0.0))


def _diagonal(packed: Array) -> F64:
    """The diagonals (…, d) of triangles of d(d + 1)/2 numbers; none of another length."""
    side = int((2 * packed.shape[-1]) ** 0.5)
    i = np.arange(side if length(side) == packed.shape[-1] else 0)
    return np.asarray(packed[..., i * (i + 3) // 2], np.float64)


def _check_triangle(s: Statistics, name: str, gram: Array) -> Iterator[str]:
    """A diagonal of squares, and rows below the diagonal by Cauchy and Schwarz."""
    g = _diagonal(gram)
    if not g.size:
        return
    factor, residue = _slack(s, g)
    j, i = int(g.argmin()), np.arange(len(g))
    if g[j] < -residue:
        yield f"the sum of squares of feature {j} in {name!r} is {g[j]:.6g}"
    starts = i * (i + 1) // 2
    highest = np.maximum.reduceat(gram, starts).astype(np.float64)
    lowest = np.minimum.reduceat(gram, starts).astype(np.float64)
    norms = np.sqrt(np.maximum(g, 0.0))
    limit = factor * norms * np.maximum.accumulate(norms) + residue
    largest = np.maximum(highest, -lowest)
    j = int((largest - limit).argmax())
    if largest[j] > limit[j]:
        yield f"a product of feature {j} in {name!r} is {largest[j]:.6g}, beyond {limit[j]:.6g}"
    for k in np.flatnonzero(g == 0):  # and so are its products with the features after it
        if np.abs(gram[starts[k + 1 :] + k].astype(np.float64)).max(initial=0.0) > residue:
            yield f"feature {k} has no squares in {name!r}, but products with others"
            return


def _check_products(s: Statistics, name: str, a: Array, spec: ArraySpec) -> Iterator[str]:
    """Sums of features times something, beside the sums of their squares (d,), or by class."""
    of = s.specs.get(spec.rows_of)
    squares = np.atleast_1d(s.arrays[spec.rows_of])
    g = _diagonal(squares).T if of is not None and of.square else squares.astype(np.float64)
    if a.ndim != 2 or g.shape not in (a.shape, a.shape[:1]):
        return
    factor, residue = _slack(s, g)
    h = a.astype(np.float64) ** 2
    if spec.by_class and a.shape[1] == len(s.class_counts):
        h /= np.maximum(s.class_counts, 1)
        over = (h if g.ndim == 2 else h.sum(axis=1)) > factor * (g + residue)
    else:
        largest = h.max(axis=1).reshape(len(g), *[1] * (g.ndim - 1))
        over = (g == 0) & (largest > RESIDUE**2 * largest.max())
    for at in np.argwhere(over)[:1]:
        yield f"the sums {name!r} of feature {at[0]} are beyond its sum of squares"
