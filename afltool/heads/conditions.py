"""What the statistics of any rows satisfy, in every phase of every head.

Cheap necessary conditions, checked whenever a file of statistics is read: statistics that fail one
cannot come from any rows. docs/reliability.md derives them. With n rows, n_c of class c:

    gram, cross   g_jj ≥ 0    |g_ij|² ≤ g_ii max_{k ≤ i} g_kk    Σ_c h_jc² / n_c ≤ g_jj
    int16 rows    g_jj ≤ n 2³⁰    |h_jc| ≤ n_c 2¹⁵    g_jj and Σ_c h_jc even or odd alike
    class sums    as gram and cross, class by class
    scaling       n Σq² ≥ (Σq)²
    counts        ≥ 0, and every feature's, code's and pair's counts add up to what they are of
    scored rows   counts ≥ 0, and all that is counted of a head adds up to the rows of each class
    gradient      |Σ_i φ_i (p_ic − y_ic)| ≤ n 2³⁹ units, and next to 0 when added over the classes

Integers satisfy them exactly. Reals are rounded, and carry residues of clients that were taken out:
they get a slack of 1 %, more with very many float32 rows, and 10⁻⁶ of the largest diagonal entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError
from ..values.names import CROSS
from ..values.statistics import Statistics
from .product_conditions import (
    REACH,
    class_sums,
    constant,
    cross_of_labels,
    cross_of_residuals,
    diagonal,
    fits,
    gram_of_rows,
    reconstruction,
    slack,
)

REAL_REACH = 2.0**192  # of real features: float32 is below 2^128, layers of any width below 2^64
PROBABILITY = 2.0**24  # units of one in a gradient of integers


def histogram(s: Statistics) -> Iterator[str]:
    """Every feature of every row is in one interval."""
    counts = s.arrays.get("histogram")
    if counts is None or counts.ndim != 2:
        return
    yield from _negative("histogram", counts)
    wrong = np.flatnonzero(np.einsum("jb->j", counts) != s.rows)
    if len(wrong):
        yield f"the counts of feature {wrong[0]} add up to {counts[wrong[0]].sum()}"


def scaled(s: Statistics) -> Iterator[str]:
    """Values of some rows have such sums and sums of squares."""
    from ..math.scaling import squares  # of one head alone

    side = s.arrays.get("counts", np.empty(0)).shape
    wanted = {"counts": side, "sums": side, "squares": (3, *side)}
    if strange := sorted(s.arrays.keys() - wanted.keys()):
        yield f"a scaling has no {strange[0]!r}, which afltool 0.3 makes and reads"
        return
    if len(side) != 1 or {k: a.shape for k, a in s.arrays.items()} != wanted:
        return
    n, total = s.arrays["counts"].astype(object), s.arrays["sums"].astype(object)
    for name in ("counts", "squares"):
        yield from _negative(name, s.arrays[name])
    wrong = {
        f"more values than the {s.rows} rows": n > s.rows,
        "a sum that its sum of squares does not allow": total**2 > n * squares(dict(s.arrays)),
    }
    for what, values in wrong.items():
        if values.any():
            yield f"feature {int(values.argmax())} has {what}"


def codes(s: Statistics) -> Iterator[str]:
    """Every row has one code in each group; a pair of codes has no more rows than each code has."""
    labels, pairs = s.arrays.get("labels"), s.arrays.get("pairs")
    if labels is None or pairs is None or labels.ndim != 3 or pairs.ndim != 3:
        return
    _, size, classes = labels.shape
    if classes != len(s.class_counts) or pairs.shape[1:] != (size - 1, size - 1):
        return
    yield from _negative("labels", labels)
    yield from _negative("pairs", pairs)
    wrong = np.flatnonzero((np.einsum("jac->jc", labels) != s.class_counts).any(axis=1))
    if len(wrong):
        yield f"the codes of group {wrong[0]} do not add up to the rows of each class"
    rows = np.einsum("jac->ja", labels)
    yield from _pairs(pairs, rows[:, 1:], s.rows)
    yield from _sums(s, rows[:, 1:])


def _pairs(pairs: NDArray[np.int64], rows: NDArray[np.int64], everybody: int) -> Iterator[str]:
    """The pairs of one code add up to at most its rows; the other rows have code 0."""
    later, earlier = _pairs_of(len(rows))
    if len(pairs) != len(later) or not pairs.size:
        return
    # Five times as fast as `sum` along axes as short as these.
    of_later, of_earlier = np.einsum("pab->pa", pairs), np.einsum("pab->pb", pairs)
    beyond = ((of_later > rows[later]) | (of_earlier > rows[earlier])).any(axis=1)
    some = np.einsum("ja->j", rows)
    both = some[later] + some[earlier] - np.einsum("pa->p", of_later)
    wrong = beyond | (both > everybody)
    if wrong.any():
        p = int(wrong.argmax())
        yield f"groups {later[p]} and {earlier[p]} have more rows in pairs of codes than in codes"


@lru_cache(maxsize=1)
def _pairs_of(groups: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Groups j and l < j of each pair p = j(j−1)/2 + l."""
    return np.tril_indices(groups, -1)


