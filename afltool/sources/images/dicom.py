"""From a DICOM file to a picture; pydicom reads the file and decodes its pixels."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UsageError
from ...values.arrays import U8

if TYPE_CHECKING:
    from PIL.Image import Image

_GREY = ("MONOCHROME1", "MONOCHROME2")
_DEFLATED = b"1.2.840.10008.1.2.1.99"  # the file is packed: a small one may fill the memory


def is_dicom(data: bytes) -> bool:
    """Whether these are the bytes of a DICOM file."""
    return data[128:132] == b"DICM"


def read_dicom(data: bytes, room: Callable[[int, int], AbstractContextManager[None]]) -> Image:
    """The picture of a DICOM file with one frame; ``room(width, height)`` is there to decode in.

    Stored grey values go through the rescale slope and intercept, then through the first window
    (centre, width, and its function), else the first table of values of interest; from that range,
    or without them from the range of the bits stored, linearly to 0..255 and rounded (PS3.3,
    C.11.1 and C.11.2). MONOCHROME1 is inverted. Colours are those of 8 bits.

    Raises `UsageError`: pydicom is not installed; anything else that pydicom raises, and
    `ValueError`: several frames, or what is not decoded here.
    """
    try:
        import pydicom
    except ImportError as error:
        raise UsageError("DICOM images need pydicom: pip install 'afltool[dicom]'") from error
    from PIL import Image

    if _DEFLATED in data[:2048]:
        raise ValueError("the file is deflated as a whole; save it as Explicit VR Little Endian")
    file = pydicom.dcmread(io.BytesIO(data))
    frames = int(file.get("NumberOfFrames") or 1)
    if frames > 1:
        raise ValueError(f"it has {frames} frames, expected one; save each as a file of its own")
    _check_decoder(file.file_meta.TransferSyntaxUID)
    with room(file.Columns, file.Rows):
        pixels = file.pixel_array
        if file.PhotometricInterpretation in _GREY:
            pixels = _grey(file, pixels)
        elif pixels.ndim != 3 or pixels.dtype != np.uint8:
            raise ValueError(
                f"{file.PhotometricInterpretation} with {file.BitsStored} bits; expected grey "
                "(MONOCHROME1, MONOCHROME2), or RGB or YBR with 8 bits"
            )
        return Image.fromarray(pixels).convert("RGB")


def _check_decoder(syntax: Any) -> None:
    from pydicom.pixels.decoders.base import get_decoder

    if not get_decoder(syntax).is_available:
        raise ValueError(
            f"no decoder for its compression, {syntax.name}, is installed: pip install "
            "'pylibjpeg[all]', or save the file uncompressed"
        )


def _grey(file: Any, pixels: Any) -> U8:
    """By a table of all values that the pixels can have, which is smaller than a picture."""
    if pixels.dtype.kind not in "ui" or pixels.dtype.itemsize > 2:
        raise ValueError(f"pixels of {8 * pixels.dtype.itemsize} bits; expected 8 or 16")
    info = np.iinfo(pixels.dtype)
    shown, low, high = _shown(file, np.arange(info.min, info.max + 1))
    if not low < high:
        raise ValueError(f"its values go from {low} to {high}; is its rescale slope above 0?")
    grey = np.rint(np.clip((shown - low) / (high - low), 0, 1) * 255).astype(np.uint8)
    if file.PhotometricInterpretation == "MONOCHROME1":
        grey = 255 - grey
    found: U8 = grey[pixels.astype(np.int32) - info.min]
    return found


def _shown(file: Any, values: Any) -> tuple[Any, float, float]:
    """The values as they are to be shown, the darkest and the lightest of them."""
    from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut

    if file.get("ModalityLUTSequence"):
        raise ValueError("a table of modality values is not applied; expected slope and intercept")
    bits, signed = file.BitsStored, file.PixelRepresentation
    ends = np.array([-signed << (bits - 1), (1 << (bits - signed)) - 1])
    low, high = apply_modality_lut(ends, file).tolist()
    shown = apply_modality_lut(values, file)
    if file.get("VOILUTSequence") and file.get("WindowCenter") is None:
        low, high = 0, (1 << file.VOILUTSequence[0].LUTDescriptor[2]) - 1
        shown = np.rint(shown).astype(np.int64)  # places in that table
    return apply_voi_lut(shown, file, prefer_lut=False).astype(np.float64), low, high
