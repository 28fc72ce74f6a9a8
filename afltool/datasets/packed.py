"""Files that hold many images each: which of them are read, and their rows as a data set."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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


def list_packed_files(request: DatasetRequest, ending: str) -> list[Path]:
    """The files of the split, sorted: those below a folder, at any depth, or those of a pattern.

    The split is a word of a file's name, as in ``train-00003.tar``, or its folder, ``test/3.tar``;
    where no file has one, all are for training. Files of no split, or that end otherwise, are
    counted and named.
    """
    spec, folder = request.spec, Path(request.path)
    if folder.is_dir():
        every = [p for p in sorted(folder.rglob("[!.]*")) if not p.is_dir()]
        paths = [p for p in every if p.suffix == ending]
    else:
        every = paths = matching(request.path)
    words = {p: {p.parent.name.lower(), *re.findall("[a-z]+", p.stem.lower())} for p in paths}
    of = {split: [p for p in paths if split in words[p]] for split in SPLITS}
    rest = {*every} - {*paths}
    if any(of.values()):
        rest |= {p for p in paths if not words[p] & {*SPLITS}}
    elif len({frozenset(one & LIKE_SPLITS) for one in words.values()}) > 1:
        _refuse(spec, "named like splits", [p for p in paths if words[p] & LIKE_SPLITS])
    else:  # not cut
        of["train"] = paths
    chosen = of[request.split]
    if not chosen:
        raise InvalidDataError(
            f"{spec}: expected {ending} files of the split {request.split}, found none among "
            f"{len(every)} ({shorten(sorted(p.name for p in every))}). A name says train or test; "
            "where none does, all are for training"
        )
    times = Counter(p.stem for p in chosen)
    _refuse(spec, "named like both splits", [p for p in of["train"] if p in of["test"]])
    _refuse(spec, "of one name, as row ids begin", [p for p in chosen if times[p.stem] > 1])
    if rest:
        log.warning(
            f"{spec}: left out {len(rest)} files that are no {ending} files of a split: "
            f"{shorten(sorted(p.name for p in rest))}"
        )
    return chosen


def _refuse(spec: str, what: str, paths: Sequence[Path]) -> None:
    if paths:
        raise InvalidDataError(
            f"{spec}: {len(paths)} files are {what}: {shorten([p.name for p in paths])}; rename "
            f"them, with {' and '.join(SPLITS)} for splits, or name those meant with a pattern"
        )


def from_files(
    request: DatasetRequest,
    files: Sequence[Path],
    rows_of: Callable[[Path], Iterable[Row]],
    read: Callable[[Path, int, int], bytes],
    classes: Sequence[str] = (),
) -> ImageDataset:
    """The rows of files in their order, by ids FILE/KEY; ``read``: the bytes of an image."""
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

    source = digest(*file_states(files), "path", request.y)
    labels = [row[3] for row in rows]
    return make_dataset(request, ids, labels, source, load, describe, classes)


def matching(pattern: str) -> list[Path]:
    """What a pattern names: ``*``, ``?``, ``[…]``, ``{000..127}``, ``{a,b}`` (each of these)."""
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
