"""Data sets that are folders of image files: ImageFolder and Tiny-ImageNet."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ..errors import CorruptFileError, InputError, InvalidDataError
from .base import ImageDataset, make_dataset, shorten
from .files import download
from .pictures import FilePictures

#: What counts as an image file, whatever the case of its letters.
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".webp", ".tif", ".tiff", ".gif")

#: As bytes: a million names need not become texts first.
_SUFFIXES = tuple(os.fsencode(extension) for extension in EXTENSIONS)

TINY_IMAGENET = "tiny-imagenet-200"
TINY_IMAGENET_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
TINY_IMAGENET_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"  # of 248,100,043 bytes

#: relative POSIX path, size in bytes, modification time in ns
Listed = tuple[bytes, int, int]


# --- ImageFolder ----------------------------------------------------------------------------------


def open_imagefolder(
    name: str, folder: Path, split: str, wanted: Sequence[str] | None = None
) -> ImageDataset:
    """``folder/SPLIT/CLASS/…/file``: the classes are the folders, sorted by their bytes.

    Rows are sorted by the bytes of their relative POSIX path, so the order is the same everywhere.
    Names that start with a dot and files that are no images by their extension are passed over.
    With ``wanted``, which fixes the classes and their order, a class may lack its folder.
    """
    root = folder / split
    classes = _subfolders(root, name)
    if wanted is not None:
        unknown = [label for label in classes if label not in set(wanted)]
        if unknown:
            raise InvalidDataError(
                f"{root}: {len(unknown)} folder(s) are not in the given list of {len(wanted)} "
                f"classes: {shorten(unknown)}. Add them to the list, or remove the folders."
            )
    listings = [list_images(root / label, f"{split}/{label}/") for label in classes]
    empty = [label for label, files in zip(classes, listings, strict=True) if not files]
    if empty and wanted is None:
        raise InvalidDataError(
            f"{root}: {len(empty)} of {len(classes)} class folders hold no images: "
            f"{shorten(empty)}. Images end in {' '.join(EXTENSIONS)}. Remove these folders, or "
            "name the classes with --classes FILE, which allows a class without images."
        )
    return from_listings(name, split, classes, listings, folder, wanted)


def _subfolders(root: Path, name: str) -> list[str]:
    """The names of the folders in ``root``, sorted by their bytes."""
    try:
        with os.scandir(root) as entries:
            found = [e.name for e in entries if e.is_dir() and not e.name.startswith(".")]
    except FileNotFoundError as error:
        raise InputError(
            f"{name}: expected a folder {root} that holds one folder of images per class; "
            f"{_what_is_in(root.parent)}."
        ) from error
    except OSError as error:
        raise InputError(f"cannot list {root}: {error.strerror or error}.") from error
    if not found:
        raise InvalidDataError(
            f"{name}: expected one folder of images per class in {root}, found none."
        )
    return sorted(found, key=os.fsencode)


def _what_is_in(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} is not there"
    names = sorted(os.listdir(folder))
    return f"{folder} holds {shorten(names)}" if names else f"{folder} is empty"


def list_images(folder: Path, prefix: str) -> list[Listed]:
    """Every image file below ``folder``, unsorted, with ``prefix`` before its relative path.

    Raises:
        InputError: a folder or file cannot be listed.
    """
    files: list[Listed] = []
    todo = [(os.fsencode(folder), os.fsencode(prefix), 0)]
    try:
        while todo:
            path, before, links = todo.pop()
            with os.scandir(path) as entries:
                for entry in entries:
                    name = entry.name
                    if name.startswith(b"."):
                        continue
                    if entry.is_dir():
                        todo.append((entry.path, before + name + b"/", links + entry.is_symlink()))
                    elif name.lower().endswith(_SUFFIXES):
                        stat = entry.stat()
                        files.append((before + name, stat.st_size, stat.st_mtime_ns))
            if links > 8:
                where = os.fsdecode(path)
                raise InputError(f"{where}: more than 8 symbolic links to folders in one path.")
    except OSError as error:
        where = os.fsdecode(error.filename)
        raise InputError(f"cannot list {where}: {error.strerror or error}.") from error
    return files


def from_listings(
    name: str,
    split: str,
    classes: Sequence[str],
    listings: Iterable[list[Listed]],
    root: Path,
    wanted: Sequence[str] | None,
) -> ImageDataset:
    """A data set of the listed files; ``listings`` has one list per class."""
    rows = sorted((file, label) for label, files in enumerate(listings) for file in files)
    paths = np.array([file[0] for file, _ in rows], dtype=np.bytes_)
    labels = np.array([label for _, label in rows], dtype=np.int64)
    sha = hashlib.sha256()
    for (path, size, changed), _ in rows:
        sha.update(b"%s\0%d\0%d\n" % (path, size, changed))
    pictures = FilePictures(os.fspath(root), paths)
    return make_dataset(name, split, classes, paths, labels, sha.hexdigest(), pictures, wanted)


# --- Tiny-ImageNet --------------------------------------------------------------------------------


def open_tiny_imagenet(split: str, root: Path, wanted: Sequence[str] | None = None) -> ImageDataset:
    """Tiny-ImageNet in the layout of its archive; ``test`` is its val folder, which has labels.

    Classes are the WordNet ids of wnids.txt, sorted. Where the folder is not there, the archive is
    downloaded (if it is not there either), checked and unpacked.
    """
    folder = root / TINY_IMAGENET
    if not folder.exists():
        _unpack_tiny_imagenet(root)
    wnids = sorted(line for line in _lines(folder / "wnids.txt", root) if line)
    if split == "train":
        listings = [
            list_images(folder / "train" / wnid / "images", f"train/{wnid}/images/")
            for wnid in wnids
        ]
    else:
        listings = _val_listings(folder / "val", wnids)
    empty = [wnid for wnid, files in zip(wnids, listings, strict=True) if not files]
    if empty:
        raise InvalidDataError(
            f"{folder}: {len(empty)} of {len(wnids)} classes have no images in the split {split}: "
            f"{shorten(empty)}. Unpack {TINY_IMAGENET}.zip again."
        )
    return from_listings("tiny-imagenet", split, wnids, listings, folder, wanted)


def _unpack_tiny_imagenet(root: Path) -> None:
    """The folder takes its name when all of it is there."""
    archive = root / f"{TINY_IMAGENET}.zip"
    what = f"tiny-imagenet: expected the folder {TINY_IMAGENET} or {archive.name} in {root}"
    download(TINY_IMAGENET_URL, root, archive.name, TINY_IMAGENET_MD5, what)
    unpacking = root / f"{TINY_IMAGENET}.unpacking"
    try:
        shutil.rmtree(unpacking, ignore_errors=True)
        with zipfile.ZipFile(archive) as content:
            content.extractall(unpacking)
        os.replace(unpacking / TINY_IMAGENET, root / TINY_IMAGENET)
    except zipfile.BadZipFile as error:
        raise CorruptFileError(f"{archive} is damaged ({error}). Fetch it again.") from error
    except OSError as error:
        raise InputError(f"cannot unpack {archive}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(unpacking, ignore_errors=True)


def _lines(path: Path, root: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise InputError(
            f"tiny-imagenet: expected {path}. Unpack {TINY_IMAGENET}.zip into {root}, or name "
            "another folder with --data-root or $AFLTOOL_DATA."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}.") from error


def _val_listings(folder: Path, wnids: Sequence[str]) -> list[list[Listed]]:
    """The images of val/, by class, as val_annotations.txt states: name, wnid, a box, by tabs."""
    table = folder / "val_annotations.txt"
    pairs = [line.split("\t")[:2] for line in _lines(table, folder.parents[1]) if line]
    if any(len(pair) < 2 for pair in pairs):
        raise InvalidDataError(f"{table}: expected lines of a file name, a tab and a WordNet id.")
    wnid_of = {os.fsencode(name): wnid for name, wnid in pairs}
    if len(wnid_of) != len(pairs):
        raise InvalidDataError(f"{table}: {len(pairs) - len(wnid_of)} images are named twice.")
    files = list_images(folder / "images", "val/images/")
    names = {file[0].rpartition(b"/")[2] for file in files}
    if names != wnid_of.keys():
        odd = sorted(os.fsdecode(name) for name in names ^ wnid_of.keys())
        raise InvalidDataError(
            f"{folder}: {len(odd)} names are either an image without a line in {table.name} or "
            f"a line without an image: {shorten(odd)}. Unpack {TINY_IMAGENET}.zip again."
        )
    strangers = sorted(set(wnid_of.values()) - set(wnids))
    if strangers:
        raise InvalidDataError(f"{table}: {shorten(strangers)} are not in wnids.txt.")
    number = {wnid: i for i, wnid in enumerate(wnids)}
    listings: list[list[Listed]] = [[] for _ in wnids]
    for file in files:
        listings[number[wnid_of[file[0].rpartition(b"/")[2]]]].append(file)
    return listings
