"""ΦᵀΦ of the next layer from sums that the server has already (`--incremental`).

With P = F_t Z, where Ω_{t+1} = Z Uᵀ, the rows move by Φ_{t+1} = Φ_t + P Uᵀ. So of G = ΦᵀΦ and
H = ΦᵀY only thin parts are new, and clients send M = Φ_{t+1}ᵀP (d_Φ, r) and N = PᵀY (r, C):

    G_{t+1} = G_t + M Uᵀ + U Mᵀ − U (ZᵀΠ_t Z) Uᵀ        H_{t+1} = H_t + U N

A layer costs its rows one symmetric product instead of two, and half the bytes. The price: every
round must be of the same clients, because the sums of the rounds before are part of the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..digest import Digest
from ..errors import InvalidDataError, MismatchError, UsageError
from ..linalg.gram import product
from ..linalg.sandwich import Factors
from ..linalg.triangle import length, pack, unpack
from ..statistics import Statistics, mark
from .base import Array, expect_shape
from .least_squares import CROSS, GRAM

F64 = NDArray[np.float64]
MOVED, HIDDEN_GRAM = "moved", "hidden-gram"
TRAINED, HELD_OUT = "kept", "held-out"  # the two sums that a server may have of a round


@dataclass(frozen=True)
class Kept:
    """G_t (a triangle), H_t (d_Φ, C) and, once a block is solved, Π_t (a triangle), float64."""

    gram: F64
    cross: F64
    hidden: F64 | None = None

    def after_block(self, total: Statistics) -> Kept:
        """Π_t beside them."""
        return replace(self, hidden=total.arrays[GRAM])

    def completed(self, total: Statistics, omega: Factors, compute: str) -> Statistics:
        """The total of G_{t+1} and H_{t+1} that a total of M and N stands for.

        ``omega`` is taken as rows take it, rounded to the compute type.
        """
        assert self.hidden is not None
        M, N = total.arrays[MOVED], total.arrays[CROSS]
        G, Pi = unpack(self.gram, np.float64), unpack(self.hidden, np.float64)
        left, right = omega.typed(compute)
        Z = np.eye(len(Pi)) if right is None else left.astype(np.float64)  # dense: P = F, U = Ωᵀ
        U = (left.T if right is None else right).astype(np.float64)
        mixed = product(M - 0.5 * product(U, product(Z.T, product(Pi, Z))), U.T)
        arrays = {GRAM: pack(G + mixed + mixed.T), CROSS: self.cross + product(U, N)}
        return replace(total, arrays=arrays)


Keeping = Mapping[str, Kept]  # by TRAINED and HELD_OUT


def after_weights(total: Statistics, validation: Statistics | None) -> Keeping:
    """What is kept of two complete totals."""
    given = {TRAINED: total, HELD_OUT: validation}
    return {
        role: Kept(one.arrays[GRAM], one.arrays[CROSS])
        for role, one in given.items()
        if one is not None
    }


def after_block(kept: Keeping, total: Statistics, validation: Statistics | None) -> Keeping:
    """What is kept of them once the block's totals are known."""
    given = {TRAINED: total, HELD_OUT: validation}
    found = {}
    for role, one in kept.items():
        sums = given[role]
        assert sums is not None  # `same_clients` has refused it
        found[role] = one.after_block(sums)
    return found


def clients_of(total: Statistics, validation: Statistics | None) -> dict[str, Any]:
    """Who is in the sums of a round, with which rows; plain values for a report."""
    given = {TRAINED: total, HELD_OUT: validation}
    return {
        role: {
            "clients": len(one.clients),
            "rows": one.rows,
            "class_counts": one.class_counts.tolist(),
            "mark": Digest().json("all", sorted(mark(*c) for c in one.clients.items())).hex()[:16],
        }
        for role, one in given.items()
        if one is not None
    }


def same_clients(
    before: Mapping[str, Any] | None, total: Statistics, validation: Statistics | None
) -> None:
    """Refuse with `MismatchError` a round of other clients, or of other rows, than the first."""
    if before is None:
        raise InvalidDataError("the head's report does not say whose sums it keeps: begin again")
    now = clients_of(total, validation)
    if before.keys() != now.keys():
        raise UsageError(
            "with --incremental held-out clients' sums (--validate) are given in every round or in "
            "none: give the sum over held-out clients of this phase"
            if HELD_OUT in before
            else "with --incremental held-out clients' sums (--validate) are given in every round "
            "or in none: there were none in the first"
        )
    for role, first in before.items():
        if now[role] != first:
            raise MismatchError(
                f"the sum over {now[role]['clients']} clients ({now[role]['rows']} rows) is not of "
                f"the clients and rows of the first round ({first['clients']} clients, "
                f"{first['rows']} rows), which --incremental needs in every round: give the sums "
                "of all of them, or begin again without --incremental"
            )


def to_arrays(kept: Keeping) -> dict[str, Array]:
    """As a head's file holds it."""
    found: dict[str, Array] = {}
    for role, one in kept.items():
        found |= {f"{role}-{GRAM}": one.gram, f"{role}-{CROSS}": one.cross}
        if one.hidden is not None:
            found[f"{role}-{HIDDEN_GRAM}"] = one.hidden
    return found


def from_arrays(named: Mapping[str, Array]) -> Keeping:
    """The inverse of `to_arrays`; other names are passed over."""
    return {
        role: Kept(
            named[f"{role}-{GRAM}"], named[f"{role}-{CROSS}"], named.get(f"{role}-{HIDDEN_GRAM}")
        )
        for role in (TRAINED, HELD_OUT)
        if f"{role}-{GRAM}" in named and f"{role}-{CROSS}" in named
    }


def check_shapes(kept: Keeping, widths: tuple[int, int], classes: int, block: bool) -> None:
    """What a file holds fits the widths; Π is there just when a block was solved last."""
    phi, hidden = widths
    for role, one in kept.items():
        expect_shape(f"{role}-{GRAM}", one.gram, (length(phi),))
        expect_shape(f"{role}-{CROSS}", one.cross, (phi, classes))
        Pi = np.empty(0) if one.hidden is None else one.hidden
        expect_shape(f"{role}-{HIDDEN_GRAM}", Pi, (length(hidden) * block,))
