"""Models of timm and their published weights."""

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

from ..errors import InputError, UsageError
from .preprocessing import Preprocessing
from .sources import State, triple, unknown_weights

if TYPE_CHECKING:
    from torch import nn


TIMM = "timm:"


class TimmSource:
    """Any model of timm, by timm's own name: ``vit_base_patch16_224.augreg_in21k``."""

    def __init__(self, name: str) -> None:
        model = name.removeprefix(TIMM)
        if importlib.util.find_spec("timm") is None:
            raise UsageError(f"{TIMM}{model} needs timm: pip install 'afltool[timm]'.")
        import timm

        if not timm.is_model(model.partition(".")[0]):
            near = timm.list_models(f"*{model.partition('.')[0][:8]}*")[:8]
            hint = f", such as {', '.join(near)}" if near else ""
            raise UsageError(f"unknown backbone {TIMM}{model}: timm has other models{hint}.")
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
        self._only_default(weights)
        config = self._config()
        return f"{TIMM}{config.architecture}{f'.{config.tag}' if config.tag else ''}"

    def _only_default(self, weights: str) -> None:
        if not self.knows(weights):
            raise unknown_weights(self.name, weights, [])

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
                f"{self.name}: its weights want {own['crop_mode']} crops of {height} × {width}; "
                "only central square crops are known here. Use --preprocess paper."
            )
        resize = int(height / own["crop_pct"])
        return Preprocessing(
            "weights",
            resize,
            height,
            triple(own["mean"]),
            triple(own["std"]),
            own["interpolation"],
        )

    def versions(self) -> str:
        return f"torch {metadata.version('torch')}, timm {metadata.version('timm')}"


@contextmanager
def _cache_only_without_network() -> Iterator[None]:
    """Let the hub's client use only its cache if its server cannot be reached.

    Otherwise it would retry for most of a minute per file, even for files in its cache.
    """
    constants: Any = importlib.import_module("huggingface_hub.constants")
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not _reachable(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _reachable(url: str) -> bool:
    """Whether the server answers within 5 seconds; True behind a proxy, without a test."""
    parts = urlsplit(url)
    if getproxies().keys() & {parts.scheme, "all"}:
        return True
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=5).close()
    except OSError:
        return False
    return True
