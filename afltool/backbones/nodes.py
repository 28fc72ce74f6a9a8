"""Where features come out of a network: by rule what enters its classifier, else a named node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor, nn

AVERAGED = ", averaged over positions"


# --- the classifier -------------------------------------------------------------------------------


def cut_classifier(module: nn.Module, name: str) -> tuple[str, int]:
    """Replace the last linear layer (in module order) by the identity; its name and inputs.

    Raises:
        UsageError: there is none.
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
    """Refuse a network whose output is not what entered ``node``, as ``(n, dim)``."""
    import torch

    with _entering(module.get_submodule(node)) as entered:
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
def _entering(layer: nn.Module) -> Iterator[list[Any]]:
    """What enters ``layer`` while the block runs."""
    entered: list[Any] = []
    hook = layer.register_forward_hook(lambda _layer, inputs, _output: entered.append(inputs[0]))
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
    """What a network says of images of this size, as one sentence."""
    reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
    return UsageError(
        f"{what} images of {image_size} × {image_size}: {reason}. "
        "Try another --image-size or backbone."
    )


# --- a node by name -------------------------------------------------------------------------------


def cut_at(
    module: nn.Module, node: str, classifier: str | None, name: str, image_size: int
) -> tuple[nn.Module, str, int]:
    """``module`` up to ``node``: a network of features ``(n, d)``, what they are, and d.

    ``node`` is a module's name, such as ``layer3``, whose first output counts, or a node of the
    traced graph, as torchvision's `get_graph_node_names` prints them. Feature maps are averaged
    over positions, see `averaged`. ``classifier`` is the layer that was cut off, if any.

    Raises:
        UsageError: no such node (near ones are listed), one that lies behind the classifier, or
            one whose output is no row of numbers per image.
    """
    import torch

    modules = [path for path, _ in module.named_modules() if path]
    in_graph = [] if node in modules else _graph_nodes(module)
    if node == classifier:
        raise UsageError(
            f"--node {node} is the classifier of {name}: without --node the features are its input."
        )
    if node not in modules + in_graph:
        raise _unknown(node, name, modules, in_graph)
    cut = features_of(module, node, traced=node in in_graph)
    with _entering(module.get_submodule(classifier or "")) as entered:
        raw = _try_out(cut.network_up_to, f"{name} up to {node} cannot run on", image_size)
    if classifier and entered:
        raise UsageError(
            f"--node {node} lies behind the classifier of {name}, {classifier}; take one before it."
        )
    if not isinstance(raw, torch.Tensor) or not raw.is_floating_point():
        raise UsageError(
            f"--node {node} of {name} gives {type(raw).__name__}, not a tensor of real numbers."
        )
    rows = averaged(raw, f"--node {node} of {name}")
    label = f"output of {node}{AVERAGED if raw.ndim == 4 else ''}"
    return cut, label, int(rows.shape[1])


def averaged(x: Tensor, what: str = "the node") -> Tensor:
    """``(n, d)`` as it is; feature maps ``(n, d, s, s)`` or ``(n, s, s, d)`` averaged over s × s.

    Square images make square maps, so the two equal sides are the positions.

    Raises:
        UsageError: another shape, or one where the channels are as many as the sides are long.
    """
    shape = tuple(x.shape)
    if x.ndim == 2:
        return x
    if x.ndim == 4 and shape[2] == shape[3] != shape[1]:
        return x.mean(dim=(2, 3))
    if x.ndim == 4 and shape[1] == shape[2] != shape[3]:
        return x.mean(dim=(1, 2))
    raise UsageError(
        f"{what} gives the shape (n, {', '.join(map(str, shape[1:]))}); expected (n, d), or a map "
        "of d channels over s × s positions with d ≠ s, which is averaged. Take another node."
    )


def features_of(module: nn.Module, node: str, traced: bool) -> Any:
    """A network that ends at ``node`` and averages maps; ``network_up_to`` gives the raw output."""
    from torch import nn
    from torchvision.models.feature_extraction import create_feature_extractor

    class Reached(Exception):
        """The node's output, on its way out of the network; what follows is not computed."""

    class UpTo(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = create_feature_extractor(module, {node: "x"}) if traced else module

        def network_up_to(self, x: Tensor) -> Any:
            if traced:
                return self.network(x)["x"]

            def stop(_layer: Any, _inputs: Any, output: Any) -> None:
                raise Reached(output)

            hook = self.network.get_submodule(node).register_forward_hook(stop)
            try:
                self.network(x)
            except Reached as reached:
                return reached.args[0]
            finally:
                hook.remove()
            raise UsageError(f"--node {node} is a layer that the network does not run.")

        def forward(self, x: Tensor) -> Tensor:
            return averaged(self.network_up_to(x))

    return UpTo()


def _graph_nodes(module: nn.Module) -> list[str]:
    """Nodes of the network in eval mode; none where torch.fx cannot trace it."""
    import warnings

    from torchvision.models.feature_extraction import get_graph_node_names

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(get_graph_node_names(module, suppress_diff_warning=True)[1])
    # Whatever the network does with its input fails on a stand-in for it.
    except Exception:
        return []


def _unknown(node: str, name: str, modules: list[str], in_graph: list[str]) -> UsageError:
    names = list(dict.fromkeys(modules + in_graph))
    near = get_close_matches(node, names, n=6, cutoff=0.4) or [m for m in names if "." not in m][:6]
    return UsageError(
        f"{name} has no node {node!r}: there are {len(names)}, such as {', '.join(near)}"
        f"{'' if in_graph else ' (layers only: it cannot be traced)'}."
    )
