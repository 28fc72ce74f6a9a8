"""Features of several nodes of a network, side by side; the mean over views of each image."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ...options.nodes import PENULTIMATE, Node
from ...options.views import Views
from .pooling import Form, pooled

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Slice:
    """The columns of a row of features that come from one node.

    Attributes:
        name: how the node was asked for, without its scale: ``penultimate``, ``blocks.5:max``.
        node: its description: ``output of blocks.5, averaged over positions``.
        dim: number of columns.
        scale: its features are multiplied with this power of two.
    """

    name: str
    node: str
    dim: int
    scale: float = 1.0

    def __str__(self) -> str:
        return self.node if self.scale == 1.0 else f"{self.node}, times {self.scale:g}"

    def describe(self) -> dict[str, Any]:
        """As a feature space holds it."""
        return {"name": self.name, "node": self.node, "dim": self.dim, "scale": self.scale}


@dataclass(frozen=True)
class Place:
    """A node and how its output becomes columns."""

    node: Node
    form: Form
    poolings: list[str]

    def columns(self, x: Tensor) -> Tensor:
        """Float32 ``(n, d)``; a product with a power of two is exact."""
        rows = pooled(x, self.form, self.poolings).float()
        return rows if self.node.scale == 1.0 else rows * self.node.scale


class Reached(Exception):
    """Raised when all wanted nodes have run: leaves the network, so the rest is not computed."""


class Catch:
    """Keeps the first outputs of layers during a pass, separately for each thread."""

    def __init__(self, names: Sequence[str], to_the_end: bool) -> None:
        self.names, self.to_the_end = names, to_the_end
        self._hooked: dict[str, nn.Module] = {}
        self._found = threading.local()
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> Catch:
        """For a copy of the network; the layers of the copy are hooked at its first run."""
        other = memo[id(self)] = Catch(self.names, self.to_the_end)
        return other

    def watch(self, network: nn.Module) -> None:
        """Hook the layers that are not hooked yet; folding may have replaced some."""
        with self._lock:
            for name in self.names:
                layer = network.get_submodule(name)
                if self._hooked.get(name) is not layer:
                    layer.register_forward_hook(partial(self.keep, name))
                    self._hooked[name] = layer

    def keep(self, name: str, _layer: Any, _inputs: Any, output: Any) -> None:
        found = getattr(self._found, "outputs", None)
        if found is None or name in found:
            return
        found[name] = output
        if not self.to_the_end and len(found) == len(self.names):
            raise Reached

    def so_far(self) -> list[str]:
        """Names of the layers that have run in this pass."""
        return list(getattr(self._found, "outputs", None) or ())

    @contextmanager
    def passing(self) -> Iterator[dict[str, Any]]:
        """The outputs of the pass that runs inside the block."""
        found: dict[str, Any] = {}
        self._found.outputs = found
        try:
            yield found
        except Reached:
            pass
        finally:
            self._found.outputs = None


def whole_passes(network: nn.Module) -> nn.Module:
    """The same network without the stop at its last node: tracers drop the rest themselves.

    They cannot trace a pass that ends by an exception.
    """
    for part in network.modules():
        if isinstance(catch := getattr(part, "catch", None), Catch):
            catch.to_the_end = True
    return network


def outputs_of(
    module: nn.Module, names: Sequence[str], classifier: str | None, traced: bool
) -> Any:
    """A network whose ``outputs(x)`` are those of the nodes; its ``places`` make rows of them.

    ``traced``: some nodes exist only in the traced graph. `PENULTIMATE` is the output of the
    network.
    """
    from torch import nn
    from torchvision.models.feature_extraction import create_feature_extractor

    layers = [name for name in names if name != PENULTIMATE]

    class Outputs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places: Sequence[Place] = ()
            self.catch = Catch(layers, to_the_end=len(layers) < len(names))
            self.network = module
            if traced:
                places = {classifier if n == PENULTIMATE else n: n for n in names}
                self.network = create_feature_extractor(module, places)

        def outputs(self, x: Tensor) -> Mapping[str, Any]:
            if traced:
                found: Mapping[str, Any] = self.network(x)
                return found
            self.catch.watch(self.network)
            with self.catch.passing() as caught:
                caught[PENULTIMATE] = self.network(x)
            return caught

        def forward(self, x: Tensor) -> Tensor:
            found = self.outputs(x)
            rows = [place.columns(found[place.node.name]) for place in self.places]
            return rows[0] if len(rows) == 1 else torch.cat(rows, dim=1)

    import torch

    return Outputs()


def over_views(network: nn.Module, views: Views, side: int) -> nn.Module:
    """A network of squares ``(n, 3, outer, outer)`` to the mean over views of ``side``, ``(n, d)``.

    The mean is (f_1 + … + f_V) / V of float32 features, added up in float64 in this order and
    rounded once: each row is computed alone, so it does not depend on the other rows.
    """
    from torch import nn

    class OverViews(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def seen(self, x: Tensor) -> Iterator[Tensor]:
            for top, left in views.corners(side):
                square = x[..., top : top + side, left : left + side]
                yield square
                if views.flip:
                    yield square.flip(-1)

        def forward(self, x: Tensor) -> Tensor:
            parts = [self.network(view).float().double() for view in self.seen(x)]
            total = parts[0]
            for part in parts[1:]:
                total = total + part
            mean: Tensor = (total / len(parts)).float()
            return mean

    return OverViews().eval()
