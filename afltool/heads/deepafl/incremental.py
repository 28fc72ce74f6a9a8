"""Sums that the server of --incremental continues from, so that clients send only what is new.

Let Ω_{t+1} = Z Uᵀ and P = F_t Z; then Φ_{t+1} = Φ_t + P Uᵀ. So only thin parts of G = ΦᵀΦ and
H = ΦᵀY are new, and clients send M = Φ_{t+1}ᵀP (d_Φ, r) and N = PᵀY (r, C):

    G_{t+1} = G_t + M Uᵀ + U Mᵀ − U (ZᵀΠ_t Z) Uᵀ        H_{t+1} = H_t + U N

A layer takes one symmetric product of the rows instead of two, and half the bytes. The price: the
same clients must take part in every round.

The server keeps, under the names ROLE-`gram` and so on: G_t (a triangle), H_t (d_Φ, C) and, once a
block is solved, Π_t (a triangle), float64; the sorted `marks` of the clients in the sums and of
their rows, and the rows of each class, int64. Of the two sums that a round may have one is trained
on, the other is held out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...errors import MismatchError, UsageError
from ...math.blas import length, pack, unpack
from ...math.gram import product
from ...math.sandwich import LowRank
from ...values.arrays import Array
from ...values.names import CROSS, GRAM
from ...values.statistics import Statistics
from ..base import marks

MOVED = "moved"
TRAINED, HELD_OUT = "kept", "held-out"
CLIENTS, COUNTS, HIDDEN_GRAM = "{}-clients", "{}-class-counts", "{}-hidden-gram"


def kept_sums(role: str, total: Statistics) -> dict[str, Array]:
    """What is kept of a complete total."""
    return {
        f"{role}-{GRAM}": total.arrays[GRAM],
        f"{role}-{CROSS}": total.arrays[CROSS],
        CLIENTS.format(role): marks(total),
        COUNTS.format(role): total.class_counts,
    }


def kept_shapes(
    role: str, widths: tuple[int, int], classes: int, block: bool
) -> dict[str, tuple[int | None, ...]]:
    """Of `kept_sums`; ``block``: and of Π, which is there when a block was last."""
    phi, hidden = widths
    shapes: dict[str, tuple[int | None, ...]] = {
        f"{role}-{GRAM}": (length(phi),),
        f"{role}-{CROSS}": (phi, classes),
        CLIENTS.format(role): (None,),
        COUNTS.format(role): (classes,),
    }
    return shapes | ({HIDDEN_GRAM.format(role): (length(hidden),)} if block else {})


def completed(
    known: Mapping[str, Array], role: str, total: Statistics, omega: LowRank, compute: str
) -> Statistics:
    """The total of G_{t+1} and H_{t+1}, computed from a total of M and N and what is ``known``.

    ``omega`` is rounded to the compute type first, as it is when rows use it.
    """
    M, N = total.arrays[MOVED], total.arrays[CROSS]
    names = f"{role}-{GRAM}", HIDDEN_GRAM.format(role)
    G, Pi = (unpack(known[name], np.float64) for name in names)
    left, right = omega.astype(compute)
    Z = np.eye(len(Pi)) if right is None else left.astype(np.float64)  # dense: P = F, U = Ωᵀ
    U = (left.T if right is None else right).astype(np.float64)
    mixed = product(M - 0.5 * product(U, product(Z.T, product(Pi, Z))), U.T)
    H = known[f"{role}-{CROSS}"] + product(U, N)
    return replace(total, arrays={GRAM: pack(G + mixed + mixed.T), CROSS: H})


def check_same(
    known: Mapping[str, Array], total: Statistics, validation: Statistics | None
) -> None:
    """Refuse a round of other clients, or of other rows, than the round before.

    Nothing is kept before the first round. Raises `MismatchError`, and `UsageError` if only some
    rounds have sums of held-out clients.
    """
    if CLIENTS.format(TRAINED) not in known:
        return
    judged = CLIENTS.format(HELD_OUT) in known
    if judged != (validation is not None):
        first = "give the sum over held-out clients of this phase"
        raise UsageError(
            "with --incremental held-out clients' sums (--validate) are given in every round or in "
            f"none: {first if judged else 'there were none in the first'}"
        )
    for role, sums in ((TRAINED, total), (HELD_OUT, validation)):
        if sums is None:
            continue
        clients, counts = known[CLIENTS.format(role)], known[COUNTS.format(role)]
        same = np.array_equal(marks(sums), clients)
        if not same or not np.array_equal(sums.class_counts, counts):
            raise MismatchError(
                f"the sum over {len(sums.clients)} clients ({sums.rows} rows) is not of the "
                f"clients and rows of the first round ({len(clients)} clients, "
                f"{int(counts.sum())} rows), which --incremental needs in every round: give the "
                "sums of all of them, or begin again without --incremental"
            )
