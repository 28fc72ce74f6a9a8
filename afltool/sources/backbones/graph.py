"""Preprocessing as a PyTorch module, so that a graph takes decoded pictures.

Pillow resizes bytes in two passes, columns first, with weights that are rounded to 22 bits and
sums that are rounded to bytes after each pass. The same is done here with integers in float64, so
that the pixels are Pillow's, bit by bit. The filters are matrices whose sizes follow from the
picture's; they are made in the graph.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ...errors import UsageError
from .preprocessing import Preprocessing

ONE = 2.0**22  # Pillow's weights are multiples of 2^−22


def _triangle(x: Tensor) -> Tensor:
    return (1.0 - x.abs()).clamp(min=0.0)


def _cubic(x: Tensor) -> Tensor:
    """Keys' kernel with a = −½, in Pillow's order of operations."""
    a, x = -0.5, x.abs()
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return torch.where(x < 1.0, near, torch.where(x < 2.0, far, torch.zeros_like(x)))


#: The kernels by their names in `Preprocessing.interpolation`, each with its radius.
KERNELS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "bilinear": (_triangle, 1.0),
    "bicubic": (_cubic, 2.0),
}


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


class Prepared(Normalised):
    """uint8 pictures (n, h, w, 3) → float32 (n, 3, crop, crop), as `Preprocessing` makes them.

    All pictures of a batch have one size; n, h and w may be any. Memory: 8 bytes a value of a
    picture, and the filters, crop × h and crop × w.
    """

    def __init__(self, preprocessing: Preprocessing) -> None:
        """Raises `UsageError` for an interpolation that has no kernel here."""
        super().__init__(preprocessing)
        if preprocessing.interpolation not in KERNELS:
            raise UsageError(
                f"the preprocessing {preprocessing.name} resizes with "
                f"{preprocessing.interpolation!r}; a graph can use {' or '.join(KERNELS)}: export "
                "without --with-backbone"
            )
        self.resize, self.crop = preprocessing.resize, preprocessing.crop
        self.kernel, self.support = KERNELS[preprocessing.interpolation]

    def forward(self, images: Tensor) -> Tensor:
        height, width = _length(images[0, :, 0, 0]), _length(images[0, 0, :, 0])
        shorter = torch.minimum(height, width)
        x = images.permute(0, 3, 1, 2).double()
        x = _bytes(x @ self._filter(width, shorter, images[0, 0, :, 0]).T)
        x = _bytes(self._filter(height, shorter, images[0, :, 0, 0]) @ x)
        return super().forward(x)

    def _filter(self, length: Tensor, shorter: Tensor, line: Tensor) -> Tensor:
        """Weights (crop, length) × 2^22 of a side, for the rows inside the crop.

        ``line``: any tensor of the side's length. Torchvision takes ⌊resize · length / shorter⌋ for
        the longer side, and crops from round((resized − crop) / 2), half to even.
        """
        resized = (self.resize * length) // shorter
        spare = resized - self.crop
        first = spare // 2 + (spare % 2) * (spare // 2 % 2)
        scale = length.double() / resized.double()
        wide = scale.clamp(min=1.0)
        reach = self.support * wide
        centre = (torch.arange(self.crop) + first).double()[:, None]
        centre = (centre + 0.5) * scale
        low = torch.floor((centre - reach + 0.5).clamp(min=0.0))
        high = torch.floor(torch.minimum(centre + reach + 0.5, length.double()))
        j = _steps(line)[None, :]
        weights = self.kernel((j - centre + 0.5) * (1.0 / wide))
        weights = torch.where((j >= low) & (j < high), weights, torch.zeros_like(weights))
        weights = weights / weights.sum(dim=1, keepdim=True) * ONE
        return torch.where(weights < 0, torch.ceil(weights - 0.5), torch.floor(weights + 0.5))


def _steps(line: Tensor) -> Tensor:
    """0, 1, 2, … as float64, one for each entry of ``line``; by a cumulative sum, which every
    runtime supports."""
    return torch.cumsum(torch.ones_like(line, dtype=torch.float64), dim=0) - 1.0


def _length(line: Tensor) -> Tensor:
    """The number of entries of a line as an int64 tensor, with which a graph can compute."""
    return torch.ones_like(line, dtype=torch.int64).sum()


def _bytes(x: Tensor) -> Tensor:
    """Sums in units of 2^−22, rounded to whole numbers, half up, within a byte."""
    return torch.floor((x + 0.5 * ONE) / ONE).clamp(0.0, 255.0)


class Features(nn.Module):
    """Pictures as ``prepared`` takes them → features (n, d) float32."""

    def __init__(self, prepared: nn.Module, network: nn.Module) -> None:
        super().__init__()
        self.prepared, self.network = prepared, network

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.network(self.prepared(images)).float()
        return features


def as_extracted(preprocessing: Preprocessing, images: Tensor) -> Tensor:
    """The squares that extraction makes from uint8 pictures (n, h, w, 3), before normalisation."""
    from PIL import Image

    return torch.stack([preprocessing.apply(Image.fromarray(i.numpy())) for i in images])
