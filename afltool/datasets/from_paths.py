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
from .base import CorruptImageError
from .folders import DICOM, EXTENSIONS, list_images
from .pixels import read_image

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass
class NamedImages:
    """Images as a person or a table names them, and the paths by which they are opened."""

    names: list[bytes] = field(default_factory=list)
    paths: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.names)

    def load(self, i: int) -> Image:
        """Image i in mode RGB; thread safe. `CorruptImageError` where it cannot be used."""
        where = self.describe(i)
        if not os.path.isfile(where):
            raise CorruptImageError(where, "there is no such file")
        return read_image(where)

    def describe(self, i: int) -> str:
        """The path by which image i is opened."""
        return os.fsdecode(self.paths[i])


Named = NamedImages | Path  # images, or one feature file


def read_named(
    given: Sequence[str | Path], stdin: IO[str], data_root: Path | None = None
) -> list[Named]:
    """What the inputs of a command hold, in their order: runs of images, and feature files.

    A folder stands for the images below it, at any depth, sorted by the bytes of their paths, or,
    where it holds no others, its DICOM files; a .csv or .parquet file for those of its
    column ``path``, relative to ``data_root``, else to its own folder; ``-`` for what the lines of
    ``stdin`` name. Any other file is taken for an image, unless it is one that afltool wrote.

    Raises `InputError`: nothing is there (of what a table or stdin names, once it is loaded), or no
    image in a folder or a table.
    """
    named: list[Named] = []
    for one in given:
        listed = str(one) == "-"
        lines: Iterable[str | Path] = inputs.iter_lines(stdin) if listed else [one]
        paths = [inputs.check_given_path(line) for line in lines]
        if not paths:
            raise InputError("stdin: expected paths, one per line; found none")
        for path in paths:
            if _is_ours(path):
                named.append(path)
                continue
            images = named[-1] if named else path
            if not isinstance(images, NamedImages):
                named.append(images := NamedImages())
            names, folder = [os.fsencode(path)], b""
            if path.is_dir():
                names = _list_folder(path)
            elif path.suffix.lower() in SUFFIXES:
                names, folder = _read_path_column(path, data_root or path.parent)
            elif not (listed or path.exists()):
                raise InputError(f"there is nothing at {path}: check the path")
            images.names += names
            images.paths += [os.path.join(folder, name) for name in names]
    return named


def _is_ours(path: Path) -> bool:
    """Whether a file is HDF5, as those of afltool are; images by their name are not opened."""
    ending = path.suffix.lower()
    if ending in (*EXTENSIONS, *DICOM, *SUFFIXES) or not path.is_file():
        return False
    return ending in (".h5", ".hdf5") or inputs.is_hdf5(path)


def _list_folder(folder: Path) -> list[bytes]:
    prefix = os.path.join(folder, "")
    by_ending = (list_images(folder, prefix, one, folder) for one in (EXTENSIONS, DICOM))
    if not (files := next(filter(None, by_ending), [])):
        raise InvalidDataError(
            f"{folder} holds no images, at any depth: expected files that end in "
            f"{' '.join(EXTENSIONS + DICOM)}"
        )
    return [path for path, *_ in sorted(files)]


def _read_path_column(table: Path, folder: Path) -> tuple[list[bytes], bytes]:
    """The names in a column, as the disk spells them, and the folder that they are relative to."""
    cells = read_columns(table, ("path",))["path"]
    if not cells:
        raise InvalidDataError(f"{table}: expected rows, found none below the header")
    names = []
    for row, cell in enumerate(cells, 1):
        if not cell or "\0" in cell:
            raise InvalidDataError(f"{table}: row {row} below the header has no path")
        names.append(inputs.spell_as_on_disk(folder, cell).encode("utf-8", "surrogateescape"))
    return names, os.fsencode(folder)
