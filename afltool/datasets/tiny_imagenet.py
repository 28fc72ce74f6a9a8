"""Tiny-ImageNet in the layout of its archive; its val images are the test split."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from .. import inputs
from ..errors import InvalidDataError
from .base import DatasetRequest, ImageDataset, shorten
from .folders import Listed, file_pictures, from_files, list_images
from .torchvision_datasets import fetch

TINY_IMAGENET = "tiny-imagenet-200"
TINY_IMAGENET_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
TINY_IMAGENET_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"  # of 248,100,043 bytes


def open_rows(request: DatasetRequest) -> ImageDataset:
    """Tiny-ImageNet in the layout of its archive; ``test`` is its val folder, which has labels.

    Classes are the WordNet ids of wnids.txt, sorted. A val that was sorted into folders of classes
    has the same rows, ids and order; folders of classes need no folder ``images``. Where the folder
    is not there, the archive is downloaded (if it is not there either), checked and unpacked.
    """
    folder = request.root / TINY_IMAGENET
    if not folder.exists():
        _fetch(request.root, folder)
    text = inputs.read_text(folder / "wnids.txt", "the classes of Tiny-ImageNet")
    wnids = sorted(filter(None, text.splitlines()))
    where: dict[bytes, bytes] = {}  # row id → path
    if request.split == "train":
        listed = [(f, w) for w in wnids for f in list_images(folder / "train" / w, f"train/{w}/")]
    else:
        listed = _val_images(folder / "val", wnids, where)
    labels = [wnid for _, wnid in listed]
    if empty := sorted({*wnids} - {*labels}):
        raise InvalidDataError(
            f"{folder}: {len(empty)} of {len(wnids)} classes have no images in the split "
            f"{request.split}: {shorten(empty)}. Unpack {TINY_IMAGENET}.zip again."
        )
    rows = from_files(request, [file for file, _ in listed], folder, labels, wnids)
    paths = np.array([where.get(row, row) for row in rows.row_ids.tolist()], np.bytes_)
    load, describe = file_pictures(folder, paths)
    return replace(rows, load=load, describe=describe)


def _fetch(root: Path, folder: Path) -> None:
    """Fetch the archive and unpack it; the folder takes its name when all is there."""
    name, unpacking = f"{TINY_IMAGENET}.zip", root / f"{TINY_IMAGENET}.unpacking"
    try:
        fetch(TINY_IMAGENET_URL, root, name, TINY_IMAGENET_MD5, "tiny-imagenet", unpacking)
        os.replace(unpacking / TINY_IMAGENET, folder)
    finally:
        shutil.rmtree(unpacking, ignore_errors=True)


def _val_images(
    folder: Path, wnids: Sequence[str], where: dict[bytes, bytes]
) -> list[tuple[Listed, str]]:
    """The images of val/ and their classes, as val_annotations.txt states: name, wnid, a box.

    Where they were sorted, into val/WNID/, their names are those of the archive; ``where`` gets
    where each lies, and the table may be absent.
    """
    table, files = folder / "val_annotations.txt", list_images(folder, "val/")
    is_sorted = any(not path.startswith(b"val/images/") for path, _, _ in files)
    text = "" if is_sorted and not table.exists() else inputs.read_text(table, "names and classes")
    pairs = [line.split("\t")[:2] for line in text.splitlines() if line]
    if any(len(pair) < 2 for pair in pairs):
        raise InvalidDataError(f"{table}: expected lines of a file name, a tab and a WordNet id.")
    wnid_of = {os.fsencode(name): wnid for name, wnid in pairs}
    odd = [f"{len(pairs) - len(wnid_of)} named twice"] * (len(wnid_of) < len(pairs))
    listed, known = list[tuple[Listed, str]](), {*wnids}
    for path, size, changed in files:
        top, name = path.split(b"/")[1], path.rpartition(b"/")[2]
        wnid = wnid_of.get(name, "") if top == b"images" else os.fsdecode(top)
        row = b"val/images/" + name
        if wnid not in known or row in where or (pairs and wnid_of.get(name) != wnid):
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
