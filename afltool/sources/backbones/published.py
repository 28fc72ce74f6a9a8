"""Backbones of torchvision and timm, by the libraries' own names, with published weights."""

from __future__ import annotations

import importlib
import importlib.util
import re
from difflib import get_close_matches
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import CorruptFileError, UsageError
from ...inputs import downloading
from .families import Source, State, sha256_of_file
from .preprocessing import Preprocessing
from .weights_files import read_state

if TYPE_CHECKING:
    from torch import nn

#: Layers that end the last stages of torchvision's networks, in the order they run, by the start of
#: a name; the longest counts.
STAGES = {
    "alexnet": "features.1 features.4 features.7 features.11",
    "convnext": "features.1 features.3 features.5 features.7",
    "densenet": "features.transition2 features.denseblock3 features.transition3 features.norm5",
    "efficientnet": "features.5 features.6 features.7 features.8",
    "efficientnet_v2_s": "features.4 features.5 features.6 features.7",
    "googlenet": "inception4d inception4e inception5a inception5b",
    "inception_v3": "Mixed_5d Mixed_6e Mixed_7a Mixed_7c",
    "maxvit": "blocks.0 blocks.1 blocks.2 blocks.3",
    "mnasnet": "layers.11 layers.12 layers.13 layers.16",
    "mobilenet_v2": "features.13 features.16 features.17 features.18",
    "mobilenet_v3_large": "features.10 features.12 features.15 features.16",
    "mobilenet_v3_small": "features.6 features.8 features.11 features.12",
    "regnet": " ".join(f"trunk_output.block{k}" for k in range(1, 5)),
    "resnet": "layer1 layer2 layer3 layer4",
    "resnext": "layer1 layer2 layer3 layer4",
    "shufflenet": "stage2 stage3 stage4 conv5",
    "swin": "features.1 features.3 features.5 features.7",
    "wide_resnet": "layer1 layer2 layer3 layer4",
}


class TorchvisionSource(Source):
    """A classification model of torchvision.

    ``default`` is IMAGENET1K_V1, the weights of the papers, or torchvision's DEFAULT where there
    are no such weights.
    """

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
        if self.name in ("googlenet", "inception_v3"):  # as their weights were trained
            options = {"transform_input": True, "aux_logits": True, "init_weights": False}
        if self.name.startswith("vit_"):
            options = {"image_size": image_size}
        module: nn.Module = models.get_model(self.name, weights=None, **options)
        return module

    def state(self, weights: str) -> State:
        return read_state(hub_file(str(self._member(weights).url), self.label(weights)))

    def network(
        self, image_size: int, weights: str | State | None = None
    ) -> tuple[nn.Module, str | None]:
        state = self.state(weights) if isinstance(weights, str) else weights
        if state is not None:
            # Published DenseNets still have the dots of an older torchvision: norm.1 for norm1.
            old = re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.([12])\.")
            state = {old.sub(r"\1\2.", key): value for key, value in state.items()}
        return super().network(image_size, state)

    def stages(self, network: Any) -> list[str]:
        if self.name.startswith("vit_"):
            return [f"encoder.layers.{name}" for name, _ in network.encoder.layers.named_children()]
        if self.name.startswith("vgg"):
            layers = enumerate(network.features)
            return [f"features.{k - 1}" for k, one in layers if type(one).__name__ == "MaxPool2d"]
        known = [start for start in STAGES if self.name.startswith(start)]
        return STAGES[max(known, key=len)].split() if known else []

    def preprocessing(self, weights: str) -> Preprocessing:
        own = self._member(weights if self.knows(weights) else "default").transforms()
        described = {"name": "weights", "mean": own.mean, "std": own.std}
        described |= {"resize": own.resize_size[0], "crop": own.crop_size[0]}
        return Preprocessing.of({**described, "interpolation": own.interpolation.value})


