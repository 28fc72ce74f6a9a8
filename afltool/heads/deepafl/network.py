"""Takes rows through the layers of a deep analytic network; the caller passes what was learned.

    Φ_0 = σ_0(XA)      F_t = σ(Φ_t B_t)      Φ_{t+1} = Φ_t + F_t Ω_{t+1}

The paper's other strategies (E.3.7) put a random layer behind each solved one instead of a block,
Φ_{t+1} = σ(Φ_t W_t B_t); docs/decisions/deepafl.md says how its text is read.

Every round gathers one symmetric matrix and one with C columns: ΦᵀΦ and ΦᵀY for W_t (11), FᵀF and
FᵀR for Ω_{t+1} (14)–(16). The reconstruction of Φ_0, (88), adds a third. The number format of the
sums is that of a `Sums`.

The state of some rows is a mapping: ``phi`` (n, d_Φ), ``hidden`` (n, d_F) once F_t is known, and
``phi0`` where an option needs Φ_0 in later layers. All are of the compute type; see `fixed` for
int16.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...math.gram import (
    LARGEST_ENTRY,
    Rows,
    add_product,
    dim,
    product,
    real_cross,
    real_gram,
    rows_as,
)
from ...values.arrays import F64, Array, Digest, Once
from ...values.names import CROSS, GRAM, Phase
from ...values.statistics import ArraySpec, Statistics
from ..base import products
from ..projections import Projection, Projections, activate
from .learned import MOVED, Learned
from .options import ACTIVATED, BLOCK, RESIDUAL, WEIGHTS, DeepAFLOptions

PHI, PHI0, HIDDEN = "phi", "phi0", "hidden"
LARGEST_RESIDUAL = 2**24  # of fixed point, so that a row adds at most 2^39 to a sum
OF_LABELS = 2**32  # the first stream of random numbers for labels; layers have 0, 1, 2, …
RECONSTRUCTION, ENERGY = "reconstruction", "energy"  # arrays of (88)
State = dict[str, Array]
Labels = NDArray[np.int64]
_sha256 = Once(lambda factor: Digest().array("factor", factor, "<f8").hex())


class Layers:
    """The random part of a head, its options and projections, which are never stored.

    Rows are float32 or float64, the compute type; another number format overrides what it computes
    otherwise.
    """

    def __init__(self, options: DeepAFLOptions) -> None:
        self.options = options
        self._random = Projections(options.projection, options.seed)

    def _first(self, X: Rows) -> Array:
        o = self.options
        A = self._random(0, dim(X), o.widths[0])
        return A(rows_as(X, o.compute), str(o.phi0_activation))

    def hidden(self, state: State, t: int) -> Array:
        """F_t = σ(Φ_t B_t), or σ(Φ_0 B_t) in the variant (89)."""
        o, source = self.options, self.source(state)
        if o.identity_projection:
            return activate(str(o.activation), source.copy())
        return self._random(t + 1, *o.widths)(source, str(o.activation))

    def _block(self, state: State, hidden: Array, t: int, learned: Learned) -> Array:
        """Φ_t → Φ_{t+1} = Φ_t + P Uᵀ from F_t; returns P, see `step`."""
        if self.options.identity_omega:
            state[PHI] = hidden if self.options.no_skip else state[PHI] + hidden
            return hidden
        Z, U = learned.blocks[t].astype(hidden.dtype)
        if self.options.no_skip:
            state[PHI] = np.zeros_like(state[PHI])
        P = hidden if U is None else product(hidden, Z)
        add_product(state[PHI], P, Z.T if U is None else U)
        return P

    def cascade(self, phi: Array, t: int, W: F64) -> Array:
        """σ(Φ_t W_t B_t), or σ(Φ_t W_t Q_t B_t) with encoded labels; σ = 1 if not activated.

        The ridge regression of Y Q_t on Φ_t is W_t Q_t, so encoded labels need no other sums.
        """
        o = self.options
        fitted = product(phi, W.astype(phi.dtype))
        if o.label_encoding:
            fitted = self.codes(t, fitted.shape[1])(fitted)
        B = self.projected(t, fitted.shape[1])
        return B(fitted, str(o.activation) if o.deepening == ACTIVATED else "none")

    def codes(self, t: int, classes: int) -> Projection:
        """Q_t (C, d_F), the labels' random map; a stream of its own, linear, without a bias."""
        return Projection(self._random(OF_LABELS + t, classes, self.options.widths[1]).A, None)

    def projected(self, t: int, fan_in: int) -> Projection:
        """B_t of a cascade."""
        return self._random(t + 1, fan_in, self.options.widths[0])

    def scores(self, phi: Array, W: F64) -> F64:
        """ΦW (n, C)."""
        return np.asarray(product(phi, W.astype(phi.dtype)), dtype=np.float64)

    def real(self, phi: Array) -> Array:
        """Features in units of one, float32 or float64."""
        return phi

    def begin(self, X: Rows) -> State:
        """The state of rows X (n, d) before the first layer."""
        state = {PHI: self._first(X)}
        if self.options.from_phi0 or self.options.reconstruction:
            state[PHI0] = state[PHI].copy()
        return state

    def source(self, state: State) -> Array:
        """What F_t is made of: Φ_t, or Φ_0 in the variant (89)."""
        return state[PHI0] if self.options.from_phi0 else state[PHI]

    def step(self, state: State, t: int, learned: Learned) -> Array | None:
        """Φ_t → Φ_{t+1}, in place where possible.

        Returns P = F_t Z (n, r) for Ω_{t+1} = Z Uᵀ; F_t itself where Ω is dense or not learned, and
        in fixed point; None of a cascade, which has neither.
        """
        if self.options.deepening != RESIDUAL:
            state[PHI] = self.cascade(state[PHI], t, learned.weights[t])
            return None
        hidden = state.pop(HIDDEN, None)
        return self._block(state, self.hidden(state, t) if hidden is None else hidden, t, learned)

    def at(self, X: Rows, layers: int, learned: Learned) -> State:
        """Φ_t of rows X (n, d), t = ``layers``."""
        state = self.begin(X)
        for t in range(layers):
            self.step(state, t, learned)
        return state

    def key(self, layers: int, learned: Learned) -> str:
        """A key of everything that Φ_t depends on, except the rows."""
        digest = Digest().json("deepafl", [self.options.as_dict(), layers])
        if self.options.deepening != RESIDUAL:
            for W in learned.weights[:layers]:
                digest.text("weights", _sha256(W))
        for omega in learned.blocks[:layers]:
            for name, factor in (("left", omega.Z), ("right", omega.U)):
                if factor is not None:
                    digest.text(name, _sha256(factor))
        return digest.hex()


