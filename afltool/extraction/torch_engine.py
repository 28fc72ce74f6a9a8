"""PyTorch as the engine of a network, on a processor or a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Self

import torch
from torch import nn

from .. import parallel
from ..backbones.inference import arithmetic, infer, prepare_for_inference, resolve_device
from ..backbones.models import Backbone, load_backbone
from ..backbones.preprocessing import Preprocessing
from ..errors import InputError
from ..options.features import TORCH, ExtractOptions
from ..values.arrays import F32, U8
from .network import Engine

STEPS = 16, 64  # images of a step: on a processor (see `inference`), elsewhere


class TorchEngine(Engine):
    """A network on a device.

    Threads that share a step can change its last bits, so on a processor each step has one, and
    several threads take steps in turn. To a GPU two threads give work, so that it is never idle.
    """

    name = TORCH

    def __init__(
        self, module: nn.Module, preprocessing: Preprocessing, device: str, precision: str
    ) -> None:
        self.module = prepare_for_inference(module, device)
        self.preprocessing, self.device, self.precision = preprocessing, device, precision
        on_cpu, threads = device == "cpu", parallel.threads()
        if threads == parallel.available():  # not told: a core that counts as two has one
            threads = min(threads, torch.get_num_threads())
        self.step, self.threads = STEPS[not on_cpu], threads if on_cpu else 2
        self.batch = self.step

    @classmethod
    def load(
        cls, o: ExtractOptions, side: int, preprocessing: Preprocessing
    ) -> tuple[Self, Backbone]:
        """The network that ``o`` asks for, of squares of ``side``, on its device."""
        device = resolve_device(o.device)
        backbone = load_backbone(
            o.backbone, weights=o.weights, seed=o.seed, image_size=side, nodes=o.nodes
        )
        return cls(backbone.module, preprocessing, device, o.precision), backbone

    @contextmanager
    def working(self) -> Iterator[None]:
        """One thread an operation; around all steps, since each puts the settings back."""
        with parallel.one_thread(torch), arithmetic(self.device, self.precision):
            yield

    def run(self, pixels: U8) -> F32:
        """Raises `InputError`: the device fails, usually because its memory is full."""
        images, way = torch.from_numpy(pixels), self.preprocessing
        try:
            with parallel.one_thread(torch):
                return infer(self.module, images, way, self.device, self.precision)
        except (RuntimeError, MemoryError) as error:  # by the device
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"the network failed on {self.device} with {self.step} images at a time ({reason});"
                " where memory is full use another --device or a smaller --image-size"
            ) from error

    def versions(self) -> dict[str, str]:
        return {"torch": torch.__version__, "torchvision": version("torchvision")}

    def device_name(self) -> str:
        if self.device.startswith("cuda"):
            return str(torch.cuda.get_device_name(self.device))
        return super().device_name()
