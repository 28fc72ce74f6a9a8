"""The clients' side of a deep analytic network: from the rows in a layer to the sums.

Every round gathers one symmetric matrix and one with C columns: ΦᵀΦ and ΦᵀY for W_t (11), FᵀF and
FᵀR for Ω_{t+1} (14)–(16). The reconstruction of Φ_0, (88), adds a third. The number format of the
sums is that of a `Sums`.
"""

from __future__ import annotations

from ...math.triangle import length
from ...values.arrays import Array
from ...values.phases import Phase
from ..array_names import CROSS, GRAM
from ..base import Shape
from .incremental import MOVED
from .learned import JOINT, Learned
from .network import HIDDEN, PHI, PHI0, Layers, State
from .options import WEIGHTS, DeepAFLOptions
from .sums import ENERGY, RECONSTRUCTION, Labels, Sums


def of_weights(sums: Sums, phi: Array, y: Labels, classes: int) -> dict[str, Array]:
    """ΦᵀΦ, one triangle, and ΦᵀY (d_Φ, C)."""
    return {GRAM: sums.gram(phi), CROSS: sums.classes(phi, y, classes)}


def of_state(
    o: DeepAFLOptions, sums: Sums, state: State, P: Array | None, y: Labels, classes: int
) -> dict[str, Array]:
    """`of_weights`; for (88) also ΦᵀΦ_0 (d_Φ, d_Φ) and ‖Φ_0‖², from which the server solves Q_t.

    ``P``: the factor of the rows' change Φ_t − Φ_{t−1} = P Uᵀ, None for t = 0. With --incremental
    it gives Φᵀ P and PᵀY instead; see `incremental`.
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


def shapes(o: DeepAFLOptions, learned: Learned, classes: int, kind: str) -> dict[str, Shape]:
    """Shapes of what the next phase gathers; this draws no random numbers."""
    phase, (phi, hidden) = learned.phase(o) or Phase(), o.widths
    if o.incremental and phase.kind == WEIGHTS and learned.blocks:
        U = learned.blocks[-1].U
        rank = hidden if U is None else U.shape[-1]
        return {MOVED: ((phi, rank), kind), CROSS: ((rank, classes), kind)}
    side = phi if phase.kind == WEIGHTS else hidden
    side = phi + o.depth * hidden if phase == JOINT else side
    found: dict[str, Shape] = {GRAM: ((length(side),), kind), CROSS: ((side, classes), kind)}
    if o.reconstruction and phase != JOINT:
        found[RECONSTRUCTION] = (side, phi), kind
        energy = (phi,) if kind == "i" else (1,)  # of fixed point, one number a feature
        found |= {ENERGY: (energy, kind)} if phase.kind == WEIGHTS else {}
    return found
