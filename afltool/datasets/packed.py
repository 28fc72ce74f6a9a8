"""Files that hold many images each: which of them are read, and their rows as a data set."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import CorruptFileError, InputError, InvalidDataError
from ..progress import log
from .base import (
    SPLITS,
    CorruptImageError,
    DatasetRequest,
    ImageDataset,
    Pictures,
    digest,
    file_states,
    make_dataset,
    shorten,
)
from .folders import LIKE_SPLITS
from .pixels import decode

if TYPE_CHECKING:
    from PIL.Image import Image

Row = tuple[str, str, int, int]  # its key in the file, its label, and two numbers for its reader


def packed_files(request: DatasetRequest, ending: str) -> dict[str, list[Path]]:
    """The files of each split, sorted: those below a folder, at any depth, or those of a pattern.

    The split is a word of a file's name, as in ``train-00003.tar``, or its folder, ``test/3.tar``;
    where no file has one, all are for training. Files of no split, or that end otherwise, are
    counted and named. `InvalidDataError`: no file of the split, two of one name, with which row ids
    begin, one of both splits, or splits that are called otherwise.
    """
    spec, folder, rest = request.spec, Path(request.path), list[Path]()
    if folder.is_dir():
        below = [p for p in sorted(folder.rglob("[!.]*")) if not p.is_dir()]
        paths = [p for p in below if p.suffix == ending]
        rest = [p for p in below if p.suffix != ending]
    else:
        paths = matching(request.path)
    words = {p: {p.parent.name.lower(), *re.findall("[a-z]+", p.stem.lower())} for p in paths}
    of = {split: [p for p in paths if split in words[p]] for split in SPLITS}
    if both := [p for p in of["train"] if p in of["test"]]:
        raise _refused(spec, "named like both splits", both)
    if any(of.values()):
        rest += [p for p in paths if not words[p] & {*SPLITS}]
    elif len({frozenset(one & LIKE_SPLITS) for one in words.values()}) > 1:
        like = [p for p in paths if words[p] & LIKE_SPLITS]
        raise _refused(spec, "named like splits", like)
    else:  # not cut
        of["train"] = paths
    chosen, names = of[request.split], sorted({p.name for p in (*paths, *rest)})
    if not chosen:
        raise InvalidDataError(
            f"{spec}: expected {ending} files of the split {request.split}, found none among "
            f"{len({*paths, *rest})} ({shorten(names)}). A name says train or test; where none "
            "does, all are for training"
        )
    times = Counter(p.stem for p in chosen)
    if twice := [p for p in chosen if times[p.stem] > 1]:
        raise _refused(spec, "of one name, with which row ids begin", twice)
    if rest:
        log.warning(
            f"{spec}: left out {len(rest)} files that are no {ending} files of a split: "
            f"{shorten([p.name for p in rest])}"
        )
    return of


def _refused(spec: str, what: str, paths: Sequence[Path]) -> InvalidDataError:
    return InvalidDataError(
        f"{spec}: {len(paths)} files are {what}: {shorten([p.name for p in paths])}; rename them, "
        f"with {' and '.join(SPLITS)} for splits, or name those that you mean with a pattern"
    )


def from_files(
    request: DatasetRequest,
    splits: dict[str, list[Path]],
    rows_of: Callable[[Path], Iterable[Row]],
    read: Callable[[Path, int, int], bytes],
    classes: Sequence[str] = (),
) -> ImageDataset:
    """The rows of a split's files in their order; row ids are FILE/KEY, without its ending.

    ``read(path, number, number)``: the bytes of an image. The classes are those of both splits.
    """
    files = splits[request.split]
    rows = [(n, path, *row) for n, path in enumerate(files) for row in rows_of(path)]
    ids = np.array([os.fsencode(f"{path.stem}/{key}") for _, path, key, *_ in rows], np.bytes_)
    places = np.array([(n, *place) for n, _, _, _, *place in rows], np.int64)

    def describe(i: int) -> str:
        key = os.fsdecode(bytes(ids[i])).partition("/")[2]
        return f"{key} of {files[places[i, 0]]}"

    def load(i: int) -> Image:
        file, *place = places[i].tolist()
        try:
            return decode(read(files[file], *place), describe(i))
        except CorruptFileError as error:
            raise CorruptImageError(describe(i), str(error)) from error
        except OSError as error:
            raise InputError(f"cannot read {describe(i)}: {error.strerror or error}.") from error

    source = digest(*file_states(files), request.path_column, request.label_column)
    labels, elsewhere = None if request.unlabelled else [row[3] for row in rows], set[str]()
    if labels is not None and not (request.classes or classes):
        with suppress(InvalidDataError, KeyError):  # where the other split has no labels
            for path in (p for split in SPLITS if split != request.split for p in splits[split]):
                elsewhere |= {row[1] for row in rows_of(path)}
    pictures = Pictures(load, describe)
    return make_dataset(request, ids, labels, source, pictures, classes, elsewhere)


def matching(pattern: str) -> list[Path]:
    """The files and folders that a pattern names: ``*``, ``?``, ``[…]``, ``{000..127}``, ``{a,b}``.

    Raises:
        InputError: there is nothing for it, or for one of the names that the braces stand for.
    """
    if Path(pattern).exists():
        return [Path(pattern)]
    if match := re.search(r"{([^{}]*)}", pattern):
        first, dots, last = match[1].partition("..")
        words = match[1].split(",")
        if dots and first.isdecimal() and last.isdecimal():
            words = [f"{n:0{len(first)}d}" for n in range(int(first), int(last) + 1)]
        ends = pattern[: match.start()], pattern[match.end() :]
        return sorted({path for word in words for path in matching(word.join(ends))})
    if not (there := glob(pattern)):
        raise InputError(f"there is nothing at {pattern}; check the path")
    return sorted(map(Path, there))
