"""Embeddings as .safetensors: the tensors x and, perhaps, y and row_ids."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InvalidDataError, UsageError
from ...values.arrays import Array
from .base import Embeddings, Keys, check_label_bytes, slices


def open_safetensors(path: Path, keys: Keys) -> Embeddings:
    """The tensors of features (in blocks) and labels of a .safetensors file."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise UsageError(f"{path} needs safetensors: pip install 'afltool[import]'") from error
    try:
        with safe_open(path, framework="numpy") as file:
            key, labels = keys.found(path, list(file.keys()))
            x = file.get_slice(key)
            shape, kind = tuple(x.get_shape()), x.get_dtype()
            if kind == "BF16":
                raise InvalidDataError(f"{path}: {key} is in bf16; save it as float32 or float16")
            dtype = x[:1].dtype if len(shape) == 2 and shape[0] else np.dtype("f4")
            y, row_ids = (
                None if name is None else _column(path, file, name)
                for name in (labels, keys.ids(path, list(file.keys())))
            )
    except SafetensorError as error:
        raise ValueError(str(error)) from error

    def blocks() -> Iterator[Array]:
        with safe_open(path, framework="numpy") as file:
            rows = file.get_slice(key)
            for part in slices(shape[0], shape[1] * dtype.itemsize):
                yield rows[part]

    return Embeddings(shape, dtype, blocks, y, row_ids)


def _column(path: Path, file: Any, name: str) -> Array:
    check_label_bytes(path, name, 8 * prod(file.get_slice(name).get_shape()))
    found: Array = file.get_tensor(name)
    return found
