"""The choice of one ridge for each group of features: (G + diag(λ)) W = H, from sums alone.

λ (d,) has one value for all features of a group. The best λ has the least error on held-out rows;
without held-out rows it has the least generalised cross-validation, as in `ridge_choice`. Both take
one Cholesky factorisation a trial. The groups take turns (coordinate descent): a group's ridge goes
up in factors of √10 while that is better, else down, until no group's step is better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import NumericalError
from ..values.arrays import F64
from .ridge_choice import FactoredSystem, gcv

Ridges = tuple[float, ...]

TURNS = 20  # of all groups, at most
WORTH = 1e-5  # a step has to lower the error by this part: less is rounding or does not matter


@dataclass(frozen=True)
class Found:
    """The ridge of each group, their error, that of one ridge for all, and how many were tried."""

    ridges: Ridges
    error: float
    common: float
    tried: int


def choose_each(
    G: F64, H: F64, target: float, rows: int, *, widths: Sequence[int], start: float,
    ends: tuple[float, float], outside: float = 0.0, held: Callable[[F64], float] | None = None,
) -> Found:  # fmt: skip
    """The best ridges of groups of ``widths`` columns (they add up to d), all from ``start`` on.

    ``G`` (d, d), ``H`` (d, C), ``target`` = ‖Y‖², ``rows`` and ``outside`` as in `FactoredSystem`.
    The ridges stay within ``ends``. ``held`` gives the squared error a row of weights (d, C) on
    held-out rows. Costs 7/3 d³ a trial.
    """

    def error(ridges: Ridges) -> float:
        penalty = np.repeat(ridges, widths)
        system = FactoredSystem(
            lambda: G.copy(order="C"), H, target, rows, lambda scale: scale * penalty, 1.0, outside
        )
        try:
            fit = system.fit(1.0)
        except NumericalError:  # it is no candidate
            return float("inf")
        measured = gcv(fit, rows, outside) if held is None else held(fit.weights())
        return float("inf") if measured is None else measured

    return descend(error, [start] * len(widths), ends)


def descend(
    error: Callable[[Ridges], float], start: Sequence[float], ends: tuple[float, float]
) -> Found:
    """Coordinate descent over the ridges ``start[s]``·√10^k within ``ends``; nothing tried twice.

    Ridges are rounded to three digits, so that they can be told and given again exactly.

    >>> descend(lambda r: abs(r[0] - 10) + abs(r[1] - 0.1), [1.0, 1.0], (1e-3, 1e3)).ridges
    (10.0, 0.1)
    """
    begun = here = (0,) * len(start)
    known: dict[tuple[int, ...], float] = {}

    def ridges(at: tuple[int, ...]) -> Ridges:
        return tuple(float(f"{one * 10 ** (k / 2):.3g}") for one, k in zip(start, at, strict=True))

    def measured(at: tuple[int, ...]) -> float:
        if at not in known:
            known[at] = error(ridges(at))
        return known[at]

    for _ in range(TURNS):
        before = here
        for group in range(len(start)):
            for step in (1, -1):
                while True:
                    there = (*here[:group], here[group] + step, *here[group + 1 :])
                    if not ends[0] <= ridges(there)[group] <= ends[1]:
                        break
                    if not measured(there) < measured(here) * (1 - WORTH):
                        break
                    here = there
        if here == before:
            break
    return Found(ridges(here), measured(here), measured(begun), len(known))
