"""DICOM files: their windows and scales, what is refused, and the patients of their table."""

from __future__ import annotations

import io
import sys

import numpy as np
import pydicom
import pytest
from helpers_images import ids_of, narrow, values, write_imagefolder  # noqa: F401
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import (
    CTImageStorage,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    JPEGLosslessSV1,
    RLELossless,
    generate_uid,
)

import afltool
from afltool.datasets import open_dataset
from afltool.datasets.base import CorruptImageError
from afltool.datasets.pixels import decode
from afltool.errors import InvalidDataError, UsageError
from afltool.files.features import open_features
from afltool.files.partitions import load_partition

SMALL = {"weights": "random", "image_size": 32, "preprocess": "paper", "engine": "torch"}


def dicom(pixels, syntax=ExplicitVRLittleEndian, **tags) -> bytes:
    """A DICOM file of ``pixels`` as pydicom writes it."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = CTImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=["fixed"])
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    file = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
    file.SOPClassUID = CTImageStorage
    kind, bits = "RGB" if pixels.ndim == 3 else "MONOCHROME2", 8 * pixels.dtype.itemsize
    file.set_pixel_data(pixels, kind, bits, generate_instance_uid=False)
    meta.TransferSyntaxUID = ExplicitVRLittleEndian if syntax == RLELossless else syntax
    for name, value in tags.items():
        setattr(file, name, value)
    if syntax == RLELossless:
        file.compress(RLELossless)
    if syntax == JPEGLosslessSV1:
        file.PixelData = pydicom.encaps.encapsulate([file.PixelData])
        file["PixelData"].VR = "OB"
    out = io.BytesIO()
    file.save_as(out, enforce_file_format=True)
    return out.getvalue()


def without(data: bytes, *names: str) -> bytes:
    """A DICOM file that lacks some of its tags."""
    file, out = pydicom.dcmread(io.BytesIO(data)), io.BytesIO()
    for name in names:
        delattr(file, name)
    file.save_as(out)
    return out.getvalue()


def shown(pixels, **tags) -> list[int]:
    image = decode(dicom(np.array(pixels), **tags), "x.dcm")
    assert image.mode == "RGB"
    return np.asarray(image)[..., 0].ravel().tolist()


def test_without_a_window_the_range_of_the_bits_stored_counts():
    assert shown(np.array([[0, 2048, 4095]], np.uint16), BitsStored=12, HighBit=11) == [0, 128, 255]
    assert shown(np.array([[-2048, 0, 2047]], np.int16), BitsStored=12, HighBit=11) == [0, 128, 255]
    assert shown(np.array([[0, 7, 255]], np.uint8)) == [0, 7, 255]
    scaled = shown(np.array([[0, 7, 255]], np.uint8), RescaleSlope=2, RescaleIntercept=-9)
    assert scaled == [0, 7, 255], "a scale alone moves the values and the range alike"


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
def test_windows_follow_the_formulas_of_the_standard(function):
    """PS3.3 C.11.2.1.2 and C.11.2.1.3, of Hounsfield units: slope 2, intercept −1024."""
    values = np.arange(0, 1200, 7, dtype=np.int16)[None]
    x, c, w = values[0] * 2.0 - 1024, 40, 400
    if function == "SIGMOID":
        y = 1 / (1 + np.exp(-4 * (x - c) / w))
    elif function == "LINEAR_EXACT":
        y = (x - c) / w + 0.5
    else:
        y = (x - (c - 0.5)) / (w - 1) + 0.5
    tags = {"RescaleSlope": 2, "RescaleIntercept": -1024, "WindowCenter": [c, 7],
            "WindowWidth": [w, 9], "VOILUTFunction": function}  # fmt: skip
    expected = np.rint(255 * np.clip(y, 0, 1))
    np.testing.assert_allclose(shown(values, **tags), expected, atol=0)
    dark = shown(values, PhotometricInterpretation="MONOCHROME1", **tags)
    np.testing.assert_array_equal(dark, 255 - expected)


@pytest.mark.parametrize(
    ("dtype", "kind", "window"),
    [
        (np.uint16, "MONOCHROME2", {}),
        (np.int16, "MONOCHROME1", {"WindowCenter": 1000, "WindowWidth": 700}),
    ],
)
def test_a_negative_slope_shows_the_picture_that_a_positive_one_shows(dtype, kind, window):
    """PS3.3 C.11.1.1.2 sets the slope no bound: value = slope · stored + intercept."""
    values = np.random.default_rng(0).integers(0, 4096, (7, 9))
    low = 0 if dtype == np.uint16 else -2048
    tags = {"BitsStored": 12, "HighBit": 11, "PhotometricInterpretation": kind, **window}
    positive = shown((values + low).astype(dtype), RescaleSlope=1, RescaleIntercept=-low, **tags)
    stored = (4095 - values + low).astype(dtype)
    negative = shown(stored, RescaleSlope=-1, RescaleIntercept=4095 + low, **tags)
    assert negative == positive
    y = (values - 999.5) / 699 + 0.5 if window else values / 4095
    expected = np.rint(255 * np.clip(y, 0, 1)).ravel()
    np.testing.assert_array_equal(positive, 255 - expected if kind == "MONOCHROME1" else expected)


def test_colours_and_compressed_pixels_are_those_of_the_array():
    rng = np.random.default_rng(0)
    colors = rng.integers(0, 256, (5, 7, 3), np.uint8)
    for syntax in (ExplicitVRLittleEndian, RLELossless):
        assert np.array_equal(np.asarray(decode(dicom(colors, syntax), "x")), colors)


GREY = np.arange(64, dtype=np.uint16).reshape(8, 8)
SCAN = dicom(GREY)


SCALED = dicom(GREY, RescaleSlope=2, RescaleIntercept=5)
ITEM = pydicom.Dataset()
ITEM.PatientID = "x"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (dicom(GREY, NumberOfFrames=12), "it has 12 frames, expected one"),
        (dicom(GREY, JPEGLosslessSV1), "no decoder for its compression, JPEG Lossless.*pylibjpeg"),
        (dicom(GREY, DeflatedExplicitVRLittleEndian), "deflated"),
        (dicom(GREY, Rows=60_000, Columns=60_000), "more than the limit"),
        (dicom(GREY, RescaleSlope=0, RescaleIntercept=5), "its rescale slope is 0.* intercept 5"),
        (SCALED.replace(b"DS\4\x002.0 ", b"DS\4\0nan "), "its rescale slope is nan"),
        (dicom(GREY, RescaleSlope=2), "rescale slope and intercept.*one lacks"),
        (dicom(GREY, WindowCenter=2), "window centre and width, one lacks"),
        (dicom(GREY, WindowCenter=2, WindowWidth=0), "(?i)window width"),
        (dicom(GREY, HighBit=13, BitsStored=12), "its high bit is 13, of 12 bits stored"),
        (dicom(GREY, SharedFunctionalGroupsSequence=[ITEM]), "Groups.* not applied"),
        (dicom(GREY, VOILUTSequence=[ITEM]), "VOILUTSequence is not applied"),
        (without(SCAN, "PixelData", "Rows", "SOPClassUID"), "no pixels of whole numbers"),
        (dicom(GREY, PhotometricInterpretation="PALETTE COLOR"), "PALETTE COLOR with 16 bits"),
        (SCAN[:-70], "."),
        (SCAN[:140], "."),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning:pydicom")
def test_what_cannot_be_decoded_is_named_with_the_reason(data, reason):
    with pytest.raises(CorruptImageError, match=reason) as caught:
        decode(data, "bad.dcm")
    assert caught.value.where == "bad.dcm"


def write_dicom(tmp_path, images):
    """The images of a folder as DICOM files in the same places of another folder."""
    for path in images.rglob("*.png"):
        to = (tmp_path / "dcm" / path.relative_to(images)).with_suffix(".dcm")
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(dicom(np.asarray(Image.open(path))))
    return tmp_path / "dcm"


def test_features_are_those_of_the_same_images_and_a_table_knows_their_patients(tmp_path):
    """A folder of DICOM, a table of it, clients by patient, and a cut between patients."""
    images = write_imagefolder(tmp_path / "png", per_class=6, splits=("train",))
    root = write_dicom(tmp_path, images)
    files = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.dcm"))
    table = root / "scans.csv"
    rows = [f"{name},{name.split('/')[1]},P{i % 6}" for i, name in enumerate(files)]
    table.write_text("\n".join(["path,label,patient", *rows]))
    plain, folder, listed = (
        afltool.extract(backbone="narrow", data=spec, split="train", out=tmp_path / name, **SMALL)
        for spec, name in (
            (f"imagefolder:{images}", "png.h5"),
            (f"dicom:{root}", "dcm.h5"),
            (f"table:{table}", "table.h5"),
        )
    )
    with open_features(plain) as expected:
        labels = expected.labels.tolist()
    for path in (folder, listed):
        assert np.array_equal(values(path), values(plain))
        assert ids_of(path) == [one.replace(b".png", b".dcm") for one in ids_of(plain)]
        with open_features(path) as found:
            assert found.labels.tolist() == labels

    column = {"scheme": "by-attribute", "table": table, "column": "patient"}
    clients = afltool.partition(listed, tmp_path / "c.h5", **column)
    assert load_partition(clients).names == tuple(f"P{i}" for i in range(6))
    parts = afltool.split(listed, test_size=0.34, group=f"{table}:patient")
    patient = dict(row.split(",")[::2] for row in rows)
    sides = [{patient[one.decode()] for one in ids_of(part)} for part in parts]
    assert len(sides) == 2
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 6


def test_a_folder_of_dicom_is_predicted_and_one_without_is_said(tmp_path):
    from afltool.datasets.from_paths import read_named

    root = write_dicom(tmp_path, write_imagefolder(tmp_path / "png", per_class=1))
    (named,) = read_named([root / "train"], io.StringIO())
    assert [name.rpartition(b"/")[2] for name in named.names] == [b"0000.dcm"] * 3
    assert named.load(0).size == (32, 32)
    with pytest.raises(InvalidDataError, match=r"hold no images.*Images end in \.dcm"):
        open_dataset(f"dicom:{tmp_path / 'png'}", "train")


def test_without_pydicom_the_message_says_what_to_install(monkeypatch):
    """It is no corrupt image, which --skip-corrupt would leave out."""
    monkeypatch.setitem(sys.modules, "pydicom", None)
    with pytest.raises(UsageError, match=r"pip install .*\[dicom\]'"):
        decode(SCAN, "x.dcm")
