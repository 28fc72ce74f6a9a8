"""Labelled images by name: `open_dataset` is the one way in; `options.datasets` lists the names.

Importing this package is cheap: torchvision, Pillow and scikit-learn are imported when a data set
asks for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from .. import inputs
from ..errors import InvalidDataError, UsageError
from ..options.datasets import DATASETS, parse_dataset
from ..values.names import compose
from .base import SPLITS, DatasetRequest, ImageDataset


def open_dataset(
    spec: str,
    split: str,
    *,
    classes: Sequence[str] | None = None,
    limit: int | None = None,
    data_root: Path | None = None,
    unlabeled: bool = False,
    y: str | None = None,
) -> ImageDataset:
    """The data set ``spec`` (see `options.datasets`), its rows listed, no image decoded yet.

    ``classes``: names in the order that labels count; they hold every class of the data, and may
    hold more; by default the data set's own. ``limit``: at most so many rows, spread over the
    classes. ``data_root``, ``unlabeled``, ``y``: see `DatasetRequest`.

    Raises `UsageError`: unknown names and options; `InputError`: missing or damaged files, with
    where to put them; `InvalidDataError`: rows or classes that cannot be used.
    """
    if split not in SPLITS:
        raise UsageError(f"unknown split {split!r}: there are {' and '.join(SPLITS)}.")
    kind, path = parse_dataset(spec)
    if y is not None and not kind.columns:
        names = ", ".join(one.shown for one in DATASETS.values() if one.columns)
        raise UsageError(f"{spec}: --y names the column of labels of {names}; leave it out")
    known = None if classes is None else _checked_classes(classes)
    request = DatasetRequest(spec, path, split, known, data_root, unlabeled, y or "label")
    dataset: ImageDataset = import_module(kind.module, __name__).open_rows(request)
    return dataset if limit is None else dataset.limited(limit)


def read_classes(path: Path) -> tuple[str, ...]:
    """Class names from a text file, one a line, in the order that labels count, without blanks.

    Raises `InvalidDataError`: an empty line above the last name; `UsageError`: none, or one twice.
    """
    lines = inputs.read_text(path, "the class names").rstrip().split("\n")
    names = [line.strip(inputs.AROUND) for line in lines]
    if "" in names and any(names):
        raise InvalidDataError(
            f"{path}: line {names.index('') + 1} is empty; expected one class name per line: fill "
            "it in, or delete it if no class is meant"
        )
    return _checked_classes(names)


def _checked_classes(classes: Sequence[str]) -> tuple[str, ...]:
    names = tuple(classes)
    twice = [name for name, times in Counter(map(compose, names)).items() if times > 1]
    if not any(names) or twice:
        why = f"{', '.join(twice)} twice" if twice else "none"
        raise UsageError(f"the list of classes must name each class once; found {why}.")
    return names
