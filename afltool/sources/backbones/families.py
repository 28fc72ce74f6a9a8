"""The families of backbones: what each has to tell of its networks and published weights.

To add a family: a class derived from `Source`, and a line of `FAMILIES`.
"""

from __future__ import annotations

import hashlib
import importlib
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError, UsageError
from ...plugins import Registry, located
from .preprocessing import Preprocessing, paper_preprocessing

if TYPE_CHECKING:
    from torch import Tensor, nn

State = Mapping[str, "Tensor"]


class Source:
    """One architecture and the weights published for it; it is asked only for those it knows.

    ``package``: what draws random weights, with torch; ``fx``: the module that traces networks.
    """

    package, fx = "torchvision", "torchvision.models.feature_extraction"

    def __init__(self, name: str) -> None:
        self.name = name

    def weight_names(self) -> list[str]:
        """Names of published weights, besides ``default``."""
        return []

    def knows(self, weights: str) -> bool:
        """Whether ``weights`` is ``default`` or one of these names."""
        return weights in ("default", *self.weight_names())

    def label(self, weights: str) -> str:
        """The full name of published weights, for files and people."""
        return f"{self.name} {weights}"

    def published(self, weights: str) -> str:
        """A text that identifies published weights; nothing is downloaded."""
        return f"{self.label(weights)}, {self.versions()}"

    def build(self, image_size: int) -> nn.Module:
        """The network with its classifier, randomly initialised."""
        raise NotImplementedError

    def state(self, weights: str) -> State:
        """The tensors of published weights, downloaded if necessary."""
        raise NotImplementedError

    def network(
        self, image_size: int, weights: str | State | None = None
    ) -> tuple[nn.Module, str | None]:
        """The network without its classifier, (n, 3, s, s) → (n, d), and the classifier's name.

        ``weights``: the name of published ones, tensors of a file, or None for random ones. The
        classifier is the last linear layer; None: there is no such layer, so what comes out is no
        features. '': the network was published without one.
        """
        from torch import nn

        module = self.build(image_size)
        linear = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
        last = linear[-1] if linear else None
        if last:
            module.set_submodule(last, nn.Identity())
        if weights is not None:
            state = self.state(weights) if isinstance(weights, str) else weights
            cut = (f"{last}.weight", f"{last}.bias")
            module.load_state_dict({k: value for k, value in state.items() if k not in cut})
        return module, last

    @staticmethod
    def entry(classifier: str | None) -> str:
        """Where features come from by default, in words."""
        return f"input of {classifier}" if classifier else "output of the network"

    def nodes(self, network: nn.Module) -> list[str]:
        """The nodes of the traced graph, in the order they run."""
        with warnings.catch_warnings(action="ignore"):  # nodes of training differ: none is taken
            return list(importlib.import_module(self.fx).get_graph_node_names(network)[1])

    def extractor(self, network: nn.Module, nodes: Mapping[str, str]) -> nn.Module:
        """A network of the outputs of ``nodes``, each under the name that it maps to."""
        with warnings.catch_warnings(action="ignore"):  # as in `nodes`
            create = importlib.import_module(self.fx).create_feature_extractor
            module: nn.Module = create(network, dict(nodes))
        return module

    def stages(self, network: nn.Module) -> list[str]:
        """The layers that end the network's stages, in the order they run; [] if not known."""
        return []

    def preprocessing(self, weights: str) -> Preprocessing:
        """The preprocessing with which the weights were trained."""
        raise UsageError(f"{self.name} does not say how images are prepared: --preprocess paper")

    def versions(self) -> str:
        """The versions of the packages that a random initialisation depends on."""
        return f"torch {metadata.version('torch')}, {self.package} {metadata.version(self.package)}"


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
        return asdict(self)


def refused(what: str, image_size: int, error: Exception) -> UsageError:
    """Why a network refuses images of this size, as one sentence."""
    reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
    return UsageError(
        f"{what} images of {image_size} × {image_size}: {reason}. "
        "Try another --image-size or backbone."
    )


def sha256_of_file(path: Path) -> str:
    """SHA-256 (hex) of the file's bytes, read in pieces. Raises `InputError`: it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read the weights {path}: {error.strerror or error}.") from error


# ---------------------------------------------------------------- families by name

#: A name, or a prefix that ends in a colon; the module and class of its source, which gets the
#: whole name. All other names belong to torchvision. The family of a plug-in has no colon, and gets
#: names with and without one.
FAMILIES: Registry[str] = Registry(
    "afltool.backbones",
    {"efficientnet_lite0": ".lite0:Lite0Source", "timm:": ".published:TimmSource"},
)
_OTHERS = ".published:TorchvisionSource"


def source_of(name: str) -> Source:
    """The source of the backbone called ``name``.

    Raises `UsageError`: unknown name, or a package that it needs is missing.
    """
    kind, colon, _ = name.partition(":")
    place = FAMILIES.get(kind + colon) or FAMILIES.added.get(kind, _OTHERS)
    source: Source = located(place, __package__)(name)
    return source


def family_version(name: str) -> dict[str, str]:
    """Of the backbone of a plug-in: its package and version, for recipes."""
    kind = name.partition(":")[0]
    return FAMILIES.version(kind) if kind in FAMILIES.added else {}


def preprocessing_for(
    kind: str, backbone: str, weights: str = "default", image_size: int | None = None
) -> Preprocessing:
    """The preprocessing called ``kind``: ``paper``, or ``weights`` for the weights' own.

    For random weights or weights from a file, ``weights`` means those of the backbone's default
    weights. ``image_size`` is the side that the backbone sees; by default 224 for ``paper``,
    otherwise the size of the weights. Another size keeps the ratio of the resized to the cropped
    side.

    Raises `UsageError`: unknown ``kind`` or ``backbone``, or transforms of another form.
    """
    if kind == "paper":
        return paper_preprocessing(224 if image_size is None else image_size)
    if kind != "weights":
        raise UsageError(f"unknown preprocessing {kind!r}: there are paper and weights.")
    own = source_of(backbone).preprocessing(weights)
    return own if image_size is None else own.at(image_size)
