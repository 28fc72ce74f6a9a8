"""What tells without reading a data set, or importing much, that its files are still the same."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ..digest import file_state
from .files import DEBIAN_FASHION_MNIST

#: Where the files of a data set lie below the data root.
FOLDERS = {
    "fashion-mnist": "FashionMNIST/raw",
    "cifar10": "cifar-10-batches-py",
    "cifar100": "cifar-100-python",
}


def dataset_state(spec: str, root: Path) -> list[list[object]] | None:
    """Names and states of all files that ``spec`` may be read from; None: only opening it tells.

    Data sets of folders and tables are listed when they are opened, which costs little and gives
    their fingerprint.
    """
    if spec == "digits":
        package = importlib.util.find_spec("sklearn")
        where = list(package.submodule_search_locations or ()) if package else []
        paths = [Path(folder) / "datasets" / "data" / "digits.csv.gz" for folder in where]
    elif spec in FOLDERS:
        folders = [root / FOLDERS[spec]]
        folders += [DEBIAN_FASHION_MNIST] if spec == "fashion-mnist" else []
        paths = [path for folder in folders if folder.is_dir() for path in folder.iterdir()]
    else:
        return None
    return [[str(path), file_state(path)] for path in sorted(paths)] or None
