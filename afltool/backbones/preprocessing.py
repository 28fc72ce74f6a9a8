"""From a picture to the numbers that a backbone sees.

Pillow decodes and resizes on the CPU to uint8; the device does the rest.

"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UsageError
from ..values.arrays import U8

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

Triple = tuple[float, float, float]
FILTERS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")  # of Pillow


@dataclass(frozen=True)
class Preprocessing:
    """Shorter side to ``resize``, the central ``crop`` × ``crop``, (v / 255 − mean) / std.

    ``squash``: both sides to ``resize``, so that nothing is cut where ``resize == crop``.
    ``interpolation``: a value of torchvision's `InterpolationMode`, antialiased by Pillow.
    """

    name: str
    resize: int
    crop: int
    mean: Triple
    std: Triple
    interpolation: str
    squash: bool = False

    def __post_init__(self) -> None:
        known = self.interpolation.partition("-")[0] in FILTERS
        if not (known and 1 <= self.crop <= self.resize):
            raise UsageError(
                "an image is at least 1 pixel, resized to at least its crop, by one of "
                f"{', '.join(FILTERS)}; found a crop of {self.crop} from {self.resize}, "
                f"{self.interpolation}"
            )

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Preprocessing:
        """The inverse of `describe`; fields that cannot be raise built-in errors, `UsageError`."""
        fields = dict(described)
        (r, g, b), (dr, dg, db) = (map(float, fields.pop(name)) for name in ("mean", "std"))
        return cls(mean=(r, g, b), std=(dr, dg, db), **fields)

    def pixels(self, image: Image) -> U8:
        """An RGB picture as uint8 (3, crop, crop), as torchvision's resize and center_crop have it.

        Raises `ValueError`: so long and narrow that it would be a bomb once resized.
        """
        from PIL import Image as pil

        shorter, longer = min(image.size), max(image.size) * self.resize // min(image.size)
        longer = self.resize if self.squash else longer
        if pil.MAX_IMAGE_PIXELS is not None and longer * self.resize > pil.MAX_IMAGE_PIXELS:
            raise ValueError(
                f"{image.width} × {image.height} pixels become {longer} × {self.resize} when the "
                f"shorter side is resized, more than the limit of {pil.MAX_IMAGE_PIXELS:,} in all"
            )
        size = (self.resize, longer) if image.width == shorter else (longer, self.resize)
        if size != image.size:
            how = self.interpolation.partition("-")[0].upper()  # nearest-exact is Pillow's nearest
            image = image.resize(size, pil.Resampling[how])
        left, top = (round((side - self.crop) / 2) for side in size)
        if size != (self.crop, self.crop):
            image = image.crop((left, top, left + self.crop, top + self.crop))
        return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))

    def at(self, size: int) -> Preprocessing:
        """The same for images of another size, with the same ratio of resized to cropped side."""
        if size == self.crop:
            return self
        return replace(self, resize=round(self.resize * size / self.crop), crop=size)

    def normalize(self, batch: Tensor) -> Tensor:
        """uint8 (n, 3, s, s) to float32, with the bits of torchvision's ToTensor and Normalize."""
        import torch

        def per_channel(values: tuple[float, ...]) -> Tensor:
            numbers = torch.tensor(values, dtype=torch.float32, device=batch.device)
            return numbers.view(1, -1, 1, 1)

        # Divisors are tensors: a GPU replaces division by a Python number with a reciprocal.
        scaled = batch.to(torch.float32).div_(per_channel((255.0,)))
        return scaled.sub_(per_channel(self.mean)).div_(per_channel(self.std))

    def fingerprint(self) -> str:
        """SHA-256 (hex) of the result for a synthetic picture: another Pillow is noticed, too."""
        pixels = self.pixels(synthetic_picture())
        mean, std = (np.array(v, np.float32)[:, None, None] for v in (self.mean, self.std))
        values = (pixels / np.float32(255.0) - mean) / std  # the bits of `normalize`
        sha = hashlib.sha256(repr(values.shape).encode())
        sha.update(pixels.tobytes())
        sha.update(values.astype("<f4").tobytes())
        return sha.hexdigest()

    def probe(self) -> U8:
        """Four pictures (4, 3, crop, crop), on which runtimes are compared."""
        from PIL import ImageOps

        picture = synthetic_picture()
        turned = ImageOps.mirror(picture), ImageOps.flip(picture), ImageOps.invert(picture)
        return np.stack([self.pixels(one) for one in (picture, *turned)])

    def describe(self) -> dict[str, object]:
        """The fields as plain values, for a file or for JSON; ``squash`` only where it is so."""
        return {name: value for name, value in asdict(self).items() if value is not False}


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
    """``Resize(image_size)``, mean and std 0.5: dataset.py of the AFL code, in no paper."""
    half = (0.5, 0.5, 0.5)
    return Preprocessing("paper", image_size, image_size, half, half, "bilinear")
