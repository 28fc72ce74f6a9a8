"""What every data set has in common: rows with ids and labels, and pixels on request."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidDataError, UsageError
from ...files.tables import NO_LABELS, check_labels
from ...progress import log
from ...values import names
from .files import default_data_root

if TYPE_CHECKING:
    from PIL.Image import Image

#: The splits of every data set.
SPLITS = ("train", "test")

Labels = NDArray[np.int64]


@dataclass(frozen=True)
class DatasetRequest:
    """Which rows of which data set are asked for; see `open_dataset`.

    ``path``: what stands behind the colon of ``spec``. ``classes``: those that the caller wants.
    """

    spec: str
    path: str
    split: str
    data_root: Path | None
    classes: tuple[str, ...] | None
    unlabelled: bool
    path_column: str
    label_column: str

    @property
    def root(self) -> Path:
        """Where downloaded data lie and go to."""
        return self.data_root or default_data_root()


class CorruptImageError(InvalidDataError):
    """One image cannot be used: truncated, empty, not an image, a decompression bomb.

    ``where`` is the path (or the row of a file), ``reason`` one clause. It survives pickling, so
    that a worker process can raise it.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where = where
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"cannot use the image {self.where}: {self.reason}. "
            "Replace it, or leave such images out with --skip-corrupt."
        )


