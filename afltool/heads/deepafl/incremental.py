"""Sums that the server of --incremental continues from, so that clients send only what is new.

Let Ω_{t+1} = Z Uᵀ and P = F_t Z; then Φ_{t+1} = Φ_t + P Uᵀ. So only thin parts of G = ΦᵀΦ and
H = ΦᵀY are new, and clients send M = Φ_{t+1}ᵀP (d_Φ, r) and N = PᵀY (r, C), half the bytes:

    G_{t+1} = G_t + M Uᵀ + U Mᵀ − U (ZᵀΠ_t Z) Uᵀ        H_{t+1} = H_t + U N

The price: the same clients must take part in every round. The server keeps, of the sums that are
trained on and of those held out, G_t, H_t, Π_t, the `marks` of clients and the rows of each class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...errors import MismatchError, UsageError
from ...math.blas import length, pack, unpack
from ...math.gram import product
from ...values.arrays import F64, Array
from ...values.names import CROSS, GRAM
from ...values.statistics import Statistics
from ..base import Shape, marks
from .layers import MOVED

TRAINED, HELD_OUT = "kept", "held-out"
CLIENTS, COUNTS, HIDDEN_GRAM = "{}-clients", "{}-class-counts", "{}-hidden-gram"


@dataclass(frozen=True)
class Kept:
    """What is kept of one of the sums, among the ``known`` arrays of a head."""

    known: Mapping[str, Array]
    role: str

    def following(self, total: Statistics, weights: bool) -> dict[str, Array]:
        """The kept arrays after the solve of a complete total."""
        if not weights:
            return {HIDDEN_GRAM.format(self.role): total.arrays[GRAM]}
        return {
            f"{self.role}-{GRAM}": total.arrays[GRAM],
            f"{self.role}-{CROSS}": total.arrays[CROSS],
            CLIENTS.format(self.role): marks(total),
            COUNTS.format(self.role): total.class_counts,
        }

    def shapes(self, phi: int, hidden: int, classes: int | None, block: bool) -> dict[str, Shape]:
        """Of the kept arrays; Π is there when a block was solved last."""
        shapes: dict[str, Shape] = {
            f"{self.role}-{GRAM}": (length(phi),),
            f"{self.role}-{CROSS}": (phi, classes),
            CLIENTS.format(self.role): (None,),
            COUNTS.format(self.role): (classes,),
        }
        return shapes | ({HIDDEN_GRAM.format(self.role): (length(hidden),)} if block else {})

    def complete_total(self, total: Statistics, left: Array, right: Array | None) -> Statistics:
        """The total of G_{t+1} and H_{t+1} from one of M and N, with Z and U as rows use them."""
        M, N = total.arrays[MOVED], total.arrays[CROSS]
        names = f"{self.role}-{GRAM}", HIDDEN_GRAM.format(self.role)
        G, Pi = (unpack(self.known[name], np.float64) for name in names)
        Z: F64 = np.eye(len(Pi)) if right is None else left.astype(np.float64)  # dense: P = F
        U = (left.T if right is None else right).astype(np.float64)
        mixed = product(M - 0.5 * product(U, product(Z.T, product(Pi, Z))), U.T)
        H = self.known[f"{self.role}-{CROSS}"] + product(U, N)
        return replace(total, arrays={GRAM: pack(G + mixed + mixed.T), CROSS: H})


def check_same(known: Mapping[str, Array], seen: Mapping[str, Statistics]) -> None:
    """Refuse with `MismatchError` a round of other clients or rows than the round before, and with
    `UsageError` held-out clients in some rounds alone. Nothing is kept before the first round."""
    if CLIENTS.format(TRAINED) not in known:
        return
    if (CLIENTS.format(HELD_OUT) in known) != (HELD_OUT in seen):
        raise UsageError("with --incremental give --validate in all rounds, as in the first round")
    for role, sums in seen.items():
        clients, counts = known[CLIENTS.format(role)], known[COUNTS.format(role)]
        same = np.array_equal(marks(sums), clients)
        if not same or not np.array_equal(sums.class_counts, counts):
            first = f"{len(clients)} clients, {int(counts.sum())} rows"
            raise MismatchError(
                f"the sum over {len(sums.clients)} clients ({sums.rows} rows) is not of those of "
                f"the first round ({first}): give theirs, or begin again without --incremental"
            )
