"""The result of a baseline as a solved head, which every other command reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..heads import make_head
from ..heads.base import Head
from .network import DenseLayers


def head_of(network: DenseLayers, theta: Any) -> Head:
    """The solved head of weights θ (P,): linear, or a network where there are hidden layers."""
    layers = []
    for W, b in network.layers(theta[None]):
        bias = np.zeros(W.shape[1]) if b is None else b[0, 0].double().numpy()
        layers.append((W[0].double().numpy().T.copy(), bias))
    if network.linear:
        W, b = layers[0]
        made = make_head("linear", {"intercept": network.bias})
        head = made.restore(None, {"weights": np.vstack([W, b]) if network.bias else W})
    else:
        named = {f"weights-{n}": W for n, (W, _) in enumerate(layers)}
        named |= {f"bias-{n}": b for n, (_, b) in enumerate(layers)}
        head = make_head("network").restore(None, named)
    return head.bind(network.widths[0], network.widths[-1])
