"""Image folders, PATH/SPLIT/CLASS/files, and what data sets of files have in common."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...errors import InputError, InvalidDataError
from ...progress import log
from .base import SPLITS, DatasetRequest, ImageDataset, make_dataset, shorten
from .pixels import FilePictures

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
    of them for training.

    Rows are sorted by the bytes of their relative POSIX path, so the order is the same everywhere.
    Names that start with a dot, files that are no images by their extension, and files outside the
    folders of classes are passed over, counted and named.
    With ``asked.classes``, which fixes the classes and their order, a class may lack its folder.
    Without labels these are all images below folder/SPLIT, at any depth, or below a folder that is
    not cut. For ``dicom:`` the files are those of `DICOM`, else of `EXTENSIONS`.
    """
    folder, ending = Path(request.path), _endings(request)
    root, prefix = folder / request.split, f"{request.split}/"
    if not any((folder / split).is_dir() for split in SPLITS):  # it is not cut
        if request.unlabelled:
            root, prefix = folder, ""
        elif _has_folders(folder):
            root, prefix = _whole(request), ""
    if request.unlabelled:
        return from_files(request, list_images(root, prefix, ending, request.spec), folder)
    own = _subfolders(root, request.spec)
    listed = list_images(root, prefix, ending, request.spec)
    outside = [os.fsdecode(file[0]) for file in listed if b"/" not in file[0][len(prefix) :]]
    if outside:
        what = f"{request.spec}: %d images lie outside the folders of classes, and are left out: %s"
        log.warning(what, len(outside), shorten(sorted(outside)))
    files = [file for file in listed if b"/" in file[0][len(prefix) :]]
    labels = [os.fsdecode(file[0][len(prefix) :].partition(b"/")[0]) for file in files]
    if (empty := sorted({*own} - {*labels}, key=os.fsencode)) and request.classes is None:
        raise InvalidDataError(
            f"{root}: {len(empty)} of {len(own)} class folders hold no images: "
            f"{shorten(empty)}. Images end in {' '.join(ending)}. Remove these folders, or "
            "name the classes with --classes FILE, which allows a class without images."
        )
    other = [folder / split for split in SPLITS if prefix and split != request.split]
    there = {name for one in other if _has_folders(one) for name in _subfolders(one, request.spec)}
    classes = own if request.classes else sorted({*own, *there}, key=os.fsencode)
    return from_files(request, files, folder, labels, classes)


def _endings(request: DatasetRequest) -> tuple[str, ...]:
    return DICOM if request.spec.startswith("dicom:") else EXTENSIONS


def _has_folders(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(e.is_dir() and not e.name.startswith(".") for e in entries)
    except OSError:
        return False  # said when the split is listed


def _whole(request: DatasetRequest) -> Path:
    """The folder of all images; nobody has said which of them are for testing."""
    if request.split != "train":
        raise InvalidDataError(
            f"{request.spec}: {request.path} has no folders train and test, so all of its images "
            f"are training images, none for {request.split}; extract them all and cut the feature "
            "file with afltool split"
        )
    named = [n for n in _subfolders(Path(request.path), request.spec) if n.lower() in LIKE_SPLITS]
    if named and request.classes is None:
        raise InvalidDataError(
            f"{request.spec}: {request.path} holds the folders {shorten(named)}, which are named "
            f"like splits; call them {' and '.join(SPLITS)}, or, if they are classes, list all "
            "classes with --classes FILE"
        )
    return Path(request.path)


def _subfolders(root: Path, name: str) -> list[str]:
    """The names of the folders in ``root``, sorted by their bytes."""
    try:
        with os.scandir(root) as entries:
            names = [e.name for e in entries if e.is_dir() and not e.name.startswith(".")]
    except FileNotFoundError as error:
        raise InputError(
            f"{name}: expected a folder {root} that holds one folder of images per class; "
            f"{_what_is_in(root.parent)}."
        ) from error
    except OSError as error:
        raise InputError(f"cannot list {root}: {error.strerror or error}.") from error
    if not names:
        raise InvalidDataError(
            f"{name}: expected one folder of images per class in {root}, found none."
        )
    return sorted(names, key=os.fsencode)


def _what_is_in(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} is not there"
    names = sorted(os.listdir(folder))
    return f"{folder} holds {shorten(names)}" if names else f"{folder} is empty"


def list_images(
    folder: Path, prefix: str, ending: tuple[str, ...] = EXTENSIONS, tell: object = None
) -> list[Listed]:
    """Every image file below ``folder``, unsorted, with ``prefix`` before its relative path.

    Images are the files with such an ``ending``. Beside images, others are counted and named to
    people where ``tell`` says what they are files of.

    Raises `InputError`: a folder or file cannot be listed.
    """
    files: list[Listed] = []
    others: list[bytes] = []
    endings = tuple(map(os.fsencode, ending))  # a million names need not become texts first
    todo = [(os.fsencode(folder), os.fsencode(prefix), 0)]
    try:
        while todo:
            path, before, links = todo.pop()
            with os.scandir(path) as entries:
                for entry in entries:
                    name = entry.name
                    if name.startswith(b"."):
                        others.append(before + name)
                    elif entry.is_dir():
                        todo.append((entry.path, before + name + b"/", links + entry.is_symlink()))
                    elif name.lower().endswith(endings):
                        stat = entry.stat()
                        files.append((before + name, stat.st_size, stat.st_mtime_ns))
                    else:
                        others.append(before + name)
            if links > 8:
                where = os.fsdecode(path)
                raise InputError(f"{where}: more than 8 symbolic links to folders in one path.")
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
    """A data set of the listed files, by the bytes of their paths; ``labels``: one of each file.

    Their names, sizes and times tell whether they have changed.
    """
    if not files and labels is None:
        raise InvalidDataError(
            f"{request.spec}: expected images, found none. "
            f"Images end in {' '.join(_endings(request))}."
        )
    order = sorted(range(len(files)), key=files.__getitem__)
    sha = hashlib.sha256()
    for i in order:
        sha.update(b"%s\0%d\0%d\n" % files[i])
    paths = np.array([files[i][0] for i in order], dtype=np.bytes_)
    named = None if labels is None else [labels[i] for i in order]
    pictures = FilePictures(os.fspath(root), paths)
    return make_dataset(request, paths, named, sha.hexdigest(), pictures, classes)
