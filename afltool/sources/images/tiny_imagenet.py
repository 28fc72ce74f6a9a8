"""Tiny-ImageNet in the layout of its archive; its val images are the test split."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from ... import inputs
from ...errors import CorruptFileError, InputError, InvalidDataError
from .base import DatasetRequest, ImageDataset, shorten
from .files import fetch, md5_of_file
from .folders import Listed, from_listings, list_images

TINY_IMAGENET = "tiny-imagenet-200"
TINY_IMAGENET_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
TINY_IMAGENET_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"  # of 248,100,043 bytes


def open_rows(request: DatasetRequest) -> ImageDataset:
    """Tiny-ImageNet in the layout of its archive; ``test`` is its val folder, which has labels.

    Classes are the WordNet ids of wnids.txt, sorted. A val that was sorted into folders of classes
    has the same rows, ids and order; folders of classes need no folder ``images``. Where the folder
    is not there, the archive is downloaded (if it is not there either), checked and unpacked.
    """
    split, root = request.split, request.root
    folder = root / TINY_IMAGENET
    if not folder.exists():
        _unpack_tiny_imagenet(root)
    wnids = sorted(line for line in _lines(folder / "wnids.txt", root) if line)
    places: dict[bytes, bytes] = {}
    if split == "train":
        listings = [list_images(folder / "train" / wnid, f"train/{wnid}/") for wnid in wnids]
    else:
        listings = _val_listings(folder / "val", wnids, places)
    empty = [wnid for wnid, files in zip(wnids, listings, strict=True) if not files]
    if empty:
        raise InvalidDataError(
            f"{folder}: {len(empty)} of {len(wnids)} classes have no images in the split {split}: "
            f"{shorten(empty)}. Unpack {TINY_IMAGENET}.zip again."
        )
    return from_listings(request, wnids, listings, folder, places)


def _unpack_tiny_imagenet(root: Path) -> None:
    """The folder takes its name when all of it is there."""
    archive = root / f"{TINY_IMAGENET}.zip"
    what = f"tiny-imagenet: expected the folder {TINY_IMAGENET} or {archive.name} in {root}"
    if archive.is_file() and md5_of_file(archive) != TINY_IMAGENET_MD5:
        raise CorruptFileError(
            f"{archive}: expected the MD5 {TINY_IMAGENET_MD5}, found another "
            f"({archive.stat().st_size:,} bytes). Delete the file and fetch it again."
        )
    fetch(TINY_IMAGENET_URL, root, archive.name, TINY_IMAGENET_MD5, what, unpack=False)
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
    if not path.exists():
        raise InputError(
            f"tiny-imagenet: expected {path}. Unpack {TINY_IMAGENET}.zip into {root}, or name "
            "another folder with --data-root or $AFLTOOL_DATA."
        )
    return inputs.read_text(path, "a list").splitlines()


def _val_listings(
    folder: Path, wnids: Sequence[str], places: dict[bytes, bytes]
) -> list[list[Listed]]:
    """The images of val/ by class, as val_annotations.txt states, or as they were sorted.

    Of sorted ones ``places`` gets where each lies; its name is that of the archive.
    """
    images, number = folder / "images", {wnid: i for i, wnid in enumerate(wnids)}
    names = {one for one in os.listdir(folder) if one[0] != "."} if folder.is_dir() else set()
    given = list_images(images, "val/images/") if images.is_dir() else []
    classes = {one for one in names - {"images"} if (folder / one).is_dir()}
    table = folder / "val_annotations.txt"
    if given and classes:
        raise InvalidDataError(
            f"{folder}: expected {images}, or one folder for each class where val was sorted into "
            f"classes; found both, {len(given)} images there and {len(classes)} folders "
            f"({shorten(sorted(classes))}). Remove one of the two."
        )
    if strangers := sorted(classes - number.keys()):
        raise InvalidDataError(f"{folder}: the folders {shorten(strangers)} are not in wnids.txt.")
    wnid_of = {} if classes and not table.exists() else _annotations(table, number)
    if not classes:
        _check_names(folder, table, {file[0].rpartition(b"/")[2] for file in given}, wnid_of)
    listings: list[list[Listed]] = [[] for _ in wnids]
    for file in given:
        listings[number[wnid_of[file[0].rpartition(b"/")[2]]]].append(file)
    for wnid in classes:
        for path, *state in list_images(folder / wnid, f"val/{wnid}/"):
            name = path.rpartition(b"/")[2]
            row = b"val/images/" + name
            other = places.get(row, b"") or wnid_of.get(name, wnid).encode()
            if other != wnid.encode():
                raise InvalidDataError(
                    f"{folder}: {os.fsdecode(path)} lies in the folder of its class, where val was "
                    f"sorted into classes; {os.fsdecode(name)} is also {os.fsdecode(other)}."
                )
            places[row] = path
            listings[number[wnid]].append((row, state[0], state[1]))
    if classes and wnid_of:
        _check_names(folder, table, {row.rpartition(b"/")[2] for row in places}, wnid_of)
    return listings


def _annotations(table: Path, number: Mapping[str, int]) -> dict[bytes, str]:
    """The WordNet id of each name: lines of a name, the id, a box, by tabs."""
    pairs = [line.split("\t")[:2] for line in _lines(table, table.parents[2]) if line]
    if any(len(pair) < 2 for pair in pairs):
        raise InvalidDataError(f"{table}: expected lines of a file name, a tab and a WordNet id.")
    wnid_of = {os.fsencode(name): wnid for name, wnid in pairs}
    if len(wnid_of) != len(pairs):
        raise InvalidDataError(f"{table}: {len(pairs) - len(wnid_of)} images are named twice.")
    if strangers := sorted(set(wnid_of.values()) - number.keys()):
        raise InvalidDataError(f"{table}: {shorten(strangers)} are not in wnids.txt.")
    return wnid_of


def _check_names(
    folder: Path, table: Path, names: Set[bytes], wnid_of: Mapping[bytes, str]
) -> None:
    if names != wnid_of.keys():
        odd = sorted(os.fsdecode(name) for name in names ^ wnid_of.keys())
        raise InvalidDataError(
            f"{folder}: {len(odd)} names are either an image without a line in {table.name} or "
            f"a line without an image: {shorten(odd)}. Unpack {TINY_IMAGENET}.zip again."
        )
