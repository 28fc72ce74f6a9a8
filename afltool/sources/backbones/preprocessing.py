"""From a picture to the numbers that a backbone sees.

Pillow decodes and resizes on the CPU to uint8; the device does the rest, one subtraction and two
divisions per value, so that four times fewer bytes are transferred.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ...errors import UsageError

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Preprocessing:
    """Shorter side to ``resize``, the central ``crop`` × ``crop``, (v / 255 − mean) / std.

    With ``resize == crop`` and square images the crop changes nothing: this is the papers'
    ``Resize(224)``. ``interpolation`` is a value of torchvision's `InterpolationMode`, such as
    ``bilinear``; Pillow's resizing is antialiased.
    """

    name: str
    resize: int
    crop: int
    mean: Triple
    std: Triple
    interpolation: str

    def __post_init__(self) -> None:
        if not 1 <= self.crop <= self.resize:
            raise UsageError(
                f"an image size must be at least 1, and the resized side ({self.resize}) at least "
                f"the cropped one ({self.crop})."
            )

    def apply(self, image: Image) -> Tensor:
        """An RGB picture as a uint8 tensor ``(3, crop, crop)``; thread safe.

        Raises `ValueError`: so long and narrow that it would be a decompression bomb once resized.
        """
        from PIL import Image as pil
        from torchvision.transforms import InterpolationMode, functional

        longer = max(image.size) * self.resize // min(image.size)
        if pil.MAX_IMAGE_PIXELS is not None and longer * self.resize > pil.MAX_IMAGE_PIXELS:
            raise ValueError(
                f"{image.width} × {image.height} pixels become {longer} × {self.resize} when the "
                f"shorter side is resized, more than the limit of {pil.MAX_IMAGE_PIXELS:,} in all"
            )
        mode = InterpolationMode(self.interpolation)
        resized = functional.resize(image, [self.resize], mode)
        cropped = functional.center_crop(resized, [self.crop, self.crop])
        pixels: Tensor = functional.pil_to_tensor(cropped).contiguous()
        return pixels

    def at(self, size: int) -> Preprocessing:
        """The same for images of another size, with the same ratio of resized to cropped side."""
        if size == self.crop:
            return self
        return replace(self, resize=round(self.resize * size / self.crop), crop=size)

    def normalise(self, batch: Tensor) -> Tensor:
        """uint8 ``(n, 3, s, s)`` to float32 on the same device, in the same memory format.

        The same bits as torchvision's ``ToTensor`` and ``Normalize``.
        """
        import torch

        def per_channel(values: tuple[float, ...]) -> Tensor:
            numbers = torch.tensor(values, dtype=torch.float32, device=batch.device)
            return numbers.view(1, -1, 1, 1)

        # Divisors are tensors: a GPU replaces division by a Python number with a reciprocal.
        scaled = batch.to(torch.float32).div_(per_channel((255.0,)))
        return scaled.sub_(per_channel(self.mean)).div_(per_channel(self.std))

    def fingerprint(self) -> str:
        """SHA-256 (hex) of the result for a synthetic picture: equal meaning, equal digest.

        It notices a change in Pillow or torchvision as well as one in the fields.
        """
        pixels = self.apply(synthetic_picture())
        values = self.normalise(pixels[None])[0]
        sha = hashlib.sha256(repr(tuple(values.shape)).encode())
        sha.update(pixels.numpy().tobytes())
        sha.update(values.numpy().astype("<f4").tobytes())
        return sha.hexdigest()

    def describe(self) -> dict[str, object]:
        """The fields as plain values, for a file or for JSON."""
        return asdict(self)


def synthetic_picture() -> Image:
    """A fixed RGB picture of 340 × 260: gradients, a fine pattern and a hard edge."""
    from PIL import Image

    y, x = np.mgrid[:260, :340]
    red = x * 255 // 339
    green = y * 255 // 259
    blue = ((x * 7) ^ (y * 13)) % 256
    picture = np.stack([red, green, blue], axis=2).astype(np.uint8)
    picture[100:160, 120:220] = 255 - picture[100:160, 120:220]
    return Image.fromarray(picture)


def paper_preprocessing(image_size: int = 224) -> Preprocessing:
    """Preprocessing of the AFL papers: ``Resize(image_size)``, mean and standard deviation 0.5."""
    half = (0.5, 0.5, 0.5)
    return Preprocessing("paper", image_size, image_size, half, half, "bilinear")
