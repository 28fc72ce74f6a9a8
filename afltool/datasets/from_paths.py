"""Images that a command line names: folders, files, tables with a column of paths, stdin."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from .. import inputs
from ..errors import InputError, InvalidDataError
from ..files.tables import SUFFIXES, read_columns
from .folders import DICOM, EXTENSIONS, list_images
from .pixels import decode, read_bytes

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass
class NamedImages:
    """Images in the order in which they were named.

    ``names``: what a person calls each: its path, or what a table says of it. ``paths``: by which
    they are opened. They are held in memory, and no image is.
    """

    names: list[bytes] = field(default_factory=list)
    paths: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.names)

    def add(self, name: bytes, folder: bytes = b"") -> None:
        """One more image; `InputError` where there is no file."""
        path = os.path.join(folder, name)
        if os.path.isdir(path) or not os.path.exists(path):
            why = "it is a folder" if os.path.isdir(path) else "there is no such file"
            raise InputError(f"cannot use the image {os.fsdecode(path)}: {why}; check the paths")
        self.names.append(name)
        self.paths.append(path)

    def load(self, i: int) -> Image:
        """Image i in mode RGB; thread safe. `CorruptImageError` where it cannot be used."""
        where = self.describe(i)
        return decode(read_bytes(where), where)

    def describe(self, i: int) -> str:
        """The path by which image i is opened."""
        return os.fsdecode(self.paths[i])


Named = NamedImages | Path  # images, or one feature file


def read_named(
    given: Sequence[str | Path], stdin: IO[str], data_root: Path | None = None, column: str = "path"
) -> list[Named]:
    """What the inputs of a command hold, in their order: runs of images, and feature files.

    A folder stands for the images below it, at any depth, sorted by the bytes of their paths, or,
    where it holds no others, its DICOM files; a
    .csv, .parquet or .json file for those of its ``column``, relative to ``data_root``, else to
    its own folder; ``-`` for what the lines of ``stdin`` name. Any other file is taken for an
    image, unless it is one that afltool wrote.

    Raises `UsageError`: an empty path, or '-' twice; `InputError`: nothing is there;
    `InvalidDataError`: a folder or a table without images.
    """
    named: list[Named] = []
    for one in given:
        listed = str(one) == "-"
        lines: Iterable[str | Path] = inputs.lines_of(stdin) if listed else [one]
        paths = [inputs.given_path(line) for line in lines]
        if not paths:
            raise InputError("stdin: expected paths, one per line; found none")
        for path in paths:
            if _is_ours(path):
                named.append(path)
                continue
            images = named[-1] if named else path
            if not isinstance(images, NamedImages):
                named.append(images := NamedImages())
            if path.is_dir():
                _add_folder(path, images)
            elif path.suffix.lower() in SUFFIXES:
                _add_table(path, images, data_root or path.parent, column)
            elif listed or path.exists():
                images.add(os.fsencode(path))
            else:
                raise InputError(f"there is nothing at {path}: check the path")
    return named


def _is_ours(path: Path) -> bool:
    """Whether a file is HDF5, as those of afltool are; images by their name are not opened."""
    ending = path.suffix.lower()
    if ending in (*EXTENSIONS, *DICOM, *SUFFIXES) or not path.is_file():
        return False
    return ending in (".h5", ".hdf5") or inputs.is_hdf5(path)


def _add_folder(folder: Path, images: NamedImages) -> None:
    prefix = os.path.join(folder, "")
    by_ending = (list_images(folder, prefix, one, folder) for one in (EXTENSIONS, DICOM))
    paths = [path for path, *_ in sorted(next(filter(None, by_ending), []))]
    if not paths:
        raise InvalidDataError(
            f"{folder} holds no images, at any depth: expected files that end in "
            f"{' '.join(EXTENSIONS + DICOM)}"
        )
    images.names += paths
    images.paths += paths


def _add_table(table: Path, images: NamedImages, folder: Path, column: str) -> None:
    cells = read_columns(table, (column,))[column]
    if not cells:
        raise InvalidDataError(f"{table}: expected rows, found none below the header")
    for row, cell in enumerate(cells, 1):
        if not cell or "\0" in cell:
            raise InvalidDataError(f"{table}: row {row} below the header has no {column}")
        name = inputs.spelled(folder, cell).encode("utf-8", "surrogateescape")
        images.add(name, os.fsencode(folder))