def hub_file(url: str, label: str) -> Path:
    """The file behind ``url`` in PyTorch's folder for weights, downloaded if it is not there.

    Its bytes are checked against the hash in its name also if the file was there before, which
    `torch.hub` does not do.
    """
    from torch import hub

    name = url.rpartition("/")[2]
    path = Path(hub.get_dir()) / "checkpoints" / name
    match = re.search(r"-([a-f0-9]{8,})\.", name)
    expected = match[1] if match else ""
    if not path.is_file():
        what = f"weights {label}: expected {name} in {path.parent}, and it"
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


class TimmSource(Source):
    """Any model of timm, by timm's own name: ``vit_base_patch16_224.augreg_in21k``."""

    package, fx = "timm", "timm.models"

    def __init__(self, name: str) -> None:
        self.name, self.model = name, name.removeprefix("timm:")
        if importlib.util.find_spec("timm") is None:
            raise UsageError(f"{name} needs timm: pip install 'afltool[timm]'.")
        import timm

        if not timm.is_model(self.model.partition(".")[0]):
            near = timm.list_models(f"*{self.model.partition('.')[0][:8]}*")[:8]
            hint = f"; similar names: {', '.join(near)}" if near else ""
            raise UsageError(f"unknown backbone {name}: timm has no model {self.model!r}{hint}.")

    @property
    def config(self) -> Any:
        """What timm knows of the weights; without any, of the network."""
        import timm

        return timm.models.get_pretrained_cfg(self.model) or timm.models.PretrainedCfg()

    def label(self, weights: str) -> str:
        own = self.config
        if not own.has_weights:
            raise UsageError(
                f"timm has no weights {self.model}; use --weights random or --weights FILE."
            )
        return f"timm:{own.architecture}{f'.{own.tag}' if own.tag else ''}"

    def published(self, weights: str) -> str:
        own = self.config
        return f"{self.label(weights)} {own.hf_hub_id} {own.url} timm {metadata.version('timm')}"

    def network(
        self, image_size: int, weights: str | State | None = None
    ) -> tuple[nn.Module, str | None]:
        """timm renames tensors and resamples positions of its own and of a file's weights."""
        import timm

        module: Any
        own, options = self.config, dict[str, Any]()
        heads = (own.classifier,) if isinstance(own.classifier, str) else own.classifier or ()
        if own.fixed_input_size:
            options["img_size"] = image_size
        if isinstance(weights, str):
            advice = (
                "Fetch its model.safetensors or pytorch_model.bin on a machine with internet and "
                "name the file with --weights FILE; for weights in the cache set HF_HUB_OFFLINE=1."
            )
            with downloading(f"weights {self.label(weights)}: {own.hf_hub_id or own.url}", advice):
                module = timm.create_model(self.model, pretrained=True, **options)
        else:
            if weights is not None:  # the file's number of classes, so that its classifier fits
                own_heads = [f"{head}.weight" for head in heads if f"{head}.weight" in weights]
                n = max((len(weights[key]) for key in own_heads), default=0)
                overlay = {"state_dict": dict(weights), "num_classes": n, "label_offset": 0}
                options |= {"num_classes": n, "pretrained_cfg_overlay": overlay}
            module = timm.create_model(self.model, pretrained=weights is not None, **options)
        module.reset_classifier(0)
        return module, ", ".join(heads) if own.num_classes else ""

    def stages(self, network: Any) -> list[str]:
        return [one["module"] for one in getattr(network, "feature_info", ())]

    def preprocessing(self, weights: str) -> Preprocessing:
        self.label(weights)
        data: Any = importlib.import_module("timm.data")
        own = data.resolve_data_config(pretrained_cfg=self.config.to_dict())
        (_, height, width), mode = own["input_size"], own["crop_mode"]
        if height != width or mode not in ("center", "squash"):
            raise UsageError(
                f"{self.name}: its weights need {mode} crops of {height} × {width}; only central "
                "square crops are known here. Use --preprocess paper."
            )
        described = {key: own[key] for key in ("mean", "std", "interpolation")}
        described |= {"name": "weights", "resize": int(height / own["crop_pct"]), "crop": height}
        described |= {"squash": mode == "squash"}
        return Preprocessing.of(described)
