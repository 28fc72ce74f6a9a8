"""Labelled images by name: `open_dataset` is the one way in; `options.datasets` lists the names.

Importing this package is cheap: torchvision, Pillow and scikit-learn are imported when a data set
asks for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from ... import inputs
from ...errors import InvalidDataError, UsageError
from ...options.datasets import DATASETS, named
from ...values.names import composed
from .base import SPLITS, DatasetRequest, ImageDataset

MOST_CLASSES = 1_000_000  # in a class list


def open_dataset(
    spec: str,
    split: str,
    *,
    data_root: Path | None = None,
    classes: Sequence[str] | None = None,
    limit: int | None = None,
    unlabelled: bool = False,
    path_column: str | None = None,
    label_column: str | None = None,
) -> ImageDataset:
    """The data set ``spec`` (see `options.datasets`), its rows listed, no image decoded yet.

    Args:
        spec: a name, ``imagefolder:PATH``, ``table:FILE`` or ``webdataset:PATTERN``.
        split: ``train`` or ``test``.
        data_root: where downloaded data lie and go to; default `default_data_root`. For a table,
            what its paths are relative to; default its own folder.
        classes: class names in the order that labels count; must hold every class of the data,
            may hold more. Default: the data set's own order.
        limit: at most so many rows, spread over the classes as evenly as can be.
        unlabelled: without labels, which folders and tables need not have then.
        path_column, label_column: of a table; default ``path`` and ``label``. Of parquet the column
            of the images, by default the only one, and of WebDataset's JSON the key of the label.

    Raises `UsageError`: unknown names, or options that the data set does not know; `InputError`:
    missing files; the message names them and where to put them; `CorruptFileError`: a file with
    another checksum, or damaged; `InvalidDataError`: no rows, an empty class, fewer than two
    classes, a class not in ``classes``.
    """
    if split not in SPLITS:
        raise UsageError(f"unknown split {split!r}: there are {' and '.join(SPLITS)}.")
    kind, path = named(spec)
    for option, column in (("path", path_column), ("label", label_column)):
        if column is not None and option not in kind.columns:
            those = ", ".join(one.shown for one in DATASETS.values() if option in one.columns)
            raise UsageError(f"--{option}-column is for {those}; {spec} does not use it.")
    known = None if classes is None else _checked_classes(classes)
    columns = path_column or "path", label_column or "label"
    request = DatasetRequest(spec, path, split, data_root, known, unlabelled, *columns)
    dataset: ImageDataset = import_module(kind.module, __name__).open_rows(request)
    if unlabelled:
        dataset = dataset.without_labels()
    return dataset if limit is None else dataset.limited(limit)


def read_classes(path: Path) -> tuple[str, ...]:
    """Class names from a text file, one a line, in the order that labels count.

    Spaces and tabs around a name are not part of it.

    Raises `InputError`: the file cannot be read, or a line above the last name is empty;
    `UsageError`: no name, or one twice.
    """
    lines = inputs.read_text(path, "the class names").rstrip().split("\n")
    names = [line.strip(inputs.AROUND) for line in lines]
    if "" in names and any(names):
        raise InvalidDataError(
            f"{path}: line {names.index('') + 1} is empty; expected one class name per line. "
            "Labels count the lines: fill it in, or delete it if no class is meant"
        )
    if len(names) > MOST_CLASSES:
        raise InvalidDataError(
            f"{path} names {len(names):,} classes; the most is {MOST_CLASSES:,}."
        )
    return _checked_classes(names)


def _checked_classes(classes: Sequence[str]) -> tuple[str, ...]:
    names = tuple(classes)
    twice = [name for name, times in Counter(map(composed, names)).items() if times > 1]
    if not any(names) or twice:
        why = f"{', '.join(twice)} twice" if twice else "none"
        raise UsageError(f"the list of classes must name each class once; found {why}.")
    return names
