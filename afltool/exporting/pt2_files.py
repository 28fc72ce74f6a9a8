"""Models as .pt2: packed and run by `torch.export`."""

from __future__ import annotations

import io
import warnings

from ..values.arrays import Array
from .build import FREE, KEY, Model


def pack(model: Model) -> bytes:
    """A traced program with its weights; the metadata is its extra file."""
    import torch

    free = dict.fromkeys(FREE, torch.export.Dim.DYNAMIC)
    place = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):
        program = torch.export.export(model.module, (model.example,), dynamic_shapes=(free,))
        torch.export.save(program, place, extra_files={f"{KEY}.json": model.text()})
    return place.getvalue()


def run(data: bytes, model: Model, given: Array) -> dict[str, Array]:
    import torch

    with warnings.catch_warnings(action="ignore"), torch.inference_mode():
        program = torch.export.load(io.BytesIO(data)).module()
        return model.named(program(torch.from_numpy(given)))
