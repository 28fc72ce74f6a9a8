"""A frozen network without its classifier."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ...errors import InputError, UsageError
from ...inputs import meant
from ...options.nodes import PENULTIMATE, STAGES, Node, one_plain_place
from .families import Source, sha256_of_file, source_of
from .nodes import check_features, cut_at, cut_classifier, refused
from .slices import Slice
from .weights_files import digest_of_state, load_state, read_state

if TYPE_CHECKING:
    from torch import nn


class Facts(Protocol):
    """What is known of a backbone, whoever runs it; see `Backbone`."""

    @property
    def name(self) -> str: ...
    @property
    def weights(self) -> str: ...
    @property
    def weights_digest(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def dim(self) -> int: ...
    @property
    def slices(self) -> tuple[Slice, ...]: ...


@dataclass(frozen=True, eq=False)
class Backbone:
    """A feature extractor.

    Attributes:
        name: as it was asked for.
        weights: their name: ``ResNet18_Weights.IMAGENET1K_V1``, ``random:0``, ``file:NAME``.
        weights_digest: SHA-256 (hex) over the state dict without the classifier.
        node: where the features come from, such as ``input of fc`` or ``output of layer3, averaged
            over positions``.
        dim: features per image.
        slices: the columns of each node, if there are several nodes, or one with a pooling or scale
            of its own.
        module: in eval mode, without gradients; ``(n, 3, s, s)`` float32 to ``(n, dim)``.
    """

    name: str
    weights: str
    weights_digest: str
    node: str
    dim: int
    module: nn.Module = field(repr=False)
    slices: tuple[Slice, ...] = ()


def load_backbone(
    name: str,
    *,
    weights: str = "default",
    seed: int = 0,
    image_size: int = 224,
    nodes: Sequence[Node] = (),
) -> Backbone:
    """Build a backbone, load its weights and cut off its classifier.

    Args:
        name: a classification model of torchvision (``resnet18``), ``efficientnet_lite0``, or
            ``timm:NAME``.
        weights: ``default``, the name of published weights, ``random``, or a file: a state dict
            as .pth (read with ``weights_only``) or .safetensors; a classifier in it is ignored.
        seed: of random weights; the global generator is left alone.
        image_size: side of the square images; vision transformers are built for it.
        nodes: where the features come out, if not at the input of the classifier; see `cut_at`.

    Raises `UsageError`: unknown names, an image size that the network refuses, a missing package;
    `InputError`: weights that are not here and cannot be downloaded, or do not fit.
    """
    import torch

    source = source_of(name)
    kind = kind_of_weights(source, weights)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            module = source.build(image_size)
        # Networks refuse sizes by assertions.
        except (AssertionError, ValueError, RuntimeError) as error:
            raise refused(f"{name} cannot be built for", image_size, error) from error
    penultimate = not nodes or any(node.name in (PENULTIMATE, STAGES) for node in nodes)
    classifier, dim = _cut(module, name, required=penultimate)
    label = f"random:{seed}"
    if kind != "random":
        found = Path(weights) if kind == "file" else source.state(weights)
        state = read_state(found) if isinstance(found, Path) else found
        label = f"file:{Path(weights).name}" if kind == "file" else source.label(weights)
        load_state(module, source.rename(state, module), classifier, f"{name}, weights {weights}")
    module.eval().requires_grad_(False)
    digest = digest_of_state(module)
    if penultimate:
        assert classifier is not None
        check_features(module, classifier, dim, name, image_size)
    if not nodes:
        return Backbone(name, label, digest, f"input of {classifier}", dim, module)
    cut, slices = cut_at(module, nodes, classifier, name, image_size)
    what, dim = "; ".join(map(str, slices)), sum(one.dim for one in slices)
    named = () if one_plain_place(tuple(nodes)) else tuple(slices)
    return Backbone(name, label, digest, what, dim, cut.eval(), named)


def _cut(module: nn.Module, name: str, required: bool) -> tuple[str | None, int]:
    """`cut_classifier`; a network without one is allowed unless it is ``required``."""
    try:
        return cut_classifier(module, name)
    except UsageError:
        if required:
            raise
        return None, 0


def weights_identity(name: str, weights: str = "default", seed: int = 0) -> str:
    """SHA-256 (hex) that identifies these weights, computed without building the network.

    For a file it is of the bytes; for published weights, of the file name, which holds a hash; for
    random ones, of the seed and the versions of the packages that draw them. It is for cache keys;
    `Backbone.weights_digest` is the digest of the numbers themselves.
    """
    source = source_of(name)
    kind = kind_of_weights(source, weights)
    if kind == "random":
        what = f"random {name} {seed} {source.versions()}"
    elif kind == "file":
        what = f"file {name} {sha256_of_file(Path(weights))}"
    else:
        what = f"published {name} {source.published(weights)}"
    return hashlib.sha256(what.encode()).hexdigest()


def kind_of_weights(source: Source, weights: str) -> str:
    """``random``, ``published`` or ``file``.

    Raises `UsageError`: weights that nobody has published; `InputError`: there is no such file of
    weights.
    """
    if weights == "random":
        return "random"
    if source.knows(weights):
        return "published"
    path = Path(weights)
    if path.is_file():
        return "file"
    if path.suffix in (".pth", ".pt", ".bin", ".ckpt", ".safetensors") or len(path.parts) > 1:
        raise InputError(
            f"expected weights of {source.name} in {path}: there is no such file; "
            f"{meant(path, 'check the path.')}"
        )
    raise UsageError(
        f"{weights!r} is neither a file nor weights of {source.name}: known are default, random"
        f"{''.join(f', {name}' for name in source.weight_names())}."
    )
