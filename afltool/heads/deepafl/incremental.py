"""Sums that the server of --incremental continues from, so that clients send only what is new.

Let Ω_{t+1} = Z Uᵀ and P = F_t Z; then Φ_{t+1} = Φ_t + P Uᵀ. So only thin parts of G = ΦᵀΦ and
H = ΦᵀY are new, and clients send M = Φ_{t+1}ᵀP (d_Φ, r) and N = PᵀY (r, C):

    G_{t+1} = G_t + M Uᵀ + U Mᵀ − U (ZᵀΠ_t Z) Uᵀ        H_{t+1} = H_t + U N

A layer takes one symmetric product of the rows instead of two, and half the bytes. The price: the
same clients must take part in every round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...errors import MismatchError, UsageError
from ...math.blas import length, pack, unpack
from ...math.gram import product
from ...math.sandwich import LowRank
from ...values.arrays import F64, Array
from ...values.names import CROSS, GRAM
from ...values.statistics import Statistics
from ..base import expect_shape, marks

MOVED = "moved"
FILED = (  # the fields of `KeptSums`, and what a file calls them
    ("gram", GRAM),
    ("cross", CROSS),
    ("clients", "clients"),
    ("class_counts", "class-counts"),
    ("hidden", "hidden-gram"),
)
TRAINED, HELD_OUT = "kept", "held-out"  # the two sums of a round that a server may have


@dataclass(frozen=True)
class KeptSums:
    """G_t (a triangle), H_t (d_Φ, C) and, once a block is solved, Π_t (a triangle), float64.

    ``clients`` int64: the sorted `marks` of the clients in the sums and of their rows;
    ``class_counts`` int64 (C,).
    """

    gram: F64
    cross: F64
    clients: NDArray[np.int64]
    class_counts: NDArray[np.int64]
    hidden: F64 | None = None

    @classmethod
    def of(cls, total: Statistics) -> KeptSums:
        """What is kept of a complete total."""
        arrays = total.arrays
        return cls(arrays[GRAM], arrays[CROSS], marks(total), total.class_counts)

    def check_same(self, total: Statistics) -> None:
        """Refuse a round of other clients or rows with `MismatchError`."""
        same = np.array_equal(marks(total), self.clients)
        if not same or not np.array_equal(total.class_counts, self.class_counts):
            raise MismatchError(
                f"the sum over {len(total.clients)} clients ({total.rows} rows) is not of the "
                f"clients and rows of the first round ({len(self.clients)} clients, "
                f"{int(self.class_counts.sum())} rows), which --incremental needs in every round: "
                "give the sums of all of them, or begin again without --incremental"
            )

    def completed(self, total: Statistics, omega: LowRank, compute: str) -> Statistics:
        """The total of G_{t+1} and H_{t+1}, computed from a total of M and N.

        ``omega`` is rounded to the compute type first, as it is when rows use it.
        """
        assert self.hidden is not None
        M, N = total.arrays[MOVED], total.arrays[CROSS]
        G, Pi = unpack(self.gram, np.float64), unpack(self.hidden, np.float64)
        left, right = omega.astype(compute)
        Z = np.eye(len(Pi)) if right is None else left.astype(np.float64)  # dense: P = F, U = Ωᵀ
        U = (left.T if right is None else right).astype(np.float64)
        mixed = product(M - 0.5 * product(U, product(Z.T, product(Pi, Z))), U.T)
        arrays = {GRAM: pack(G + mixed + mixed.T), CROSS: self.cross + product(U, N)}
        return replace(total, arrays=arrays)

    def arrays(self, role: str) -> dict[str, Array]:
        """For a head's file."""
        named = {f"{role}-{name}": vars(self)[key] for key, name in FILED}
        return {name: array for name, array in named.items() if array is not None}

    @classmethod
    def restored(cls, named: Mapping[str, Array], role: str) -> KeptSums | None:
        """The inverse of `arrays`; None where one is missing."""
        known = {key: named.get(f"{role}-{name}") for key, name in FILED}
        there = all(array is not None for key, array in known.items() if key != "hidden")
        return cls(**known) if there else None  # type: ignore[arg-type]  # just looked at

    def check(self, role: str, widths: tuple[int, int], classes: int, block: bool) -> None:
        """Refuse arrays of other widths; Π must be there exactly when a ``block`` was last."""
        phi, hidden = widths
        triangles = (length(phi),), (length(hidden) * block,)
        shapes = (triangles[0], (phi, classes), (None,), (classes,), triangles[1])
        for (key, name), shape in zip(FILED, shapes, strict=True):
            array = vars(self)[key]
            expect_shape(f"{role}-{name}", np.empty(0) if array is None else array, shape)


def check_same(
    kept: Mapping[str, KeptSums], total: Statistics, validation: Statistics | None
) -> None:
    """Refuse a round of other clients, or of other rows, than the round before.

    Nothing is kept before the first round. Raises `MismatchError`, and `UsageError` if only some
    rounds have sums of held-out clients.
    """
    if not kept:
        return
    if (HELD_OUT in kept) != (validation is not None):
        first = "give the sum over held-out clients of this phase"
        raise UsageError(
            "with --incremental held-out clients' sums (--validate) are given in every round or in "
            f"none: {first if HELD_OUT in kept else 'there were none in the first'}"
        )
    kept[TRAINED].check_same(total)
    if validation is not None:
        kept[HELD_OUT].check_same(validation)