class Sums:
    """What clients add up, and how the server reads it: products in the type of the rows, float64.

    A number format of its own overrides all of it.
    """

    exact = False  # whether they are integers

    def gram(self, rows: Array) -> Array:
        """rowsᵀ rows, one triangle."""
        return real_gram(rows)

    def classes(self, rows: Array, y: Labels, classes: int) -> Array:
        """rowsᵀ Y (d, C)."""
        return real_cross(rows, y, classes)

    def between(self, rows: Array, others: Array) -> Array:
        """rowsᵀ others (d, e) of features, or of features and what `residual` or `rest` gives."""
        return product(rows.T, others).astype(np.float64)

    def energy(self, rows: Array) -> Array:
        """‖rows‖²: one number, or the sum of squares of each feature."""
        return np.array([(rows.astype(np.float64) ** 2).sum()])

    def residual(self, phi: Array, W: F64, y: Labels) -> Array:
        """Y − ΦW (n, C)."""
        rest = product(phi, W.astype(phi.dtype))
        np.negative(rest, out=rest)
        rest[np.arange(len(y)), y] += 1
        return rest

    def rest(self, phi0: Array, phi: Array | None, Q: F64 | None) -> Array:
        """Φ_0 − ΦQ (n, d_Φ); Φ_0 itself without Q."""
        if phi is None or Q is None:
            return phi0
        return np.asarray(phi0 - product(phi, Q.astype(phi.dtype)))

    def read(self, total: Statistics) -> Statistics:
        """The same sums as float64 in units of one, for the server's solves."""
        return total


