"""Small data sets in the true on-disk formats, with classes that a classifier can tell apart."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from afltool.backbones.families import FAMILIES, TorchvisionSource
from afltool.files.features import open_features

CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


def pattern(label: int, n_classes: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """One ``(size, size, 3)`` uint8 picture: stripes whose color and direction tell the class."""
    angle = np.pi * label / n_classes
    y, x = np.mgrid[:size, :size] / size
    wave = np.sin(2 * np.pi * (2 + label % 3) * (x * np.cos(angle) + y * np.sin(angle)))
    color = 0.5 + 0.5 * np.cos(2 * np.pi * (label / n_classes + np.arange(3) / 3))
    picture = 128 + 60 * wave[..., None] * (color - 0.3) + 80 * (color - 0.5)
    picture = picture + rng.normal(0, 12, picture.shape)
    return np.clip(np.rint(picture), 0, 255).astype(np.uint8)


def patterns(labels: np.ndarray, n_classes: int, size: int, seed: int) -> np.ndarray:
    """``(n, size, size, 3)`` uint8, one `pattern` a label."""
    rng = np.random.default_rng(seed)
    pictures = [pattern(int(label), n_classes, size, rng) for label in labels]
    return np.array(pictures, dtype=np.uint8).reshape(len(labels), size, size, 3)


def values(path: Path) -> np.ndarray:
    """The features of a file as they are stored (n, d)."""
    with open_features(path) as features:
        return np.asarray(features.read_stored(0, len(features)))


def ids_of(path: Path) -> list[bytes]:
    with open_features(path) as features:
        return features.row_ids.tolist()


# --- a small network ------------------------------------------------------------------------------


class Narrow(TorchvisionSource):
    """A ResNet of four blocks, an eighth as wide: 64 features, and 32, 16, 8 of the others."""

    def __init__(self, name: str = "narrow") -> None:
        super().__init__("resnet18")
        self.name = name

    def build(self, image_size: int) -> Any:
        from torch import nn
        from torchvision.models.resnet import BasicBlock, ResNet

        class Thin(ResNet):
            def _make_layer(self, block: Any, planes: int, *more: Any, **how: Any) -> Any:
                return super()._make_layer(block, planes // 8, *more, **how)

        network = Thin(BasicBlock, [1, 1, 1, 1])
        network.fc = nn.Linear(64, 1000)
        return network

    def stages(self, network: Any) -> list[str]:
        return [f"layer{k}" for k in range(1, 5)]


@pytest.fixture(scope="module", autouse=True)
def narrow():
    """In modules that import it, ``--backbone narrow`` is `Narrow`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FAMILIES.data, "narrow", f"{__name__}:Narrow")
        yield


# --- CIFAR ----------------------------------------------------------------------------------------


def _cifar_rows(n: int, n_classes: int, seed: int) -> tuple[np.ndarray, list[int]]:
    labels = np.arange(n) % n_classes
    pixels = patterns(labels, n_classes, 32, seed)
    return pixels.transpose(0, 3, 1, 2).reshape(n, 3072), labels.tolist()


def _write_pickle(path: Path, **content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2))


def write_cifar10(root: Path, n_train: int, n_test: int, seed: int = 0) -> Path:
    """``root/cifar-10-batches-py`` with all its files; classes take turns. Returns the folder."""
    folder = root / "cifar-10-batches-py"
    data, labels = _cifar_rows(n_train, 10, seed)
    edges = np.linspace(0, n_train, 6).astype(int)
    for i, (a, b) in enumerate(pairwise(edges), 1):
        _write_pickle(folder / f"data_batch_{i}", data=data[a:b], labels=labels[a:b])
    data, labels = _cifar_rows(n_test, 10, seed + 1)
    _write_pickle(folder / "test_batch", data=data, labels=labels)
    _write_pickle(folder / "batches.meta", label_names=list(CIFAR10_CLASSES))
    return folder


