"""A backbone as a PyTorch module that takes squares of bytes, as extraction prepares them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...values.arrays import Array
from .preprocessing import Preprocessing


class Normalised(nn.Module):
    """Squares as extraction makes them, uint8 (n, 3, s, s) → float32 (v / 255 − mean) / std."""

    mean: Tensor
    std: Tensor

    def __init__(self, preprocessing: Preprocessing) -> None:
        super().__init__()
        shape = (1, 3, 1, 1)
        self.register_buffer("mean", torch.tensor(preprocessing.mean).view(shape))
        self.register_buffer("std", torch.tensor(preprocessing.std).view(shape))

    def forward(self, pixels: Tensor) -> Tensor:
        return (pixels.float() / 255.0 - self.mean) / self.std


class Features(nn.Module):
    """Squares, uint8 (n, 3, s, s) → features (n, d) float32."""

    def __init__(self, preprocessing: Preprocessing, network: nn.Module) -> None:
        super().__init__()
        self.prepared, self.network = Normalised(preprocessing), network

    def forward(self, pixels: Tensor) -> Tensor:
        features: Tensor = self.network(self.prepared(pixels)).float()
        return features


def as_extracted(preprocessing: Preprocessing, pictures: Array) -> Tensor:
    """The squares (n, 3, s, s) that extraction makes from uint8 pictures (n, h, w, 3)."""
    from PIL import Image

    return torch.stack([preprocessing.apply(Image.fromarray(one)) for one in pictures])
