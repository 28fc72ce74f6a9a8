"""The last layers of a network's stages, found by running it once; for any family of networks.

A trunk is the container whose children give the most stages when the network runs. Successive
children whose maps have one width and resolution form one stage, and the last of them ends it; a
child without weights (such as a pooling) does not count. A transformer's tokens keep their shape,
so each of its blocks is a stage.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...options.nodes import PENULTIMATE, Node

if TYPE_CHECKING:
    from torch import nn

MOST = 3  # stages that `stages` takes besides what enters the classifier


@dataclass(frozen=True)
class Ran:
    """A layer that ran ``times`` times; ``shape`` of its first output, ``parts``: layers inside."""

    name: str
    kind: str
    shape: tuple[int, ...]
    weights: bool
    parts: bool
    times: int = 1


def layers_run(module: nn.Module, image_size: int) -> list[Ran]:
    """The layers of a network that give a tensor of real numbers, in the order they finish."""
    import torch

    first: dict[str, Ran] = {}
    times: dict[str, int] = {}

    def note(name: str, layer: nn.Module, output: Any) -> None:
        times[name] = times.get(name, 0) + 1
        if name not in first and isinstance(output, torch.Tensor) and output.is_floating_point():
            weights, parts = any(True for _ in layer.parameters()), any(layer.children())
            first[name] = Ran(name, type(layer).__name__, tuple(output.shape), weights, parts)

    probe = torch.rand(2, 3, image_size, image_size, generator=torch.Generator().manual_seed(0))
    with ExitStack() as hooks, torch.inference_mode():
        for name, layer in module.named_modules():
            if name:
                hook = layer.register_forward_hook(lambda m, _i, o, n=name: note(n, m, o))
                hooks.callback(hook.remove)
        module(probe)
    return [replace(ran, times=times[ran.name]) for ran in first.values()]


def stage_ends(module: nn.Module, image_size: int, what: str) -> list[Ran]:
    """The layers that end the stages of a network, from its input to its classifier.

    Raises `UsageError`: fewer than two.
    """
    by_parent: dict[str, list[Ran]] = {}
    for ran in layers_run(module, image_size):
        if ran.times == 1 and len(ran.shape) in (3, 4) and ran.shape[0] == 2:
            by_parent.setdefault(ran.name.rpartition(".")[0], []).append(ran)
    found: list[Ran] = []
    for parent in sorted(by_parent, key=lambda name: name.count(".") + bool(name)):
        ends = _ends(by_parent[parent])
        found = ends if len(ends) > len(found) else found
    if len(found) < 2:
        raise UsageError(
            f"no stages were found in {what}: name the nodes with --node (--list-nodes shows them)"
        )
    return found


def _ends(siblings: list[Ran]) -> list[Ran]:
    """Blocks that give tokens; without any the last of each group with maps of one extent."""
    blocks = [one for one in siblings if len(one.shape) == 3 and one.weights and one.parts]
    if blocks:
        return [one for one in blocks if one.shape == blocks[-1].shape]
    maps = [one for one in siblings if len(one.shape) == 4]
    groups = [list(group) for _, group in groupby(maps, _extent)]
    return [group[-1] for group in groups if any(one.weights for one in group)]


def _extent(ran: Ran) -> tuple[int, ...]:
    """Channels and sides of a map, with channels first or last."""
    return tuple(sorted(ran.shape[1:]))


def stage_nodes(
    module: nn.Module, image_size: int, prefix: int, what: str, scale: float = 1.0
) -> list[Node]:
    """The nodes of `stages`: the classifier's input, then the last stages, last one first.

    For maps: the `MOST` stages before the last, averaged; the last stage gives the classifier's
    input. For tokens: class token and mean of the blocks before the last; if the classifier gets
    only the class token, also the mean of the last block.
    """
    ends = stage_ends(module, image_size, what)
    tokens = len(ends[-1].shape) == 3
    if not tokens:
        chosen = [Node(one.name, None, scale) for one in ends[-MOST - 1 : -1]]
    elif prefix:
        chosen = [Node(one.name, "token+mean", scale) for one in ends[-MOST:-1]]
        chosen.append(Node(ends[-1].name, "mean", scale))
    else:
        chosen = [Node(one.name, "mean", scale) for one in ends[-MOST - 1 : -1]]
    return [Node(PENULTIMATE), *reversed(chosen)]


def prefix_tokens(module: nn.Module) -> int:
    """The number of tokens without a position: the class token and others, such as registers."""
    number = getattr(module, "num_prefix_tokens", None)
    if isinstance(number, int):
        return number
    return int(hasattr(module, "class_token"))
