"""Classification models of torchvision and their ImageNet weights."""

from __future__ import annotations

import re
from difflib import get_close_matches
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import CorruptFileError, UsageError
from ...inputs import downloading
from .families import State, sha256_of_file, triple
from .preprocessing import Preprocessing

if TYPE_CHECKING:
    from torch import nn


class TorchvisionSource:
    """A classification model of torchvision.

    ``default`` is IMAGENET1K_V1, the weights of the papers, or torchvision's DEFAULT where there
    are no such weights.
    """

    #: Published weights of these two are for inputs that the network transforms itself.
    _OPTIONS = ("googlenet", "inception_v3")

    def __init__(self, name: str) -> None:
        from torchvision import models

        known = models.list_models(module=models)
        if name not in known:
            near = get_close_matches(name, known, n=5, cutoff=0.5) or known[:5]
            raise UsageError(
                f"unknown backbone {name!r}: there are efficientnet_lite0, timm:NAME for any model "
                f"of timm and {len(known)} of torchvision, such as {', '.join(near)}."
            )
        self.name = name
        self._enum: Any = models.get_model_weights(name)

    def weight_names(self) -> list[str]:
        return [name for name in self._enum.__members__ if name != "DEFAULT"]

    def knows(self, weights: str) -> bool:
        return weights == "default" or self._short(weights) in self._enum.__members__

    def _short(self, weights: str) -> str:
        return weights.removeprefix(f"{self._enum.__name__}.")

    def _member(self, weights: str) -> Any:
        members = self._enum.__members__
        if weights == "default":
            return members.get("IMAGENET1K_V1", self._enum.DEFAULT)
        return members[self._short(weights)]

    def label(self, weights: str) -> str:
        return str(self._member(weights))

    def published(self, weights: str) -> str:
        # The file's name holds the start of the SHA-256 of its bytes.
        return str(self._member(weights).url).rpartition("/")[2]

    def build(self, image_size: int) -> nn.Module:
        from torchvision import models

        options: dict[str, Any] = {}
        if self.name in self._OPTIONS:
            options = {"transform_input": True, "aux_logits": True, "init_weights": False}
        if self.name.startswith("vit_"):
            options = {"image_size": image_size}
        module: nn.Module = models.get_model(self.name, weights=None, **options)
        return module

    def state(self, weights: str) -> Path | State:
        return hub_file(str(self._member(weights).url), f"weights {self.label(weights)}")

    def rename(self, state: State, module: nn.Module) -> State:
        # Published DenseNets still have the dots of an older torchvision: norm.1 for norm1.
        old = re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.([12])\.")
        return {old.sub(r"\1\2.", key): value for key, value in state.items()}

    def preprocessing(self, weights: str) -> Preprocessing:
        own = self._member(weights if self.knows(weights) else "default").transforms()
        return Preprocessing(
            "weights",
            own.resize_size[0],
            own.crop_size[0],
            triple(own.mean),
            triple(own.std),
            own.interpolation.value,
        )

    def versions(self) -> str:
        return f"torch {metadata.version('torch')}, torchvision {metadata.version('torchvision')}"


def hub_file(url: str, what: str) -> Path:
    """The file behind ``url`` in PyTorch's folder for weights, downloaded if it is not there.

    Its bytes are always checked against the hash in its name, also if the file was there before.
    """
    from torch import hub

    name = url.rpartition("/")[2]
    path = Path(hub.get_dir()) / "checkpoints" / name
    match = re.search(r"-([a-f0-9]{8,})\.", name)
    expected = match[1] if match else ""
    if not path.is_file():
        what = f"{what}: expected {name} in {path.parent}, and it"
        advice = (
            f"Fetch {name} on a machine with internet and put it there ($TORCH_HOME moves the "
            "folder), or name it with --weights FILE."
        )
        with downloading(what, advice):
            path.parent.mkdir(parents=True, exist_ok=True)
            hub.download_url_to_file(url, str(path), expected or None)
    found = sha256_of_file(path)
    if not found.startswith(expected):
        raise CorruptFileError(
            f"{path}: expected a SHA-256 that starts with {expected}, found {found[:12]}… "
            f"({path.stat().st_size:,} bytes). Delete the file and fetch it again."
        )
    return path
