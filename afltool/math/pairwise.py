"""The absolute aggregation law: two least-squares solutions → the solution of the pooled data.

He et al., AFL, CVPR 2025, Theorem 1 and equations (6)–(16). The paper prints a minus sign before
the last term of 𝒲_u and 𝒲_v ((6), (8), (A.17)–(A.28)); with the right one (tests/test_equations.py)

    𝒲_u = I − C_u⁻¹C_v + C_u⁻¹C_v (C_u + C_v)⁻¹ C_v = (C_u + C_v)⁻¹ C_u.

One solve of the sums gives the same at a fraction of the cost and with more digits: the law checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import scipy

from ..errors import InvalidDataError, NumericalError, UsageError
from ..values.arrays import F64
from ..values.names import CROSS, GRAM, UPLOADED, Phase
from ..values.statistics import ArraySpec, Statistics, Sum
from .blas import length, pack
from .ridge import cross_matrix, definite_solve, gram_matrix

MATRIX, WEIGHTS = "regularized-gram", "local-weights"  # arrays of what a client uploads


class Party(NamedTuple):
    """What the paper uploads: ``C`` = XᵀX + γI, (d, d), and ``W`` = C⁻¹XᵀY, (d, classes);
    ``gamma`` is the sum of the γ in C."""

    C: F64
    W: F64
    gamma: float = 0.0


def party(G: F64, H: F64, gamma: float) -> Party:
    """A client's upload (13), (15) from its gram G and cross-correlation H. `NumericalError` when G
    + γI cannot be inverted: fewer rows than features need γ > 0."""
    C = G.copy()
    C.flat[:: len(C) + 1] += gamma
    return Party(C, _solve(C, H, "a client's gram matrix"), gamma)


def merge(u: Party, v: Party) -> Party:
    """The law in its simplified form: W = (C_u + C_v)⁻¹ (C_u W_u + C_v W_v); one solve, d³."""
    C = u.C + v.C
    W = _solve(C, u.C @ u.W + v.C @ v.W, "the sum of two gram matrices")
    return Party(C, W, u.gamma + v.gamma)


def fold(parties: Iterable[Party]) -> Party:
    """K parties one after another, (9)–(11): K−1 merges, O(K d³); any order gives the same."""
    return reduce(merge, parties)


def remove_gamma(total: Party) -> tuple[F64, F64]:
    """The RI process undone, (16): gram C − Kγ I and cross C W, whose solution is W_agg."""
    G = total.C.copy()
    G.flat[:: len(G) + 1] -= total.gamma
    return G, total.C @ total.W


def compute_upload(part: Statistics) -> Statistics:
    """What a client of the paper uploads instead of its sums, float64: ``regularized-gram`` (13),
    the triangle of C = XᵀX + γI, and ``local-weights`` (15), C⁻¹XᵀY (d, classes)."""
    C, W, _ = _party(part)
    arrays = {MATRIX: pack(C), WEIGHTS: W}
    specs = {name: ArraySpec(a.shape, "real", square=a.ndim == 1) for name, a in arrays.items()}
    return replace(part, phase=Phase(UPLOADED), arrays=arrays, specs=specs)


def _party(part: Statistics) -> Party:
    """A client's upload, of its file or of its sums."""
    part.check_finite()
    gamma = sum(g * n for g, n in part.gammas.items())
    sent = part.phase == UPLOADED
    first, second = (MATRIX, WEIGHTS) if sent else (GRAM, CROSS)
    if set(part.arrays) != {first, second}:
        raise UsageError(
            f"the pairwise law is for phases with gram and cross; phase {part.phase!r} has "
            f"{', '.join(sorted(part.arrays))}",
            advice=": use --law sum",
        )
    matrix, other = part.arrays[first], part.arrays[second]
    if other.ndim != 2 or matrix.shape != (length(len(other)),):
        raise InvalidDataError(
            f"{first} {matrix.shape} and {second} {other.shape} of client {min(part.clients)} do "
            "not fit: expected d(d+1)/2 numbers beside d rows; make the statistics again"
        )
    bits = part.context.space.get("fraction_bits") if part.exact and not sent else None
    G, H = gram_matrix(matrix, bits), cross_matrix(other, bits)
    return Party(G, H, gamma) if sent else party(G, H, gamma)


def pairwise_total(parts: Iterable[Statistics], repeats: bool = False) -> Statistics:
    """Clients' sums of gram and cross, or `compute_upload`, folded by Theorem 1, without Kγ by
    (16): float64 arrays gram and cross in real units. ``repeats``: see `Sum`."""
    counts: list[Sum] = []  # carries clients and row counts, with the checks of a sum

    def parties() -> Iterator[Party]:
        for part in parts:
            of_sums = Phase(part.context.head["phase"])
            bare = replace(part, arrays={}, specs={}, phase=of_sums)
            counts[:] = [counts[0].add(bare) if counts else Sum(bare, repeats)]
            yield _party(part)

    G, H = remove_gamma(fold(parties()))
    return replace(counts[0].result(), arrays={GRAM: pack(G), CROSS: H})


def _solve(C: F64, H: F64, what: str) -> F64:
    try:
        return definite_solve(C, H)
    except scipy.linalg.LinAlgError:
        raise NumericalError(
            f"{what} ({len(C)} × {len(C)}) cannot be inverted: the pairwise law needs at least as "
            "many rows as features at each client",
            advice=", or a --gamma > 0 in the head; or use --law sum",
        ) from None
