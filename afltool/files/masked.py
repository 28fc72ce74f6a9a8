"""Writes and reads files of statistics under masks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptFileError
from ..values.arrays import Array, Digest
from . import hdf5, schema


def save_masked(path: Path, header: dict[str, Any], arrays: Mapping[str, Array]) -> Path:
    """Write a client's arrays (uint64) under masks; the header says their digest and is sealed."""
    named = {f"{schema.ARRAYS}/{name}": a for name, a in arrays.items()}
    return hdf5.write_file(path, "masked", header, named)


def load_masked(path: Path, seen: str | None = None) -> dict[str, NDArray[np.uint64]]:
    """Read the arrays of masked statistics; the digest is checked.

    ``seen``: what the header was when it was checked, see `hdf5.check_unchanged`.
    """
    header, arrays = hdf5.read_file(path, "masked", seen)
    masked = {k.removeprefix(schema.ARRAYS + "/"): a for k, a in arrays.items()}
    if any(a.dtype != np.uint64 for a in masked.values()):
        raise CorruptFileError(f"{path} is damaged: masked arrays are of 64-bit words")
    hdf5.check_digest(path, header, masked_digest(header["phase"], masked))
    return masked


def masked_digest(phase: str, arrays: Mapping[str, Array]) -> str:
    """SHA-256 of masked arrays."""
    digest = Digest().text("masked", phase)
    for name in sorted(arrays):
        digest.array(name, arrays[name], "<u8")
    return digest.hex()
