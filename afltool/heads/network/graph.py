"""The trained network as a PyTorch module."""

from __future__ import annotations

from torch import nn

from ..graphs import Affine
from .head import NetworkHead


def graph(head: NetworkHead, bits: int | None) -> nn.Module:
    """h ← ReLU(hW + b), in float64 as `NetworkHead.scores`."""
    layers: list[nn.Module] = []
    for W, b in head.layers:
        layers += [Affine(W.astype("f8"), b.astype("f8")), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
