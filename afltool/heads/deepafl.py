"""DeepAFL: residual layers of random features, each solved in closed form over two rounds.

Tang et al., "DeepAFL: Deep Analytic Federated Learning", ICLR 2026:

    Φ_0     = σ_0(X A)                         A random, from the seed             (2)
    F_t     = σ(Φ_t B_t)                       B_t random, from the seed           (6)
    Φ_{t+1} = Φ_t + F_t Ω_{t+1}                Ω learned in phase block-(t+1)      (9)
    scores  = Φ_T W_T                          W_t learned in phase weights-t      (5)

2T + 1 phases: weights-0, block-1, weights-1, …, weights-T (or one, see `replay`). Each gathers one
symmetric matrix and one matrix with C columns: ΦᵀΦ and ΦᵀY for W_t = (G + λI)⁻¹H (13), or FᵀF and
Fᵀ(Y − ΦW) for Ω (16)–(18), which is kept as its two thin factors. Nothing random is stored or sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import memory
from ..errors import InvalidDataError, MismatchError, UsageError
from ..linalg.fixedpoint import Rows, dim, typed
from ..linalg.gram import add_product, check_labels, real_cross, real_gram
from ..linalg.ridge import cholesky_solve
from ..linalg.sandwich import Factors, bytes_needed, low_rank
from ..linalg.triangle import unpack
from ..statistics import Statistics
from .base import Array, Carried, Head
from .least_squares import CROSS, GRAM, Choice, Problem, solve
from .random import Projections, activate
from .random_options import DeepAFLOptions
from .replay import direct_mse, replay

F64 = NDArray[np.float64]
JOINT = "joint"  # the only phase of --single-round
PHI, PHI0, HIDDEN = "phi", "phi0", "hidden"


class DeepAFLHead(Head):
    """The deep residual analytic network, reached layer by layer."""

    name = "deepafl"
    options: DeepAFLOptions

    def __init__(self, options: DeepAFLOptions) -> None:
        super().__init__(options)
        self.weights: tuple[F64, ...] = ()  # W_0, W_1, …  (d_Φ, C)
        self.blocks: tuple[Factors, ...] = ()  # Ω_1, Ω_2, …
        self._random = Projections(options.projection, options.seed)

    # ------------------------------------------------------------ the four verbs

    def phase(self) -> str | None:
        t = len(self.weights)
        if t > self.options.depth:
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
        weights = phase.startswith("weights")
        if phase == JOINT:
            state, weights = {PHI: self._all_layers(X)}, True
        elif carried is None:
            state = self._at(X, self._layers)
        else:
            state = dict(carried)
            if weights:
                self._advance(state, self._layers - 1)
        arrays = self._of_weights(state, y) if weights else self._of_block(state, y)
        counts = np.bincount(y, minlength=self.classes).astype(np.int64)
        return Statistics(phase, arrays, counts), state

    def absorb(self, total: Statistics, validation: Statistics | None = None) -> DeepAFLHead:
        """Solve for W_t, or for Ω_t; ``validation`` chooses λ where W_t has several to choose from.

        Raises `MismatchError` for a total of another phase, `NumericalError` when the numbers do
        not determine an answer or the memory does not suffice.
        """
        phase = self.phase()
        if total.phase != phase:
            raise MismatchError(
                f"the head's next phase is {phase!r}; the total is of {total.phase!r}"
            )
        begun = time.perf_counter()
        if phase == JOINT:
            return self._replayed(total)
        weights = total.phase.startswith("weights")
        after, facts = self._with_weights(total, validation) if weights else self._with_block(total)
        facts["solve_seconds"] = round(time.perf_counter() - begun, 4)
        facts["upload_bytes"] = sum(a.nbytes for a in total.arrays.values())
        learned = set(after.arrays()) - set(self.arrays())
        facts["download_bytes"] = sum(after.arrays()[name].nbytes for name in learned)
        rounds = [*self.report.get("phases", []), {"phase": phase, **facts}]
        after.report = {"phases": rounds, "rows": total.rows}
        return after

    def scores(self, X: Rows) -> F64:
        """Φ_T W_T (n, C), products in the compute type."""
        if self.phase() is not None:
            raise UsageError("the head is not solved yet")
        return self._scores(self._at(X, self.options.depth), self.options.depth)

    def layer_scores(self, X: Rows) -> Iterator[F64]:
        """Φ_t W_t for t = 0, 1, … as far as W_t is known: what fewer layers would say."""
        state = self._at(X, 0)
        for t in range(len(self.weights)):
            if t:
                self._advance(state, t - 1)
            yield self._scores(state, t)

    # ------------------------------------------------------------ state, as files hold it

    def arrays(self) -> dict[str, Array]:
        found: dict[str, Array] = {f"weights-{t}": W for t, W in enumerate(self.weights)}
        for t, block in enumerate(self.blocks, start=1):
            found |= {f"block-{t}-left": block.Z, f"block-{t}-right": block.U}
        return found

    def restore(self, phase: str | None, arrays: Mapping[str, Array]) -> DeepAFLHead:
        """The head of a file; `InvalidDataError` when its arrays are not those of its phase."""
        head = copy(self)
        blocks = sum(name.endswith("-left") for name in arrays)
        known = len(arrays) - 2 * blocks
        head.weights = tuple(_float64(arrays[f"weights-{t}"]) for t in range(known))
        head.blocks = tuple(
            Factors(_float64(arrays[f"block-{t}-left"]), _float64(arrays[f"block-{t}-right"]))
            for t in range(1, blocks + 1)
        )
        if head.phase() != phase:
            raise InvalidDataError(
                f"a head of phase {phase!r} holds the arrays of phase {head.phase()!r}"
            )
        return head

    def previous(self) -> DeepAFLHead | None:
        """The head one phase earlier, without what was learned last."""
        if not self.weights:
            return None
        head = copy(self)
        if self.options.single_round:
            head.blocks = head.weights = ()
        elif len(self.blocks) == len(self.weights):
            head.blocks = self.blocks[:-1]
        else:
            head.weights = self.weights[:-1]
        return head

    # ------------------------------------------------------------ server side

    def _with_weights(
        self, total: Statistics, validation: Statistics | None
    ) -> tuple[DeepAFLHead, dict[str, Any]]:
        o = self.options
        side = len(total.arrays[CROSS])
        memory.need(8 * 5 * side * side, f"the weights of {side} features")
        problem = Problem.of(total)
        assert o.ridge is not None
        choice = Choice.make(o.ridge, problem, validation)
        facts: dict[str, Any] = {"features": side}
        if choice.ridge > 0 and choice.spectral is None:
            # Positive definite by the ridge: no look at the spectrum, which costs more than this.
            W = cholesky_solve(problem.G, problem.H, choice.ridge)
        else:
            W, facts = solve(problem, choice, min_norm=o.min_norm)
        risk = problem.squared_error(W)
        facts |= {**choice.report(), "training_mse": risk / total.rows}
        penalty = o.block_gamma * sum(float((b.Z**2).sum()) for b in self.blocks)
        facts["objective"] = risk + choice.ridge * float((W**2).sum()) + penalty
        after = copy(self)
        after.weights = (*self.weights, W)
        return after, facts

    def _with_block(self, total: Statistics) -> tuple[DeepAFLHead, dict[str, Any]]:
        if total.rows == 0:
            raise InvalidDataError("the total has 0 rows: there is nothing to solve")
        side = len(total.arrays[CROSS])
        memory.need(8 * side * side + bytes_needed(side), f"a layer of {side} hidden features")
        W, Upsilon = self.weights[-1], total.arrays[CROSS]
        Pi = unpack(total.arrays[GRAM], np.float64)
        omega = low_rank(Pi, Upsilon, W, self.options.block_gamma)
        after = copy(self)
        after.blocks = (*self.blocks, omega)
        M = omega.Z @ (omega.U.T @ W)  # F Ω W = F M
        gain = 2.0 * float((M * Upsilon).sum()) - float((M * (Pi @ M)).sum())
        return after, {"training_mse_gain": gain / total.rows}

    def _replayed(self, total: Statistics) -> DeepAFLHead:
        side = len(total.arrays[CROSS])
        memory.need(8 * 4 * side * side, f"replaying {self.options.depth} layers")
        layered = copy(self)
        layered.options = replace(self.options, single_round=False)
        after, layered = copy(self), replay(layered, total)
        after.weights, after.blocks, after.report = layered.weights, layered.blocks, layered.report
        last = after.report["phases"][-1]
        if last["ridge"] > 0:
            after.report["direct_ridge_mse"] = direct_mse(total, last["ridge"])
        return after

    # ------------------------------------------------------------ rows through the layers

    def _at(self, X: Rows, layers: int) -> dict[str, Array]:
        """Φ_0 carried through so many layers."""
        o = self.options
        A = self._random(0, dim(X), o.widths[0])
        state = {PHI: activate(o.sigma0, A(typed(X, o.compute)))}
        if o.from_phi0:
            state[PHI0] = state[PHI].copy()
        for t in range(layers):
            self._advance(state, t)
        return state

    def _all_layers(self, X: Rows) -> Array:
        """Z = [Φ_0, F_0, …, F_{T−1}] of the variant (89)."""
        state = self._at(X, 0)
        return np.hstack([state[PHI], *(self._hidden(state, t) for t in range(self.options.depth))])

    def _hidden(self, state: dict[str, Array], t: int) -> Array:
        """F_t = σ(Φ_t B_t), or σ(Φ_0 B_t) in the variant (89)."""
        o = self.options
        source = state.get(PHI0, state[PHI])
        if o.identity_projection:
            return activate(o.sigma, source.copy())
        return activate(o.sigma, self._random(t + 1, *o.widths)(source))

    def _advance(self, state: dict[str, Array], t: int) -> None:
        """Φ_t → Φ_{t+1}, in place where it can be."""
        hidden = state.pop(HIDDEN, None)
        hidden = self._hidden(state, t) if hidden is None else hidden
        if self.options.identity_omega:
            state[PHI] = hidden if self.options.no_skip else state[PHI] + hidden
            return
        Z, U = (f.astype(hidden.dtype) for f in (self.blocks[t].Z, self.blocks[t].U))
        if self.options.no_skip:
            state[PHI] = np.zeros((len(hidden), len(U)), hidden.dtype)
        add_product(state[PHI], hidden @ Z, U)

    def _of_weights(self, state: dict[str, Array], y: NDArray[np.int64]) -> dict[str, Array]:
        assert self.classes is not None
        return {GRAM: real_gram(state[PHI]), CROSS: real_cross(state[PHI], y, self.classes)}

    def _of_block(self, state: dict[str, Array], y: NDArray[np.int64]) -> dict[str, Array]:
        """Π = FᵀF and Υ = FᵀR with R = Y − ΦW."""
        state[HIDDEN] = self._hidden(state, self._layers)
        residual = -(state[PHI] @ self.weights[-1].astype(state[PHI].dtype))
        residual[np.arange(len(y)), y] += 1
        cross = state[HIDDEN].T @ residual
        return {GRAM: real_gram(state[HIDDEN]), CROSS: cross.astype(np.float64)}

    def _scores(self, state: Mapping[str, Array], t: int) -> F64:
        phi = state[PHI]
        return np.asarray(phi @ self.weights[t].astype(phi.dtype), dtype=np.float64)


def _float64(a: Array) -> F64:
    return np.ascontiguousarray(a, dtype=np.float64)