def write_cifar100(root: Path, n_train: int, n_test: int, seed: int = 0) -> Path:
    """``root/cifar-100-python`` with train, test and meta; classes take turns."""
    folder = root / "cifar-100-python"
    for name, n, shift in (("train", n_train, 0), ("test", n_test, 1)):
        data, labels = _cifar_rows(n, 100, seed + shift)
        coarse = [label // 5 for label in labels]
        _write_pickle(folder / name, data=data, fine_labels=labels, coarse_labels=coarse)
    _write_pickle(folder / "meta", fine_label_names=[f"fine_{i:02d}" for i in range(100)])
    return folder


def md5_of(root: Path) -> dict[str, str]:
    """``{relative path: MD5}`` of every file below ``root``."""
    return {
        path.relative_to(root).as_posix(): hashlib.md5(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


# --- Fashion-MNIST --------------------------------------------------------------------------------


def idx_bytes(array: np.ndarray) -> bytes:
    """An array of bytes in the idx format."""
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return head + array.astype(np.uint8).tobytes()


def write_fashion_mnist(root: Path, n_train: int, n_test: int, seed: int = 0) -> Path:
    """``root/FashionMNIST/raw`` with the four idx files, packed. Returns the folder."""
    raw = root / "FashionMNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for part, n, shift in (("train", n_train, 0), ("t10k", n_test, 1)):
        labels = np.arange(n) % 10
        pixels = patterns(labels, 10, 28, seed + shift).mean(axis=3)
        for name, array in (("images-idx3", pixels), ("labels-idx1", labels)):
            packed = gzip.compress(idx_bytes(array), mtime=0)
            (raw / f"{part}-{name}-ubyte.gz").write_bytes(packed)
    return raw


# --- folders --------------------------------------------------------------------------------------


def write_imagefolder(
    root: Path,
    classes: Sequence[str] = ("circle", "line", "square"),
    per_class: int = 4,
    splits: Sequence[str] = ("train", "test"),
    size: int = 32,
    seed: int = 0,
    suffix: str = ".png",
) -> Path:
    """``root/SPLIT/CLASS/0000.png`` …; returns ``root``."""
    rng = np.random.default_rng(seed)
    for split in splits:
        for label, name in enumerate(classes):
            folder = root / split / name
            folder.mkdir(parents=True, exist_ok=True)
            for i in range(per_class):
                picture = pattern(label, len(classes), size, rng)
                Image.fromarray(picture).save(folder / f"{i:04d}{suffix}")
    return root


def write_tar(path: Path, members: Any) -> Path:
    """A tar file of names and bytes, a dict or pairs, as WebDataset's writer makes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in members.items() if isinstance(members, dict) else members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def write_tiny_imagenet(root: Path, n_classes: int = 3, per_class: int = 2, seed: int = 0) -> Path:
    """``root/tiny-imagenet-200`` with wnids.txt, words.txt, train and val; returns the folder."""
    rng = np.random.default_rng(seed)
    folder = root / "tiny-imagenet-200"
    wnids = [f"n{90000000 + 7919 * i:08d}" for i in range(n_classes)]
    (folder / "val" / "images").mkdir(parents=True)
    # The archive lists its ids in no particular order.
    (folder / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in reversed(wnids)))
    (folder / "words.txt").write_text("".join(f"{wnid}\tthing\n" for wnid in wnids))
    lines = []
    for label, wnid in enumerate(wnids):
        images = folder / "train" / wnid / "images"
        images.mkdir(parents=True)
        (images.parent / f"{wnid}_boxes.txt").write_text("")
        for i in range(per_class):
            picture = Image.fromarray(pattern(label, n_classes, 64, rng))
            picture.save(images / f"{wnid}_{i}.JPEG")
            name = f"val_{i * n_classes + label}.JPEG"
            picture.save(folder / "val" / "images" / name)
            lines.append(f"{name}\t{wnid}\t0\t0\t62\t62\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    return folder
