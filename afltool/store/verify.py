"""Checks whether a file of any kind is intact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import hdf5
from .checkpoints import load_checkpoint
from .features import open_features
from .heads import load_head
from .masked import load_masked
from .partitions import load_partition
from .statistics import load_statistics


def verify(path: Path) -> dict[str, Any]:
    """Read everything in a file and compare its digest; returns the header.

    Raises `CorruptFileError` when anything does not hold.
    """
    kind = hdf5.read_header(path)["kind"]
    if kind == "features":
        with open_features(path, labelled=False) as features:
            for _ in features.stored_blocks():
                pass
            return features.header
    loaders: dict[str, Any] = {
        "partition": load_partition,
        "statistics": load_statistics,
        "masked": load_masked,
        "head": load_head,
        "checkpoint": load_checkpoint,
    }
    loaders[kind](path)
    return hdf5.read_header(path)
