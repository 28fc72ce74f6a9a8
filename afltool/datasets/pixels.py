"""From bytes to an RGB picture, or a `CorruptImageError`; nothing is clipped or filled in.

EXIF orientation is not applied and transparency is left out, as torchvision's ImageFolder has it:
published accuracies were measured so. (The orientation of a TIFF is part of the format; Pillow
applies it.) Of several frames of a GIF the first one counts; a TIFF of several pages is refused.

"""

from __future__ import annotations

import io
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .. import inputs
from ..errors import InputError, UsageError
from ..values.arrays import Array
from .base import CorruptImageError
from .dicom import read_dicom

if TYPE_CHECKING:
    from PIL.Image import Image

#: The formats that are decoded, whatever a file is called: Pillow knows forty more, and some of
#: them start other programs (EPS starts Ghostscript). See `folders.EXTENSIONS`.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")

MOST_BYTES = 360_000_000  # of one file: four a pixel at Pillow's limit of pixels
_ORIENTATION = 0x0112  # the tag of EXIF


def read_image(path: str) -> Image:
    """`decode` of a file; without permission to read it is a corrupt image.

    Other failures (the file is gone, the disk does not answer) are an `InputError`: leaving such
    images out would lose data without notice.
    """
    try:
        data = inputs.read_bytes(path, MOST_BYTES)
    except InputError as error:
        raise CorruptImageError(path, str(error).removeprefix(f"{path}: ")) from error
    except PermissionError as error:
        raise CorruptImageError(path, "no permission to read it") from error
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}. It was there when the folder was "
            "listed; check the disk and the folder, then run the same command again."
        ) from error
    return decode(data, path)


def decode(data: bytes, where: str) -> Image:
    """The picture in mode RGB, of `FORMATS` or DICOM, by what the bytes are; ``where`` they are.

    Raises `CorruptImageError`; `UsageError`: pydicom is missing.
    """
    from PIL import Image, UnidentifiedImageError

    # Otherwise Pillow loads its formats while it opens a picture, and a second thread may not find
    # a format yet.
    Image.init()
    try:
        if data[128:132] == b"DICM":
            return read_dicom(data, partial(_check_size, where))
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.format == "TIFF" and (pages := getattr(image, "n_frames", 1)) > 1:
                raise ValueError(f"it has {pages} pages, expected one; save each as a file")
            _check_size(where, *image.size)
            image.load()
            rgb = to_rgb(image)
            rgb.info["remarks"] = _remarks(image)
            return rgb
    except (CorruptImageError, UsageError):
        raise
    except UnidentifiedImageError as error:
        found = "something else" if data else "an empty file (0 bytes)"
        reason = f"expected one of the formats {', '.join(FORMATS)}, found {found}"
        raise CorruptImageError(where, reason) from error
    # Pillow's readers raise nearly every built-in exception on damaged bytes.
    except Exception as error:
        raise CorruptImageError(where, f"{error or type(error).__name__}") from error


def _remarks(image: Image) -> list[str]:
    """Why people see the picture differently."""
    turned, remarks = 1, list[str]()
    with suppress(Exception):  # a damaged EXIF block, whose pixels are whole
        turned = image.getexif().get(_ORIENTATION, 1)
    if turned in range(2, 9) and image.format != "TIFF":
        remarks.append("its EXIF orientation is not applied, as in torchvision")
    if image.has_transparency_data:
        alpha = image if image.mode in ("RGBA", "LA") else image.convert("RGBA")
        if np.asarray(alpha.getchannel("A")).min() < 255:
            remarks.append("its transparency is left out, as in torchvision")
    return remarks


def _check_size(where: str, width: int, height: int) -> None:
    """Refuse pictures above Pillow's limit; Pillow itself only warns up to twice the limit."""
    from PIL import Image as pil

    limit = pil.MAX_IMAGE_PIXELS
    if limit is not None and width * height > limit:
        reason = f"{width} × {height} pixels, more than the limit of {limit:,} in all"
        raise CorruptImageError(where, reason)


def to_rgb(image: Image) -> Image:
    """``image`` in mode RGB: palettes resolved, alpha dropped, 16 bits scaled to 8."""
    if image.mode.startswith("I"):
        return _from_16_bits(image)
    if image.mode == "F":
        raise ValueError("floating-point pixels have no known scale; save it with 8 or 16 bits")
    if image.mode == "P" and "transparency" in image.info:
        # Straight to RGB, Pillow warns; the colors are the same.
        return image.convert("RGBA").convert("RGB")
    return image.convert("RGB")


def _from_16_bits(image: Image) -> Image:
    """v ↦ round(v / 257), so that 0 and 65535 become 0 and 255; Pillow's convert would clip."""
    from PIL import Image as pil

    values: Array = np.asarray(image)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError(
            f"integers from {values.min()} to {values.max()}, expected 0 to 65535; "
            "save it with 8 or 16 bits"
        )
    gray = np.empty(values.shape, dtype=np.uint8)
    for row, numbers in zip(gray, values, strict=True):  # row by row: a tenth of the memory
        row[:] = (numbers.astype(np.int64) + 128) // 257
    if getattr(image, "tag_v2", {}).get(262) == 0:  # a TIFF whose white is zero
        np.subtract(255, gray, out=gray)  # Pillow inverts 8 bits of it, and 16 it does not
    return pil.fromarray(gray).convert("RGB")
