"""Features of nodes of a network, pooled and side by side.

Nodes are those of torch.fx, by `create_feature_extractor` of torchvision and timm: a layer, whose
first output counts, or an operation as their `get_graph_node_names` has it. What no node needs is
not computed. Square images give square maps, so the two equal axes are the positions; tokens are
``(n, t, d)``, of which the first (class token, registers) may stand for no position.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UsageError
from ..options.grammars import PENULTIMATE, STAGES, Node, refuse_twice
from .families import Slice, Source, refused, source_of

MOST = 3  # stages that `stages` takes besides what enters the classifier
SAID = {"mean": "averaged", "max": "the maximum"}
TOKENS = (1,)


def positions(x: Tensor, layer: nn.Module | None = None) -> tuple[int, ...] | None:
    """The axes of positions of a layer's output; () for rows, None for any other shape.

    ``layer``: its convolutions decide which axis has the channels if the shape does not.
    """
    shape = tuple(x.shape)
    if x.ndim in (2, 3):
        return TOKENS[: x.ndim - 2]
    convolves = layer is not None and any(isinstance(m, nn.Conv2d) for m in layer.modules())
    if x.ndim == 4 and shape[2] == shape[3] and (shape[1] != shape[3] or convolves):
        return (2, 3)
    return (1, 2) if x.ndim == 4 and shape[1] == shape[2] != shape[3] else None


def pooled(x: Tensor, axes: tuple[int, ...], pooling: str | None, prefix: int = 0) -> Tensor:
    """``(n, d)`` from a layer's output; several poolings are put side by side."""
    if not axes:
        return x.float()
    places = x[:, prefix:] if axes == TOKENS else x
    how = {
        "token": lambda: x[:, 0],
        "mean": lambda: places.mean(dim=axes),
        "max": lambda: places.amax(dim=axes),
    }
    return torch.cat([how[kind]().float() for kind in (pooling or "mean").split("+")], dim=1)


def prefix_tokens(network: nn.Module) -> int:
    """The number of tokens without a position: the class token and others, such as registers."""
    number = getattr(network, "num_prefix_tokens", None)
    return number if isinstance(number, int) else int(hasattr(network, "class_token"))


class Intermediates(nn.Module):
    """(n, 3, s, s) → the features of some nodes (n, d), side by side; ``slices`` describes them."""

    def __init__(
        self,
        source: Source,
        network: nn.Module,
        nodes: Sequence[Node],
        classifier: str | None,
        side: int,
    ) -> None:
        """Raises `UsageError`: no such node (near ones are listed), one that lies behind the
        classifier, or one whose output is no row of numbers per image."""
        super().__init__()
        nodes = _spelled_out(source, network, nodes, side)
        if any(node.name == PENULTIMATE for node in nodes):
            rows_of(network, classifier, source.name, side)
        places = _places(source, network, [node.name for node in nodes], classifier)
        self.extractor = source.extractor(network, places)
        self.prefix, layers = prefix_tokens(network), dict(network.named_modules())
        found, self.slices = outputs(self.extractor, source.name, side), list[Slice]()
        self.how = list[tuple[Node, tuple[int, ...]]]()
        for node in nodes:
            x, last = found[node.name], node.name == PENULTIMATE
            axes = axes_of(node, x, layers.get(node.name), self.prefix, source.name)
            dim = int(pooled(x, axes, node.pooling, self.prefix).shape[1])
            label = source.entry(classifier) if last else f"output of {node.name}"
            self.how.append((node, axes))
            self.slices.append(Slice(node.slice_name, label + _said(node, axes), dim, node.scale))

    def forward(self, x: Tensor) -> Tensor:
        found, rows = self.extractor(x), []
        for node, axes in self.how:
            part = pooled(found[node.name], axes, node.pooling, self.prefix)
            # A product with a power of two is exact.
            rows.append(part if node.scale == 1.0 else part * node.scale)
        return rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)


