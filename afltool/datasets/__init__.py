"""Labelled images by name: `open_dataset` is the one way in.

========================  =========================================================================
``digits``                scikit-learn's, every fifth image of a class is a test image
``fashion-mnist``         idx files of Debian's package or in torchvision's layout
``cifar10, cifar100``     the Python version's pickles, checked before they are read
``tiny-imagenet``         the archive's folders; its val images are the test split
``imagefolder:PATH``      PATH/SPLIT/CLASS/files
``table:FILE``            CSV or parquet with the columns path, label and, optionally, split
========================  =========================================================================

Importing this package is cheap: torchvision, Pillow and scikit-learn are imported when a data set
asks for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import InputError, UsageError
from .arrays import open_cifar, open_digits, open_fashion_mnist
from .base import SPLITS, CorruptImageError, ImageDataset
from .files import default_data_root, read_checksums
from .folders import open_imagefolder, open_tiny_imagenet
from .states import dataset_state
from .tables import open_table

__all__ = [
    "DATASETS",
    "SPLITS",
    "CorruptImageError",
    "ImageDataset",
    "dataset_state",
    "default_data_root",
    "open_dataset",
    "read_checksums",
    "read_classes",
]

#: What ``--data`` takes.
DATASETS = (
    "digits", "fashion-mnist", "cifar10", "cifar100", "tiny-imagenet", "imagefolder:PATH",
    "table:FILE",
)  # fmt: skip


def open_dataset(
    spec: str,
    split: str,
    *,
    data_root: Path | None = None,
    classes: Sequence[str] | None = None,
    limit: int | None = None,
    checksums: Mapping[str, str] | None = None,
) -> ImageDataset:
    """The data set ``spec`` (one of `DATASETS`), its rows listed, no image decoded yet.

    Args:
        spec: a name, ``imagefolder:PATH`` or ``table:FILE``.
        split: ``train`` or ``test``.
        data_root: where downloaded data lie and go to; default `default_data_root`. For a table,
            what its paths are relative to; default its own folder.
        classes: class names in the order that labels count; must hold every class of the data,
            may hold more. Default: the data set's own order.
        limit: at most so many rows, spread over the classes as evenly as can be.
        checksums: ``{file name: MD5}`` that the caller vouches for, in place of the published
            ones, for other data in the same format (see `read_checksums`).

    Raises:
        UsageError: unknown names, or options that the data set does not know.
        InputError: missing files; the message names them and where to put them.
        CorruptFileError: a file with another checksum, or damaged.
        InvalidDataError: no rows, an empty class, fewer than two classes, a class not in
            ``classes``.
    """
    if split not in SPLITS:
        raise UsageError(f"unknown split {split!r}: there are {' and '.join(SPLITS)}.")
    wanted = _checked_classes(classes)
    root = default_data_root() if data_root is None else Path(data_root)
    kind, _, path = spec.partition(":")
    checked = ("fashion-mnist", "cifar10", "cifar100")
    if checksums is not None and spec not in checked:
        raise UsageError(f"--checksums is for {', '.join(checked)}; {spec} does not use it.")
    if kind == "imagefolder" and path:
        dataset = open_imagefolder(spec, Path(path), split, wanted)
    elif kind == "table" and path:
        dataset = open_table(spec, Path(path), split, data_root, wanted)
    elif spec == "digits":
        dataset = open_digits(split, wanted)
    elif spec == "fashion-mnist":
        dataset = open_fashion_mnist(split, root, wanted, checksums)
    elif spec in ("cifar10", "cifar100"):
        dataset = open_cifar(spec, split, root, wanted, checksums)
    elif spec == "tiny-imagenet":
        dataset = open_tiny_imagenet(split, root, wanted)
    else:
        raise UsageError(f"unknown data set {spec!r}: there are {', '.join(DATASETS)}.")
    return dataset if limit is None else dataset.limited(limit)


def read_classes(path: Path) -> tuple[str, ...]:
    """Class names from a text file, one a line, in the order that labels count.

    Raises:
        InputError: the file cannot be read.
        UsageError: no name, or one twice.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the class names in {path}: {error}.") from error
    names = _checked_classes([line.strip() for line in lines if line.strip()])
    assert names is not None
    return names


def _checked_classes(classes: Sequence[str] | None) -> tuple[str, ...] | None:
    if classes is None:
        return None
    names = tuple(classes)
    twice = [name for name, times in Counter(names).items() if times > 1]
    if not names or twice:
        found = f"{', '.join(twice)} twice" if twice else "none"
        raise UsageError(f"the list of classes must name each class once; found {found}.")
    return names
