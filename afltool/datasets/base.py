"""What every data set has in common: rows with ids and labels, and pixels on request."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError
from ..files.tables import arrow_texts, check_labels
from ..progress import log
from ..values import names

if TYPE_CHECKING:
    from PIL.Image import Image

SPLITS = ("train", "test")  # of every data set


@dataclass(frozen=True)
class DatasetRequest:
    """Which rows of which data set are asked for; see `open_dataset`.

    ``path``: what stands behind the colon of ``spec``. ``data_root``: of downloads; for a table,
    what its paths are relative to. ``y``: the column of labels.
    """

    spec: str
    path: str
    split: str
    classes: tuple[str, ...] | None = None
    data_root: Path | None = None
    unlabeled: bool = False
    y: str = "label"

    @property
    def root(self) -> Path:
        """Where downloaded data lie and go to; by default $AFLTOOL_DATA, else ./afl-data."""
        return self.data_root or Path(os.environ.get("AFLTOOL_DATA") or "afl-data")


class CorruptImageError(InvalidDataError):
    """One image cannot be used; ``where``: its path, or the row of a file; ``reason``: a clause."""

    def __init__(self, where: str, reason: str) -> None:
        self.where, self.reason = where, reason
        super().__init__(
            f"cannot use the image {where}: {reason}. "
            "Replace it, or leave such images out with --skip-corrupt."
        )


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """Images in a fixed order, with labels or without.

    ``classes``: names, of which labels are indices; ``row_ids`` (n,) bytes, unique, stable across
    machines, such as a relative POSIX path; ``labels`` (n,) int64, or None. ``fingerprint``:
    SHA-256 (hex) of classes, rows and what identifies the input: digests of arrays; path, size and
    time of files. ``load(i)``: the picture in mode RGB, in any thread, ``info["remarks"]`` says
    what people would see differently; `CorruptImageError`: this image cannot be used, others may;
    `InputError`: it is gone. ``describe(i)``: where a person finds it.
    """

    classes: tuple[str, ...]
    row_ids: NDArray[np.bytes_]
    labels: NDArray[np.int64] | None
    fingerprint: str
    load: Callable[[int], Image]
    describe: Callable[[int], str]

    def __len__(self) -> int:
        return len(self.row_ids)

    def limited(self, limit: int) -> ImageDataset:
        """At most ``limit`` rows, in the original order: classes take turns, row by row."""
        n, load, describe = len(self), self.load, self.describe
        if limit >= n:
            return self
        rows: NDArray[np.int64] = np.arange(limit) * n // limit
        if self.labels is not None:
            order = np.lexsort((self.labels, rank_within_class(self.labels)))
            rows = np.sort(order[:limit])
        at = rows.tolist()
        return replace(
            self,
            row_ids=self.row_ids[rows],
            labels=None if self.labels is None else self.labels[rows],
            load=lambda i: load(at[i]),
            describe=lambda i: describe(at[i]),
            fingerprint=digest(self.fingerprint, rows.astype("<i8").tobytes()),
        )


def make_dataset(
    request: DatasetRequest,
    row_ids: NDArray[np.bytes_],
    labels: Sequence[str] | None,
    source: str,
    load: Callable[[int], Image],
    describe: Callable[[int], str],
    classes: Sequence[str] = (),
) -> ImageDataset:
    """Check and assemble a data set; ``source``: a digest of what it is read from.

    ``labels``: the class of each row, or None. ``classes`` in their order; without, those of the
    labels. Raises `InvalidDataError`.
    """
    name, split = request.spec, request.split
    names.check_text("data set", name)
    if not len(row_ids):
        raise InvalidDataError(f"{name}: expected images in the split {split}, found none.")
    if labels is None or request.unlabeled:
        return ImageDataset((), row_ids, None, digest("unlabelled", split, source), load, describe)
    classes = classes or class_names(request, labels)
    for label in classes:
        names.check_text("class name", label)
    number = {label: i for i, label in enumerate(classes)}
    if len(number) < len(classes):
        raise InvalidDataError(f"{name} names a class twice: {shorten(classes)}")
    if request.classes is not None:
        wanted = {names.compose(label): i for i, label in enumerate(request.classes)}
        if unknown := [label for label in classes if names.compose(label) not in wanted]:
            raise InvalidDataError(
                f"{name}: {len(unknown)} class(es) are not in the given list of {len(wanted)}: "
                f"{shorten(unknown)}. Add them to the list, or remove them from the data."
            )
        number = {label: wanted[names.compose(label)] for label in classes}
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
    return ImageDataset(tuple(classes), row_ids, numbers, sha, load, describe)


def class_names(request: DatasetRequest, labels: Iterable[str]) -> list[str]:
    """The classes of such labels: as numbers if all are whole numbers, else by their bytes."""
    rows = Counter(labels)
    if request.classes is None:
        check_labels(request.spec, rows)
    if all(re.fullmatch(names.WHOLE, label, re.ASCII) for label in rows):
        return sorted(rows, key=int)
    return sorted(rows, key=lambda label: label.encode("utf-8", "surrogatepass"))


def image_column(
    request: DatasetRequest, where: str, columns: Sequence[str], images: Sequence[str]
) -> str:
    """The one column of images, beside which there is one of labels."""
    if len(images) != 1 or not (request.unlabeled or request.y in columns):
        raise InvalidDataError(
            f"{where}: expected a column {request.y} of labels (--y names another) and one of "
            f"images; found the columns {shorten(columns)}, of images {shorten(images) or 'none'}: "
            "rename or leave out others"
        )
    return images[0]


def label_names(where: str, column: str, table: Any, names: Sequence[str]) -> list[str]:
    """The class of each row of a table of pyarrow: the text in a column, or where there are
    ``names``, the one at that place."""
    cells = arrow_texts(where, column, table[column])
    known = {str(i): name for i, name in enumerate(names)}
    labels = [known.get(cell or "") if known else cell for cell in cells]
    if None in labels:
        row = labels.index(None)
        wanted = f"0 to {len(names) - 1}, of {len(names)} names" if names else "one"
        raise InvalidDataError(f"{where}: row {row} has the label {cells[row]}, expected {wanted}")
    return [label for label in labels if label is not None]


def file_states(paths: Iterable[Path]) -> list[str]:
    """Name, size and time of files, which stand for what is in them."""
    return [f"{p.name}\0{p.stat().st_size}\0{p.stat().st_mtime_ns}" for p in paths]


def array_dataset(
    request: DatasetRequest,
    classes: Sequence[str],
    pixels: NDArray[np.uint8],
    labels: NDArray[np.integer[Any]],
    source: str,
) -> ImageDataset:
    """Pixels in memory, ``(n, h, w)`` gray or ``(n, h, w, 3)`` RGB; ids such as ``train/00017``."""
    from PIL import Image

    n = len(labels)
    if n and not 0 <= labels.min() <= labels.max() < len(classes):
        raise InvalidDataError(
            f"{request.spec}: expected labels from 0 to {len(classes) - 1}, found "
            f"{labels.min()} to {labels.max()}."
        )
    named = [classes[i] for i in labels.tolist()]
    ids, describe = number_rows(request, n)
    load = lambda i: Image.fromarray(pixels[i]).convert("RGB")  # noqa: E731
    return make_dataset(request, ids, named, source, load, describe, classes)


def number_rows(request: DatasetRequest, n: int) -> tuple[NDArray[np.bytes_], Callable[[int], str]]:
    """Row ids SPLIT/NUMBER, from 0, and what describes a row."""
    spec, split, width = request.spec, request.split, len(str(n))
    ids = np.array([f"{split}/{i:0{width}d}" for i in range(n)], np.bytes_)
    return ids, lambda i: f"row {i} of {spec}, {split} split"


def rank_within_class(labels: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """For each row, how many rows of its class come before it.

    >>> rank_within_class(np.array([7, 7, 3, 7])).tolist()
    [0, 1, 0, 2]
    """
    order = np.argsort(labels, kind="stable")
    _, counts = np.unique(labels, return_counts=True)
    ranks = np.empty(len(labels), dtype=np.int64)
    ranks[order] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
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
