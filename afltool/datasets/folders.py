"""Image folders, PATH/SPLIT/CLASS/files, and what data sets of files have in common."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import InputError, InvalidDataError
from ..progress import log
from .base import SPLITS, DatasetRequest, ImageDataset, make_dataset, shorten
from .pixels import read_image

#: What counts as an image file, whatever the case of its letters.
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".webp", ".tif", ".tiff", ".gif")
DICOM = (".dcm", ".dicom")
#: Folders that are splits by other names, rather than classes.
LIKE_SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation", "eval"}

#: relative POSIX path, size in bytes, modification time in ns
Listed = tuple[bytes, int, int]


def open_rows(request: DatasetRequest) -> ImageDataset:
    """``folder/SPLIT/CLASS/…/file``: the classes are the folders of both splits, by their bytes.

    A folder that has neither train nor test is not cut: its rows are ``folder/CLASS/…/file``, all
    of them for training. Rows are sorted by the bytes of their relative POSIX path. Names that
    start with a dot, files that are no images by their extension, and files outside the folders of
    classes are passed over, counted and named. With ``request.classes`` a class may lack its
    folder. Without labels these are all images below the split, at any depth.
    """
    folder, spec = Path(request.path), request.spec
    ending = DICOM if spec.startswith("dicom:") else EXTENSIONS
    root, prefix = folder / request.split, f"{request.split}/"
    if not any((folder / split).is_dir() for split in SPLITS):
        root, prefix = folder, ""
        if not request.unlabeled:
            _check_not_cut(request)
    listed = list_images(root, prefix, ending, spec)
    if request.unlabeled:
        return from_files(request, listed, folder)
    files = [file for file in listed if b"/" in file[0][len(prefix) :]]
    if outside := sorted(os.fsdecode(file[0]) for file in {*listed} - {*files}):
        what = f"{spec}: %d images lie outside the folders of classes, and are left out: %s"
        log.warning(what, len(outside), shorten(outside))
    labels = [os.fsdecode(file[0][len(prefix) :].partition(b"/")[0]) for file in files]
    own = _subfolders(root)
    if not own:
        raise InvalidDataError(
            f"{spec}: expected one folder of images per class in {root}, found none."
        )
    if (empty := sorted({*own} - {*labels}, key=os.fsencode)) and request.classes is None:
        raise InvalidDataError(
            f"{root}: {len(empty)} of {len(own)} class folders hold no images: {shorten(empty)}. "
            f"Images end in {' '.join(ending)}. Remove these folders, or name the classes with "
            "--classes FILE, which allows a class without images."
        )
    other = [folder / split for split in SPLITS if prefix and split != request.split]
    there = {name for one in other if one.is_dir() for name in _subfolders(one)}
    classes = own if request.classes else sorted({*own, *there}, key=os.fsencode)
    return from_files(request, files, folder, labels, classes)


def _check_not_cut(request: DatasetRequest) -> None:
    """Refuse a folder without splits as a test set, or with splits of other names as classes."""
    if request.split != "train":
        raise InvalidDataError(
            f"{request.spec}: {request.path} has no folders train and test, so all of its images "
            f"are training images, none for {request.split}; cut the features with afltool split"
        )
    named = [name for name in _subfolders(Path(request.path)) if name.lower() in LIKE_SPLITS]
    if named and request.classes is None:
        raise InvalidDataError(
            f"{request.spec}: the folders {shorten(named)} are named like splits; call them "
            f"{' and '.join(SPLITS)}, or, if they are classes, list all with --classes FILE"
        )


def _subfolders(root: Path) -> list[str]:
    """The names of the folders in ``root``, sorted by their bytes."""
    try:
        with os.scandir(root) as entries:
            names = [e.name for e in entries if e.is_dir() and not e.name.startswith(".")]
    except OSError as error:
        raise InputError(f"cannot list {root}: {error.strerror or error}.") from error
    return sorted(names, key=os.fsencode)


def list_images(
    folder: Path, prefix: str, ending: tuple[str, ...] = EXTENSIONS, tell: object = None
) -> list[Listed]:
    """Every file with such an ``ending`` below ``folder``, with ``prefix`` before its path.

    Others are counted and named where ``tell`` says what they are files of. Raises `InputError`.
    """
    files: list[Listed] = []
    others: list[bytes] = []
    endings = tuple(map(os.fsencode, ending))  # a million names need not become texts first
    todo = [(os.fsencode(folder), os.fsencode(prefix), 0)]
    try:
        while todo:
            path, before, links = todo.pop()
            if links > 8:
                raise OSError(0, "more than 8 symbolic links to folders in one path", path)
            with os.scandir(path) as entries:
                for entry in entries:
                    name = entry.name
                    if not name.startswith(b".") and entry.is_dir():
                        todo.append((entry.path, before + name + b"/", links + entry.is_symlink()))
                    elif not name.startswith(b".") and name.lower().endswith(endings):
                        stat = entry.stat()
                        files.append((before + name, stat.st_size, stat.st_mtime_ns))
                    else:
                        others.append(before + name)
    except OSError as error:
        where = os.fsdecode(error.filename)
        raise InputError(f"cannot list {where}: {error.strerror or error}.") from error
    if tell and files and others:
        some = shorten([os.fsdecode(one) for one in sorted(others)])
        log.info("%s: %d files are no images by their names: %s", tell, len(others), some)
    return files


def from_files(
    request: DatasetRequest,
    files: Sequence[Listed],
    root: Path,
    labels: Sequence[str] | None = None,
    classes: Sequence[str] = (),
) -> ImageDataset:
    """A data set of the listed files, by the bytes of their paths; ``labels``: one of each file."""
    order = sorted(range(len(files)), key=files.__getitem__)
    sha = hashlib.sha256()
    for i in order:
        sha.update(b"%s\0%d\0%d\n" % files[i])
    paths = np.array([files[i][0] for i in order], dtype=np.bytes_)
    named = None if labels is None else [labels[i] for i in order]

    def where(i: int) -> str:
        return os.path.join(root, os.fsdecode(bytes(paths[i])))

    load = lambda i: read_image(where(i))  # noqa: E731
    return make_dataset(request, paths, named, sha.hexdigest(), load, where, classes)
