"""Tiny-ImageNet in the layout of its archive; its val images are the test split."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ... import inputs
from ...errors import CorruptFileError, InputError, InvalidDataError
from .base import DatasetRequest, ImageDataset, shorten
from .files import fetch, md5_of_file
from .folders import Listed, from_files, list_images
from .pixels import FilePictures

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
    where: dict[bytes, bytes] = {}  # row id → path
    if split == "train":
        listed = [(f, w) for w in wnids for f in list_images(folder / "train" / w, f"train/{w}/")]
    else:
        listed = _val_images(folder / "val", wnids, where)
    labels = [wnid for _, wnid in listed]
    if empty := sorted({*wnids} - {*labels}):
        raise InvalidDataError(
            f"{folder}: {len(empty)} of {len(wnids)} classes have no images in the split {split}: "
            f"{shorten(empty)}. Unpack {TINY_IMAGENET}.zip again."
        )
    rows = from_files(request, [file for file, _ in listed], folder, labels, wnids)
    paths = np.array([where.get(row, row) for row in rows.row_ids.tolist()], np.bytes_)
    return replace(rows, pictures=FilePictures(os.fspath(folder), paths))


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


def _val_images(
    folder: Path, wnids: Sequence[str], where: dict[bytes, bytes]
) -> list[tuple[Listed, str]]:
    """The images of val/ and their classes, as val_annotations.txt states: name, wnid, a box.

    Where they were sorted, into val/WNID/, their names are those of the archive; ``where`` gets
    where each lies, and the table may be absent.
    """
    table, files = folder / "val_annotations.txt", list_images(folder, "val/")
    is_sorted = any(not path.startswith(b"val/images/") for path, _, _ in files)
    lines = [] if is_sorted and not table.exists() else _lines(table, folder.parents[1])
    pairs = [line.split("\t")[:2] for line in lines if line]
    if any(len(pair) < 2 for pair in pairs):
        raise InvalidDataError(f"{table}: expected lines of a file name, a tab and a WordNet id.")
    wnid_of = {os.fsencode(name): wnid for name, wnid in pairs}
    if len(wnid_of) != len(pairs):
        raise InvalidDataError(f"{table}: {len(pairs) - len(wnid_of)} images are named twice.")
    if strangers := sorted(set(wnid_of.values()) - set(wnids)):
        raise InvalidDataError(f"{table}: {shorten(strangers)} are not in wnids.txt.")
    listed, known, odd = list[tuple[Listed, str]](), {*wnids}, []
    for path, size, changed in files:
        top, name = path.split(b"/")[1], path.rpartition(b"/")[2]
        wnid = wnid_of.get(name, "") if top == b"images" else os.fsdecode(top)
        row = b"val/images/" + name
        if wnid not in known or row in where or (lines and wnid_of.get(name) != wnid):
            odd.append(os.fsdecode(path))
        else:
            where[row] = path
            listed.append(((row, size, changed), wnid))
    odd += sorted(os.fsdecode(n) for n in wnid_of if b"val/images/" + n not in where)
    if odd:
        raise InvalidDataError(
            f"{folder}: expected each image of {table.name} once, in images/, or in the folder of "
            f"its class where val was sorted into classes; {len(odd)} are absent, twice, elsewhere "
            f"or not in the table: {shorten(odd)}. Unpack {TINY_IMAGENET}.zip again."
        )
    return listed
