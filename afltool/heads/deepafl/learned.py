"""What a deep analytic network has learned so far, which phase follows, and how files hold it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ...errors import InvalidDataError
from ...math.sandwich import LowRank
from ...values.arrays import F64, Array
from ...values.phases import Phase
from ..base import expect_shape, numbered
from . import incremental
from .options import BLOCK, WEIGHTS, DeepAFLOptions

JOINT = Phase("joint")  # the only phase of --single-round
ERRORS = "validation-mse"
NO_ERRORS: F64 = np.empty(0)


def every_phase(o: DeepAFLOptions) -> tuple[Phase, ...]:
    """weights-0, block-1, weights-1, … weights-T; without blocks where layers have no Ω."""
    if o.single_round:
        return (JOINT,)
    kinds = (BLOCK, WEIGHTS) if o.learns_blocks else (WEIGHTS,)
    later = (Phase.of(kind, t) for t in range(1, o.depth + 1) for kind in kinds)
    return Phase.of(WEIGHTS, 0), *later


@dataclass(frozen=True)
class Learned:
    """W_t and Ω_t, and until the network is solved the sums that later rounds need.

    ``weights``: W_0, W_1, … (d_Φ, C). ``blocks``: Ω_1, Ω_2, … ``decoders``: Q_0, Q_1, … (d_Φ, d_Φ)
    of (88). ``errors`` (t + 1,): squared error a row of the held-out clients after W_0, W_1, …;
    empty unless they were given in every round. ``kept``: the server's sums of --incremental.
    ``finished``: there will be no more layers, even if T is not reached.
    """

    weights: tuple[F64, ...] = ()
    blocks: tuple[LowRank, ...] = ()
    decoders: tuple[F64, ...] = ()
    errors: F64 = field(default_factory=lambda: NO_ERRORS)
    kept: incremental.Keeping = field(default_factory=dict)
    finished: bool = False

    def phase(self, o: DeepAFLOptions) -> Phase | None:
        """What to gather next; None when the network is solved."""
        t = len(self.weights)
        if self.finished or t > o.depth:
            return None
        if o.single_round:
            return JOINT
        return Phase.of(WEIGHTS if self.layers(o) == t else BLOCK, t)

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
        found = {name: a for name, a, _ in self._named(0, 0)}
        return {**found, **incremental.to_arrays(self.kept)}

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

    @classmethod
    def of(cls, phase: Phase | None, arrays: Mapping[str, Array], o: DeepAFLOptions) -> Learned:
        """The inverse of `arrays`; `InvalidDataError` when they are not those of the phase."""
        named = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
        left = enumerate(numbered(named, "block-{}-left", 1), start=1)
        blocks = tuple(LowRank(Z, named.get(f"block-{t}-right")) for t, Z in left)
        weights = numbered(named, "weights-{}")
        all_there = bool(weights) and len(blocks) == (len(weights) - 1) * o.learns_blocks
        found = cls(
            weights,
            blocks,
            numbered(named, "decoder-{}"),
            named.get(ERRORS, NO_ERRORS),
            incremental.from_arrays(named),
            finished=phase is None and all_there,
        )
        found._check_shapes(o)
        if found.phase(o) != phase:
            raise InvalidDataError(
                f"a head of phase {phase!r} holds the arrays of phase {found.phase(o)!r}"
            )
        return found

    @property
    def classes(self) -> int:
        """C, once W_0 is known."""
        return int(self.weights[0].shape[-1])

    def _check_shapes(self, o: DeepAFLOptions) -> None:
        """Refuse arrays of a file whose widths are not those of the options."""
        for name, array, shape in self._named(*o.widths):
            expect_shape(name, array, shape)
        if o.incremental and self.weights and not self.finished:
            if incremental.TRAINED not in self.kept:
                raise InvalidDataError("the head has no sums, which --incremental builds on")
            block_last = len(self.blocks) == len(self.weights)
            incremental.check_shapes(self.kept, o.widths, self.classes, block_last)
