"""Arrays of a baseline that was stopped, in .npz; each has a checksum in the file (CRC-32)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from ..errors import CorruptFileError
from ..values.arrays import Array
from .atomic import replacing

KEY = "key"  # the array with a text that says what the others are
# What NumPy and zipfile raise for damaged bytes.
_DAMAGE = (OSError, ValueError, LookupError, EOFError, BadZipFile, NotImplementedError)


def write_arrays(path: Path, key: str, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name, and a text."""
    with replacing(path, "arrays") as place, os.fdopen(place, "wb", closefd=False) as file:
        np.savez(file, **{**arrays, KEY: np.array(key)})  # type: ignore[arg-type]


def read_arrays(path: Path) -> tuple[str, dict[str, Array]]:
    """The text and the arrays of a file; `CorruptFileError`: it is damaged, or not there."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            arrays = dict(found)
        return str(arrays.pop(KEY)), arrays
    except _DAMAGE as error:
        raise CorruptFileError(f"{path} is damaged, or no file of afltool: remove it") from error
