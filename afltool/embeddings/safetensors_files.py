"""Embeddings as .safetensors: the tensors x and, perhaps, y."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path

import numpy as np

from ..errors import InvalidDataError, UsageError
from .base import Array, Embeddings, check_labels, lacks, slices


def open_safetensors(path: Path) -> Embeddings:
    """The tensors x (in blocks) and y of a .safetensors file."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise UsageError(f"{path} needs safetensors: pip install 'afltool[import]'") from error
    try:
        with safe_open(path, framework="numpy") as file:
            names = list(file.keys())
            if "x" not in names:
                raise lacks(path, names)
            x = file.get_slice("x")
            shape, kind = tuple(x.get_shape()), x.get_dtype()
            if kind == "BF16":
                raise InvalidDataError(f"{path}: x is in bf16; save it as float32 or float16")
            dtype = x[:1].dtype if len(shape) == 2 and shape[0] else np.dtype("f4")
            if "y" in names:
                check_labels(path, "y", 8 * prod(file.get_slice("y").get_shape()))
            y = file.get_tensor("y") if "y" in names else None
    except SafetensorError as error:
        raise ValueError(str(error)) from error

    def blocks() -> Iterator[Array]:
        with safe_open(path, framework="numpy") as file:
            rows = file.get_slice("x")
            for part in slices(shape[0], shape[1] * dtype.itemsize):
                yield rows[part]

    return Embeddings(shape, dtype, blocks, y)
