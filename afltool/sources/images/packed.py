"""Files that hold many images each: which of them are read, and their rows as a data set."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptFileError, InputError, InvalidDataError
from ...options.datasets import matching
from .base import (
    SPLITS,
    CorruptImageError,
    DatasetRequest,
    ImageDataset,
    class_names,
    digest,
    make_dataset,
    make_unlabelled,
    shorten,
)
from .pixels import decode

if TYPE_CHECKING:
    from PIL.Image import Image

Row = tuple[str, str, int, int]  # its key in the file, its label, and two numbers for its reader


@dataclass(frozen=True, eq=False)
class PackedPictures:
    """``places`` (n, 3): the file of each row, and what ``read(path, place, place)`` needs."""

    files: Sequence[Path]
    ids: NDArray[np.bytes_]
    places: NDArray[np.int64]
    read: Callable[[Path, int, int], bytes]

    def load(self, i: int) -> Image:
        file, *place = self.places[i].tolist()
        where = self.describe(i)
        try:
            return decode(self.read(self.files[file], *place), where)
        except CorruptFileError as error:
            raise CorruptImageError(where, str(error)) from error
        except OSError as error:
            raise InputError(f"cannot read {where}: {error.strerror or error}.") from error

    def describe(self, i: int) -> str:
        key = os.fsdecode(bytes(self.ids[i])).partition("/")[2]
        return f"{key} of {self.files[self.places[i, 0]]}"


def packed_files(request: DatasetRequest, ending: str) -> list[Path]:
    """The files of the split, sorted: those below a folder, at any depth, or those of a pattern.

    The split is a word of a file's name, as in ``train-00003.tar``, or its folder, ``test/3.tar``;
    where no file has one, all are for training. `InvalidDataError`: no file of the split, or two of
    one name, with which row ids begin.
    """
    folder = Path(request.path)
    paths = sorted(folder.rglob(f"*{ending}")) if folder.is_dir() else matching(request.path)
    splits = [{p.parent.name, *re.findall("[a-z]+", p.stem.lower())} & {*SPLITS} for p in paths]
    whole = request.split == "train" and not any(splits)
    chosen = [p for p, words in zip(paths, splits, strict=True) if whole or request.split in words]
    if not chosen:
        raise InvalidDataError(
            f"{request.spec}: expected {ending} files of the split {request.split}, found none "
            f"among {len(paths)} ({shorten([p.name for p in paths])}). A name says train or test; "
            "where none does, all are for training"
        )
    if twice := [name for name, n in Counter(p.stem for p in chosen).items() if n > 1]:
        raise InvalidDataError(f"{request.spec}: several files have one name: {shorten(twice)}.")
    return chosen


def from_files(
    request: DatasetRequest,
    files: Sequence[Path],
    rows_of: Callable[[Path], Iterable[Row]],
    read: Callable[[Path, int, int], bytes],
    classes: Sequence[str] = (),
) -> ImageDataset:
    """The rows of ``files`` in their order; row ids are FILE/KEY, the file without its ending."""
    rows = [(n, path.stem, *row) for n, path in enumerate(files) for row in rows_of(path)]
    if not rows:
        raise InvalidDataError(
            f"{request.spec}: expected images in {len(files)} files, found none."
        )
    ids = np.array([os.fsencode(f"{name}/{key}") for _, name, key, *_ in rows], np.bytes_)
    places = np.array([(n, *place) for n, _, _, _, *place in rows], np.int64)
    pictures = PackedPictures(files, ids, places, read)
    states = [f"{p.name}\0{p.stat().st_size}\0{p.stat().st_mtime_ns}" for p in files]
    source = digest(*states, request.path_column, request.label_column)
    if request.unlabelled:
        return make_unlabelled(request, ids, source, pictures)
    labels = [row[3] for row in rows]
    classes = classes or class_names(labels)
    number = {label: i for i, label in enumerate(classes)}
    numbers = np.array([number[label] for label in labels], np.int64)
    return make_dataset(request, classes, ids, numbers, source, pictures)
