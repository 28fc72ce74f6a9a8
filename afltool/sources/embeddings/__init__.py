"""Files of embeddings and of labels: .npz, .npy, .parquet, .safetensors, text, feature files.

Features are read in blocks, so memory does not grow with their number; labels and row ids are read
whole, up to a limit. Nothing in such a file is executed: arrays are read with pickling switched
off. A format is one module and one line of ``READERS``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...doors import Registry, located
from ...errors import InvalidDataError, UsageError
from ...options.features import EmbeddingsOptions
from .base import MOST_FEATURES, Embeddings, Keys, guarded, readable
from .labels import MOST_FILE_ROWS

#: Suffix → the module and function that open such a file; a module is imported when it is needed.
READERS: Registry[str] = Registry(
    "afltool.embeddings",
    {
        ".npz": ".numpy_files:open_npz",
        ".npy": ".numpy_files:open_npy",
        ".parquet": ".parquet_files:open_parquet",
        ".safetensors": ".safetensors_files:open_safetensors",
        ".h5": ".feature_files:open_feature_file",
    },
)


def imported_space(backbone: str, dim: int, dtype: str, bits: int | None) -> dict[str, Any]:
    """The feature space of embeddings made elsewhere: only their maker's name is known of it."""
    unknown = dict.fromkeys(("weights", "node", "preprocessing", "precision"))
    return {"backbone": backbone, **unknown, "dim": dim, "dtype": dtype, "fraction_bits": bits}


def space_of(
    x: Embeddings, backbone: str, dtype: str = "float32", bits: int | None = None
) -> dict[str, Any]:
    """The feature space of embeddings: of a feature file its own, in this number format."""
    if x.made is None:
        return imported_space(backbone, x.shape[1], dtype, bits)
    if backbone not in (EmbeddingsOptions().backbone, x.made["space"]["backbone"]):
        raise UsageError(
            f"--backbone {backbone} is for features made elsewhere; those of a feature file keep "
            f"theirs, {x.made['space']['backbone']}: leave it out"
        )
    return {**x.made["space"], "dtype": dtype, "fraction_bits": bits}


def check_rows(path: Path, x: Embeddings) -> None:
    """Refuse with `InvalidDataError` what is no table of numbers, or too large a one."""
    if len(x.shape) != 2 or x.dtype.kind not in "fiu" or 0 in x.shape:
        raise InvalidDataError(
            f"{path}: x must be a table of numbers (rows, features) with at least one of each; "
            f"found shape {x.shape}, type {x.dtype}"
        )
    if len(x) > MOST_FILE_ROWS or x.shape[1] > MOST_FEATURES:
        raise InvalidDataError(
            f"{path}: expected at most {MOST_FILE_ROWS:,} rows of {MOST_FEATURES:,} features; "
            f"found {x.shape[0]:,} of {x.shape[1]:,}"
        )


def open_embeddings(path: Path, keys: Keys = Keys()) -> Embeddings:  # noqa: B008 - it is frozen
    """The embeddings in ``path``, whatever its format; features are not read yet.

    ``keys``: what its features and labels are called.

    Raises `UsageError`: another suffix, or a package that is missing; `InputError`,
    `CorruptFileError`, `InvalidDataError`: missing, unreadable, or without x.
    """
    if path.suffix not in READERS:
        raise UsageError(
            f"{path}: embeddings come as .npz, .parquet or .safetensors (with x and y), as .npy "
            "with --labels, or as a feature file .h5"
        )
    reader: Callable[[Path, Keys], Embeddings] = located(READERS[path.suffix], __name__)
    with readable(path):
        found = reader(path, keys)
    return replace(found, blocks=guarded(path, found.blocks))
