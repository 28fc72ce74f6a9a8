"""CIFAR-10, CIFAR-100, Fashion-MNIST: published files in torchvision's folders, by their MD5."""

from __future__ import annotations

import gzip
import hashlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .. import inputs
from ..errors import CorruptFileError
from ..plugins import require_torch
from .base import DatasetRequest, ImageDataset, array_dataset, digest

#: Where Debian's package dataset-fashion-mnist puts its files.
DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
MOST_BYTES = 300_000_000  # of one file, packed or not; the largest has 47 MB
#: MD5 of Fashion-MNIST's files without gzip: Debian packs the same bytes itself, so its packed
#: files do not have the published checksums.
FASHION_MNIST_MD5 = {
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}
_NAMES = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"


def open_rows(request: DatasetRequest) -> ImageDataset:
    """The split in memory; files that are missing are downloaded."""
    return (_fashion_mnist if request.spec == "fashion-mnist" else _cifar)(request)


def _cifar(request: DatasetRequest) -> ImageDataset:
    """By torchvision, which unpickles; only the published files are, since MD5s are compared."""
    name, root, train = request.spec, request.root, request.split == "train"
    require_torch(f"{name}, which torchvision reads,")
    from torchvision import datasets

    cls: Any = getattr(datasets, name.upper())
    folder, meta = root / cls.base_folder, {cls.meta["filename"]: cls.meta["md5"]}
    every = {**dict(cls.train_list + cls.test_list), **meta}
    if not all((folder / file).is_file() for file in every):
        fetch(cls.url, root, cls.filename, cls.tgz_md5, name)
    sums = {file: _sha256(read_published(folder / file, md5)) for file, md5 in every.items()}
    with warnings.catch_warnings(action="ignore"):  # the pickles are older than NumPy's types
        found = cls(str(root), train=train)
    mine = [sums[file] for file in {**dict(cls.train_list if train else cls.test_list), **meta}]
    labels = np.asarray(found.targets, np.int64)
    return array_dataset(request, found.classes, found.data, labels, digest(name, *mine))


def _fashion_mnist(request: DatasetRequest) -> ImageDataset:
    """Of idx files, packed with gzip or not, in torchvision's folder or Debian's."""
    part, raw = "train" if request.split == "train" else "t10k", request.root / "FashionMNIST/raw"
    files = list[bytes]()
    for name in (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"):
        places = [at / f"{name}{end}" for at in (raw, DEBIAN_FASHION_MNIST) for end in (".gz", "")]
        if not any(path.is_file() for path in places):
            require_torch("the download of Fashion-MNIST")
            from torchvision.datasets import FashionMNIST

            for archive, md5 in FashionMNIST.resources:
                fetch(FashionMNIST.mirrors[0] + archive, raw, archive, md5, request.spec)
        path = next(path for path in places if path.is_file())
        files.append(read_published(path, FASHION_MNIST_MD5[name]))
    pixels = np.frombuffer(files[0], np.uint8, offset=16).reshape(-1, 28, 28)
    labels, sums = np.frombuffer(files[1], np.uint8, offset=8), map(_sha256, files)
    return array_dataset(request, _NAMES.split(","), pixels, labels, digest(request.spec, *sums))


def read_published(path: Path, md5: str) -> bytes:
    """The bytes of a file, without gzip around them, whose MD5 is the published one."""
    try:
        data = inputs.read_bytes(path, MOST_BYTES)
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                data = file.read(MOST_BYTES)
    except (OSError, EOFError) as error:
        raise CorruptFileError(f"{path} is damaged ({error}). Fetch it again.") from error
    if (found := hashlib.md5(data, usedforsecurity=False).hexdigest()) != md5:
        raise CorruptFileError(
            f"{path}: expected the published MD5 {md5}, found {found} "
            f"({len(data):,} bytes). Delete the file and fetch it again."
        )
    return data


def fetch(url: str, root: Path, archive: str, md5: str, what: str, to: Path | None = None) -> None:
    """Download ``archive`` into ``root``, if it is not there with this MD5, and unpack it."""
    require_torch(f"the download of {what}")
    from torchvision.datasets import utils

    advice = (
        f"Fetch {archive} (MD5 {md5}) on a machine with internet and put it into {root}; it is "
        "unpacked from there. Another folder is named with --data-root or $AFLTOOL_DATA."
    )
    with inputs.downloading(f"{what}: expected {archive} in {root}, which", advice):
        utils.download_and_extract_archive(url, str(root), str(to or root), archive, md5)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
