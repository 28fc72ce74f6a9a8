"""The linear head as a PyTorch module."""

from __future__ import annotations

from torch import nn

from ..graphs import Affine
from .head import LinearHead


def graph(head: LinearHead, bits: int | None) -> nn.Module:
    """x ↦ xW, with the intercept where there is one."""
    W = head.arrays()["weights"]
    return Affine(W[:-1], W[-1]) if head.options.intercept else Affine(W)