def axes_of(node: Node, x: Any, layer: nn.Module | None, prefix: int, name: str) -> tuple[int, ...]:
    """The axes over which the output of a node is pooled; () for rows.

    Raises `UsageError`: an output of no features, or one that does not have this pooling.
    """
    real = isinstance(x, Tensor) and x.is_floating_point()
    axes, wrong = positions(x, layer) if real else None, ""
    if axes is None or (axes == TOKENS and node.pooling is None):
        wrong = (
            "expected (n, d), or a map of d channels over s × s positions with d ≠ s, which is "
            "averaged. For tokens, say what is taken: NODE:mean, NODE:max or, of networks with a "
            "class token, NODE:token+mean. Or take another node"
        )
    elif not axes and node.pooling:
        wrong = "there is nothing to pool"
    elif "token" in (node.pooling or "") and not (axes == TOKENS and prefix):
        wrong = "it has no class token"
    if axes is None or wrong:
        shape = f"the shape (n, {', '.join(map(str, x.shape[1:]))})" if real else type(x).__name__
        raise UsageError(f"--node {node.name} of {name} gives {shape}; {wrong}.")
    return axes


def _said(node: Node, axes: tuple[int, ...]) -> str:
    """The pooling in words, to append to the name of the output; '' for rows."""
    kinds = (node.pooling or "mean").split("+") if axes else []
    parts = ["class token"] * ("token" in kinds)
    if words := [SAID[kind] for kind in kinds if kind in SAID]:
        parts.append(f"{' and '.join(words)} over {'tokens' if axes == TOKENS else 'positions'}")
    return ", " + " and ".join(parts) if parts else ""


def _places(
    source: Source, network: nn.Module, names: Sequence[str], classifier: str | None
) -> dict[str, str]:
    """The nodes of the traced graph, each with the name that it is asked for by."""
    traced = source.nodes(network)
    behind = traced.index(classifier) if classifier in traced else len(traced)
    known, places = layers_of(traced), dict[str, str]()
    for name in dict.fromkeys(names):
        if name == PENULTIMATE:
            places[traced[-1]] = name
            continue
        if name not in known:
            near = get_close_matches(name, known, n=6, cutoff=0.4)
            near = near or [one for one in known if "." not in one][:6]
            raise UsageError(
                f"{source.name} has no node {name!r}: there are {len(known)}, such as "
                f"{', '.join(near)}."
            )
        if max(k for k, one in enumerate(traced) if f"{one}.".startswith(f"{name}.")) >= behind:
            raise UsageError(
                f"--node {name} is or lies behind the classifier of {source.name}, {classifier}: "
                "take one before it, or no --node for what enters it."
            )
        places[name] = name
    return places


def layers_of(traced: Sequence[str]) -> list[str]:
    """The nodes and the layers that they are in."""
    parts = [name.split(".") for name in traced]
    return list(dict.fromkeys(".".join(p[: k + 1]) for p in parts for k in range(len(p))))


def _spelled_out(
    source: Source, network: nn.Module, nodes: Sequence[Node], side: int
) -> list[Node]:
    """The nodes, with `STAGES` replaced by the nodes that it stands for."""
    listed: list[Node] = []
    for node in nodes:
        staged = node.name == STAGES
        for one in stage_nodes(source, network, side, node.scale) if staged else [node]:
            own = staged and node.pooling and one.name != PENULTIMATE
            listed.append(replace(one, pooling=node.pooling) if own else one)
    refuse_twice([node.slice_name for node in listed])
    return listed


