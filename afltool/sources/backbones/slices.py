"""Turns the output of a layer into one row of numbers per image, by pooling maps and tokens.

Square images give square maps, so the two equal axes are the positions; tokens are
``(n, t, d)``, the first ``prefix`` of them (class token, registers) stand for no position.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...options.grammars import PENULTIMATE, Node, Views

if TYPE_CHECKING:
    from torch import Tensor, nn


AVERAGED = ", averaged over positions"  # behind the name of a node with maps
ROWS, MAPS, TOKENS = "rows", "maps", "tokens"
_SAID = {"mean": "averaged", "max": "the maximum"}


@dataclass(frozen=True)
class Form:
    """The layout of an output: its ``kind``, axes of positions, number of tokens without one."""

    kind: str
    axes: tuple[int, ...] = ()
    prefix: int = 0


def form_of(x: Tensor, what: str, layer: nn.Module | None = None, prefix: int = 0) -> Form:
    """The form of a layer's output.

    ``layer``: its convolutions decide which axis has the channels if the shape does not.

    Raises `UsageError`: a shape that is none of these.
    """
    from torch import nn

    shape = tuple(x.shape)
    if x.ndim == 2:
        return Form(ROWS)
    if x.ndim == 3:
        return Form(TOKENS, (1,), prefix)
    convolves = layer is not None and any(isinstance(m, nn.Conv2d) for m in layer.modules())
    if x.ndim == 4 and shape[2] == shape[3] and (shape[1] != shape[3] or convolves):
        return Form(MAPS, (2, 3))
    if x.ndim == 4 and shape[1] == shape[2] != shape[3]:
        return Form(MAPS, (1, 2))
    raise UsageError(
        f"{what} gives the shape (n, {', '.join(map(str, shape[1:]))}); expected (n, d), or a map "
        "of d channels over s × s positions with d ≠ s, which is averaged. Take another node."
    )


def poolings_of(form: Form, pooling: str | None, what: str, shape: tuple[int, ...]) -> list[str]:
    """The poolings of an output, in order: some of ``mean``, ``max``, ``token``; [] for rows.

    Raises `UsageError`: a pooling that the form does not have.
    """
    sizes = ", ".join(map(str, shape[1:]))
    if form.kind == ROWS:
        if pooling is None:
            return []
        raise UsageError(f"{what} gives the shape (n, {sizes}): there is nothing to pool")
    if form.kind == TOKENS and pooling is None:
        raise UsageError(
            f"{what} gives the shape (n, {sizes}); expected (n, d), or a map of d channels over "
            "s × s positions, which is averaged. For tokens, say what is taken: NODE:mean, "
            "NODE:max or, of networks with a class token, NODE:token+mean. Or take another node."
        )
    wanted = (pooling or "mean").split("+")
    if "token" in wanted and (form.kind != TOKENS or not form.prefix):
        raise UsageError(f"{what} gives the shape (n, {sizes}), which has no class token")
    return wanted


def pooled(x: Tensor, form: Form, wanted: list[str]) -> Tensor:
    """``(n, d)`` from a layer's output; several poolings are put side by side."""
    import torch

    if not wanted:
        return x
    places = x[:, form.prefix :] if form.prefix else x
    how = {
        "token": lambda: x[:, 0],
        "mean": lambda: places.mean(dim=form.axes),
        "max": lambda: places.amax(dim=form.axes),
    }
    parts = [how[kind]() for kind in wanted]
    return parts[0] if len(parts) == 1 else torch.cat([part.float() for part in parts], dim=1)


def said(form: Form, wanted: list[str]) -> str:
    """The pooling in words, to append to the name of the output; '' for rows."""
    over = "positions" if form.kind == MAPS else "tokens"
    words = [_SAID[kind] for kind in wanted if kind in _SAID]
    parts = ["class token"] * ("token" in wanted)
    parts += [f"{' and '.join(words)} over {over}"] if words else []
    return ", " + " and ".join(parts) if parts else ""


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

    def slice_of(self, x: Tensor, classifier: str | None) -> Slice:
        """The columns that an output like ``x`` becomes."""
        name = self.node.name
        what = f"input of {classifier}" if name == PENULTIMATE else f"output of {name}"
        dim = int(self.columns(x).shape[1])
        label = what + said(self.form, self.poolings)
        return Slice(self.node.slice_name, label, dim, self.node.scale)


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
        outputs = getattr(self._found, "outputs", None)
        if outputs is None or name in outputs:
            return
        outputs[name] = output
        if not self.to_the_end and len(outputs) == len(self.names):
            raise Reached

    def so_far(self) -> list[str]:
        """Names of the layers that have run in this pass."""
        return list(getattr(self._found, "outputs", None) or ())

    @contextmanager
    def passing(self) -> Iterator[dict[str, Any]]:
        """The outputs of the pass that runs inside the block."""
        outputs: dict[str, Any] = {}
        self._found.outputs = outputs
        try:
            yield outputs
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
    import torch
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
            mean: Tensor = (reduce(add, parts) / len(parts)).float()
            return mean

    return OverViews().eval()
