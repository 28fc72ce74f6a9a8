"""The nodes of a network that give features: the input of its classifier, or nodes by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...options.grammars import PENULTIMATE, STAGES, Node, refuse_twice
from .slices import Place, Slice, form_of, outputs_of, poolings_of

if TYPE_CHECKING:
    from torch import Tensor, nn


# --- the classifier -------------------------------------------------------------------------------


def cut_classifier(module: nn.Module, name: str, required: bool = True) -> tuple[str | None, int]:
    """Replace the last linear layer (in module order) by the identity; its name and inputs.

    Raises `UsageError`: there is none, and it is ``required``.
    """
    from torch import nn

    linear = [(path, m) for path, m in module.named_modules() if isinstance(m, nn.Linear)]
    if not linear and not required:
        return None, 0
    if not linear:
        raise UsageError(
            f"{name} has no linear layer, so there is no layer whose input could be its features. "
            "Choose a layer with --node, or another backbone."
        )
    path, last = linear[-1]
    parent, _, attribute = path.rpartition(".")
    setattr(module.get_submodule(parent), attribute, nn.Identity())
    return path, last.in_features


def check_features(module: nn.Module, node: str, dim: int, name: str, image_size: int) -> None:
    """Refuse a network whose output is not the input of ``node``, as ``(n, dim)``."""
    import torch

    entered: list[Any] = []
    layer = module.get_submodule(node)
    hook = layer.register_forward_pre_hook(lambda _layer, inputs: entered.append(inputs[0]))
    what = f"{name} without its last linear layer, {node}, cannot run on"
    output = _try_out(module, what, image_size)
    hook.remove()
    is_tensor = isinstance(output, torch.Tensor)
    if not is_tensor or output.shape != (2, dim) or not torch.equal(output, entered[-1]):
        shape = tuple(output.shape) if is_tensor else type(output).__name__
        raise UsageError(
            f"{name}: expected its last linear layer, {node}, to be its classifier, with features "
            f"of shape (n, {dim}); without it the output is {shape}. Choose a layer with --node, "
            "or another backbone."
        )


def _probe(image_size: int) -> Tensor:
    import torch

    return torch.rand(2, 3, image_size, image_size, generator=torch.Generator().manual_seed(0))


def _try_out(module: Any, what: str, image_size: int) -> Any:
    import torch

    try:
        with torch.inference_mode():
            return module(_probe(image_size))
    except UsageError:
        raise
    # Networks refuse sizes by assertions, shape errors and more.
    except Exception as error:
        raise refused(what, image_size, error) from error


def refused(what: str, image_size: int, error: Exception) -> UsageError:
    """Why a network refuses images of this size, as one sentence."""
    reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
    return UsageError(
        f"{what} images of {image_size} × {image_size}: {reason}. "
        "Try another --image-size or backbone."
    )


# --- nodes by name --------------------------------------------------------------------------------


def cut_at(
    module: nn.Module, nodes: Sequence[Node], classifier: str | None, name: str, image_size: int
) -> tuple[nn.Module, list[Slice]]:
    """``module`` up to ``nodes``: a network of features ``(n, d)``, and the columns of each node.

    A node is the name of a module, such as ``layer3``, whose first output counts, or a node of the
    traced graph, as torchvision's `get_graph_node_names` prints them. Maps are averaged over
    positions unless the node says otherwise. ``classifier`` is the layer that was cut off, if any.

    Raises `UsageError`: no such node (near ones are listed), one that lies behind the classifier,
    or one whose output is no row of numbers per image.
    """
    nodes = _spelled_out(module, nodes, name, image_size)
    names = list(dict.fromkeys(node.name for node in nodes))
    traced = _traced(module, names, classifier, name)
    network = outputs_of(module, names, classifier, traced)
    layer = None if classifier is None else module.get_submodule(classifier)
    for node in names if traced else []:
        if node != PENULTIMATE:  # refused if it needs the classifier
            alone = outputs_of(module, [node], None, traced=True)
            _outputs_before(alone, [node], layer, name, image_size)
    raw = _outputs_before(network, names, None if traced else layer, name, image_size)
    network.places = [_place(module, node, raw[node.name], name) for node in nodes]
    return network, [place.slice_of(raw[place.node.name], classifier) for place in network.places]


def _spelled_out(
    module: nn.Module, nodes: Sequence[Node], name: str, image_size: int
) -> list[Node]:
    """The nodes, with `STAGES` replaced by the nodes that it stands for."""
    listed: list[Node] = []
    for node in nodes:
        staged = node.name == STAGES
        for one in stage_nodes(module, image_size, name, node.scale) if staged else [node]:
            if staged and node.pooling is not None and one.name != PENULTIMATE:
                one = replace(one, pooling=node.pooling)
            listed.append(one)
    refuse_twice([node.slice_name for node in listed])
    return listed


def _traced(module: nn.Module, names: Sequence[str], classifier: str | None, name: str) -> bool:
    """Whether some nodes exist only in the traced graph; `UsageError` for an unknown node."""
    modules = [path for path, _ in module.named_modules() if path]
    others = [n for n in names if n not in modules and n != PENULTIMATE]
    in_graph = _graph_nodes(module) if others else []
    if classifier in names:
        raise UsageError(
            f"--node {classifier} is the classifier of {name}: without --node the features are its "
            "input."
        )
    for node in others:
        if node not in in_graph:
            known = list(dict.fromkeys(modules + in_graph))
            near = get_close_matches(node, known, n=6, cutoff=0.4)
            near = near or [m for m in known if "." not in m][:6]
            raise UsageError(
                f"{name} has no node {node!r}: there are {len(known)}, such as {', '.join(near)}"
                f"{'' if in_graph else ' (layers only: it cannot be traced)'}."
            )
    return bool(others)


def _outputs_before(
    network: Any, names: Sequence[str], layer: nn.Module | None, name: str, image_size: int
) -> Mapping[str, Any]:
    """The nodes' outputs for a probe; `UsageError` for a node that never runs.

    ``layer``: the classifier. A node is before it if it has run when the classifier starts.
    """
    before: list[list[str]] = []
    with ExitStack() as hooks:
        if layer is not None:
            note = layer.register_forward_pre_hook(lambda *_: before.append(network.catch.so_far()))
            hooks.callback(note.remove)
        what = f"{name} up to {', '.join(names)} cannot run on"
        raw: Mapping[str, Any] = _try_out(network.outputs, what, image_size)
    for node in names:
        if node not in raw:
            raise UsageError(f"--node {node} is a layer that the network does not run.")
        if before and node != PENULTIMATE and node not in before[0]:
            where = next((f", {k}" for k, m in network.network.named_modules() if m is layer), "")
            raise UsageError(
                f"--node {node} lies behind the classifier of {name}{where}; take one before it."
            )
    return raw


def _place(module: nn.Module, node: Node, raw: Any, name: str) -> Place:
    """How a node's output becomes columns."""
    import torch

    what = f"--node {node.name} of {name}"
    if not isinstance(raw, torch.Tensor) or not raw.is_floating_point():
        raise UsageError(f"{what} gives {type(raw).__name__}, not a tensor of real numbers.")
    layer = dict(module.named_modules()).get(node.name)
    form = form_of(raw, what, layer, prefix_tokens(module))
    return Place(node, form, poolings_of(form, node.pooling, what, tuple(raw.shape)))


