"""Arrays that only save time, in .npz: rows between two rounds, weights of a stopped baseline."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from ..errors import CorruptFileError
from ..memory import Carried
from ..progress import log
from ..values.arrays import Array
from .atomic import replacing

KEY = "key"  # the array with a text that says what the others are
# What NumPy and zipfile raise for damaged bytes; each array in the file has a checksum (CRC-32).
_DAMAGE = (OSError, ValueError, LookupError, EOFError, BadZipFile, NotImplementedError)


def write_arrays(path: Path, key: str, arrays: Mapping[str, Array], durable: bool = True) -> None:
    """Write arrays by name, and a text; ``durable``: see `replacing`."""
    with (
        replacing(path, "arrays", durable=durable) as place,
        os.fdopen(place, "wb", closefd=False) as file,
    ):
        np.savez(file, **{**arrays, KEY: np.array(key)})  # type: ignore[arg-type]


def read_arrays(path: Path) -> tuple[str, dict[str, Array]]:
    """The text and the arrays of a file.

    Raises:
        FileNotFoundError: there is none.
        CorruptFileError: its bytes are damaged.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            arrays = dict(found)
        return str(arrays.pop(KEY)), arrays
    except FileNotFoundError:
        raise
    except _DAMAGE as error:
        raise CorruptFileError(f"{path} is damaged, or no file of afltool: remove it") from error


class CarriedFolder(Carried):
    """The blocks of a part of the work, such as a client: block i is i.npz, and has its key.

    It only saves time: a block that is missing, damaged or of another key is computed again.
    """

    def __init__(self, folder: Path, key: str = "") -> None:
        super().__init__(key)
        self.folder = folder

    def take(self, key: str, block: int, rows: int) -> dict[str, Array] | None:
        try:
            there, arrays = read_arrays(self.folder / f"{block}.npz")
        except FileNotFoundError:
            return None
        except CorruptFileError as error:
            log.warning("%s: its rows are computed again", error)
            return None
        fit = there == key and arrays and all(len(a) == rows for a in arrays.values())
        return arrays if fit else None

    def following(self, key: str) -> CarriedFolder:
        return CarriedFolder(self.folder, key)

    def put(self, block: int, arrays: Mapping[str, Array]) -> None:
        """Keep the arrays of a block for the next round; `InputError` where that cannot be."""
        write_arrays(self.folder / f"{block}.npz", self.key, arrays, durable=False)