def _sums(s: Statistics, rows: NDArray[np.int64]) -> Iterator[str]:
    """Sums of raw features over the rows of a code: as `cross_of_labels`."""
    sums = s.arrays.get("sums")
    if sums is None or not fits(s) or sums.shape != (*rows.shape, len(s.arrays[CROSS])):
        return
    factor, residue = slack(s)
    limit = factor * (diagonal(s) + residue)
    for group, of_group, counts in zip(range(len(sums)), sums, rows, strict=True):
        real = of_group.astype(np.float64)
        explained = np.einsum("vj,vj,v->j", real, real, 1.0 / np.maximum(counts, 1))
        if (explained > limit).any():
            yield f"sums over the codes of group {group} exceed what the sums of squares allow"
            return


def scored_rows(s: Statistics) -> Iterator[str]:
    """Counts of scored rows are from 0 on; a row is in one cell of all that is counted of a head.

    Arrays of other shapes are left to those who read them.
    """
    for name, counts in sorted(s.arrays.items()):
        yield from _negative(name, counts)
    for kind, (shape, adds_up) in _SCORED.items():
        C = len(s.class_counts)
        wanted = tuple(C if n is None else n for n in shape)
        for name, counts in sorted(s.arrays.items()):
            of, _, number = name.rpartition("-")
            M = s.arrays.get(f"confusion-{number}", s.arrays.get(f"tallies-{number}", np.zeros(0)))
            alike = of == kind and counts.size and _alike(wanted, counts)
            alike = alike and M.shape in ((C, C), (3, C))
            if alike and not np.all(adds_up(counts, M, s.class_counts)):
                yield (
                    f"the counts of {name!r} do not add up to the rows of each class, or not to "
                    "the confusion matrix"
                )


def _alike(shape: tuple[int, ...], a: NDArray[np.generic]) -> bool:
    """Whether an array has this shape; 0 stands for any number."""
    return len(shape) == a.ndim and all(n in (0, m) for n, m in zip(shape, a.shape, strict=True))


def _right(M: NDArray[np.generic]) -> Any:
    """The rows that are predicted right, by a confusion matrix (C, C) or a tally (3, C)."""
    return M.trace() if len(M) == M.shape[1] else M[0].sum()


def _tallies(a: Any) -> bool:
    """Whether tallies (…, 3, C) can be those of rows."""
    right, own, predicted = np.moveaxis(a, -2, 0)
    equal = own.sum(axis=-1) == predicted.sum(axis=-1)
    return bool(equal.all() and (np.minimum(own, predicted) >= right).all())


# Shapes, with None for the number of classes and 0 for any number, and what has to be equal.
_SCORED: dict[str, tuple[tuple[int | None, ...], Any]] = {
    "confusion": ((None, None), lambda a, M, n: a.sum(axis=1) == n),
    "tallies": ((3, None), lambda a, M, n: _tallies(a) and a[1] == n),
    "ranks": ((0,), lambda a, M, n: a[0] == _right(M) and a.sum() <= n.sum()),
    "scores": (
        (None, 2, 0),
        lambda a, M, n: (a[:, 1].sum(axis=1) == n) & (a.sum(axis=(1, 2)) == n.sum()),
    ),
    "confidence": ((2, 0), lambda a, M, n: a[1].sum() == _right(M) and a.sum() == n.sum()),
    "groups": (
        (0, 0, None),
        lambda a, M, n: (len(M) == len(n) or _tallies(a)) and np.array_equal(a.sum(axis=0), M),
    ),
}


