"""Networks of OpenCLIP and of Hugging Face's Transformers, by their own names or from a folder."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, InvalidDataError, UsageError
from ..inputs import downloading
from ..plugins import need
from ..values.arrays import Digest, file_sha256
from .families import Source
from .preprocessing import Preprocessing

if TYPE_CHECKING:
    from torch import nn

HUB = (
    "Fetch it on a machine with internet and copy the cache of Hugging Face ($HF_HOME) or, with "
    "its config, its folder, which can be named instead."
)


class FromHub(Source):
    """A network of a package that downloads it; ``place``: its name there, or a folder."""

    module, extra, defaults = "", "", True  # defaults: its name stands for weights, too

    def __init__(self, name: str) -> None:
        need(name, self.extra, self.module)
        self.name, self.place = name, name.partition(":")[2]
        self.folder = Path(self.place) if Path(self.place).is_dir() else None

    def identify(self, weights: str) -> tuple[str, str] | None:
        default = weights == "default" and (self.defaults or self.folder is not None)
        if not default and weights not in self.weight_names():
            return None
        if self.folder is not None:
            files = sorted(path for path in self.folder.iterdir() if path.is_file())
            digests = [[path.name, file_sha256(path)] for path in files]
            return self.name, f"{self.package} {Digest().json('files', digests).hex()}"
        label = self.name if default else f"{self.name} {weights}"
        return label, f"{label} {self.package} {metadata.version(self.package)}"

    @contextmanager
    def fetching(self, what: str) -> Iterator[None]:
        """Around what is downloaded, or read in a folder: whatever fails is an `InputError`."""
        if self.folder is None:
            with downloading(f"{what} of {self.name}", HUB):
                yield
            return
        try:
            yield
        except Exception as error:  # of JSON, safetensors and the library
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise InputError(f"{self.folder}: {what} cannot be read: {reason}") from error


class OpenClipSource(FromHub):
    """The image tower of an OpenCLIP model; a row is the image's embedding, not normalized.

    ``open_clip:ViT-B-32`` has its weights by a tag, such as ``--weights laion2b_s34b_b79k``;
    ``open_clip:FOLDER`` what OpenCLIP saved there, open_clip_config.json and weights.
    """

    package, module, extra, defaults = "open_clip_torch", "open_clip", "open-clip", False

    @cached_property
    def config(self) -> dict[str, Any]:
        """The architecture, and of a folder how images are prepared."""
        import open_clip

        if self.folder is not None:
            with self.fetching("the configuration"):
                found: dict[str, Any] = json.loads(
                    (self.folder / "open_clip_config.json").read_text()
                )
                _ = found["model_cfg"]["vision_cfg"]["image_size"]
            return found
        if (own := open_clip.get_model_config(self.place)) is None:
            raise UsageError(
                f"unknown backbone {self.name}: there is no such folder, and no such model of "
                "OpenCLIP (open_clip.list_models() has them)"
            )
        return {"model_cfg": own}

    def weight_names(self) -> list[str]:
        import open_clip

        known: list[str] = open_clip.list_pretrained_tags_by_model(self.place)
        return [] if self.folder is not None else known

    def _tag(self, weights: str) -> dict[str, Any]:
        """What OpenCLIP knows of published weights."""
        import open_clip

        return open_clip.get_pretrained_cfg(self.place, weights) or {}

    def network(self, image_size: int, weights: Any = None) -> tuple[nn.Module, str]:
        import open_clip

        _ = self.config  # an unknown name is refused
        published = isinstance(weights, str)
        model = self.place if self.folder is None else f"local-dir:{self.place}"
        tag = weights if published and self.folder is None else None
        # A network that was trained with another GELU would run with this one, too.
        gelu = bool(tag and self._tag(tag).get("quick_gelu"))
        with self.fetching("the weights"):
            whole = open_clip.create_model(
                model, pretrained=tag, load_weights=published, require_pretrained=published,
                force_image_size=image_size, force_quick_gelu=gelu, pretrained_text=False,
            )  # fmt: skip
        if weights is not None and not published:
            whole.load_state_dict(dict(weights))
        return whole.visual, ""

    def preprocessing(self, weights: str) -> Preprocessing:
        import open_clip

        own = {**self.config.get("preprocess_cfg", {}), **self._tag(weights)}
        size, mode = self.config["model_cfg"]["vision_cfg"]["image_size"], own.get("resize_mode")
        if not isinstance(size, int) or mode not in (None, "shortest", "squash"):
            raise self.unknown(f"resizing to {size} by {mode}")
        mean, std = open_clip.OPENAI_DATASET_MEAN, open_clip.OPENAI_DATASET_STD
        numbers = tuple(own.get("mean", mean)), tuple(own.get("std", std))
        how = own.get("interpolation", "bicubic")
        return Preprocessing("weights", size, size, *numbers, how, mode == "squash")


class HuggingFaceSource(FromHub):
    """The image network of a model of Transformers: ``hf:OWNER/NAME`` or ``hf:FOLDER``.

    A row is the network's pooled output; where that is only a layer for pretraining (ViT, DeiT), or
    there is none, it is the class token. Of a model of images and texts the image tower is taken,
    before its projection. Weights are read from .safetensors alone, and no code is run.
    """

    package, module, extra = "transformers", "transformers", "hf"

    @cached_property
    def config(self) -> Any:
        from transformers import AutoConfig

        with self.fetching("the configuration"):
            found = AutoConfig.from_pretrained(self.place)
        if getattr(found, "mask_ratio", 0):
            raise UsageError(f"{self.name} masks parts of an image at random: take timm's of it")
        return found

    def network(self, image_size: int, weights: Any = None) -> tuple[nn.Module, str]:
        from transformers import AutoModel
        from transformers.utils import logging

        if weights is not None and not isinstance(weights, str):
            raise UsageError(f"the weights of {self.name} are its own: give hf:FOLDER instead")
        own, lacking = self.config, set[str]()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        if weights is None:
            parts: list[Any] = [own, getattr(own, "vision_config", None)]
            for part in parts:
                if hasattr(part, "image_size"):
                    part.image_size = image_size
            model = AutoModel.from_config(own)
        else:
            with self.fetching("the weights (.safetensors)"):
                model, told = AutoModel.from_pretrained(
                    self.place, config=own, use_safetensors=True, output_loading_info=True
                )
            lacking = set(told["missing_keys"])
        tower = getattr(model, "vision_model", model).float()
        network = _pooled(tower)  # without what it does not use
        of = "vision_model." if tower is not model else ""
        if odd := sorted(lacking & {of + key for key in tower.state_dict()}):
            raise InvalidDataError(f"{self.name} has no weights of {', '.join(odd[:5])}")
        return network, ""

    def preprocessing(self, weights: str) -> Preprocessing:
        from PIL.Image import Resampling
        from transformers.utils import cached_file

        with self.fetching("the description of its images"):
            own = json.loads(Path(cached_file(self.place, "preprocessor_config.json")).read_bytes())
            size, cut = own["size"], own.get("crop_size") if own.get("do_center_crop") else None
            squares = [one if isinstance(one, dict) else {"height": one} for one in (size, cut)]
            sides: list[Any] = [one.get("shortest_edge") or one["height"] for one in squares]
            edge, crop = sides
            squash = cut is None and "shortest_edge" not in squares[0] and isinstance(size, dict)
            if own.get("crop_pct") and edge < 384:
                edge, crop = int(edge / own["crop_pct"]), edge
            known = abs(own.get("rescale_factor", 1 / 255) * 255 - 1) < 1e-6
            known &= all(own.get(f"do_{one}", True) for one in ("resize", "rescale", "normalize"))
            known &= all(one.get("width") in (None, one.get("height")) for one in squares)
            numbers = tuple(own["image_mean"]), tuple(own["image_std"])
            how = Resampling(own.get("resample", Resampling.BICUBIC)).name.lower()
        if not known or (crop is None and not squash):
            raise self.unknown(f"size {size}, crop {own.get('crop_size')} and other steps")
        return Preprocessing("weights", edge, crop or edge, *numbers, how, squash)


def _pooled(tower: Any) -> nn.Module:
    """A network of Transformers as (n, 3, s, s) → (n, d)."""
    from torch import Tensor, nn

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if hasattr(getattr(tower, "pooler", None), "dense"):
                tower.pooler = None
            self.tower = tower
            takes = inspect.signature(tower.forward).parameters
            name = "interpolate_pos_encoding"  # for other sizes than that of the weights
            self.more = {name: True} if name in takes else {}

        def forward(self, x: Tensor) -> Tensor:
            found = self.tower(pixel_values=x, **self.more)
            row: Tensor | None = found.get("pooler_output")
            return found.last_hidden_state[:, 0] if row is None else row.flatten(1)

    return Pooled()
