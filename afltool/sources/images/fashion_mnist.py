"""Fashion-MNIST: idx files of Debian's package, in torchvision's layout, or downloaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptFileError, InputError, InvalidDataError
from .base import DatasetRequest, ImageDataset, digest
from .files import DEBIAN_FASHION_MNIST, RawFile, fetch, files_below
from .pixels import ArrayPictures, array_dataset

#: MD5 of Fashion-MNIST's files without gzip: Debian packs the same bytes itself, so its packed
#: files do not have the published checksums.
FASHION_MNIST_MD5 = {
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}

_NAMES = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
CLASSES = tuple(_NAMES.split(","))
FOLDER = "FashionMNIST/raw"  # below the data root


def open_rows(request: DatasetRequest) -> ImageDataset:
    """Fashion-MNIST in idx files, packed with gzip or not.

    Looked for in ``root/FashionMNIST/raw`` (torchvision's layout), in Debian's folder, and then
    downloaded to the former.
    """
    part = "train" if request.split == "train" else "t10k"
    names = (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")
    raw = request.root / FOLDER
    paths = _find_idx(raw, names)
    if not paths:
        _fetch_all(raw, names)
        paths = _find_idx(raw, names)
    if not paths:
        raise InputError(f"fashion-mnist: expected {names[0]} and {names[1]} (or .gz) in {raw}.")
    contents = [_checked_idx(path) for path in paths]
    pixels, labels = _parse_idx(contents[0], 3), _parse_idx(contents[1], 1)
    if len(pixels) != len(labels):
        raise InvalidDataError(
            f"{paths[0]} holds {len(pixels)} images and {paths[1]} {len(labels)} labels: "
            "expected equally many. Fetch both files again."
        )
    return array_dataset(
        request,
        CLASSES,
        ArrayPictures(pixels, ((str(paths[0]), len(pixels)),)),
        labels,
        digest("fashion-mnist", *(content.sha256 for content in contents)),
    )


def _fetch_all(raw: Path, names: Sequence[str]) -> None:
    from torchvision.datasets import FashionMNIST

    what = f"fashion-mnist: expected {names[0]}[.gz] and {names[1]}[.gz] in {raw}"
    for archive, md5 in FashionMNIST.resources:
        fetch(FashionMNIST.mirrors[0] + archive, raw, archive, md5, what)


def _find_idx(raw: Path, names: Sequence[str]) -> list[Path]:
    """Both files from one folder, packed or not; none where no folder has both."""
    for folder in (raw, DEBIAN_FASHION_MNIST):
        pairs = [(folder / name, folder / f"{name}.gz") for name in names]
        paths = [path for pair in pairs for path in [*filter(Path.is_file, pair)][:1]]
        if len(paths) == len(names):
            return paths
    return []


def _checked_idx(path: Path) -> RawFile:
    content = RawFile.read(path).unpacked()
    content.check(FASHION_MNIST_MD5[path.name.removesuffix(".gz")])
    return content


def _parse_idx(file: RawFile, dimensions: int) -> NDArray[np.uint8]:
    """An idx array of bytes: magic 0x0000080D with D dimensions, D big-endian sizes, the bytes."""
    head = 4 + 4 * dimensions
    if file.data[:4] != bytes((0, 0, 8, dimensions)) or len(file.data) < head:
        raise CorruptFileError(
            f"{file.path}: expected an idx file of bytes in {dimensions} dimension(s), which "
            f"starts with 00 00 08 {dimensions:02x}; found {file.data[:4].hex(' ')}."
        )
    shape = np.frombuffer(file.data, ">u4", dimensions, offset=4).astype(np.int64)
    if len(file.data) - head != shape.prod():
        raise CorruptFileError(
            f"{file.path}: its header announces {shape.prod():,} bytes of data, it holds "
            f"{len(file.data) - head:,}. Fetch it again."
        )
    return np.frombuffer(file.data, np.uint8, offset=head).reshape(shape)


def files(name: str, root: Path) -> list[Path]:
    """All files that the images may come from."""
    return [*files_below(root / FOLDER), *files_below(DEBIAN_FASHION_MNIST)]
