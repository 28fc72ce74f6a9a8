"""Checks whether a file of any kind is intact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import hdf5
from .backbones import load_frozen
from .checkpoints import load_checkpoint
from .features import verify_features
from .heads import load_head
from .masked import load_masked
from .partitions import load_partition
from .statistics import load_statistics


def verify(path: Path) -> dict[str, Any]:
    """Read everything in a file and compare its digest; the header.

    Raises `CorruptFileError` when anything does not hold.
    """
    header = hdf5.read_header(path)
    kind = header["kind"]
    if kind == "features":
        return verify_features(path)
    loaders: dict[str, Any] = {
        "partition": load_partition,
        "statistics": load_statistics,
        "masked": load_masked,
        "head": load_head,
        "checkpoint": load_checkpoint,
        "backbone": load_frozen,
    }
    loaders[kind](path)
    hdf5.check_unchanged(path, hdf5.read_header(path), hdf5.fingerprint(header))
    return header
