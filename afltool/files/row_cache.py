"""The folder of `local-stats --cache`, where heads put rows aside between two rounds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from ..memory import Carried
from ..progress import log
from ..values.arrays import Array
from .atomic import replacing

# What NumPy and zipfile raise for damaged bytes; each array in the file has a checksum (CRC-32).
_DAMAGE = (OSError, ValueError, LookupError, EOFError, BadZipFile, NotImplementedError)


class CarriedFolder(Carried):
    """The blocks of a part of the work, such as a client: block i is i.npz, and has its key.

    It only saves time: a block that is missing, damaged or of another key is computed again.
    """

    def __init__(self, folder: Path, key: str = "") -> None:
        self.folder, self.key = folder, key

    def take(self, key: str, block: int, rows: int) -> dict[str, Array] | None:
        path = self.folder / f"{block}.npz"
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
                arrays = dict(found) if str(found["key"]) == key else {}
        except FileNotFoundError:
            return None
        except _DAMAGE as error:
            log.warning("%s is damaged (%s): its rows are computed again", path, error)
            return None
        arrays.pop("key", None)
        return arrays if arrays and all(len(a) == rows for a in arrays.values()) else None

    def following(self, key: str) -> CarriedFolder:
        return CarriedFolder(self.folder, key)

    def put(self, block: int, arrays: Mapping[str, Array]) -> None:
        """Keep the arrays of a block for the next round; `InputError` where that cannot be."""
        named: dict[str, Any] = {"key": np.array(self.key), **arrays}
        with (
            replacing(self.folder / f"{block}.npz", None, durable=False) as place,
            os.fdopen(place, "wb", closefd=False) as file,
        ):
            np.savez(file, **named)
