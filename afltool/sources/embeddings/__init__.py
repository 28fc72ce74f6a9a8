"""Files of embeddings and of labels, made by anyone: .npz, .npy, .parquet, .safetensors, text.

Features are read in blocks, so memory does not grow with their number; labels and row ids are read
whole, up to a limit. Nothing in such a file is executed: arrays are read with pickling switched
off. A format is one module and one line of ``READERS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ...errors import UsageError
from .base import Embeddings, Keys, guarded, readable

#: Suffix → the module and function that open such a file; a module is imported when it is needed.
READERS = {
    ".npz": "numpy_files:open_npz",
    ".npy": "numpy_files:open_npy",
    ".parquet": "parquet_files:open_parquet",
    ".safetensors": "safetensors_files:open_safetensors",
}


def imported_space(backbone: str, dim: int, dtype: str, bits: int | None) -> dict[str, Any]:
    """The feature space of embeddings made elsewhere: only their maker's name is known of it."""
    unknown = dict.fromkeys(("weights", "node", "preprocessing", "precision"))
    return {"backbone": backbone, **unknown, "dim": dim, "dtype": dtype, "fraction_bits": bits}


def open_embeddings(path: Path, keys: Keys = Keys()) -> Embeddings:  # noqa: B008 - it is frozen
    """The embeddings in ``path``, whatever its format; features are not read yet.

    ``keys``: what its features and labels are called.

    Raises `UsageError`: another suffix, or a package that is missing; `InputError`,
    `CorruptFileError`, `InvalidDataError`: missing, unreadable, or without x.
    """
    if path.suffix not in READERS:
        raise UsageError(
            f"{path}: embeddings come as .npz, .parquet or .safetensors (with x and y), or as .npy "
            "with --labels"
        )
    module, name = READERS[path.suffix].split(":")
    reader: Callable[[Path, Keys], Embeddings] = getattr(
        import_module(f".{module}", __name__), name
    )
    with readable(path):
        found = reader(path, keys)
    return replace(found, blocks=guarded(path, found.blocks))
