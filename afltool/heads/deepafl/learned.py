"""What a deep analytic network has learned so far, which phase follows, and how files hold it.

With ``--incremental`` ΦᵀΦ of the next layer follows from sums that the server already has. Let
Ω_{t+1} = Z Uᵀ and P = F_t Z; then Φ_{t+1} = Φ_t + P Uᵀ. So only thin parts of G = ΦᵀΦ and H = ΦᵀY
are new, and clients send M = Φ_{t+1}ᵀP (d_Φ, r) and N = PᵀY (r, C):

    G_{t+1} = G_t + M Uᵀ + U Mᵀ − U (ZᵀΠ_t Z) Uᵀ        H_{t+1} = H_t + U N

A layer takes one symmetric product of the rows instead of two, and half the bytes. The price: the
same clients must take part in every round, because the server continues from the sums of earlier
rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidDataError, MismatchError, UsageError
from ...math.blas import length, pack, unpack
from ...math.gram import product
from ...math.sandwich import LowRank
from ...values.arrays import F64, Array
from ...values.names import CROSS, GRAM, Phase
from ...values.statistics import Statistics
from ..base import expect_shape, marks, numbered
from .options import BLOCK, WEIGHTS, DeepAFLOptions

ERRORS = "validation-mse"
NO_ERRORS: F64 = np.empty(0)
MOVED = "moved"
FILED = (  # the fields of `KeptSums`, and what a file calls them
    ("gram", GRAM), ("cross", CROSS), ("clients", "clients"), ("class_counts", "class-counts"),
    ("hidden", "hidden-gram"),
)  # fmt: skip
TRAINED, HELD_OUT = "kept", "held-out"  # the two sums of a round that a server may have
ROUNDING = "rounding"
UNSEEN = (*(f"{role}-clients" for role in (TRAINED, HELD_OUT)), ROUNDING)  # not in the digest


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


Keeping = Mapping[str, KeptSums]  # by TRAINED and HELD_OUT


def kept_of(total: Statistics, validation: Statistics | None) -> Keeping:
    """What is kept of two complete totals."""
    given = {TRAINED: total, HELD_OUT: validation}
    return {role: KeptSums.of(one) for role, one in given.items() if one is not None}


def kept_with_block(kept: Keeping, total: Statistics, validation: Statistics | None) -> Keeping:
    """What is kept once the totals of the block are known, too."""
    given = {TRAINED: total, HELD_OUT: validation}
    return {
        role: replace(one, hidden=sums.arrays[GRAM])
        for role, one in kept.items()
        if (sums := given[role])
    }


def same_clients(kept: Keeping, total: Statistics, validation: Statistics | None) -> None:
    """Refuse a round of other clients, or of other rows, than the round before.

    Nothing is kept before the first round. Raises `MismatchError`, and `UsageError` if only some
    rounds have sums of held-out clients.
    """
    if not kept:
        return
    if (HELD_OUT in kept) != (validation is not None):
        raise UsageError(
            "with --incremental held-out clients' sums (--validate) are given in every round or in "
            "none: give the sum over held-out clients of this phase"
            if HELD_OUT in kept
            else "with --incremental held-out clients' sums (--validate) are given in every round "
            "or in none: there were none in the first"
        )
    kept[TRAINED].check_same(total)
    if validation is not None:
        kept[HELD_OUT].check_same(validation)


def kept_arrays(kept: Keeping) -> dict[str, Array]:
    """The arrays for a head's file."""
    parts = ((role, name, vars(one)[key]) for role, one in kept.items() for key, name in FILED)
    return {f"{role}-{name}": array for role, name, array in parts if array is not None}


def kept_from(named: Mapping[str, Array]) -> Keeping:
    """The inverse of `kept_arrays`; ignores other names."""
    keeping = {}
    for role in (TRAINED, HELD_OUT):
        known = {key: named.get(f"{role}-{name}") for key, name in FILED}
        if all(array is not None for key, array in known.items() if key != "hidden"):
            keeping[role] = KeptSums(**known)  # type: ignore[arg-type]  # just looked at
    return keeping


def check_kept(kept: Keeping, widths: tuple[int, int], classes: int, block: bool) -> None:
    """Refuse arrays of other widths; Π must be there exactly when a block was solved last."""
    phi, hidden = widths
    triangles = (length(phi),), (length(hidden) * block,)
    shapes = (triangles[0], (phi, classes), (None,), (classes,), triangles[1])
    for role, one in kept.items():
        for (key, name), shape in zip(FILED, shapes, strict=True):
            array = vars(one)[key]
            expect_shape(f"{role}-{name}", np.empty(0) if array is None else array, shape)


def every_phase(o: DeepAFLOptions) -> tuple[Phase, ...]:
    """weights-0, block-1, weights-1, … weights-T; without blocks where layers have no Ω."""
    kinds = (BLOCK, WEIGHTS) if o.learns_blocks else (WEIGHTS,)
    later = (Phase.of(kind, t) for t in range(1, o.depth + 1) for kind in kinds)
    return Phase.of(WEIGHTS, 0), *later