def of_weights(sums: Sums, phi: Array, y: Labels, classes: int) -> dict[str, Array]:
    """ΦᵀΦ, one triangle, and ΦᵀY (d_Φ, C)."""
    return {GRAM: sums.gram(phi), CROSS: sums.classes(phi, y, classes)}


def of_state(
    o: DeepAFLOptions, sums: Sums, state: State, P: Array | None, y: Labels, classes: int
) -> dict[str, Array]:
    """`of_weights`; for (88) also ΦᵀΦ_0 (d_Φ, d_Φ) and ‖Φ_0‖², from which the server solves Q_t.

    ``P``: the factor of the rows' change Φ_t − Φ_{t−1} = P Uᵀ, None for t = 0. With --incremental
    it gives Φᵀ P and PᵀY instead; see `learned`.
    """
    phi = state[PHI]
    if P is not None and o.incremental:
        return {MOVED: sums.between(phi, P), CROSS: sums.classes(P, y, classes)}
    found = of_weights(sums, phi, y, classes)
    if o.reconstruction:
        found |= {RECONSTRUCTION: sums.between(phi, state[PHI0]), ENERGY: sums.energy(state[PHI0])}
    return found


def of_block(
    network: Layers, sums: Sums, learned: Learned, state: State, y: Labels, classes: int
) -> dict[str, Array]:
    """Π = FᵀF and Υ = FᵀR with R = Y − ΦW; for (88) also Fᵀ(Φ_0 − ΦQ). F is left in the state.

    Without the skip connection FΩ replaces Φ instead of being added to it, so it has to fit Y and
    Φ_0 themselves.
    """
    o, phi = network.options, state[PHI]
    state[HIDDEN] = hidden = network.hidden(state, learned.layers(o))
    found = {GRAM: sums.gram(hidden)}
    if o.no_skip:
        found[CROSS] = sums.classes(hidden, y, classes)
    else:
        residual = sums.residual(phi, learned.weights[-1], y)
        found[CROSS] = sums.between(hidden, residual)
    if o.reconstruction:
        known = (None, None) if o.no_skip else (phi, learned.decoders[-1])
        lost = sums.rest(state[PHI0], *known)
        found[RECONSTRUCTION] = sums.between(hidden, lost)
    return found


def array_specs(
    o: DeepAFLOptions, learned: Learned, classes: int, exact: bool
) -> dict[str, ArraySpec]:
    """What the next phase gathers; this draws no random numbers.

    In a block rows are multiplied by residuals, unless there is no skip connection.
    """
    phase, (phi, hidden) = learned.phase(o) or Phase(), o.widths
    if o.incremental and phase.kind == WEIGHTS and learned.blocks:
        U = learned.blocks[-1].U
        rank = hidden if U is None else U.shape[-1]
        return {MOVED: ArraySpec((phi, rank), "real"), CROSS: ArraySpec((rank, classes), "real")}
    side = phi if phase.kind == WEIGHTS else hidden
    found = products(side, classes, exact)
    squares, block = found[GRAM], phase.kind == BLOCK
    residual = ArraySpec((side, phi), squares.kind, LARGEST_ENTRY * LARGEST_RESIDUAL)
    if block and not o.no_skip:
        found[CROSS] = replace(residual, shape=(side, classes))
    if o.reconstruction:
        found[RECONSTRUCTION] = residual if block else replace(squares, shape=(side, phi))
    if o.reconstruction and phase.kind == WEIGHTS:  # of fixed point, one number a feature
        found[ENERGY] = replace(squares, shape=(phi,) if exact else (1,))
    return found
