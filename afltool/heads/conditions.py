"""What the statistics of any rows satisfy, in every phase of every head.

Cheap necessary conditions, checked whenever a file of statistics is read: statistics that fail one
cannot come from any rows. docs/reliability.md derives them. With n rows, n_c of class c:

    gram, cross   g_jj ≥ 0    |g_ij|² ≤ g_ii max_{k ≤ i} g_kk    Σ_c h_jc² / n_c ≤ g_jj
    int16 rows    g_jj ≤ n 2³⁰    |h_jc| ≤ n_c 2¹⁵    g_jj and Σ_c h_jc even or odd alike
    class sums    as gram and cross, class by class
    scaling       n Σq² ≥ (Σq)², and minimum ≤ Σq / n ≤ maximum
    counts        ≥ 0, and every feature's, code's and pair's counts add up to what they are of
    scored rows   counts ≥ 0, and all that is counted of a head adds up to the rows of each class
    gradient      |Σ_i φ_i (p_ic − y_ic)| ≤ n 2³⁹ units, and next to 0 when added over the classes

Integers satisfy them exactly. Reals are rounded, and carry residues of clients that were taken out:
they get a slack of 1 %, more with very many float32 rows, and 10⁻⁶ of the largest diagonal entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError
from ..values.statistics import Statistics
from .count_conditions import PROBABILITY, codes, gradient, histogram, scaled, scored_rows
from .product_conditions import (
    REACH,
    class_sums,
    constant,
    cross_of_labels,
    cross_of_residuals,
    gram_of_rows,
    reconstruction,
)

REAL_REACH = 2.0**192  # of real features: float32 is below 2^128, layers of any width below 2^64


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
    "joint": (gram_of_rows, cross_of_labels),
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
