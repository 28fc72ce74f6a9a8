"""The nodes of a network that give features: the input of its classifier, or nodes by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...options.nodes import PENULTIMATE, STAGES, Node, refuse_twice
from .pooling import form_of, poolings_of, said
from .slices import Place, Slice, outputs_of
from .stages import prefix_tokens, stage_nodes

if TYPE_CHECKING:
    from torch import Tensor, nn


# --- the classifier -------------------------------------------------------------------------------


def cut_classifier(module: nn.Module, name: str) -> tuple[str, int]:
    """Replace the last linear layer (in module order) by the identity; its name and inputs.

    Raises `UsageError`: there is none.
    """
    from torch import nn

    linear = [(path, m) for path, m in module.named_modules() if isinstance(m, nn.Linear)]
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

    with _entering(module.get_submodule(node), lambda inputs: inputs[0]) as entered:
        output = _try_out(
            module, f"{name} without its last linear layer, {node}, cannot run on", image_size
        )
    is_tensor = isinstance(output, torch.Tensor)
    if not is_tensor or output.shape != (2, dim) or not torch.equal(output, entered[-1]):
        found = tuple(output.shape) if is_tensor else type(output).__name__
        raise UsageError(
            f"{name}: expected its last linear layer, {node}, to be its classifier, with features "
            f"of shape (n, {dim}); without it the output is {found}. Choose a layer with --node, "
            "or another backbone."
        )


@contextmanager
def _entering(layer: nn.Module | None, note: Callable[[Any], Any]) -> Iterator[list[Any]]:
    """A list that gets ``note(inputs)`` each time that ``layer`` runs inside the block."""
    entered: list[Any] = []
    if layer is None:
        yield entered
        return
    hook = layer.register_forward_pre_hook(lambda _layer, inputs: entered.append(note(inputs)))
    try:
        yield entered
    finally:
        hook.remove()


def _try_out(module: nn.Module, what: str, image_size: int) -> Any:
    import torch

    probe = torch.rand(2, 3, image_size, image_size, generator=torch.Generator().manual_seed(0))
    try:
        with torch.inference_mode():
            return module(probe)
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
    if traced:
        for node in names:
            _refuse_behind(module, node, layer, name, image_size)
        layer = None
    raw = _outputs_before(network, names, layer, name, image_size)
    network.places = [_place(module, node, raw[node.name], name) for node in nodes]
    return network, [_slice(place, raw[place.node.name], classifier) for place in network.places]


def _refuse_behind(
    module: nn.Module, node: str, layer: nn.Module | None, name: str, image_size: int
) -> None:
    """Refuse a node of the traced graph that needs the classifier."""
    if node != PENULTIMATE:
        alone = outputs_of(module, [node], None, traced=True)
        _outputs_before(alone, [node], layer, name, image_size)


def _spelled_out(
    module: nn.Module, nodes: Sequence[Node], name: str, image_size: int
) -> list[Node]:
    """The nodes, with `STAGES` replaced by the nodes that it stands for."""
    found: list[Node] = []
    for node in nodes:
        if node.name != STAGES:
            found.append(node)
            continue
        prefix = prefix_tokens(module)
        for one in stage_nodes(module, image_size, prefix, name, node.scale):
            pooling = one.pooling if node.pooling is None else node.pooling
            found.append(one if one.name == PENULTIMATE else replace(one, pooling=pooling))
    refuse_twice([node.slice_name for node in found])
    return found


def _traced(module: nn.Module, names: Sequence[str], classifier: str | None, name: str) -> bool:
    """Whether some nodes exist only in the traced graph; `UsageError` for an unknown node."""
    modules = [path for path, _ in module.named_modules() if path]
    others = [n for n in names if n not in modules and n != PENULTIMATE]
    in_graph = _graph_nodes(module) if others else []
    for node in names:
        if node == classifier:
            raise UsageError(
                f"--node {node} is the classifier of {name}: without --node the features are its "
                "input."
            )
        if node in others and node not in in_graph:
            raise _unknown(node, name, modules, in_graph)
    return bool(others)


def _outputs_before(
    network: Any, names: Sequence[str], layer: nn.Module | None, name: str, image_size: int
) -> Mapping[str, Any]:
    """The nodes' outputs for a probe; `UsageError` for a node that never runs.

    ``layer``: the classifier. A node is before it if it has run when the classifier starts.
    """
    what = f"{name} up to {', '.join(names)} cannot run on"
    with _entering(layer, lambda _: network.catch.so_far()) as before:
        raw: Mapping[str, Any] = _try_out(network.outputs, what, image_size)
    where = next((f", {k}" for k, m in network.network.named_modules() if m is layer), "")
    for node in names:
        if node not in raw:
            raise UsageError(f"--node {node} is a layer that the network does not run.")
        if before and node != PENULTIMATE and node not in before[0]:
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
    layers = dict(module.named_modules())
    form = form_of(raw, what, layers.get(node.name), prefix_tokens(module))
    return Place(node, form, poolings_of(form, node.pooling, what, tuple(raw.shape)))


def _slice(place: Place, raw: Tensor, classifier: str | None) -> Slice:
    """The columns of a place, for an output like ``raw``."""
    node = place.node
    what = f"input of {classifier}" if node.name == PENULTIMATE else f"output of {node.name}"
    label = what + said(place.form, place.poolings)
    return Slice(node.slice_name, label, int(place.columns(raw).shape[1]), node.scale)


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


def _unknown(node: str, name: str, modules: list[str], in_graph: list[str]) -> UsageError:
    names = list(dict.fromkeys(modules + in_graph))
    near = get_close_matches(node, names, n=6, cutoff=0.4) or [m for m in names if "." not in m][:6]
    return UsageError(
        f"{name} has no node {node!r}: there are {len(names)}, such as {', '.join(near)}"
        f"{'' if in_graph else ' (layers only: it cannot be traced)'}."
    )