@dataclass(frozen=True)
class Learned:
    """W_t and Ω_t, and until the network is solved the sums that later rounds need.

    ``weights``: W_0, W_1, … (d_Φ, C). ``blocks``: Ω_1, Ω_2, … ``decoders``: Q_0, Q_1, … (d_Φ, d_Φ)
    of (88). ``errors`` (t + 1,): squared error a row of the held-out clients after W_0, W_1, …;
    empty unless they were given in every round. ``kept``: the server's sums of --incremental.
    ``rounding`` (2,), of sums of reals, in units of the rounding of their products: by how much
    Φ_t may be off, and the last W_t; empty before. ``finished``: there will
    be no more layers, even if T is not reached.
    """

    weights: tuple[F64, ...] = ()
    blocks: tuple[LowRank, ...] = ()
    decoders: tuple[F64, ...] = ()
    errors: F64 = field(default_factory=lambda: NO_ERRORS)
    kept: Keeping = field(default_factory=dict)
    rounding: F64 = field(default_factory=lambda: NO_ERRORS)
    finished: bool = False

    def phase(self, o: DeepAFLOptions) -> Phase | None:
        """What to gather next; None when the network is solved."""
        t = len(self.weights)
        if self.finished or t > o.depth:
            return None
        return Phase.of(WEIGHTS if self.layers(o) == t else BLOCK, t)

    @property
    def moved(self) -> float:
        """The first number of ``rounding``; 0 before the first layer."""
        return float(self.rounding[0]) if len(self.rounding) else 0.0

    def layers(self, o: DeepAFLOptions) -> int:
        """t of the deepest Φ_t that can be computed; W_t is enough where layers have no Ω."""
        return min(len(self.blocks if o.learns_blocks else self.weights), o.depth)

    def with_weights(self, W: F64, Q: F64 | None, error: float | None) -> Learned:
        """This with one more W_t, its decoder and the held-out clients' error, if there are any."""
        errors = NO_ERRORS
        if error is not None and len(self.errors) == len(self.weights):
            errors = np.append(self.errors, error)
        return replace(
            self,
            weights=(*self.weights, W),
            decoders=self.decoders if Q is None else (*self.decoders, Q),
            errors=errors,
        )

    def solved(self, layers: int) -> Learned:
        """The solved network of ``layers`` layers, as if it had been begun with that number."""
        return Learned(self.weights[: layers + 1], self.blocks[:layers], finished=True)

    def chosen(self, o: DeepAFLOptions) -> int | None:
        """The number of layers if the network ends here; None if it goes on.

        It ends at T, or when --patience layers in a row brought no smaller error on the held-out
        clients. The number of layers with the least error is kept; of equal errors, the smallest
        number.
        """
        last, ends = len(self.weights) - 1, self.phase(o) is None
        if len(self.errors) != len(self.weights):
            return last if ends else None
        best = int(np.argmin(self.errors))
        ends = ends or (o.patience is not None and last - best >= o.patience)
        return best if ends else None

    # ------------------------------------------------------------ as files hold it

    def arrays(self) -> dict[str, Array]:
        """Everything, by name."""
        named = {name: a for name, a, _ in self._named(0, 0)}
        return {**named, **kept_arrays(self.kept)}

    def _named(self, phi: int, hidden: int) -> Iterator[tuple[str, Array, tuple[int, ...]]]:
        """Name, array and wanted shape of all but ``kept``, for widths d_Φ and d_F."""
        for t, W in enumerate(self.weights):
            yield f"weights-{t}", W, (phi, self.classes)
        for t, Q in enumerate(self.decoders):
            yield f"decoder-{t}", Q, (phi, phi)
        for t, block in enumerate(self.blocks, start=1):
            rank = phi if block.U is None else block.U.shape[-1]
            yield f"block-{t}-left", block.Z, (hidden, rank)
            if block.U is not None:
                yield f"block-{t}-right", block.U, (phi, rank)
        if self.errors.shape != NO_ERRORS.shape:
            yield ERRORS, self.errors, (len(self.weights),)
        if len(self.rounding):
            yield ROUNDING, self.rounding, (2,)

    @classmethod
    def of(cls, phase: Phase | None, arrays: Mapping[str, Array], o: DeepAFLOptions) -> Learned:
        """The inverse of `arrays`; `InvalidDataError` when they do not fit the options."""
        named = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
        left = enumerate(numbered(named, "block-{}-left", 1), start=1)
        blocks = tuple(LowRank(Z, named.get(f"block-{t}-right")) for t, Z in left)
        weights = numbered(named, "weights-{}")
        all_there = bool(weights) and len(blocks) == (len(weights) - 1) * o.learns_blocks
        learned = cls(
            weights,
            blocks,
            numbered(named, "decoder-{}"),
            named.get(ERRORS, NO_ERRORS),
            kept_from(named),
            named.get(ROUNDING, NO_ERRORS),
            finished=phase is None and all_there,
        )
        learned._check_shapes(o)
        return learned

    @property
    def classes(self) -> int:
        """C, once W_0 is known."""
        return int(self.weights[0].shape[-1])

    def _check_shapes(self, o: DeepAFLOptions) -> None:
        for name, array, shape in self._named(*o.widths):
            expect_shape(name, array, shape)
        if o.incremental and self.weights and not self.finished:
            if TRAINED not in self.kept:
                raise InvalidDataError("the head has no sums, which --incremental builds on")
            block_last = len(self.blocks) == len(self.weights)
            check_kept(self.kept, o.widths, self.classes, block_last)