def _graph_nodes(module: nn.Module) -> list[str]:
    """Nodes of the network in eval mode; none where torch.fx cannot trace it."""
    import warnings

    from torchvision.models.feature_extraction import get_graph_node_names

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(get_graph_node_names(module, suppress_diff_warning=True)[1])
    # torch.fx runs the network on a stand-in for its input, which can fail in any way.
    except Exception:
        return []


# --- the ends of stages ---------------------------------------------------------------------------
# A trunk is the container whose children give the most stages when the network runs. Successive
# children whose maps have one width and resolution form one stage, and the last of them ends it; a
# child without weights (such as a pooling) does not count. A transformer's tokens keep their shape,
# so each of its blocks is a stage.

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
    times: Counter[str] = Counter()

    def note(name: str, layer: nn.Module, output: Any) -> None:
        times[name] += 1
        if name not in first and isinstance(output, torch.Tensor) and output.is_floating_point():
            weights, parts = any(True for _ in layer.parameters()), any(layer.children())
            first[name] = Ran(name, type(layer).__name__, tuple(output.shape), weights, parts)

    with ExitStack() as hooks, torch.inference_mode():
        for name, layer in module.named_modules():
            if name:
                hook = layer.register_forward_hook(lambda m, _i, o, n=name: note(n, m, o))
                hooks.callback(hook.remove)
        module(_probe(image_size))
    return [replace(ran, times=times[ran.name]) for ran in first.values()]


def _stage_ends(module: nn.Module, image_size: int, what: str) -> list[Ran]:
    """The layers that end the stages of a network, from its input to its classifier."""
    by_parent: dict[str, list[Ran]] = {}
    for ran in layers_run(module, image_size):
        if ran.times == 1 and len(ran.shape) in (3, 4) and ran.shape[0] == 2:
            by_parent.setdefault(ran.name.rpartition(".")[0], []).append(ran)
    parents = sorted(by_parent, key=lambda name: name.count(".") + bool(name))
    ends = max((_ends(by_parent[parent]) for parent in parents), key=len, default=[])
    if len(ends) < 2:
        raise UsageError(
            f"no stages were found in {what}: name the nodes with --node (--list-nodes shows them)"
        )
    return ends


def _ends(siblings: list[Ran]) -> list[Ran]:
    """Blocks that give tokens; without any the last of each group with maps of one extent."""
    blocks = [one for one in siblings if len(one.shape) == 3 and one.weights and one.parts]
    if blocks:
        return [one for one in blocks if one.shape == blocks[-1].shape]
    maps = [one for one in siblings if len(one.shape) == 4]
    # Channels and sides of a map, with channels first or last.
    groups = [list(group) for _, group in groupby(maps, lambda ran: sorted(ran.shape[1:]))]
    return [group[-1] for group in groups if any(one.weights for one in group)]


def stage_nodes(module: nn.Module, image_size: int, what: str, scale: float = 1.0) -> list[Node]:
    """The nodes of `stages`: the classifier's input, then the last stages, last one first.

    For maps: the `MOST` stages before the last, averaged; the last stage gives the classifier's
    input. For tokens: class token and mean of the blocks before the last; if the classifier gets
    only the class token, also the mean of the last block.

    Raises `UsageError`: fewer than two stages.
    """
    ends = _stage_ends(module, image_size, what)
    tokens = len(ends[-1].shape) == 3
    if tokens and prefix_tokens(module):
        chosen = [Node(one.name, "token+mean", scale) for one in ends[-MOST:-1]]
        chosen.append(Node(ends[-1].name, "mean", scale))
    else:
        pooling = "mean" if tokens else None
        chosen = [Node(one.name, pooling, scale) for one in ends[-MOST - 1 : -1]]
    return [Node(PENULTIMATE), *reversed(chosen)]


def prefix_tokens(module: nn.Module) -> int:
    """The number of tokens without a position: the class token and others, such as registers."""
    number = getattr(module, "num_prefix_tokens", None)
    return number if isinstance(number, int) else int(hasattr(module, "class_token"))
