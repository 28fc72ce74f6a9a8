"""A model to be packed: a PyTorch module with names, an example, metadata and the head's arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from ..values.arrays import Array
from ..values.json_text import json_text

#: The entry of a file's metadata that holds all of it as JSON.
KEY = "afltool"


@dataclass(frozen=True)
class Model:
    """What a file is made of.

    Attributes:
        module: from one batch to the outputs.
        input: its name, ``features`` or ``images``.
        example: a batch, for the tracers; ``free`` are the axes that may have any length.
        outputs: their names in order.
        metadata: JSON values that say what the model is.
        arrays: what a file of arrays alone holds, by name.
    """

    module: nn.Module
    input: str
    example: torch.Tensor
    free: Mapping[int, str]
    outputs: tuple[str, ...]
    metadata: dict[str, Any]
    arrays: Mapping[str, Array] = field(repr=False)

    def text(self) -> str:
        """The metadata as JSON."""
        return json_text(self.metadata, sort_keys=True, ensure_ascii=False)

    def named(self, values: Any) -> dict[str, Array]:
        """Outputs by name, as NumPy arrays."""
        found = (np.asarray(value) for value in values)
        return dict(zip(self.outputs, found, strict=True))

    def bytes(self) -> int:
        """Of the numbers that every graph holds."""
        tensors = [*self.module.parameters(), *self.module.buffers()]
        return sum(t.numel() * t.element_size() for t in tensors)
