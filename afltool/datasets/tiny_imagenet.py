"""Tiny-ImageNet in the layout of its archive; its val images are the test split."""

from __future__ import annotations

import os
import shutil

from .. import inputs
from ..errors import InvalidDataError
from .base import DatasetRequest, ImageDataset, shorten
from .folders import from_files, list_images
from .torchvision_datasets import fetch

TINY_IMAGENET = "tiny-imagenet-200"
TINY_IMAGENET_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
TINY_IMAGENET_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"  # of 248,100,043 bytes


def open_rows(request: DatasetRequest) -> ImageDataset:
    """Tiny-ImageNet in the layout of its archive; ``test`` is its val folder, which has labels.

    Classes are the WordNet ids of wnids.txt, sorted. Where the folder is not there, the archive is
    downloaded and unpacked; the folder takes its name when all is there.
    """
    root, name = request.root, f"{TINY_IMAGENET}.zip"
    folder, unpacking = root / TINY_IMAGENET, root / f"{TINY_IMAGENET}.unpacking"
    if not folder.exists():
        try:
            fetch(TINY_IMAGENET_URL, root, name, TINY_IMAGENET_MD5, "tiny-imagenet", unpacking)
            os.replace(unpacking / TINY_IMAGENET, folder)
        finally:
            shutil.rmtree(unpacking, ignore_errors=True)
    text = inputs.read_text(folder / "wnids.txt", "the classes of Tiny-ImageNet")
    wnids = sorted(filter(None, text.splitlines()))
    if request.split == "train":
        listed = [(f, w) for w in wnids for f in list_images(folder / "train" / w, f"train/{w}/")]
    else:
        table = folder / "val" / "val_annotations.txt"
        lines = inputs.read_text(table, "names and classes").splitlines()
        pairs = [line.split("\t") for line in lines if line.count("\t")]
        wnid_of = {f"val/images/{name}".encode(): wnid for name, wnid, *_ in pairs}
        files = list_images(folder / "val", "val/")
        if len(wnid_of) < len(lines) or {file[0] for file in files} != wnid_of.keys():
            raise InvalidDataError(
                f"{table}: expected a line of each image in val/images, its name, a tab and its "
                f"class; found {len(wnid_of)} names in {len(lines)} lines and {len(files)} images. "
                f"Where val was sorted into class folders, unpack {name} again"
            )
        listed = [(file, wnid_of[file[0]]) for file in files]
    labels = [wnid for _, wnid in listed]
    if odd := sorted({*wnids} ^ {*labels}):
        raise InvalidDataError(
            f"{folder}: {len(odd)} classes have no images in the split {request.split}, or are not "
            f"in wnids.txt: {shorten(odd)}. Unpack {name} again."
        )
    return from_files(request, [file for file, _ in listed], folder, labels, wnids)
