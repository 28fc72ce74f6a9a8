"""DeepAFL: residual layers of random features, each solved in closed form over two rounds.

Tang et al., "DeepAFL: Deep Analytic Federated Learning", ICLR 2026:

    Φ_0     = σ_0(X A)                         A random, from the seed             (2)
    F_t     = σ(Φ_t B_t)                       B_t random, from the seed           (6)
    Φ_{t+1} = Φ_t + F_t Ω_{t+1}                Ω learned in phase block-(t+1)      (9)
    scores  = Φ_T W_T                          W_t learned in phase weights-t      (5)

2T + 1 phases: weights-0, block-1, weights-1, …, weights-T (or T + 1 without learned blocks). Every
round gathers one symmetric matrix and one with C columns: ΦᵀΦ and ΦᵀY for W_t (11), FᵀF and FᵀR
with R = Y − ΦW for Ω_{t+1} (14)–(16); the reconstruction of Φ_0, (88), adds a third. Ω is kept as
two thin factors, and nothing random is stored or sent. Held-out clients choose how many layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ... import memory
from ...math import ridge as rr
from ...math.blas import unpack
from ...math.gram import LARGEST_ENTRY, Rows, product
from ...math.sandwich import LowRank, bytes_needed, low_rank, reconstructing
from ...values.arrays import F64, I64, Array
from ...values.names import CROSS, GRAM, Phase
from ...values.ridge_spec import parse_ridge
from ...values.statistics import ArraySpec, Statistics
from .. import base
from ..base import Found, Head, Shape, State, require_solved
from ..least_squares import chosen_ridge, held_out_error, solve
from ..options import FIXED
from ..problem import Problem, checked, named
from .incremental import CLIENTS, HELD_OUT, HIDDEN_GRAM, TRAINED, Kept, check_same
from .layers import HIDDEN, LARGEST_RESIDUAL, MOVED, PHI, PHI0, FixedLayers, Layers
from .options import BLOCK, WEIGHTS, DeepAFLOptions

ERRORS, ROUNDING = "validation-mse", "rounding"
RECONSTRUCTION = "reconstruction"  # the array of (88)
LEARNED = ("weights-", "block-", "decoder-")  # what clients get; only the server needs the rest
Solved = tuple[dict[str, Array], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class DeepAFLHead(Head):
    """The deep residual analytic network, learned layer by layer.

    ``learned``, by name: `weights-t` (d_Φ, C); `block-t-left` and `-right`, Ω_t. Until the head is
    solved also `decoder-t`, Q_t (d_Φ, d_Φ) of (88); `validation-mse` (t + 1,), the error of
    held-out clients after each W_t; the sums of --incremental; `rounding` (2,), by how much Φ_t and
    the last W_t may be off, in roundings of products. ``finished``: there will be no more layers.
    """

    name = "deepafl"
    not_in_digest = (CLIENTS.format(TRAINED), CLIENTS.format(HELD_OUT), ROUNDING)
    options: DeepAFLOptions

    learned: Mapping[str, Array] = field(default_factory=dict)
    finished: bool = False

    @cached_property
    def weights(self) -> tuple[F64, ...]:
        """W_0, W_1, …"""
        return base.numbered_arrays(self.learned, "weights-{}")

    @cached_property
    def blocks(self) -> tuple[LowRank, ...]:
        """Ω_1, Ω_2, …"""
        left = enumerate(base.numbered_arrays(self.learned, "block-{}-left", 1), start=1)
        return tuple(LowRank(Z, self.learned.get(f"block-{t}-right")) for t, Z in left)

    @cached_property
    def features(self) -> Layers:
        """Φ_t, of the deepest t that can be computed: W_t is enough where layers have no Ω."""
        o, known = self.options, len(self.weights)
        deepest = len(self.blocks) if o.learns_blocks else min(known - self.finished, o.depth)
        begin = deepest - (0 < deepest == known)
        make = FixedLayers if o.compute == FIXED else Layers
        return make(o, self.weights, self.blocks, deepest, begin)

    @property
    def of_weights(self) -> bool:
        """Whether the next sums are for a W_t, not for an Ω."""
        return self.features.deepest == len(self.weights)

    def phase(self) -> Phase | None:
        t = len(self.weights)
        if self.finished or t > self.options.depth:
            return None
        return Phase.of(WEIGHTS if self.of_weights else BLOCK, t)

    def schedule(self) -> tuple[Phase, ...]:
        o = self.options
        kinds = (BLOCK, WEIGHTS) if o.learns_blocks else (WEIGHTS,)
        later = (Phase.of(kind, t) for t in range(1, o.depth + 1) for kind in kinds)
        return Phase.of(WEIGHTS, 0), *later

    def _part(self, X: Rows, y: I64, known: State | None) -> tuple[Mapping[str, Array], State]:
        """Sums of Φ_t and Y, or of F_{t−1} and the residual; Φ_t (and F_t) of the rows is left."""
        _, state = self.features.rows(X, known)
        P = state.pop(MOVED, None)
        return self._sum_weights(state, P, y) if self.of_weights else self._sum_block(
            state, y
        ), state

    def _sum_weights(self, state: State, P: Array | None, y: I64) -> dict[str, Array]:
        """ΦᵀΦ and ΦᵀY; for (88) also ΦᵀΦ_0 (d_Φ, d_Φ); or ΦᵀP and PᵀY of P Uᵀ."""
        layers, phi, classes = self.features, state[PHI], self._bound()[1]
        if P is not None:
            return {MOVED: layers.product(phi, P), CROSS: layers.cross_product(P, y, classes)}
        found = {GRAM: layers.gram(phi), CROSS: layers.cross_product(phi, y, classes)}
        if self.options.reconstruction:
            found[RECONSTRUCTION] = layers.product(phi, state[PHI0])
        return found

    def _sum_block(self, state: State, y: I64) -> dict[str, Array]:
        """Π = FᵀF and Υ = FᵀR; for (88) also Fᵀ(Φ_0 − ΦQ). F is left in the state. Without the
        skip connection FΩ replaces Φ, so it has to fit Y itself."""
        o, layers, phi = self.options, self.features, state[PHI]
        state[HIDDEN] = F = layers.hidden_of(state, layers.deepest)
        found = {GRAM: layers.gram(F)}
        if o.no_skip:
            found[CROSS] = layers.cross_product(F, y, self._bound()[1])
        else:
            found[CROSS] = layers.product(F, layers.residual(phi, self.weights[-1], y))
        if o.reconstruction:
            Q = self.learned[f"decoder-{layers.deepest}"].astype(phi.dtype)
            found[RECONSTRUCTION] = layers.product(F, state[PHI0] - product(phi, Q))
        return found

    def array_specs(self, bits: int | None) -> dict[str, ArraySpec]:
        """In a block rows are multiplied by residuals, unless there is no skip connection."""
        o, (phi, hidden), classes = self.options, self.options.widths, self._bound()[1]
        exact, block = self.options.compute == FIXED, not self.of_weights
        if o.incremental and not block and self.blocks:
            U = self.blocks[-1].U
            rank = hidden if U is None else U.shape[-1]
            moved = ArraySpec((phi, rank), "real", base.LARGEST_REAL)
            return {MOVED: moved, CROSS: replace(moved, shape=(rank, classes))}
        side = hidden if block else phi
        found = base.products(side, classes, exact)
        most = LARGEST_ENTRY * LARGEST_RESIDUAL if exact else base.LARGEST_REAL
        residual = ArraySpec((side, phi), found[GRAM].kind, most, rows_of=GRAM)
        if block and not o.no_skip:
            found[CROSS] = replace(residual, shape=(side, classes))
        if o.reconstruction:
            found[RECONSTRUCTION] = residual
        return found

    def _solve(self, total: Statistics, validation: Statistics | None) -> tuple[Self, Found]:
        """W_t, or Ω_t; ``validation`` chooses λ, if there are several, and the number of layers."""
        o, seen = self.options, {TRAINED: self.features.read_sums(total)}
        if validation is not None:
            seen[HELD_OUT] = self.features.read_sums(validation)
        with named(o.compute):
            if o.incremental:
                check_same(self.learned, seen)
            if self.of_weights and o.incremental and self.blocks:
                omega = self.blocks[-1].astype(o.compute)
                seen = {k: Kept(self.learned, k).complete_total(s, *omega) for k, s in seen.items()}
            learned, facts = (self._with_weights if self.of_weights else self._with_block)(
                seen[TRAINED], seen.get(HELD_OUT)
            )
        if o.incremental:
            for role, one in seen.items():
                learned.pop(HIDDEN_GRAM.format(role), None)
                learned |= Kept(learned, role).following(one, self.of_weights)
        sent = [a for k, a in learned.items() if k.startswith(LEARNED) and k not in self.learned]
        after, report = replace(self, learned=learned), dict[str, Any]()
        if self.of_weights:
            after, report = after._finish()
        return after, Found(head={"rows": total.rows, **report}, round=facts, sent=sent)

    def _with_weights(self, total: Statistics, validation: Statistics | None) -> Solved:
        """W_t = (G + λI)⁻¹ H (13), and the decoder Q_t = (G + λI)⁻¹ ΦᵀΦ_0 of (88)."""
        o, side, t = self.options, len(total.arrays[CROSS]), len(self.weights)
        memory.require_memory(8 * 5 * side * side, f"the weights of {side} features")
        problem = Problem.of(total, drawn=o.compute)
        ridge = parse_ridge(o.ridge or 0.0)
        choice = chosen_ridge(ridge, problem, None if isinstance(ridge, float) else validation)
        facts: dict[str, Any] = {"features": side}
        if choice.ridge > 0 and not choice.path:  # positive definite: no spectrum is needed
            W = rr.cholesky_solve(problem.G, problem.H, choice.ridge)
        else:
            W, facts = solve(problem, choice, min_norm=o.min_norm)
        moved = float(self.learned[ROUNDING][0]) if ROUNDING in self.learned else 0.0
        found = checked(problem, choice, W, o.min_norm, moved)
        risk = problem.squared_error(W)
        facts |= {**choice.report(), "training_mse": risk / total.rows}
        learned = {**self.learned, f"weights-{t}": W}
        errors = learned.pop(ERRORS, np.empty(0))
        if validation is not None:
            facts["validation_mse"] = held_out_error(validation, problem)(W)
            if len(errors) == t:
                learned[ERRORS] = np.append(errors, facts["validation_mse"])
        penalty = (o.block_ridge or 0.0) * sum(float((b.Z**2).sum()) for b in self.blocks)
        facts["objective"] = risk + choice.ridge * float((W**2).sum()) + penalty
        if o.reconstruction:  # argmin ‖Φ_0 − ΦQ‖² + λ‖Q‖², of minimum norm for λ = 0
            G, H, λ = problem.G, total.arrays[RECONSTRUCTION], choice.ridge
            Q = rr.cholesky_solve(G, H, λ) if λ > 0 else rr.Spectral.of(G, H).weights(0.0)
            learned[f"decoder-{t}"] = Q
        if found is not None:
            learned[ROUNDING] = np.array([moved, found])
        return learned, facts

    def _with_block(self, total: Statistics, validation: Statistics | None) -> Solved:
        """Ω_{t+1} from Π and Υ, (16)–(18), or with the reconstruction of Φ_0, (88)."""
        o, W, Upsilon = self.options, self.weights[-1], total.arrays[CROSS]
        t, side, dense = len(self.weights), len(Upsilon), len(W) if o.reconstruction else 0
        needed = 8 * side * side + bytes_needed(side, dense)
        memory.require_memory(needed, f"a layer of {side} hidden features")
        Pi = unpack(total.arrays[GRAM], np.float64)
        if o.reconstruction:
            lost = total.arrays[RECONSTRUCTION], self.learned[f"decoder-{t - 1}"]
            omega = reconstructing(Pi, (Upsilon, W), lost, o.reconstruction, o.block_ridge or 0.0)
        else:
            omega = low_rank(Pi, Upsilon, W, o.block_ridge or 0.0)
        learned = {**self.learned, f"block-{t}-left": omega.Z}
        if omega.U is not None:
            learned[f"block-{t}-right"] = omega.U
        if ROUNDING in learned and not o.no_skip:  # without it FΩ replaces Φ
            learned[ROUNDING] = _update_rounding(learned[ROUNDING], W, omega, Pi, total.rows)
        return learned, {}

    def _finish(self) -> tuple[Self, dict[str, Any]]:
        """After T layers the solved head, as if it had been begun with the number of layers that
        has the least error on held-out clients; of equal errors, the smallest number."""
        last, judged = len(self.weights) - 1, ERRORS in self.learned
        best = int(np.argmin(self.learned[ERRORS])) if judged else last
        if self.phase() is not None:
            return self, {}
        layers = [f"weights-{t}" for t in range(best + 1)]
        layers += [f"block-{t}-{side}" for t in range(1, best + 1) for side in ("left", "right")]
        kept = {name: self.learned[name] for name in layers if name in self.learned}
        after = replace(self, learned=kept, finished=True)
        return after, {"layers": best, "layers_by": "held-out clients"} if judged else {}

    def decision_function(self, X: Rows) -> F64:
        """Φ_T W_T (n, C), products in the compute type."""
        require_solved(None if self.phase() else self.weights)
        return self.features.scores(self.features.rows(X)[0], self.weights[-1])

    def round_scores(self, X: Rows) -> Iterator[tuple[Phase, F64]]:
        """Φ_t W_t for each t with a known W_t: the scores of networks with fewer layers."""
        for (phase, phi), W in zip(self.features.each(X), self.weights, strict=True):
            yield phase, self.features.scores(phi, W)

    def state_dict(self) -> dict[str, Array]:
        return dict(self.learned)

    def restore(self, phase: Phase | None, arrays: Mapping[str, Array]) -> Self:
        head = replace(self, learned={k: np.ascontiguousarray(a) for k, a in arrays.items()})
        layers = (len(head.weights) - 1) * self.options.learns_blocks
        whole = bool(head.weights) and len(head.blocks) == layers
        head = replace(head, finished=phase is None and whole)
        known = {k: a for k, a in head.learned.items() if k in head._state_shapes()}
        return replace(head, learned=known)._in_phase(phase)

    def _state_shapes(self) -> Mapping[str, Shape]:
        """The shape of everything that is learned."""
        (phi, hidden), learned = self.options.widths, self.learned
        shapes: dict[str, Shape] = {
            f"weights-{t}": (phi, self.classes) for t in range(len(self.weights))
        }
        for t, block in enumerate(self.blocks, start=1):
            rank = phi if block.U is None else block.U.shape[-1]
            sides = ("left", hidden), ("right", phi)
            shapes |= {f"block-{t}-{k}": (n, rank) for k, n in sides[: 1 + (block.U is not None)]}
        decoders = len(base.numbered_arrays(learned, "decoder-{}"))
        shapes |= {f"decoder-{t}": (phi, phi) for t in range(decoders)}
        own: dict[str, Shape] = {ERRORS: (len(self.weights),), ROUNDING: (2,)}
        shapes |= {name: shape for name, shape in own.items() if name in learned}
        if self.options.incremental and self.weights and not self.finished:
            for role in (TRAINED, HELD_OUT):
                if role == TRAINED or CLIENTS.format(role) in learned:
                    shapes |= Kept(learned, role).shapes(phi, hidden, self.classes, self.of_weights)
        return shapes


def _update_rounding(known: F64, W: F64, omega: LowRank, Pi: F64, rows: int) -> F64:
    """``rounding`` once Φ has a layer more: F Z moves as U does, with W = U diag(s) Qᵀ."""
    before, moved = known
    U, s, _ = np.linalg.svd(W, full_matrices=False)
    Z = omega.Z if omega.U is not None else product(omega.Z, U)
    squares = np.maximum((Z * product(Pi, Z)).sum(axis=0), 0.0) / rows
    share = np.divide(np.sqrt(squares), s, out=np.zeros_like(s), where=s > 0).max(initial=0.0)
    return np.array([np.hypot(before, moved * share / np.sqrt(len(U))), 0.0])