def _negative(name: str, counts: NDArray[np.generic]) -> Iterator[str]:
    if counts.size and int(counts.min()) < 0:
        yield f"a count of {name!r} is {int(counts.min())}"


def gradient(s: Statistics) -> Iterator[str]:
    """Probabilities of a row add up to one, as its label does; a loss is not negative."""
    gradient, loss = s.arrays.get("gradient"), s.arrays.get("loss")
    if gradient is None or loss is None or gradient.ndim != 2:
        return
    unit = PROBABILITY if s.exact else 1.0
    least = float(loss.min(initial=0))
    if least < -s.rows * 1e-6 * unit:
        yield f"the loss is {least / unit:.6g}, below 0"
    if not s.exact:
        return
    # A probability is rounded to a unit: half a unit a class, for features of at most REACH.
    limit = s.rows * REACH * (0.5 * gradient.shape[1] + 1.0)
    over = np.abs(np.einsum("jc->j", gradient).astype(np.float64))
    if over.max(initial=0.0) > limit:
        j = int(over.argmax())
        yield f"the gradient of feature {j} adds up to {over[j]:.6g} over the classes, not about 0"


def check(s: Statistics) -> None:
    """Refuse with `InvalidDataError` statistics that no rows can have; about one pass.

    Arrays whose shapes do not fit each other are left to `checks.check_total`, which has the head.
    """
    wrong = next(_violations(s), None)
    if wrong:
        raise InvalidDataError(
            f"{_whose(s)}: these cannot be the statistics of any {s.rows} rows: {wrong}; make them "
            "again, or leave them out of the sum"
        )


def _violations(s: Statistics) -> Iterator[str]:
    if s.context.noise:  # added on purpose: these are no longer the sums of any rows
        for name, a in sorted(s.arrays.items()):
            yield from _within_reach(name, a, np.inf)
        return
    kind = s.phase.kind
    for name, a in sorted(s.arrays.items()):
        if not s.rows or a.dtype.kind != "i" or kind not in BOUNDING:
            yield from _within_reach(name, a, s.rows)
    if s.rows:
        for condition in CONDITIONS.get(kind, ()):
            yield from condition(s)


def _whose(s: Statistics) -> str:
    if not s.clients:
        return "statistics without clients"
    first = f"client {min(s.clients)}"
    return first if len(s.clients) == 1 else f"{len(s.clients)} clients, such as {first}"


def _within_reach(name: str, a: NDArray[np.generic], rows: float) -> Iterator[str]:
    """Entries are finite, 0 if there are no rows, and no larger than the largest rows make them."""
    if not a.size:
        return
    reach = rows * (REACH * PROBABILITY if a.dtype.kind == "i" else REAL_REACH**2)
    largest = max(float(a.max()), -float(a.min()))
    if not np.isfinite(largest):
        yield f"an entry of {name!r} is not finite"
    elif largest > reach:
        yield f"an entry of {name!r} is {largest:.4g}, beyond {reach:.4g}"


Condition = Callable[[Statistics], Iterator[str]]
CONDITIONS: dict[str, tuple[Condition, ...]] = {  # by the kind of a phase
    "gram": (gram_of_rows, cross_of_labels, constant),
    "weights": (gram_of_rows, cross_of_labels, reconstruction),
    "block": (gram_of_rows, cross_of_residuals),
    "histogram": (histogram,),
    "codes": (codes, gram_of_rows, cross_of_labels),
    "gradient": (gradient,),
    "counts": (scored_rows,),
    "scaling": (scaled,),
    "class-sums": (class_sums, gram_of_rows, cross_of_labels),
}
#: Phases whose conditions already bound every integer.
BOUNDING = ("gram", "histogram", "codes", "counts", "scaling")
