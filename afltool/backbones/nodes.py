"""Features of nodes of a network, pooled and side by side.

Nodes are those of torch.fx, by `create_feature_extractor` of torchvision and timm: a layer, whose
last output counts, or an operation as their `get_graph_node_names` has it. What no node needs is
not computed. Square images give square maps, so the two equal axes are the positions; tokens are
``(n, t, d)``, of which the first (class token, registers) may stand for no position.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UsageError
from ..options.grammars import PENULTIMATE, STAGES, Node, refuse_twice
from .families import Slice, Source, entry, refused

MOST = 3  # stages that `stages` takes besides what enters the classifier
TOKENS = (1,)


@dataclass(frozen=True, eq=False)
class Cut:
    """A network without its ``classifier``, which is called so, for images of one ``side``."""

    source: Source
    network: nn.Module
    classifier: str
    side: int

    def run(self, module: nn.Module) -> Any:
        """What the network, or an extractor of it, makes of two images. `UsageError`: it cannot."""
        generator = torch.Generator().manual_seed(0)
        x = torch.rand(2, 3, self.side, self.side, generator=generator)
        try:
            with torch.inference_mode():
                return module(x)
        # Networks refuse sizes by assertions, shape errors and more.
        except Exception as error:
            raise refused(f"{self.source.name} cannot run on", self.side, error) from error

    def width(self) -> int:
        """The number of features that enter the classifier, which the output is; `UsageError`."""
        entered: list[Tensor] = []
        layer = dict(self.network.named_modules()).get(self.classifier or "?", nn.Identity())
        hook = layer.register_forward_pre_hook(lambda _, x: entered.append(x[0]))
        rows = self.run(self.network)
        hook.remove()
        if not (isinstance(rows, Tensor) and rows.ndim == 2) or any(
            x.shape[:2] != rows.shape or not torch.equal(x.flatten(1), rows) for x in entered[-1:]
        ):
            raise UsageError(
                f"{self.source.name}: expected features (n, d) without its last linear layer, "
                f"{self.classifier}, its classifier; the output is something else. Choose a layer "
                "with --node."
            )
        return int(rows.shape[1])

    @cached_property
    def ends(self) -> dict[str, str]:
        """The node of the traced graph that ends each layer, and each node, as they run.

        So a layer and the last one in it, which have one output, can both be asked for.
        """
        try:
            with warnings.catch_warnings(action="ignore"):  # nodes of training differ, unused here
                traced = import_module(self.source.fx).get_graph_node_names(self.network)[1]
        # torch.fx runs the network on a stand-in for its input, which can fail in any way.
        except Exception as error:
            raise UsageError(
                f"{self.source.name} has no --node, since torch.fx cannot trace it: take the input "
                "of its classifier, or another backbone"
            ) from error
        found = dict[str, str]()
        for node in traced:
            name = node
            while name:
                found.pop(name, None)
                found[name], name = node, name.rpartition(".")[0]
        return {**found, PENULTIMATE: traced[-1]}

    def place(self, name: str) -> str:
        """The node of the traced graph that gives the output of what ``--node`` names."""
        layers = [one for one, _ in self.network.named_modules() if one in self.ends]
        if name not in self.ends:
            raise UsageError(
                f"{self.source.name} has no node {name!r}: its layers are {', '.join(layers)}"
            )
        if name in layers and self.ends[name] == name and re.search(r"_\d+$", name):
            raise UsageError(  # the libraries cut numbers off, and then count such layers anew
                f"--node {name}: torch.fx may call another layer so; take the one around it"
            )
        order = [*self.ends.values()]
        behind = self.ends.get(self.classifier)
        if name != PENULTIMATE and behind and order.index(self.ends[name]) >= order.index(behind):
            raise UsageError(
                f"--node {name} is or lies behind the classifier of {self.source.name}, "
                f"{self.classifier}: take one before it, or no --node for what enters it."
            )
        return self.ends[name]

    def extractor(self, nodes: Iterable[str]) -> nn.Module:
        """A network of the outputs of nodes of the traced graph, by their names."""
        with warnings.catch_warnings(action="ignore"):  # as in `ends`
            create = import_module(self.source.fx).create_feature_extractor
            module: Any = create(self.network, {node: node for node in nodes})
        (output,) = module.eval_graph.find_nodes(op="output")
        copies = {}
        for name, node in output.args[0].items():  # which operations in place would overwrite
            with module.eval_graph.inserting_after(node):
                copies[name] = module.eval_graph.call_function(_copied, (node,))
        output.args = (copies,)
        extractor: nn.Module = module.train().eval()  # compiles it
        return extractor

    def stages(self, node: Node) -> list[Node]:
        """The nodes of `stages`: the classifier's input, then the last stages, last one first.

        For maps: the `MOST` stages before the last, averaged; the last stage gives the classifier's
        input. For tokens: class token and mean of the blocks before the last; if the classifier
        gets only the class token, also the mean of the last block.
        """
        ends = self.source.stages(self.network)
        if len(ends) < 2:
            raise UsageError(
                f"no stages of {self.source.name} are known: name layers (--node ? lists them)"
            )
        (last,) = self.run(self.extractor(ends[-1:])).values()
        how = [(name, "mean" if last.ndim == 3 else None) for name in ends[-MOST - 1 : -1]]
        if last.ndim == 3 and prefix_tokens(self.network):
            how = [*((name, "token+mean") for name in ends[-MOST:-1]), (ends[-1], "mean")]
        taken = [Node(name, node.pooling or pooling, node.scale) for name, pooling in reversed(how)]
        return [Node(PENULTIMATE), *taken]


def _copied(x: Any) -> Any:
    return x.clone() if isinstance(x, Tensor) else x


class Intermediates(nn.Module):
    """(n, 3, s, s) → the features of some nodes (n, d), side by side; ``slices`` describes them."""

    def __init__(self, cut: Cut, nodes: Sequence[Node]) -> None:
        super().__init__()
        each = ([n] if n.name != STAGES else cut.stages(n) for n in nodes)
        nodes = [node for several in each for node in several]
        refuse_twice([node.slice_name for node in nodes])
        if any(node.name == PENULTIMATE for node in nodes):
            cut.width()
        places = [cut.place(node.name) for node in nodes]
        self.extractor = cut.extractor(places)
        self.prefix, layers = prefix_tokens(cut.network), dict(cut.network.named_modules())
        found, self.slices = cut.run(self.extractor), list[Slice]()
        self.how = list[tuple[str, Node, tuple[int, ...]]]()
        for place, node in zip(places, nodes, strict=True):
            x = found[place]
            axes = get_pooled_axes(node, x, layers.get(node.name), self.prefix, cut.source.name)
            dim = int(pool(x, axes, node.pooling, self.prefix).shape[1])
            last = node.name == PENULTIMATE
            label = entry(cut.classifier) if last else f"output of {node.name}"
            self.how.append((place, node, axes))
            self.slices.append(
                Slice(node.slice_name, label + _pooling_suffix(node, axes), dim, node.scale)
            )

    def forward(self, x: Tensor) -> Tensor:
        found, rows = self.extractor(x), []
        for place, node, axes in self.how:
            part = pool(found[place], axes, node.pooling, self.prefix)
            # A product with a power of two is exact.
            rows.append(part if node.scale == 1.0 else part * node.scale)
        return rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)


def positions(x: Any, layer: nn.Module | None) -> tuple[int, ...] | None:
    """The axes of positions of a layer's output; () for rows, None for anything else.

    Of d × d × d numbers a layer with convolutions has its channels first.
    """
    if not (isinstance(x, Tensor) and x.is_floating_point()):
        return None
    if x.ndim in (2, 3):
        return TOKENS[: x.ndim - 2]
    squares = [(k, k + 1) for k in (2, 1) if x.ndim == 4 and x.shape[k] == x.shape[k + 1]]
    convolves = layer is not None and any(isinstance(m, nn.Conv2d) for m in layer.modules())
    return squares[0] if len(squares) == 1 or (squares and convolves) else None


def get_pooled_axes(
    node: Node, x: Any, layer: nn.Module | None, prefix: int, name: str
) -> tuple[int, ...]:
    """The axes over which the output of a node is pooled; () for rows. `UsageError`: none."""
    axes, real, wrong = positions(x, layer), isinstance(x, Tensor), ""
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
        shape = f"the shape (n, {', '.join(map(str, x.shape[1:]))})" if real else str(type(x))
        raise UsageError(f"--node {node.name} of {name} gives {shape}; {wrong}.")
    return axes


def pool(x: Tensor, axes: tuple[int, ...], pooling: str | None, prefix: int = 0) -> Tensor:
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


def _pooling_suffix(node: Node, axes: tuple[int, ...]) -> str:
    """The pooling in words, to append to the name of the output; '' for rows."""
    if not axes:
        return ""
    kinds, said = (node.pooling or "mean").split("+"), {"mean": "averaged", "max": "the maximum"}
    over = f"over {'tokens' if axes == TOKENS else 'positions'}"
    words = " and ".join(said[kind] for kind in kinds if kind in said)
    parts = ["class token"] * ("token" in kinds) + [f"{words} {over}"] * bool(words)
    return ", " + " and ".join(parts)


def prefix_tokens(network: nn.Module) -> int:
    """The number of tokens without a position: the class token and others, such as registers."""
    number = getattr(network, "num_prefix_tokens", None)
    return number if isinstance(number, int) else int(hasattr(network, "class_token"))
