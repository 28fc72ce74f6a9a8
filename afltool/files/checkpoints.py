"""Writes and reads what an interrupted baseline needs to continue after its last round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..values.arrays import Array, Digest
from . import hdf5, schema


def save_checkpoint(
    path: Path, arrays: Mapping[str, Array], rounds: Sequence[Any], made_by: Mapping[str, Any]
) -> Path:
    """Write a checkpoint of a baseline; replaces an earlier one."""
    made = {"recipe": dict(made_by), "provenance": schema.provenance()}
    header = {"digest": _digest(arrays), **made, "rounds": list(rounds)}
    named = {f"{schema.ARRAYS}/{name}": a for name, a in arrays.items()}
    return hdf5.write_file(path, "checkpoint", header, named)


def load_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read the header and the arrays of a checkpoint, in the types they had."""
    header, arrays = hdf5.read_file(path, "checkpoint")
    state = hdf5.additive(arrays)
    hdf5.check_digest(path, header, _digest(state))
    return header, state


def _digest(arrays: Mapping[str, Array]) -> str:
    digest = Digest().text("checkpoint", "")
    for name in sorted(arrays):
        digest.array(name, arrays[name], arrays[name].dtype.str)
    return digest.hex()
