"""What a name of a data set means: the one place. A new data set is a module and a line here.

The module lies in `afltool.sources.images` and has ``open_rows(DatasetRequest) -> ImageDataset``;
``files(name, root)`` lists what it reads where that is known without opening it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from ..errors import InputError, UsageError
from ..inputs import given_path
from ..plugins import Registry


@dataclass(frozen=True)
class DatasetName:
    """One form of ``--data``.

    Attributes:
        name: the word before the colon, if there is one.
        module: where `open_rows` is; one that begins with a dot is of `afltool.sources.images`.
        help: what it is, for people.
        takes: what stands behind the colon: PATH, FILE or PATTERN; it is absolute in run.toml.
        columns: ``path`` and ``label``, if ``--path-column`` and ``--label-column`` are for it.
    """

    name: str
    module: str
    help: str
    takes: str = ""
    columns: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """As the help and the shell's completion show it."""
        return f"{self.name}:{self.takes}" if self.takes else self.name


_FILE = "FILE", ("path", "label")
_ROWS, _SAMPLES = ("PATTERN", ("path", "label")), ("PATTERN", ("label",))
_OWN = (
    DatasetName(
        "digits", ".digits", "scikit-learn's digits; every fifth of a class is for testing"
    ),
    DatasetName("fashion-mnist", ".torchvision_datasets", "Debian's package or torchvision's"),
    DatasetName("cifar10", ".torchvision_datasets", "10 classes, 32 × 32 pixels, downloaded"),
    DatasetName("cifar100", ".torchvision_datasets", "100 classes, 32 × 32 pixels, downloaded"),
    DatasetName("tiny-imagenet", ".tiny_imagenet", "200 classes, 64 × 64 pixels, downloaded"),
    DatasetName("imagefolder", ".folders", "images in PATH/SPLIT/CLASS/ or PATH/CLASS/", "PATH"),
    DatasetName("table", ".path_tables", "CSV or parquet of path, label, split", *_FILE),
    DatasetName("webdataset", ".webdataset", "tar files of samples: their folder", *_SAMPLES),
    DatasetName("parquet", ".parquet_images", "parquet with the bytes of images", *_ROWS),
    DatasetName("dicom", ".folders", ".dcm files in PATH/SPLIT/CLASS/ or PATH/CLASS/", "PATH"),
)
#: Another package names a `DatasetName` whose module is its own.
DATASETS: Registry[DatasetName] = Registry(
    "afltool.datasets",
    {one.name: one for one in _OWN},
    lambda text, found: DatasetName(**vars(found)),
)


class _Shown:
    """The names as people see them; plug-ins are loaded when somebody looks."""

    def __iter__(self) -> Iterator[str]:
        return (one.shown for one in DATASETS.values())


SHOWN = _Shown()


def named(spec: str) -> tuple[DatasetName, str]:
    """The data set that ``spec`` names, and the path in it (empty where it takes none).

    Raises:
        UsageError: unknown name, a path that is missing, empty or not taken.
    """
    kind, colon, path = spec.partition(":")
    dataset = DATASETS.get(kind)
    if dataset is None or bool(path) != bool(dataset.takes) or (colon and not path):
        raise UsageError(f"unknown data set {spec!r}: there are {', '.join(SHOWN)}.")
    if path:
        given_path(path)
    return dataset, path


def check_dataset_name(spec: str) -> None:
    """Refuse a name that is no data set, and a path that does not exist.

    Raises:
        UsageError: unknown name.
        InputError: there is nothing at the path.
    """
    dataset, path = named(spec)
    if dataset.takes == "PATTERN":
        matching(path)
    elif path and not Path(path).exists():
        raise InputError(f"{spec}: there is nothing at {path}; check the path")


def matching(pattern: str) -> list[Path]:
    """The files and folders that a pattern names: ``*``, ``?``, ``[…]``, ``{000..127}``, ``{a,b}``.

    Raises:
        InputError: there is nothing for it, or for one of the names that the braces stand for.
    """
    if Path(pattern).exists():
        return [Path(pattern)]
    paths: set[str] = set()
    for one in _without_braces(pattern):
        there = glob(one)
        if not there:
            raise InputError(f"there is nothing at {one}; check the path")
        paths.update(there)
    return sorted(map(Path, paths))


def _without_braces(pattern: str) -> list[str]:
    match = re.search(r"{([^{}]*)}", pattern)
    if match is None:
        return [pattern]
    first, dots, last = match[1].partition("..")
    words = match[1].split(",")
    if dots and first.isdecimal() and last.isdecimal():
        words = [f"{n:0{len(first)}d}" for n in range(int(first), int(last) + 1)]
    before, after = pattern[: match.start()], pattern[match.end() :]
    return [name for word in words for name in _without_braces(before + word + after)]
