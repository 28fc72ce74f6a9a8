"""The clients' side of a deep analytic network: from the rows in a layer to the sums.

Every round gathers one symmetric matrix and one with C columns: ΦᵀΦ and ΦᵀY for W_t (11), FᵀF and
FᵀR for Ω_{t+1} (14)–(16). The reconstruction of Φ_0, (88), adds a third.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...linalg.gram import product, real_cross, real_gram
from ...linalg.triangle import length
from ..base import Array, Shape
from ..gathered import CROSS, GRAM
from .incremental import MOVED
from .learned import JOINT, Learned
from .network import HIDDEN, PHI, PHI0, RandomLayers, State
from .options import DeepAFLOptions

RECONSTRUCTION, ENERGY = "reconstruction", "energy"  # arrays of (88)
Labels = NDArray[np.int64]


def of_weights(phi: Array, y: Labels, classes: int) -> dict[str, Array]:
    """ΦᵀΦ, one triangle, and ΦᵀY (d_Φ, C)."""
    return {GRAM: real_gram(phi), CROSS: real_cross(phi, y, classes)}


def of_decoder(state: State) -> dict[str, Array]:
    """ΦᵀΦ_0 (d_Φ, d_Φ) and ‖Φ_0‖² (1,); the server solves Q_t of (88) from them."""
    energy = np.array([(state[PHI0].astype(np.float64) ** 2).sum()])
    return {RECONSTRUCTION: _real(product(state[PHI].T, state[PHI0])), ENERGY: energy}


def of_movement(state: State, P: Array, y: Labels, classes: int) -> dict[str, Array]:
    """Φᵀ P and PᵀY, from which the server computes ΦᵀΦ and ΦᵀY; see `incremental`."""
    return {MOVED: _real(product(state[PHI].T, P)), CROSS: real_cross(P, y, classes)}


def of_block(
    network: RandomLayers, learned: Learned, state: State, y: Labels, classes: int
) -> dict[str, Array]:
    """Π = FᵀF and Υ = FᵀR with R = Y − ΦW; for (88) also Fᵀ(Φ_0 − ΦQ). F is left in the state.

    Without the skip connection FΩ replaces Φ instead of being added to it, so it has to fit Y and
    Φ_0 themselves.
    """
    o, phi = network.options, state[PHI]
    state[HIDDEN] = hidden = network.hidden(state, learned.layers(o))
    found: dict[str, Array] = {GRAM: real_gram(hidden)}
    if o.no_skip:
        found[CROSS] = real_cross(hidden, y, classes)
    else:
        residual = product(phi, learned.weights[-1].astype(phi.dtype))
        np.negative(residual, out=residual)
        residual[np.arange(len(y)), y] += 1
        found[CROSS] = _real(product(hidden.T, residual))
    if o.reconstruction:
        lost = state[PHI0]
        if not o.no_skip:
            lost = lost - product(phi, learned.decoders[-1].astype(phi.dtype))
        found[RECONSTRUCTION] = _real(product(hidden.T, lost))
    return found


def shapes(o: DeepAFLOptions, learned: Learned, classes: int) -> dict[str, Shape]:
    """Shapes of what the next phase gathers; this draws no random numbers."""
    phase, (phi, hidden) = str(learned.phase(o)), o.widths
    if o.incremental and phase.startswith("weights") and learned.blocks:
        U = learned.blocks[-1].U
        rank = hidden if U is None else U.shape[-1]
        return {MOVED: ((phi, rank), "f"), CROSS: ((rank, classes), "f")}
    side = phi if phase.startswith("weights") else hidden
    side = phi + o.depth * hidden if phase == JOINT else side
    found: dict[str, Shape] = {GRAM: ((length(side),), "f"), CROSS: ((side, classes), "f")}
    if o.reconstruction and phase != JOINT:
        found[RECONSTRUCTION] = (side, phi), "f"
        found |= {ENERGY: ((1,), "f")} if phase.startswith("weights") else {}
    return found


def _real(a: NDArray[Any]) -> NDArray[np.float64]:
    return a.astype(np.float64)