def stage_nodes(source: Source, network: nn.Module, side: int, scale: float = 1.0) -> list[Node]:
    """The nodes of `stages`: the classifier's input, then the last stages, last one first.

    For maps: the `MOST` stages before the last, averaged; the last stage gives the classifier's
    input. For tokens: class token and mean of the blocks before the last; if the classifier gets
    only the class token, also the mean of the last block.

    Raises `UsageError`: fewer than two stages are known.
    """
    ends = source.stages(network)
    if len(ends) < 2:
        raise UsageError(
            f"no stages of {source.name} are known: name the nodes with --node (--list-nodes shows "
            "them)"
        )
    last = outputs(source.extractor(network, {ends[-1]: STAGES}), source.name, side)[STAGES]
    if last.ndim == 3 and prefix_tokens(network):
        chosen = [Node(name, "token+mean", scale) for name in ends[-MOST:-1]]
        chosen.append(Node(ends[-1], "mean", scale))
    else:
        pooling = "mean" if last.ndim == 3 else None
        chosen = [Node(name, pooling, scale) for name in ends[-MOST - 1 : -1]]
    return [Node(PENULTIMATE), *reversed(chosen)]


def outputs(network: nn.Module, name: str, side: int) -> Any:
    """What the network makes of two images. Raises `UsageError`: it refuses them."""
    x = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    try:
        with torch.inference_mode():
            return network(x)
    # Networks refuse sizes by assertions, shape errors and more.
    except Exception as error:
        raise refused(f"{name} cannot run on", side, error) from error


def rows_of(network: nn.Module, classifier: str | None, name: str, side: int) -> Tensor:
    """What the network makes of two images (2, d): what entered its classifier.

    Raises `UsageError`: there is no classifier, or something else comes out.
    """
    if classifier is None:
        raise UsageError(
            f"{name} has no linear layer, so no classifier: choose a layer with --node"
        )
    entered: list[Tensor] = []
    layer = dict(network.named_modules()).get(classifier or "?")
    if layer is not None:
        hook = layer.register_forward_pre_hook(lambda _, x: entered.append(x[0]))
    rows = outputs(network, name, side)
    if layer is not None:
        hook.remove()
    is_rows = isinstance(rows, Tensor) and rows.ndim == 2 and len(rows) == 2
    for x in entered[-1:] if is_rows else ():  # maps of one position are flattened behind it
        is_rows = x.shape[1] == rows.shape[1] and torch.equal(rows.flatten(), x.flatten())
    if not is_rows:
        raise UsageError(
            f"{name}: expected its last linear layer, {classifier}, to be its classifier, with "
            "features of shape (n, d); without it the output is something else. Choose a layer "
            "with --node, or another backbone."
        )
    found: Tensor = rows
    return found


# --- the list of nodes ----------------------------------------------------------------------------


def list_nodes(name: str, side: int) -> list[dict[str, Any]]:
    """Each layer that gives features, in the order they run, then `PENULTIMATE`.

    Raises `UsageError`: an unknown backbone, or one that refuses the size.
    """
    source = source_of(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network, classifier = source.network(side)
    network.eval()
    known = {*layers_of(source.nodes(network))} - {classifier}
    rows: dict[str, dict[str, Any]] = {}

    def note(path: str, layer: nn.Module, x: Any) -> None:
        axes = positions(x, layer) if isinstance(x, Tensor) and path not in rows else None
        if axes is None:
            return
        channels = next(n for axis, n in enumerate(x.shape) if axis and axis not in axes)
        over = "".join(f" × {x.shape[axis]}" for axis in axes) + " tokens" * (axes == TOKENS)
        row = {"name": path, "layer": type(layer).__name__, "width": channels}
        rows[path] = {**row, "output": f"{channels}{over}"}

    for path, layer in network.named_modules():
        if path in known:
            layer.register_forward_hook(lambda m, _, x, path=path: note(path, m, x))
    width, taken = rows_of(network, classifier, name, side).shape[1], dict[str, str]()
    with suppress(UsageError):  # no stages are known
        taken = {one.name: one.slice_name for one in stage_nodes(source, network, side)}
    last = {"name": PENULTIMATE, "layer": source.entry(classifier), "width": width}
    listed = [*rows.values(), {**last, "output": str(width)}]
    return [
        {**row, "stages": taken.get(row["name"]), "place": f"{k} of {len(listed)}"}
        for k, row in enumerate(listed, 1)
    ]
