"""What a name of a data set means: the one place. A new data set is a module and a line here.

The module lies in `afltool.sources.images` and has ``open_rows(DatasetRequest) -> ImageDataset``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError
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


def named(spec: str) -> tuple[DatasetName, str]:
    """The data set that ``spec`` names, and the path in it (empty where it takes none).

    Raises:
        UsageError: unknown name, a path that is missing, empty or not taken.
    """
    kind, colon, path = spec.partition(":")
    dataset = DATASETS.get(kind)
    if dataset is None or bool(path) != bool(dataset.takes) or (colon and not path):
        known = ", ".join(one.shown for one in DATASETS.values())
        raise UsageError(f"unknown data set {spec!r}: there are {known}.")
    if path:
        given_path(path)
    return dataset, path
