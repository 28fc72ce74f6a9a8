"""A backbone as a PyTorch module that takes squares of bytes, as extraction prepares them."""

from __future__ import annotations

from functools import reduce
from operator import add

from torch import Tensor, nn

from ..options.grammars import Views
from .preprocessing import Preprocessing


class Features(nn.Module):
    """Squares, uint8 (n, 3, s, s) → features (n, d) float32."""

    def __init__(self, preprocessing: Preprocessing, network: nn.Module) -> None:
        super().__init__()
        self.preprocessing, self.network = preprocessing, network

    def forward(self, pixels: Tensor) -> Tensor:
        features: Tensor = self.network(self.preprocessing.normalize(pixels)).float()
        return features


class OverViews(nn.Module):
    """Squares (n, 3, outer, outer) → the mean over views of ``side``, (n, d)."""

    def __init__(self, network: nn.Module, views: Views, side: int) -> None:
        super().__init__()
        self.network, self.views, self.side = network, views, side

    def forward(self, x: Tensor) -> Tensor:
        parts = []
        for top, left in self.views.corners(self.side):
            square = x[..., top : top + self.side, left : left + self.side]
            for view in [square, square.flip(-1)][: 1 + self.views.flip]:
                parts.append(self.network(view).float().double())
        mean: Tensor = (reduce(add, parts) / len(parts)).float()
        return mean
