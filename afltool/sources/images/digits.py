"""scikit-learn's digits: 1,797 images of 8 × 8 pixels that need no download."""

from __future__ import annotations

import numpy as np

from ...errors import UsageError
from .base import DatasetRequest, ImageDataset, digest, rank_within_class
from .pixels import ArrayPictures, array_dataset


def open_rows(request: DatasetRequest) -> ImageDataset:
    """scikit-learn's 1,797 digits of 8 × 8 pixels.

    Within each class every fifth image, in the order of the file, belongs to the test split.
    """
    split = request.split
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise UsageError("digits needs scikit-learn: pip install 'afltool[demo]'.") from error
    bunch = load_digits()
    labels = np.asarray(bunch.target, dtype=np.int64)
    is_test = rank_within_class(labels) % 5 == 4
    rows = np.flatnonzero(is_test if split == "test" else ~is_test)
    pixels = np.rint(bunch.images[rows] * (255 / 16)).astype(np.uint8)
    return array_dataset(
        request,
        [str(digit) for digit in range(10)],
        ArrayPictures(pixels, ((f"scikit-learn's digits, {split} split", len(rows)),)),
        labels[rows],
        digest("digits", bunch.images.tobytes(), labels.tobytes()),
    )
