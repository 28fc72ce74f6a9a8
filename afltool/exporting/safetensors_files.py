"""Models as .safetensors: the arrays alone, without code; a reader does the arithmetic itself.

``head.NAME`` are the arrays of the head file, ``drawn.PATH`` what its seed draws or tabulates,
``backbone.NAME`` the network's state. It is run by putting the arrays that were read back into the
module.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..errors import NumericalError
from ..values.arrays import Array
from .build import KEY, Model

if TYPE_CHECKING:
    from torch import Tensor, nn


def pack(model: Model) -> bytes:
    from safetensors.numpy import save

    arrays = {name: np.array(a, order="C") for name, a in model.arrays.items()}
    if model.affine is None:
        arrays |= {name: t.numpy() for name, t in drawn(model.module)}
    data: bytes = save(arrays, {KEY: model.text()})  # of several entries the order is by chance
    return data


def run(data: bytes, model: Model, given: Array) -> dict[str, Array]:
    """The model with what the file holds of it, once every array has come back as it was."""
    from safetensors.numpy import load

    arrays = load(data)
    for name, wanted in model.arrays.items():
        if name not in arrays or not np.array_equal(arrays[name], wanted):
            raise NumericalError(f"the array {name!r} did not come back from the file as it was")
    if model.affine is not None:
        W, b = model.affine
        return model.answers(given, lambda x: x @ W + b)
    import torch

    module = copy.deepcopy(model.module)
    for name, place in drawn(module):
        place.copy_(torch.from_numpy(arrays[name]))
    with torch.inference_mode():
        return model.named(module(torch.from_numpy(given)))


def drawn(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Buffers that a seed made, by name."""
    for path, part in module.named_modules():
        if getattr(part, "from_seed", False):
            for name, buffer in part.named_buffers(recurse=False):
                yield f"drawn.{path.removeprefix('head.')}.{name}", buffer
