"""The softmax head as a PyTorch module: its features, then their weights."""

from __future__ import annotations

import numpy as np
from torch import nn

from ..graphs import Affine, lifted
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
    o, (dim, _) = features.options, head._bound()
    fixed = o.compute == "fixed" or (bits is not None and o.compute != "float32")
    return nn.Sequential(lifted(o, dim, bits, fixed), Affine(W[:-1], W[-1]))
