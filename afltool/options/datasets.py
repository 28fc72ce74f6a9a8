"""What a name of a data set means: the one place. A new data set is a module and a line here.

The module lies in `afltool.datasets` and has ``open_rows(DatasetRequest) -> ImageDataset``.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError
from ..inputs import check_given_path
from ..plugins import Registry


@dataclass(frozen=True)
class DatasetName:
    """One form of ``--data``, NAME or NAME:PATH.

    ``module`` has `open_rows`; one that begins with a dot is of `afltool.datasets`. ``takes`` is
    what stands behind the colon: PATH, FILE or PATTERN, which is absolute in run.toml, or NAME.
    ``columns``: its labels are in a column, which has a name.
    """

    name: str
    module: str
    takes: str = ""
    columns: bool = False

    @property
    def shown(self) -> str:
        """As the help shows it."""
        return f"{self.name}:{self.takes}" if self.takes else self.name


_DOWNLOADED = ".torchvision_datasets"
_OWN = (
    DatasetName("digits", ".digits"),
    DatasetName("fashion-mnist", _DOWNLOADED),
    DatasetName("cifar10", _DOWNLOADED),
    DatasetName("cifar100", _DOWNLOADED),
    DatasetName("tiny-imagenet", ".tiny_imagenet"),
    DatasetName("imagefolder", ".folders", "PATH"),
    DatasetName("table", ".path_tables", "FILE", columns=True),
    DatasetName("webdataset", ".webdataset", "PATTERN"),
    DatasetName("parquet", ".parquet_images", "PATTERN", columns=True),
    DatasetName("dicom", ".folders", "PATH"),
    DatasetName("hf", ".hugging_face", "NAME", columns=True),
)
#: Another package names a `DatasetName` whose module is its own.
DATASETS: Registry[DatasetName] = Registry(
    "afltool.datasets",
    {one.name: one for one in _OWN},
    lambda text, found: DatasetName(**vars(found)),
)


def parse_dataset(spec: str) -> tuple[DatasetName, str]:
    """The data set that ``spec`` names, and the path in it, or `UsageError`."""
    kind, colon, path = spec.partition(":")
    dataset = DATASETS.get(kind)
    if dataset is None or bool(path) != bool(dataset.takes) or (colon and not path):
        known = ", ".join(one.shown for one in DATASETS.values())
        raise UsageError(f"unknown data set {spec!r}: there are {known}.")
    if path:
        check_given_path(path)
    return dataset, path
