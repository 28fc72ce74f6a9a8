"""A model with its network: pictures in, and what is tried on it; this needs PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import UsageError
from ..extraction.network import Network
from ..extraction.scoring import make_network
from ..extraction.torch_engine import Features, OverViews, TorchEngine
from ..heads.base import Head
from ..options.features import NetworkOptions
from ..values.arrays import U8, Array
from .build import Model, build_from_features, make_metadata
from .trial import COARSE, VerificationResult, compare, differs


class Pipeline(nn.Module):
    """Squares, uint8 (n, s, s, 3) → (features, scores, predicted, …)."""

    def __init__(self, front: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.front, self.head = front, classifier

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        features = self.front(images.permute(0, 3, 1, 2))
        return features, *self.head(features)


def build_from_images(head: Head, header: Mapping[str, Any], network: Network) -> Model:
    """The whole road but for resizing: uint8 squares (n, s, s, 3) in."""
    alone = build_from_features(head, header)
    assert isinstance(network.engine, TorchEngine)
    module = copy.deepcopy(network.engine.module).to(memory_format=torch.contiguous_format)
    way, views = network.preprocessing, network.views
    if len(views) > 1:
        module = OverViews(module, views, views.inner(way.crop))
    front, crop = Features(way, module), way.crop
    sides = "both sides" if way.squash else "the shorter side"
    given = {
        "name": "images",
        "type": "uint8",
        "shape": ["n", crop, crop, 3],
        "order": "RGB, as decoded; grey pictures three times; no rotation by EXIF; by Pillow, as "
        f"the preprocessing of the space says, {sides} to resize, then the central crop",
    }
    return replace(
        alone,
        module=Pipeline(front, alone.module).eval(),
        input="images",
        shape=(2, crop, crop, 3),
        outputs=("features", *alone.outputs),
        metadata=make_metadata(head, header, given),
    )


def network_in_fp32(path: Path, header: Mapping[str, Any], weights: str, seed: int) -> Network:
    """The network that makes the head's features, on the CPU. `UsageError` for features that
    were imported, or not made in fp32; `MismatchError` for a network of another space, with the
    field."""
    space = header["space"]
    if space["preprocessing"] is None or space["precision"] != "fp32":
        imported = space["preprocessing"] is None
        how = f"imported as {space['backbone']!r}" if imported else f"made in {space['precision']}"
        raise UsageError(
            f"the features of {path} were {how}, and a graph computes what a network made in fp32: "
            "export without --with-backbone"
        )
    options = NetworkOptions(weights=weights, seed=seed, device="cpu", engine="torch")
    return make_network(path, header, options)


def sample_squares(crop: int) -> U8:
    """Waves with noise, of which a network makes different features, (12, 3, s, s); one seed."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:crop, :crop] / crop
    turns = rng.uniform(-12, 12, size=(12, 3, 1, 1, 2))
    waves = np.sin(2 * np.pi * (turns[..., 0] * y + turns[..., 1] * x))
    noise = rng.normal(0, 15, size=waves.shape)
    return np.asarray(np.clip(128 + 90 * waves + noise, 0, 255), dtype=np.uint8)


def compare_on_images(
    packer: Any,
    data: bytes,
    model: Model,
    network: Network,
    head: Head,
    bits: int | None,
    out: Path,
) -> VerificationResult:
    """Features against extraction's, then scores against the head's of the same features."""
    squares = sample_squares(network.preprocessing.crop)
    answers = packer.run(data, model, np.ascontiguousarray(squares.transpose(0, 2, 3, 1)))
    compare_features(network, squares, answers["features"], str(out))
    return compare(head, bits, answers["features"], answers, str(out))


def compare_features(network: Network, squares: U8, features: Array, what: str) -> None:
    """Refuse with `NumericalError` features of squares (n, 3, s, s) that differ from extraction's
    by more than `COARSE` of a row's largest one."""
    wanted = network.rows(squares)
    sizes = np.abs(wanted).max(axis=1, keepdims=True)
    largest = float((np.abs(features - wanted) / np.maximum(sizes, 1e-30)).max())
    if not largest <= COARSE:
        raise differs(what, f"has features that differ by up to {largest:.3g} of the largest")
