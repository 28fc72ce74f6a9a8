"""A model to be packed: the PyTorch module of its graph, with names, a shape and metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import __version__
from ..heads.base import NOBODY, Head
from ..values.arrays import Array
from ..values.text import json_text

if TYPE_CHECKING:
    import torch
    from torch import nn

FREE = {0: "n"}
KEY = "afltool"  # the entry of a file's metadata that holds all of it as JSON


@dataclass(frozen=True)
class Model:
    """What a file is made of: ``module``, from one batch to the ``outputs``, names in order;
    ``input``: ``features`` or ``images``; ``shape`` of a batch, whose `FREE` axes may have any
    length; ``metadata``: JSON values that say what the model is."""

    module: nn.Module = field(repr=False)
    input: str
    shape: tuple[int, ...]
    outputs: tuple[str, ...]
    metadata: dict[str, Any]

    @property
    def example(self) -> torch.Tensor:
        """A batch of zeros."""
        import torch

        return torch.zeros(self.shape, dtype=getattr(torch, self.metadata["input"]["type"]))

    def text(self) -> str:
        """The metadata as JSON."""
        return json_text(self.metadata, sort_keys=True, ensure_ascii=False)

    def named(self, values: Any) -> dict[str, Array]:
        """Outputs by name, as NumPy arrays."""
        return dict(zip(self.outputs, map(np.asarray, values), strict=True))


def build_from_features(head: Head, header: Mapping[str, Any]) -> Model:
    """The classifier alone: float32 features (n, d) in."""
    from ..heads.graphs import Classifier, build_graph

    bits = header["space"]["fraction_bits"]
    dim, _ = head._bound()
    given = {"name": "features", "type": "float32", "shape": ["n", dim]}
    module = Classifier(build_graph(head, bits), bits, head.log_probabilities).eval()
    metadata = make_metadata(head, header, given)
    return Model(module, "features", (2, dim), tuple(metadata["outputs"]), metadata)


def make_metadata(head: Head, header: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    space = dict(header["space"])
    bits, log = space["fraction_bits"], head.log_probabilities
    rounding = "none: float32" if bits is None else f"round(x · 2^{bits}) / 2^{bits}, half to even"
    what = "log-probabilities up to a constant" if log else "estimates of labels, no probabilities"
    outputs = {
        "scores": f"(n, C) float64; the class with the highest is predicted; {what}",
        "predicted": f"(n,) int64, index of the class; {NOBODY}: a row that afltool refuses",
    }
    if log:
        outputs["probabilities"] = "(n, C) float64, softmax of the scores"
    return {
        "made_by": f"afltool {__version__}",
        "head": {"name": head.name, "digest": header["digest"], "options": header["options"]},
        "classes": list(header["classes"]),
        "space": space,
        "input": given,
        "rounding": rounding,
        "outputs": outputs,
    }
