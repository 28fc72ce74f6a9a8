"""Files that hold many images each: which of them are read, and their rows as a data set."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptFileError, InputError, InvalidDataError
from ...progress import log
from .base import (
    SPLITS,
    CorruptImageError,
    DatasetRequest,
    ImageDataset,
    digest,
    make_dataset,
    shorten,
)
from .folders import LIKE_SPLITS
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
    where no file has one, all are for training. Files of no split, or that end otherwise, are
    counted and named. `InvalidDataError`: no file of the split, two of one name, with which row ids
    begin, one of both splits, or splits that are called otherwise.
    """
    splits, rest = _by_split(request, ending)
    chosen = splits[request.split]
    if not chosen:
        names = sorted({*rest, *(p.name for files in splits.values() for p in files)})
        raise InvalidDataError(
            f"{request.spec}: expected {ending} files of the split {request.split}, found none "
            f"among {sum(map(len, splits.values())) + len(rest)} ({shorten(names)}). A name says "
            "train or test; where none does, all are for training"
        )
    if twice := [name for name, n in Counter(p.stem for p in chosen).items() if n > 1]:
        raise InvalidDataError(f"{request.spec}: several files have one name: {shorten(twice)}.")
    if rest:
        log.warning(
            f"{request.spec}: left out {len(rest)} files that are no {ending} files of a split: "
            f"{shorten(rest)}"
        )
    return chosen


def _by_split(request: DatasetRequest, ending: str) -> tuple[dict[str, list[Path]], list[str]]:
    """The files of each split, and the names of those that are of none."""
    folder, rest = Path(request.path), list[str]()
    if folder.is_dir():
        below = [p for p in sorted(folder.rglob("[!.]*")) if not p.is_dir()]
        paths = [p for p in below if p.suffix == ending]
        rest = [p.name for p in below if p.suffix != ending]
    else:
        paths = matching(request.path)
    words = ({p.parent.name.lower(), *re.findall("[a-z]+", p.stem.lower())} for p in paths)
    called = [(p, one & LIKE_SPLITS) for p, one in zip(paths, words, strict=True)]
    of = {split: [p for p, one in called if split in one] for split in SPLITS}
    if not any(of.values()):  # not cut
        if len({frozenset(one) for _, one in called}) > 1:
            raise InvalidDataError(
                f"{request.spec}: files are named like splits: "
                f"{shorten([p.name for p, one in called if one])}; say {' and '.join(SPLITS)}, or "
                "name those that you mean with a pattern"
            )
        return {**of, "train": paths}, rest
    if both := [p.name for p, one in called if {*SPLITS} <= one]:
        raise InvalidDataError(
            f"{request.spec}: files are named like both splits: {shorten(both)}; rename them"
        )
    return of, rest + [p.name for p, one in called if not one & {*SPLITS}]


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
    elsewhere: set[str] = set()  # the classes are those of both splits
    if not (request.unlabelled or request.classes or classes):
        splits = _by_split(request, files[0].suffix)[0]
        with suppress(InvalidDataError, KeyError):  # where the other split has no labels
            for path in (p for split in splits.keys() - {request.split} for p in splits[split]):
                elsewhere |= {row[1] for row in rows_of(path)}
    labels = None if request.unlabelled else [row[3] for row in rows]
    return make_dataset(request, ids, labels, source, pictures, classes, elsewhere)


def matching(pattern: str) -> list[Path]:
    """The files and folders that a pattern names: ``*``, ``?``, ``[…]``, ``{000..127}``, ``{a,b}``.

    Raises:
        InputError: there is nothing for it, or for one of the names that the braces stand for.
    """
    if Path(pattern).exists():
        return [Path(pattern)]
    paths: set[str] = set()
    for one in _without_braces(pattern):
        there = glob(one)
        if not there:
            raise InputError(f"there is nothing at {one}; check the path")
        paths.update(there)
    return sorted(map(Path, paths))


def _without_braces(pattern: str) -> list[str]:
    match = re.search(r"{([^{}]*)}", pattern)
    if match is None:
        return [pattern]
    first, dots, last = match[1].partition("..")
    words = match[1].split(",")
    if dots and first.isdecimal() and last.isdecimal():
        words = [f"{n:0{len(first)}d}" for n in range(int(first), int(last) + 1)]
    before, after = pattern[: match.start()], pattern[match.end() :]
    return [name for word in words for name in _without_braces(before + word + after)]
