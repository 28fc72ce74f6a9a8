"""A frozen network without its classifier."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AflError, InputError, InvalidDataError, UsageError
from ..options.grammars import Node, is_single_plain_node
from ..values.arrays import file_sha256
from .families import Slice, Source, entry, get_source, refused
from .weights_files import check_types, digest_of_state, read_state

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, eq=False, kw_only=True)
class Facts:
    """What is known of a backbone, whoever runs it.

    ``weights``: their name, ``ResNet18_Weights.IMAGENET1K_V1``, ``random:0`` or ``file:NAME``;
    ``weights_digest``: SHA-256 (hex) over the state dict without the classifier; ``node``: where
    the ``dim`` features come from, such as ``input of fc``; ``slices``: the columns of each node,
    if there are several nodes, or one with a pooling or scale of its own.
    """

    name: str
    weights: str
    weights_digest: str
    node: str
    dim: int
    slices: tuple[Slice, ...] = ()

    def told(self) -> dict[str, Any]:
        """The fields of every backbone."""
        return {one.name: getattr(self, one.name) for one in fields(Facts)}


@dataclass(frozen=True, eq=False, kw_only=True)
class Backbone(Facts):
    """A feature extractor: ``module``, in eval mode, without gradients, gives features (n, dim)
    of (n, 3, s, s) float32."""

    module: nn.Module = field(repr=False)


def load_backbone(
    name: str,
    *,
    weights: str = "default",
    seed: int = 0,
    image_size: int = 224,
    nodes: Sequence[Node] = (),
) -> Backbone:
    """Build a backbone, load its weights and remove its classifier.

    ``weights``: ``default``, the name of published weights, ``random`` (of ``seed``; the global
    generator is left alone), or a file: a state dict as .pth (read with ``weights_only``) or
    .safetensors; a classifier in it is ignored. ``image_size``: side of the square images.

    Raises `UsageError`: unknown names, an image size that the network refuses, a missing package;
    `InputError`: weights that are not here and cannot be downloaded, or do not fit.
    """
    import torch

    from .nodes import Cut, Intermediates

    source = get_source(name)
    kind, label, _ = described(source, weights, seed)
    state = read_state(Path(weights)) if kind == "file" else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            given = weights if kind == "published" else state
            network, classifier = source.network(image_size, given)
        except AflError:
            raise
        # Networks refuse sizes by assertions and more, and tensors of other names or shapes.
        except Exception as error:
            if kind == "random":
                raise refused(f"{name} cannot be built for", image_size, error) from error
            raise InvalidDataError(
                f"the weights {weights} do not fit {name} at this image size: "
                f"{' '.join(str(error).split())[:600]}"
            ) from error
    network.eval().requires_grad_(False)
    if state is not None:
        check_types(network, state, weights)
    cut = Cut(source, network, classifier, image_size)
    digest = digest_of_state(network)
    facts: dict[str, Any] = {"name": name, "weights": label, "weights_digest": digest}
    if not nodes:
        return Backbone(**facts, node=entry(classifier), dim=cut.width(), module=network)
    module = Intermediates(cut, nodes).eval()
    what, dim = "; ".join(map(str, module.slices)), sum(one.dim for one in module.slices)
    slices = () if is_single_plain_node(tuple(nodes)) else tuple(module.slices)
    return Backbone(**facts, node=what, dim=dim, slices=slices, module=module)


def described(source: Source, weights: str, seed: int) -> tuple[str, str, str]:
    """The kind of weights (``random``, ``published``, ``file``), their name, what identifies them.

    Of a file its bytes do that, which are not read here. `UsageError`, `InputError`: no such
    weights.
    """
    path = Path(weights)
    if weights == "random":
        return "random", f"random:{seed}", f"{seed} {source.versions()}"
    if named := source.identify(weights):
        return "published", *named
    if path.is_file():
        return "file", f"file:{path.name}", ""
    if path.suffix in (".pth", ".pt", ".bin", ".ckpt", ".safetensors") or len(path.parts) > 1:
        raise InputError(f"expected weights of {source.name} in {path}: there is no such file")
    known = ["default"] * (weights != "default") + ["random", *source.weight_names()]
    raise UsageError(
        f"{weights!r} is neither a file nor weights of {source.name}: known are {', '.join(known)}."
    )


def weights_identity(name: str, weights: str = "default", seed: int = 0) -> str:
    """SHA-256 (hex) that identifies these weights without building the network, for cache keys."""
    kind, _, what = described(get_source(name), weights, seed)
    what = what or file_sha256(Path(weights))
    return hashlib.sha256(f"{kind} {name} {what}".encode()).hexdigest()
