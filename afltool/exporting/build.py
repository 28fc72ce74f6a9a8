"""A model to be packed: a PyTorch module with names, an example, metadata and the head's arrays."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import __version__
from ..errors import UsageError
from ..heads.base import Head
from ..heads.graphs import NOBODY, Classifier, graph_of
from ..options.features import TORCH, NetworkOptions
from ..sources.backbones.graph import Features, Prepared
from ..sources.backbones.slices import whole_passes
from ..sources.extraction.scoring import network_of
from ..sources.extraction.torch_network import TorchNetwork
from ..values.arrays import Array
from ..values.text import json_text

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


SCORES = (
    "(n, C) float64; the class with the highest is predicted",
    "least-squares scores estimate one-hot labels; they are not probabilities",
    "log-probabilities up to a constant for each row",
)


class Pipeline(nn.Module):
    """Pictures → (features, scores, predicted, …)."""

    def __init__(self, front: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.front, self.head = front, classifier

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        features = self.front(images)
        return features, *self.head(features)


def of_features(head: Head, header: Mapping[str, Any]) -> Model:
    """The classifier alone: float32 features (n, d) in."""
    bits = header["space"]["fraction_bits"]
    module = Classifier(graph_of(head, bits), bits, head.log_probabilities).eval()
    dim, _ = head._bound()
    given = {"name": "features", "type": "float32", "shape": ["n", dim]}
    arrays = {f"head.{name}": array for name, array in head.arrays().items()}
    metadata, example = _metadata(head, header, given), torch.zeros(2, dim)
    return Model(module, "features", example, {0: "n"}, outputs_of(head), metadata, arrays)


def of_pictures(head: Head, header: Mapping[str, Any], network: TorchNetwork) -> Model:
    """The whole road: uint8 pictures (n, h, w, 3) in."""
    alone = of_features(head, header)
    module = copy.deepcopy(network.module).to(memory_format=torch.contiguous_format)
    front = Features(Prepared(network.preprocessing), whole_passes(module))
    given = {
        "name": "images",
        "type": "uint8",
        "shape": ["n", "height", "width", 3],
        "order": "RGB, as decoded; grey pictures three times; no rotation by EXIF",
    }
    crop = network.preprocessing.crop
    state = {f"backbone.{k}": v.numpy() for k, v in network.backbone.module.state_dict().items()}
    return replace(
        alone,
        module=Pipeline(front, alone.module).eval(),
        input="images",
        example=torch.zeros(2, crop + 1, crop + 3, 3, dtype=torch.uint8),
        free={0: "n", 1: "h", 2: "w"},
        outputs=("features", *alone.outputs),
        metadata=_metadata(head, header, given),
        arrays={**alone.arrays, **state},
    )


def outputs_of(head: Head) -> tuple[str, ...]:
    return ("scores", "predicted", *(["probabilities"] if head.log_probabilities else []))


def network_in_fp32(path: Path, header: Mapping[str, Any], weights: str, seed: int) -> TorchNetwork:
    """The network that makes the head's features, on the CPU; its whole space is compared.

    Raises `UsageError`: the features were imported, or made in an arithmetic that a graph has not;
    `MismatchError`: the network that is built makes another space; the field is named.
    """
    space = header["space"]
    if space["preprocessing"] is None:
        raise UsageError(
            f"the features of {path} were imported as {space['backbone']!r}: afltool has "
            "no network that makes them; export without --with-backbone"
        )
    if space["precision"] != "fp32":
        raise UsageError(
            f"the features of {path} were made in {space['precision']}; a graph computes in fp32: "
            "export without --with-backbone, or extract in fp32"
        )
    options = NetworkOptions(weights=weights, seed=seed, device="cpu", engine=TORCH)
    network = network_of(path, header, options)
    assert isinstance(network, TorchNetwork)
    return network


def _metadata(head: Head, header: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    space = dict(header["space"])
    bits = space["fraction_bits"]
    rounding = "none: float32" if bits is None else f"round(x · 2^{bits}) / 2^{bits}, half to even"
    outputs = {
        "scores": f"{SCORES[0]}; {SCORES[1 + head.log_probabilities]}",
        "predicted": f"(n,) int64, index of the class; {NOBODY}: a row that afltool refuses",
    }
    if head.log_probabilities:
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


def sample_pictures(crop: int) -> list[Array]:
    """Batches of one size each, uint8 (n, h, w, 3): smaller, larger, tall, wide; from one seed."""
    rng = np.random.default_rng(0)
    sides = [(crop, crop), (32, 32), (2 * crop + 1, crop + 7), (crop // 2 + 3, crop)]
    found: list[Array] = []
    for height, width in sides:  # waves with noise, of which a network makes different features
        y, x = np.mgrid[:height, :width] / max(height, width)
        turns = rng.uniform(-12, 12, size=(3, 1, 1, 3, 2))
        waves = np.sin(2 * np.pi * (turns[..., 0] * y[..., None] + turns[..., 1] * x[..., None]))
        noise = rng.normal(0, 15, size=(3, height, width, 3))
        found.append(np.clip(128 + 90 * waves + noise, 0, 255).astype(np.uint8))
    return found
