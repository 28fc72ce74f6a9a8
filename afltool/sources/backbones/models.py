"""A frozen network without its classifier."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError, UsageError
from ...inputs import meant
from ...options.grammars import PENULTIMATE, STAGES, Node, one_plain_place
from .families import Source, sha256_of_file, source_of
from .nodes import Ran, check_features, cut_at, cut_classifier, layers_run, prefix_tokens, refused
from .slices import TOKENS, Slice, form_of
from .weights_files import digest_of_state, load_state, read_state

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, eq=False, kw_only=True)
class Facts:
    """What is known of a backbone, whoever runs it.

    Attributes:
        name: as it was asked for.
        weights: their name: ``ResNet18_Weights.IMAGENET1K_V1``, ``random:0``, ``file:NAME``.
        weights_digest: SHA-256 (hex) over the state dict without the classifier.
        node: where the features come from, such as ``input of fc`` or ``output of layer3, averaged
            over positions``.
        dim: features per image.
        slices: the columns of each node, if there are several nodes, or one with a pooling or scale
            of its own.
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
    classifier, dim = cut_classifier(module, name, required=penultimate)
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
    slices: list[Slice] = []
    what = f"input of {classifier}"
    if nodes:
        module, slices = cut_at(module, nodes, classifier, name, image_size)
        what, dim = "; ".join(map(str, slices)), sum(one.dim for one in slices)
    named = () if one_plain_place(tuple(nodes)) else tuple(slices)
    facts: dict[str, Any] = {"name": name, "weights": label, "weights_digest": digest, "node": what}
    return Backbone(**facts, dim=dim, slices=named, module=module.eval())


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


def nodes_of(name: str, image_size: int) -> list[dict[str, Any]]:
    """Each layer that gives features, in the order they run, then `PENULTIMATE`.

    Raises `UsageError`: an unknown backbone, or one that refuses the size.
    """
    whole = load_backbone(name, weights="random", image_size=image_size)
    try:
        nodes = [Node(STAGES)]
        staged = load_backbone(name, weights="random", image_size=image_size, nodes=nodes)
        taken = {one.name.partition(":")[0]: one.name for one in staged.slices}
    except UsageError:  # there are no stages
        taken = {}
    layers, classifier = layers_run(whole.module, image_size), whole.node.removeprefix("input of ")
    before = takewhile(lambda ran: ran.name != classifier, layers)
    rows = [_row(ran, whole.module, taken) for ran in before if ran.times == 1]
    last = {"name": PENULTIMATE, "layer": whole.node, "width": whole.dim, "output": str(whole.dim)}
    found = [*filter(None, rows), {**last, "stages": PENULTIMATE if taken else None}]
    return [{**row, "place": f"{k} of {len(found)}"} for k, row in enumerate(found, 1)]


def _row(ran: Ran, module: nn.Module, taken: dict[str, str]) -> dict[str, Any] | None:
    """A layer as a row; None where its output gives no features."""
    import torch

    layer, x = module.get_submodule(ran.name), torch.empty(ran.shape, device="meta")
    try:
        form = form_of(x, ran.name, layer, prefix_tokens(module))
    except UsageError:
        return None
    sides = [ran.shape[axis] for axis in form.axes]
    channels = next(n for axis, n in enumerate(ran.shape) if axis and axis not in form.axes)
    over = f" × {sides[0]} tokens" if form.kind == TOKENS else "".join(f" × {n}" for n in sides)
    stages, output = taken.get(ran.name), f"{channels}{over}"
    row = {"name": ran.name, "layer": ran.kind, "width": channels, "output": output}
    return {**row, "stages": stages}
