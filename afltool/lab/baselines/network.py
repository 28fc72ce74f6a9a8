"""The classifiers that are trained: layers xWᵀ + b with ReLU between them.

A classifier is one flat vector θ of P numbers, and a stack of A clients is (A, P). So averages,
penalties and messages do not depend on the layers. Where gradients are taken, a classifier is its
tensors, layer by layer: views of θ.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

Tensor = Any  # torch.Tensor; PyTorch is loaded when something is trained
Model = Sequence[Tensor]  # W, b, W, b …; a layer without bias has no b


class DenseLayers:
    """Widths (d, h, …, C). Hidden layers have biases; the last layer has one if ``bias``."""

    def __init__(self, widths: tuple[int, ...], bias: bool) -> None:
        self.widths, self.bias, self.linear = widths, bias, len(widths) == 2
        biased = [True] * (len(widths) - 2) + [bias]
        self.shapes = [(n, m, b) for (m, n), b in zip(pairwise(widths), biased, strict=True)]
        *self._starts, self.size = accumulate([0] + [n * m + n * b for n, m, b in self.shapes])

    def model(self, theta: Tensor) -> list[Tensor]:
        """The tensors of θ (…, P) as views: W (…, out, in) and b (…, out) of each layer."""
        found: list[Tensor] = []
        for at, (n, m, biased) in zip(self._starts, self.shapes, strict=True):
            found.append(theta[..., at : at + n * m].unflatten(-1, (n, m)))
            if biased:
                found.append(theta[..., at + n * m : at + n * m + n])
        return found

    def layers(self, model: Model) -> list[tuple[Tensor, Tensor | None]]:
        """W and b of each layer; None for a layer without bias."""
        parts = iter(model)
        return [(next(parts), next(parts) if biased else None) for *_, biased in self.shapes]

    def forward(self, model: Model, X: Tensor) -> tuple[Tensor, Tensor]:
        """The representation (B, h), which enters the last layer, and the scores (B, C) of rows
        X (B, d), by one classifier."""
        from torch.nn.functional import linear

        *below, top = self.layers(model)
        for W, b in below:
            X = linear(X, W, b).relu()
        return X, linear(X, *top)


def first_weights(network: DenseLayers, seed: int, dtype: Any) -> Tensor:
    """The common start (P,): 0 for a linear head, whose loss is convex.

    Hidden layers need a random start that all share: uniform on ±1/√fan_in, from the seed.
    """
    import torch

    from ...heads.projections import projection

    theta = torch.zeros(network.size, dtype=dtype)
    if network.linear:
        return theta
    for number, (W, b) in enumerate(network.layers(network.model(theta))):
        drawn = projection(seed, number, W.shape[1], W.shape[0])
        W.copy_(torch.from_numpy(drawn.A.T.copy()))
        if b is not None and drawn.a is not None:
            b.copy_(torch.from_numpy(drawn.a))
    return theta