class Pictures(Protocol):
    """The source of the pixels; ``i`` counts from 0 in the source's own order."""

    def load(self, i: int) -> Image:
        """The picture in mode RGB. Safe to call from several threads."""

    def describe(self, i: int) -> str:
        """Where a person finds picture ``i``: a path, or ``row 17 of FILE``."""


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """Images in a fixed order, read one at a time, with labels or without.

    Attributes:
        name: what was asked for, such as ``cifar10`` or ``imagefolder:/data/birds``.
        split: ``train`` or ``test``.
        classes: class names; a label is an index into them. Empty without labels.
        row_ids: ``(n,)`` bytes, unique, stable across machines: ``train/00017`` for arrays, the
            relative POSIX path for folders.
        labels: ``(n,)`` int64; None without.
        fingerprint: SHA-256 (hex) of what identifies the input: digests of the files for arrays;
            relative path, size and modification time of each file for folders; classes and rows.
        pictures: where the pixels are.
        positions: ``(n,)`` int64, the place of each row in ``pictures``.
    """

    name: str
    split: str
    classes: tuple[str, ...]
    row_ids: NDArray[np.bytes_]
    labels: Labels | None
    fingerprint: str
    pictures: Pictures
    positions: Labels

    def __len__(self) -> int:
        return len(self.row_ids)

    def load(self, i: int) -> Image:
        """Row ``i`` as a PIL image in mode RGB; thread safe.

        Raises `CorruptImageError`: this image cannot be used; others may; `InputError`: the file is
        gone, or the disk does not answer.
        """
        return self.pictures.load(int(self.positions[i]))

    def describe(self, i: int) -> str:
        """Where row ``i`` lies: its path, or ``row 17 of FILE``."""
        return self.pictures.describe(int(self.positions[i]))

    def take(self, rows: Sequence[int] | NDArray[np.integer[Any]]) -> ImageDataset:
        """Only ``rows``, in that order, with their ids; the fingerprint tells the difference."""
        chosen = np.asarray(rows, dtype=np.int64)
        if np.array_equal(chosen, np.arange(len(self))):
            return self
        return replace(
            self,
            row_ids=self.row_ids[chosen],
            labels=None if self.labels is None else self.labels[chosen],
            positions=self.positions[chosen],
            fingerprint=digest(self.fingerprint, chosen.astype("<i8").tobytes()),
        )

    def without_labels(self) -> ImageDataset:
        """The same rows, whatever their labels are."""
        if self.labels is None:
            return self
        sha = digest("unlabelled", self.fingerprint)
        return replace(self, classes=(), labels=None, fingerprint=sha)

    def limited(self, limit: int) -> ImageDataset:
        """At most ``limit`` rows, as many of each class as can be, in the original order.

        Classes take turns in row order: the first row of each class, then the second of each, …
        Without labels the rows are evenly spread.
        """
        if limit < 1:
            raise UsageError(f"--limit must be at least 1, not {limit}.")
        if self.labels is None:
            n = len(self)
            return self.take(np.arange(min(limit, n)) * n // min(limit, n))
        turn = rank_within_class(self.labels)
        order = np.lexsort((self.labels, turn))
        return self.take(np.sort(order[:limit]))


def make_dataset(
    request: DatasetRequest,
    row_ids: NDArray[np.bytes_],
    labels: Sequence[str] | None,
    source: str,
    pictures: Pictures,
    classes: Sequence[str] = (),
    elsewhere: Iterable[str] = (),
) -> ImageDataset:
    """Check and assemble a data set; ``source``: a digest of what it is read from.

    ``labels``: the class of each row, or None. ``classes`` in their order; without, those that
    `class_names` has of the labels and of ``elsewhere``.

    Raises `InvalidDataError`: no rows, fewer than two classes, a class that is not among those of
    the request.
    """
    name, split = request.spec, request.split
    names.check_text("data set", name)
    places = np.arange(len(row_ids), dtype=np.int64)
    if labels is None:
        sha = digest("unlabelled", split, source)
        return ImageDataset(name, split, (), row_ids, None, sha, pictures, places)
    if not labels:
        raise InvalidDataError(
            f"{name}: expected labelled images in the split {split}, found none."
        )
    classes = classes or class_names(request, labels, elsewhere)
    for label in classes:
        names.check_text("class name", label)
    number = {label: i for i, label in enumerate(classes)}
    if len(number) < len(classes):
        raise InvalidDataError(f"{name} names a class twice: {shorten(classes)}")
    if request.classes is not None:
        wanted = {names.composed(label): i for i, label in enumerate(request.classes)}
        if unknown := [label for label in classes if names.composed(label) not in wanted]:
            raise InvalidDataError(
                f"{name}: {len(unknown)} class(es) are not in the given list of {len(wanted)}: "
                f"{shorten(unknown)}. Add them to the list, or remove them from the data."
            )
        number = {label: wanted[names.composed(label)] for label in classes}
        classes = request.classes
    elif empty := sorted(number.keys() - {*labels}, key=number.__getitem__):
        log.warning(
            f"{name}: the split {split} has no rows of {len(empty)} of {len(classes)} classes: "
            f"{shorten(empty)}"
        )
    if len(classes) < 2:
        raise InvalidDataError(
            f"{name}: expected at least two classes, found {len(classes)} ({', '.join(classes)}). "
            "A site with only one class names all classes with --classes FILE."
        )
    numbers = np.array([number[label] for label in labels], dtype=np.int64)
    sha = digest(split, "\n".join(classes), source, numbers.astype("<i8").tobytes())
    return ImageDataset(name, split, tuple(classes), row_ids, numbers, sha, pictures, places)


def class_names(
    request: DatasetRequest, labels: Iterable[str], elsewhere: Iterable[str] = ()
) -> list[str]:
    """The classes of such labels: as numbers if all are whole numbers, else by their bytes.

    ``elsewhere``: labels of the other split, which has the same classes.

    Raises `InvalidDataError`: as `check_labels`, unless the request names the classes.
    """
    rows = Counter(labels)
    if request.classes is None:
        check_labels(request.spec, rows)
    every = {*rows} | ({*elsewhere} - NO_LABELS)
    if all(re.fullmatch(names.WHOLE, label, re.ASCII) for label in every):
        return sorted(every, key=int)
    return sorted(every, key=lambda label: label.encode("utf-8", "surrogatepass"))


def rank_within_class(labels: NDArray[np.integer[Any]]) -> Labels:
    """For each row, how many rows of its class come before it.

    >>> rank_within_class(np.array([7, 7, 3, 7])).tolist()
    [0, 1, 0, 2]
    """
    order = np.argsort(labels, kind="stable")
    _, counts = np.unique(labels, return_counts=True)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    ranks = np.empty(len(labels), dtype=np.int64)
    ranks[order] = np.arange(len(labels)) - starts
    return ranks


def digest(*parts: str | bytes) -> str:
    """SHA-256 (hex) of the parts, each with its length, so that no two lists are confused."""
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        sha.update(len(data).to_bytes(8, "little"))
        sha.update(data)
    return sha.hexdigest()


def shorten(names: Sequence[str]) -> str:
    """The first five names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
