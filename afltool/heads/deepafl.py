"""DeepAFL: residual layers of random features, each solved in closed form over two rounds.

Tang et al., "DeepAFL: Deep Analytic Federated Learning", ICLR 2026:

    Φ_0     = σ_0(X A)                         A random, from the seed             (2)
    F_t     = σ(Φ_t B_t)                       B_t random, from the seed           (6)
    Φ_{t+1} = Φ_t + F_t Ω_{t+1}                Ω learned in phase block-(t+1)      (9)
    scores  = Φ_T W_T                          W_t learned in phase weights-t      (5)

2T + 1 phases: weights-0, block-1, weights-1, …, weights-T (or one, see `replay`). Each gathers one
symmetric matrix and one matrix with C columns: ΦᵀΦ and ΦᵀY for W_t = (G + λI)⁻¹H (13), or FᵀF and
Fᵀ(Y − ΦW) for Ω (16)–(18), which is kept as its two thin factors. Nothing random is stored or sent.
With held-out clients the number of layers is chosen by their squared error, see `_best`.
With ``incremental`` the rounds weights-1, weights-2, … send thin matrices, see `_deepafl_kept`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from copy import copy

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError, MismatchError, UsageError
from ..linalg.fixedpoint import Rows
from ..linalg.gram import check_labels, product, real_cross, real_gram
from ..linalg.sandwich import Factors
from ..linalg.triangle import length
from ..statistics import Statistics
from . import _deepafl_kept as keeping
from ._deepafl_rows import HIDDEN, PHI, PHI0, Network, State
from ._deepafl_solve import ENERGY, RECONSTRUCTION, solve_block, solve_weights
from .base import Array, Carried, Head, Shape, expect_shape, note_round
from .least_squares import CROSS, GRAM
from .random_options import DeepAFLOptions
from .replay import replayed

F64 = NDArray[np.float64]
JOINT = "joint"  # the only phase of --single-round
FIRST = "same_clients"  # in the report: who was in the first round of --incremental


class DeepAFLHead(Head):
    """The deep residual analytic network, reached layer by layer."""

    name = "deepafl"
    options: DeepAFLOptions

    def __init__(self, options: DeepAFLOptions) -> None:
        super().__init__(options)
        self.weights: tuple[F64, ...] = ()  # W_0, W_1, …  (d_Φ, C)
        self.blocks: tuple[Factors, ...] = ()  # Ω_1, Ω_2, …
        self.decoders: tuple[F64, ...] = ()  # Q_0, Q_1, … (d_Φ, d_Φ) of (88), until it is solved
        self.kept: keeping.Keeping = {}  # the server's sums of --incremental, until it is solved
        self.finished = False  # no more layers, be it before the last
        self.network = Network(options)

    # ------------------------------------------------------------ the four verbs

    def phase(self) -> str | None:
        t = len(self.weights)
        if self.finished or t > self.options.depth:
            return None
        if self.options.single_round:
            return JOINT
        return f"weights-{t}" if self._layers == t else f"block-{t}"

    @property
    def _layers(self) -> int:
        """t of the deepest Φ_t that can be computed; nothing is learned for Ω = I."""
        known = len(self.weights) if self.options.identity_omega else len(self.blocks)
        return min(known, self.options.depth)

    def statistics(self, X: Rows, y: NDArray[np.int64]) -> Statistics:
        """gram and cross of Φ_t and Y, or of F_{t−1} and the residual; float64 sums."""
        return self.gather(X, y)[0]

    def gather(
        self, X: Rows, y: NDArray[np.int64], carried: Carried | None = None
    ) -> tuple[Statistics, Carried]:
        """`statistics`, and Φ_t (and F_t) of these rows for the next phase to start from."""
        phase = self.phase()
        if self.classes is None or phase is None:
            raise UsageError("only a head that is bound and not solved gathers statistics")
        check_labels(y, self.classes)
        t, weights = self._layers, phase.startswith("weights")
        if phase == JOINT:
            state = {PHI: self.network.all_layers(X)}
            arrays = self._of_weights(state, y)
        else:
            state = self._at(X, t - (weights and t > 0)) if carried is None else dict(carried)
            P = self.network.step(state, t - 1, self.blocks) if weights and t else None
            if not weights:
                arrays = self._of_block(state, y)
            elif P is not None and self.options.incremental:
                arrays = self._of_movement(state, P, y)
            else:
                arrays = self._of_weights(state, y)
        counts = np.bincount(y, minlength=self.classes).astype(np.int64)
        return Statistics(phase, arrays, counts), state

    def shapes(self, bits: int | None) -> dict[str, Shape]:
        """Those of `statistics`, without a random number drawn."""
        phase = self.phase()
        if self.classes is None or phase is None:
            raise UsageError("only a head that is bound and not solved gathers statistics")
        phi, hidden = self.options.widths
        if self.options.incremental and phase.startswith("weights") and self.blocks:
            U = self.blocks[-1].U
            rank = hidden if U is None else U.shape[-1]
            return {
                keeping.MOVED: ((phi, rank), "f"),
                CROSS: ((rank, self.classes), "f"),
            }
        side = phi if phase.startswith("weights") else hidden
        side = phi + self.options.depth * hidden if phase == JOINT else side
        found: dict[str, Shape] = {GRAM: ((length(side),), "f"), CROSS: ((side, self.classes), "f")}
        if self.options.reconstruction and phase != JOINT:
            found[RECONSTRUCTION] = (side, phi), "f"
            found |= {ENERGY: ((1,), "f")} if phase.startswith("weights") else {}
        return found

    def absorb(self, total: Statistics, validation: Statistics | None = None) -> DeepAFLHead:
        """Solve for W_t, or for Ω_t.

        ``validation`` chooses λ where W_t has several to choose from, and at the end the number of
        layers. Raises `MismatchError` for a total of another phase, `NumericalError` when the
        numbers do not determine an answer or the memory does not suffice.
        """
        phase = self.phase()
        if total.phase != phase:
            raise MismatchError(
                f"the head's next phase is {phase!r}; the total is of {total.phase!r}"
            )
        begun = time.perf_counter()
        if phase == JOINT:
            return replayed(self, total, validation)
        if total.phase.startswith("weights"):
            whole, seen = self._completed(total, validation)
            after, facts = solve_weights(self, whole, seen)
            if self.options.incremental:
                after.kept = keeping.after_weights(whole, seen)
        else:
            self._check_same_clients(total, validation)
            after, facts = solve_block(self, total)
            after.kept = keeping.after_block(self.kept, total, validation)
        note_round(self, after, total, time.perf_counter() - begun, **facts)
        after.report["rows"] = total.rows
        if self.options.incremental:
            after.report[FIRST] = self.report.get(FIRST, keeping.clients_of(total, validation))
        return after if len(after.blocks) > len(self.blocks) else after._best()

    @property
    def same_clients(self) -> bool:
        return self.options.incremental

    def _completed(
        self, total: Statistics, validation: Statistics | None
    ) -> tuple[Statistics, Statistics | None]:
        """The sums ΦᵀΦ and ΦᵀY that were given, or that what was given stands for."""
        if not (self.same_clients and self.blocks):
            return total, validation
        self._check_same_clients(total, validation)
        known = self.kept[keeping.TRAINED], self.kept.get(keeping.HELD_OUT)
        omega, compute = self.blocks[-1], self.options.compute
        whole = known[0].completed(total, omega, compute)
        if known[1] is None or validation is None:
            return whole, None
        return whole, known[1].completed(validation, omega, compute)

    def _check_same_clients(self, total: Statistics, validation: Statistics | None) -> None:
        if self.same_clients:
            keeping.same_clients(self.report.get(FIRST), total, validation)

    def scores(self, X: Rows) -> F64:
        """Φ_T W_T (n, C), products in the compute type."""
        if self.phase() is not None:
            raise UsageError("the head is not solved yet")
        last = len(self.weights) - 1
        return self._scores(self._at(X, last), last)

    def round_scores(self, X: Rows) -> Iterator[F64]:
        """Φ_t W_t for t = 0, 1, … as far as W_t is known: what fewer layers would say."""
        state = self._at(X, 0)
        for t in range(len(self.weights)):
            if t:
                self.network.step(state, t - 1, self.blocks)
            yield self._scores(state, t)

    # ------------------------------------------------------------ state, as files hold it

    def learned(self) -> dict[str, Array]:
        found: dict[str, Array] = {f"weights-{t}": W for t, W in enumerate(self.weights)}
        found |= {f"decoder-{t}": Q for t, Q in enumerate(self.decoders)}
        for t, block in enumerate(self.blocks, start=1):
            found[f"block-{t}-left"] = block.Z
            if block.U is not None:
                found[f"block-{t}-right"] = block.U
        return found

    def arrays(self) -> dict[str, Array]:
        return {**self.learned(), **keeping.to_arrays(self.kept)}

    def restore(self, phase: str | None, arrays: Mapping[str, Array]) -> DeepAFLHead:
        """The head of a file; `InvalidDataError` when its arrays are not those of its phase."""
        head = copy(self)
        named = {name: np.ascontiguousarray(a, dtype=np.float64) for name, a in arrays.items()}
        known, blocks, decoders = (
            sum(name.startswith(start) and not name.endswith("-right") for name in named)
            for start in ("weights-", "block-", "decoder-")
        )
        head.weights = tuple(named[f"weights-{t}"] for t in range(known))
        head.decoders = tuple(named[f"decoder-{t}"] for t in range(decoders))
        head.blocks = tuple(
            Factors(named[f"block-{t}-left"], named.get(f"block-{t}-right"))
            for t in range(1, blocks + 1)
        )
        head.kept = keeping.from_arrays(named)
        learned = 0 if self.options.identity_omega else known - 1
        head.finished = phase is None and known > 0 and blocks == learned
        head._check_shapes()
        if head.phase() != phase:
            raise InvalidDataError(
                f"a head of phase {phase!r} holds the arrays of phase {head.phase()!r}"
            )
        return head

    def previous(self) -> DeepAFLHead | None:
        """The head one phase earlier, without what was learned last; None if that is not known."""
        o, head = self.options, copy(self)
        head.finished, head.kept = False, {}
        if o.single_round:
            head.blocks = head.weights = ()
            return head if self.weights else None
        # Layers beyond the best and decoders are dropped when the head is solved.
        dropped = self.phase() is None and (len(self.weights) <= o.depth or o.reconstruction > 0)
        if not self.weights or dropped:
            return None
        if len(self.blocks) == len(self.weights):
            head.blocks = self.blocks[:-1]
        else:
            head.weights, head.decoders = self.weights[:-1], self.decoders[:-1]
        return head

    def so_far(self) -> DeepAFLHead | None:
        """The network of the layers that have weights already."""
        return self._cut(len(self.weights) - 1) if self.weights else None

    def solved_rounds(self) -> list[str]:
        """weights-0, weights-1, …: every smaller network is in this one."""
        return [f"weights-{t}" for t in range(len(self.weights))]

    def _cut(self, layers: int) -> DeepAFLHead:
        """The solved head of so many layers: the same as one that was begun with so many."""
        head = copy(self)
        head.weights, head.blocks = self.weights[: layers + 1], self.blocks[:layers]
        head.decoders, head.finished, head.kept = (), True, {}
        head.report = {k: v for k, v in self.report.items() if k != FIRST}
        return head

    def _best(self) -> DeepAFLHead:
        """This head; where it is to end, the layers with the least error on held-out clients.

        It ends at T, or once --patience layers brought no smaller error; of equals the fewest.
        """
        errors = [one.get("validation_mse") for one in self.report["phases"]]
        errors = [e for e, one in zip(errors, self.report["phases"], strict=True) if "ridge" in one]
        last, patience = len(self.weights) - 1, self.options.patience
        if any(e is None for e in errors):
            return self if self.phase() is not None else self._cut(last)
        best = int(np.argmin(errors))
        tired = patience is not None and last - best >= patience
        if self.phase() is not None and not tired:
            return self
        head = self._cut(best)
        head.report = {**head.report, "layers": best, "layers_by": "held-out clients"}
        return head

    def _check_shapes(self) -> None:
        """What a file holds of the layers is of the options' widths."""
        phi, hidden = self.options.widths
        for t, W in enumerate(self.weights):
            self.classes = self.weights[0].shape[-1]
            expect_shape(f"weights-{t}", W, (phi, self.classes))
        for t, Q in enumerate(self.decoders):
            expect_shape(f"decoder-{t}", Q, (phi, phi))
        for t, block in enumerate(self.blocks, start=1):
            rank = phi if block.U is None else block.U.shape[-1]
            expect_shape(f"block-{t}-left", block.Z, (hidden, rank))
            if block.U is not None:
                expect_shape(f"block-{t}-right", block.U, (phi, rank))
        if self.options.incremental and self.weights and not self.finished:
            assert self.classes is not None
            if keeping.TRAINED not in self.kept:
                raise InvalidDataError("the head lacks the sums that --incremental builds on")
            block_last = len(self.blocks) == len(self.weights)
            keeping.check_shapes(self.kept, (phi, hidden), self.classes, block_last)

    # ------------------------------------------------------------ client side

    def _at(self, X: Rows, layers: int) -> State:
        """Φ_0 carried through so many layers."""
        state = self.network.begin(X)
        for t in range(layers):
            self.network.step(state, t, self.blocks)
        return state

    def _of_weights(self, state: State, y: NDArray[np.int64]) -> dict[str, Array]:
        """ΦᵀΦ and ΦᵀY; for (88) also ΦᵀΦ_0 and ‖Φ_0‖²."""
        assert self.classes is not None
        phi = state[PHI]
        found: dict[str, Array] = {GRAM: real_gram(phi), CROSS: real_cross(phi, y, self.classes)}
        if self.options.reconstruction and self.phase() != JOINT:
            found[RECONSTRUCTION] = product(phi.T, state[PHI0]).astype(np.float64)
            found[ENERGY] = np.array([(state[PHI0].astype(np.float64) ** 2).sum()])
        return found

    def _of_movement(self, state: State, P: Array, y: NDArray[np.int64]) -> dict[str, Array]:
        """Φᵀ P and PᵀY, from which the server knows ΦᵀΦ and ΦᵀY; see `_deepafl_kept`."""
        assert self.classes is not None
        moved = product(state[PHI].T, P).astype(np.float64)
        return {keeping.MOVED: moved, CROSS: real_cross(P, y, self.classes)}

    def _of_block(self, state: State, y: NDArray[np.int64]) -> dict[str, Array]:
        """Π = FᵀF and Υ = FᵀR with R = Y − ΦW; for (88) also Fᵀ(Φ_0 − ΦQ)."""
        phi = state[PHI]
        state[HIDDEN] = hidden = self.network.hidden(state, self._layers)
        residual = product(phi, self.weights[-1].astype(phi.dtype))
        np.negative(residual, out=residual)
        residual[np.arange(len(y)), y] += 1
        found: dict[str, Array] = {GRAM: real_gram(hidden)}
        found[CROSS] = product(hidden.T, residual).astype(np.float64)
        if self.options.reconstruction:
            lost = state[PHI0] - product(phi, self.decoders[-1].astype(phi.dtype))
            found[RECONSTRUCTION] = product(hidden.T, lost).astype(np.float64)
        return found

    def _scores(self, state: State, t: int) -> F64:
        phi = state[PHI]
        return np.asarray(product(phi, self.weights[t].astype(phi.dtype)), dtype=np.float64)
