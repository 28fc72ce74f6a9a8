"""From a DICOM file to a picture; pydicom reads the file and decodes its pixels."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plugins import need
from ..values.arrays import U8

if TYPE_CHECKING:
    from PIL.Image import Image

_DEFLATED = b"1.2.840.10008.1.2.1.99"  # the file is packed: a small one may fill the memory
#: Tables of values, and what enhanced files say of a frame.
_NOT_APPLIED = ("ModalityLUTSequence", "VOILUTSequence", "SharedFunctionalGroupsSequence",
                "PerFrameFunctionalGroupsSequence")  # fmt: skip


def read_dicom(data: bytes, check_size: Callable[[int, int], None]) -> Image:
    """The picture of a DICOM file with one frame; ``check_size(width, height)`` before its pixels.

    Stored gray values go through the rescale slope and intercept, then through the first window
    (centre, width, and its function); from that range, or without a window from the range of the
    bits stored, from its least value to the largest, linearly to 0..255 and rounded (PS3.3, C.11.1
    and C.11.2). MONOCHROME1 is inverted. Colors are those of 8 bits.

    Raises `UsageError`: pydicom is not installed; else `ValueError` and what pydicom raises.
    """
    need("a DICOM image", "dicom", "pydicom")
    import pydicom
    from PIL import Image
    from pydicom.pixels.decoders.base import get_decoder

    if _DEFLATED in data[:2048]:
        raise ValueError("the file is deflated as a whole; save it as Explicit VR Little Endian")
    file = pydicom.dcmread(io.BytesIO(data))
    if (frames := int(file.get("NumberOfFrames") or 1)) > 1:
        raise ValueError(f"it has {frames} frames, expected one; save each as a file of its own")
    if "PixelData" not in file:
        what = file.get("SOPClassUID")
        raise ValueError(f"it has no pixels of whole numbers; it is {what and what.name!r}")
    if not get_decoder(syntax := file.file_meta.TransferSyntaxUID).is_available:
        raise ValueError(
            f"no decoder for its compression, {syntax.name}, is installed: pip install "
            "'pylibjpeg[all]', or save the file uncompressed"
        )
    check_size(file.Columns, file.Rows)
    pixels, kind = file.pixel_array, file.PhotometricInterpretation
    gray = kind in ("MONOCHROME1", "MONOCHROME2")
    if pixels.ndim != (2 if gray else 3) or pixels.dtype.itemsize > 1 + gray:
        raise ValueError(
            f"{kind} with {file.BitsStored} bits; expected gray (MONOCHROME1, MONOCHROME2) with up "
            "to 16, or RGB or YBR with 8"
        )
    return Image.fromarray(_gray(file, pixels) if gray else pixels).convert("RGB")


def _gray(file: Any, pixels: Any) -> U8:
    """By a table of all values that the pixels can have, which is smaller than a picture."""
    from pydicom.pixels.processing import apply_modality_lut, apply_windowing

    slope, intercept = (file.get(f"Rescale{name}") for name in ("Slope", "Intercept"))
    center, width = (file.get(f"Window{name}") for name in ("Center", "Width"))
    bits, signed = file.BitsStored, file.PixelRepresentation
    if odd := [name for name in _NOT_APPLIED if file.get(name)]:
        raise ValueError(f"its {odd[0]} is not applied; expected slope, intercept and a window")
    if (slope is None) != (intercept is None) or (center is None) != (width is None):
        raise ValueError("of rescale slope and intercept, or window centre and width, one lacks")
    if slope is not None and not (slope and np.isfinite([slope, intercept]).all()):
        raise ValueError(f"its rescale slope is {slope} and its intercept {intercept}")
    if file.get("HighBit") not in (None, bits - 1):  # PS3.5, 8.1.1
        raise ValueError(f"its high bit is {file.HighBit}, of {bits} bits stored")
    info = np.iinfo(pixels.dtype)
    ends = np.array([-signed << (bits - 1), (1 << (bits - signed)) - 1])
    low, high = apply_modality_lut(ends, file).tolist()
    shown = apply_modality_lut(np.arange(info.min, info.max + 1), file)
    if width is None:  # pydicom gives those of a window as they are
        low, high = min(low, high), max(low, high)
    part = (apply_windowing(shown, file) - low) / (high - low)
    gray = np.rint(np.clip(part, 0, 1) * 255).astype(np.uint8)
    inverted = file.PhotometricInterpretation == "MONOCHROME1"
    found: U8 = (255 - gray if inverted else gray)[pixels.astype(np.int32) - info.min]
    return found
