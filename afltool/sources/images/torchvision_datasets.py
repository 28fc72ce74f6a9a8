"""CIFAR-10, CIFAR-100 and Fashion-MNIST: the published files, in torchvision's folders.

Every file is compared with its published MD5 before anything in it is read.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...plugins import need_torch
from .base import DatasetRequest, ImageDataset, digest
from .files import DEBIAN_FASHION_MNIST, fetch, published_bytes
from .pixels import ArrayPictures, array_dataset

#: Folders below the data root.
FOLDERS = {
    "cifar10": "cifar-10-batches-py",
    "cifar100": "cifar-100-python",
    "fashion-mnist": "FashionMNIST/raw",
}
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
HEADS = 16, 8  # bytes before the pixels and before the labels of an idx file
SIDE = 28


def open_rows(request: DatasetRequest) -> ImageDataset:
    """The split in memory; files that are missing are downloaded."""
    return (_fashion_mnist if request.spec == "fashion-mnist" else _cifar)(request)


def _cifar(request: DatasetRequest) -> ImageDataset:
    """By torchvision, which unpickles; only the published files are, since MD5s are compared."""
    name, root, train = request.spec, request.root, request.split == "train"
    need_torch(f"{name}, which torchvision reads,")
    from torchvision import datasets

    cls: Any = getattr(datasets, name.upper())
    batches = dict(cls.train_list if train else cls.test_list)
    published = {**batches, cls.meta["filename"]: cls.meta["md5"]}
    folder = root / FOLDERS[name]
    if missing := [file for file in published if not (folder / file).is_file()]:
        what = f"{name}: expected {', '.join(missing)} in {folder}"
        fetch(cls.url, root, cls.filename, cls.tgz_md5, what)
    sums = [_sha256(published_bytes(folder / file, md5)) for file, md5 in published.items()]
    with warnings.catch_warnings(action="ignore"):  # the pickles are older than NumPy's types
        found = cls(str(root), train=train)
    each = len(found.targets) // len(batches)  # the published batches are of one size
    pictures = ArrayPictures(found.data, tuple((str(folder / file), each) for file in batches))
    labels = np.asarray(found.targets, np.int64)
    return array_dataset(request, found.classes, pictures, labels, digest(name, *sums))


def _fashion_mnist(request: DatasetRequest) -> ImageDataset:
    """Of idx files, packed with gzip or not, in torchvision's folder or Debian's."""
    part = "train" if request.split == "train" else "t10k"
    names = (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")
    raw = request.root / FOLDERS["fashion-mnist"]
    paths = _found(raw, names) or _found(DEBIAN_FASHION_MNIST, names)
    if not paths:
        need_torch("the download of Fashion-MNIST")
        from torchvision.datasets import FashionMNIST

        what = f"fashion-mnist: expected {names[0]}[.gz] and {names[1]}[.gz] in {raw}"
        for archive, md5 in FashionMNIST.resources:
            fetch(FashionMNIST.mirrors[0] + archive, raw, archive, md5, what)
        paths = [raw / name for name in names]
    contents = [
        published_bytes(path, FASHION_MNIST_MD5[name])
        for path, name in zip(paths, names, strict=True)
    ]
    pixels, labels = (
        np.frombuffer(data, np.uint8, offset=head)
        for data, head in zip(contents, HEADS, strict=True)
    )
    pictures = ArrayPictures(pixels.reshape(-1, SIDE, SIDE), ((str(paths[0]), len(labels)),))
    source = digest("fashion-mnist", *map(_sha256, contents))
    return array_dataset(request, CLASSES, pictures, labels, source)


def _found(folder: Path, names: Sequence[str]) -> list[Path]:
    """These files in a folder, packed or not; none unless all are there."""
    pairs = [(folder / name, folder / f"{name}.gz") for name in names]
    paths = [path for pair in pairs for path in [*filter(Path.is_file, pair)][:1]]
    return paths if len(paths) == len(names) else []


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
