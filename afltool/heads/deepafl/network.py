"""Takes rows through the layers of a deep analytic network; the caller passes what was learned.

    Φ_0 = σ_0(XA)      F_t = σ(Φ_t B_t)      Φ_{t+1} = Φ_t + F_t Ω_{t+1}

The state of some rows is a mapping: ``phi`` (n, d_Φ), ``hidden`` (n, d_F) once F_t is known, and
``phi0`` where an option needs Φ_0 in later layers. All are of the compute type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...digest import Digest
from ...linalg.fixedpoint import Rows, dim, rows_as
from ...linalg.gram import add_product, product
from ...linalg.sandwich import LowRank
from ..base import Array
from ..projections import Projections, activate
from .options import DeepAFLOptions

PHI, PHI0, HIDDEN = "phi", "phi0", "hidden"
State = dict[str, Array]


class RandomLayers:
    """The random part of a head: its options and its projections; these are never stored."""

    def __init__(self, options: DeepAFLOptions) -> None:
        self.options = options
        self._random = Projections(options.projection, options.seed)

    def begin(self, X: Rows) -> State:
        """Φ_0 of rows X (n, d)."""
        o = self.options
        A = self._random(0, dim(X), o.widths[0])
        state = {PHI: A(rows_as(X, o.compute), str(o.phi0_activation))}
        if o.from_phi0 or o.reconstruction:
            state[PHI0] = state[PHI].copy()
        return state

    def hidden(self, state: State, t: int) -> Array:
        """F_t = σ(Φ_t B_t), or σ(Φ_0 B_t) in the variant (89)."""
        o = self.options
        source = state[PHI0] if o.from_phi0 else state[PHI]
        if o.identity_projection:
            return activate(str(o.activation), source.copy())
        return self._random(t + 1, *o.widths)(source, str(o.activation))

    def step(self, state: State, t: int, omegas: Sequence[LowRank]) -> Array:
        """Φ_t → Φ_{t+1} = Φ_t + P Uᵀ, in place where possible; ``omegas`` are Ω_1, Ω_2, …

        Returns P = F_t Z (n, r) for Ω_{t+1} = Z Uᵀ; F_t itself where Ω is dense or not learned.
        """
        hidden = state.pop(HIDDEN, None)
        hidden = self.hidden(state, t) if hidden is None else hidden
        if self.options.identity_omega:
            state[PHI] = hidden if self.options.no_skip else state[PHI] + hidden
            return hidden
        Z, U = omegas[t].astype(hidden.dtype)
        if self.options.no_skip:
            state[PHI] = np.zeros_like(state[PHI])
        P = hidden if U is None else product(hidden, Z)
        add_product(state[PHI], P, Z.T if U is None else U)
        return P

    def at(self, X: Rows, layers: int, omegas: Sequence[LowRank]) -> State:
        """Φ_t of rows X (n, d), t = ``layers``."""
        state = self.begin(X)
        for t in range(layers):
            self.step(state, t, omegas)
        return state

    def key(self, layers: int, omegas: Sequence[LowRank]) -> str:
        """A key of everything that Φ_t depends on, except the rows."""
        digest = Digest().json("deepafl", [self.options.as_dict(), layers])
        for omega in omegas[:layers]:
            for name, factor in (("left", omega.Z), ("right", omega.U)):
                if factor is not None:
                    digest.array(name, factor, "<f8")
        return digest.hex()

    def all_layers(self, X: Rows) -> Array:
        """Z = [Φ_0, F_0, …, F_{T−1}] of the variant (89)."""
        state = self.begin(X)
        return np.hstack([state[PHI], *(self.hidden(state, t) for t in range(self.options.depth))])
