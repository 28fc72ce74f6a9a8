"""The softmax head as a PyTorch module: its features, then their weights."""

from __future__ import annotations

import numpy as np
from torch import nn

from ..graphs import Affine, LiftedRows
from ..safle.graph import Tables
from .features import CodedFeatures, RandomFeatures
from .head import SoftmaxHead


def graph(head: SoftmaxHead, bits: int | None) -> nn.Module:
    """ΦW with Φ = [X, 1], [σ(XA + a), X if asked, 1] or [X if asked, codes]."""
    W, features = np.asarray(head.weights), head.features
    if isinstance(features, CodedFeatures):
        coder = features.coder
        raw = len(W) - coder.features.shape[0] * coder.size
        tables = W[raw:].reshape(-1, coder.size, W.shape[1])
        return Tables(coder, tables, W[:raw] if raw else None, bits)
    assert isinstance(features, RandomFeatures)  # else it is affine
    rows = LiftedRows(features.options, head._bound()[0], features.exact_bits(bits))
    return nn.Sequential(rows, Affine(W[:-1], W[-1]))
