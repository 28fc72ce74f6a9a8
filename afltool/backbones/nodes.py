"""Features of nodes of a network, pooled and side by side.

Nodes are those of torch.fx, by `create_feature_extractor` of torchvision and timm: a layer, whose
last output counts, or an operation as their `get_graph_node_names` has it. What no node needs is
not computed. Square images give square maps, so the two equal axes are the positions; tokens are
``(n, t, d)``, of which the first (class token, registers) may stand for no position.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UsageError
from ..options.grammars import PENULTIMATE, STAGES, Node, refuse_twice
from .families import Slice, Source, entry, refused, source_of

MOST = 3  # stages that `stages` takes besides what enters the classifier
TOKENS = (1,)


def positions(x: Tensor, layer: nn.Module | None) -> tuple[int, ...] | None:
    """The axes of positions of a layer's output; () for rows, None for any other shape.

    Of d × d × d numbers a layer with convolutions has its channels first.
    """
    if x.ndim in (2, 3):
        return TOKENS[: x.ndim - 2]
    squares = [(k, k + 1) for k in (2, 1) if x.ndim == 4 and x.shape[k] == x.shape[k + 1]]
    convolves = layer is not None and any(isinstance(m, nn.Conv2d) for m in layer.modules())
    return squares[0] if len(squares) == 1 or (squares and convolves) else None


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
        super().__init__()
        nodes = _spelled_out(source, network, nodes, side)
        if any(node.name == PENULTIMATE for node in nodes):
            rows_of(network, classifier, source.name, side)
        places = _places(source, network, [node.name for node in nodes], classifier)
        self.extractor = _extractor(source, network, {places[node.name] for node in nodes})
        self.prefix, layers = prefix_tokens(network), dict(network.named_modules())
        found, self.slices = outputs(self.extractor, source.name, side), list[Slice]()
        self.how = list[tuple[str, Node, tuple[int, ...]]]()
        for node in nodes:
            x = found[places[node.name]]
            axes = axes_of(node, x, layers.get(node.name), self.prefix, source.name)
            dim = int(pooled(x, axes, node.pooling, self.prefix).shape[1])
            last = node.name == PENULTIMATE
            label = entry(classifier) if last else f"output of {node.name}"
            self.how.append((places[node.name], node, axes))
            self.slices.append(Slice(node.slice_name, label + _said(node, axes), dim, node.scale))

    def forward(self, x: Tensor) -> Tensor:
        found, rows = self.extractor(x), []
        for place, node, axes in self.how:
            part = pooled(found[place], axes, node.pooling, self.prefix)
            # A product with a power of two is exact.
            rows.append(part if node.scale == 1.0 else part * node.scale)
        return rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)


def axes_of(node: Node, x: Any, layer: nn.Module | None, prefix: int, name: str) -> tuple[int, ...]:
    """The axes over which the output of a node is pooled; () for rows. `UsageError`: none."""
    real = isinstance(x, Tensor) and x.is_floating_point()
    axes, wrong = positions(x, layer) if real else None, ""
    if axes is None or (axes == TOKENS and node.pooling is None):
        wrong = (
            "expected (n, d), or a map of d channels over s × s positions with d ≠ s, which is "
            "averaged; of tokens say what is taken: NODE:mean, NODE:max or NODE:token+mean"
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
    said = {"mean": "averaged", "max": "the maximum"}
    if words := [said[kind] for kind in kinds if kind in said]:
        parts.append(f"{' and '.join(words)} over {'tokens' if axes == TOKENS else 'positions'}")
    return ", " + " and ".join(parts) if parts else ""


def _traced(source: Source, network: nn.Module) -> list[str]:
    """The nodes of the traced graph, in the order they run."""
    try:
        with warnings.catch_warnings(action="ignore"):  # nodes of training differ, unused here
            return list(import_module(source.fx).get_graph_node_names(network)[1])
    # torch.fx runs the network on a stand-in for its input, which can fail in any way.
    except Exception as error:
        raise UsageError(
            f"{source.name} has no --node, since torch.fx cannot trace it: take the input of its "
            "classifier, or another backbone"
        ) from error


def _extractor(source: Source, network: nn.Module, nodes: Iterable[str]) -> nn.Module:
    """A network of the outputs of nodes of the traced graph, by their names."""
    with warnings.catch_warnings(action="ignore"):  # as in `_traced`
        create = import_module(source.fx).create_feature_extractor
        module: Any = create(network, {node: node for node in nodes})
    (output,) = module.eval_graph.find_nodes(op="output")
    copies = {}
    for name, node in output.args[0].items():  # which operations in place would overwrite
        with module.eval_graph.inserting_after(node):
            copies[name] = module.eval_graph.call_method("clone", (node,))
    output.args = (copies,)
    extractor: nn.Module = module.train().eval()  # compiles it
    return extractor


def _places(
    source: Source, network: nn.Module, names: Iterable[str], classifier: str | None
) -> dict[str, str]:
    """The node of the traced graph that gives the output of each name: of a layer its last one.

    So a layer and the last one in it, which have one output, can both be asked for.
    """
    traced = _traced(source, network)
    behind = traced.index(classifier) if classifier in traced else len(traced)
    places = {PENULTIMATE: traced[-1]}
    for name in names:
        inside = [k for k, one in enumerate(traced) if f"{one}.".startswith(f"{name}.")]
        if name in places:
            continue
        if not inside:
            raise UsageError(f"{source.name} has no node {name!r}: --list-nodes shows its layers")
        if inside[-1] >= behind:
            raise UsageError(
                f"--node {name} is or lies behind the classifier of {source.name}, {classifier}: "
                "take one before it, or no --node for what enters it."
            )
        places[name] = traced[inside[-1]]
    return places


def _spelled_out(
    source: Source, network: nn.Module, nodes: Sequence[Node], side: int
) -> list[Node]:
    """The nodes, with `STAGES` replaced by the nodes that it stands for."""
    each = ([n] if n.name != STAGES else stage_nodes(source, network, side, n) for n in nodes)
    listed = [node for several in each for node in several]
    refuse_twice([node.slice_name for node in listed])
    return listed


def stage_nodes(source: Source, network: nn.Module, side: int, node: Node) -> list[Node]:
    """The nodes of `stages`: the classifier's input, then the last stages, last one first.

    For maps: the `MOST` stages before the last, averaged; the last stage gives the classifier's
    input. For tokens: class token and mean of the blocks before the last; if the classifier gets
    only the class token, also the mean of the last block.
    """
    ends = source.stages(network)
    if len(ends) < 2:
        raise UsageError(
            f"no stages of {source.name} are known: name the nodes with --node (--list-nodes shows "
            "them)"
        )
    (last,) = outputs(_extractor(source, network, ends[-1:]), source.name, side).values()
    how = [(name, "mean" if last.ndim == 3 else None) for name in ends[-MOST - 1 : -1]]
    if last.ndim == 3 and prefix_tokens(network):
        how = [*((name, "token+mean") for name in ends[-MOST:-1]), (ends[-1], "mean")]
    chosen = [Node(name, node.pooling or pooling, node.scale) for name, pooling in reversed(how)]
    return [Node(PENULTIMATE), *chosen]


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
    """What the network makes of two images (2, d): what entered its classifier, or `UsageError`."""
    if classifier is None:
        raise UsageError(
            f"{name} has no linear layer, so no classifier: choose a layer with --node"
        )
    entered: list[Tensor] = []
    layer = dict(network.named_modules()).get(classifier or "?", nn.Identity())
    hook = layer.register_forward_pre_hook(lambda _, x: entered.append(x[0]))
    rows: Any = outputs(network, name, side)
    hook.remove()
    is_rows = isinstance(rows, Tensor) and rows.ndim == 2 and len(rows) == 2
    for x in entered[-1:] if is_rows else ():  # maps of one position are flattened behind it
        is_rows = x.shape[1] == rows.shape[1] and torch.equal(rows.flatten(), x.flatten())
    if not is_rows:
        raise UsageError(
            f"{name}: expected features (n, d) without its last linear layer, {classifier}, its "
            "classifier; the output is something else. Choose a layer with --node."
        )
    found: Tensor = rows
    return found


def list_nodes(name: str, side: int) -> list[dict[str, Any]]:
    """Each layer that gives features, in the order they run, then `PENULTIMATE`.

    ``layer`` is its class, ``width`` the features of one image once pooled, ``output`` channels and
    positions, or tokens.
    """
    source, rows = source_of(name), dict[str, dict[str, Any]]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network, classifier = source.network(side)
    network.eval()
    inside = tuple(f"{one}." for one in _traced(source, network))

    def note(path: str, layer: nn.Module, x: Any) -> None:
        axes = positions(x, layer) if isinstance(x, Tensor) and path not in rows else None
        if axes is None:
            return
        channels = next(n for axis, n in enumerate(x.shape) if axis and axis not in axes)
        over = "".join(f" × {x.shape[axis]}" for axis in axes) + " tokens" * (axes == TOKENS)
        row = {"name": path, "layer": type(layer).__name__, "width": channels}
        rows[path] = {**row, "output": f"{channels}{over}"}

    for path, layer in network.named_modules():
        if path != classifier and any(one.startswith(f"{path}.") for one in inside):
            layer.register_forward_hook(lambda m, _, x, path=path: note(path, m, x))
    width = int(rows_of(network, classifier, name, side).shape[1])
    last = {"name": PENULTIMATE, "layer": entry(classifier), "width": width, "output": str(width)}
    return [*rows.values(), last]
