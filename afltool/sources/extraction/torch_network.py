"""A network that PyTorch runs, on a processor or a GPU.

Every step has the same size (the last one is filled up), so a feature does not depend on where a
run began, stopped or was split.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import nn

from ... import cores
from ...errors import InputError
from ...machine import lacks_bf16
from ...options.features import TORCH, ExtractOptions
from ...progress import log
from ...values.arrays import F32, U8
from ..backbones.inference import (
    arithmetic,
    is_out_of_memory,
    prepare_for_inference,
    resolve_device,
    start_inference,
)
from ..backbones.models import Backbone, load_backbone
from ..backbones.nodes import OverViews
from ..backbones.preprocessing import Preprocessing
from .network import Batch, Network

#: Images in a step of the network: on a processor (see `inference`), elsewhere.
STEPS = 16, 64
GPU_BATCH = 256  # images that are decoded together for a GPU


@dataclass
class TorchNetwork(Network):
    """A backbone on a device; made by `build`.

    A step has one size whatever the batch, and on a processor one thread, so that a feature does
    not depend on them.
    """

    backbone: Backbone
    module: nn.Module

    @classmethod
    def build(cls, o: ExtractOptions, preprocessing: Preprocessing) -> TorchNetwork:
        """Build the network that ``o`` asks for, on its device, and choose the batch."""
        side, device = o.seen.inner(preprocessing.crop), resolve_device(o.device)
        threads = cores.threads()
        if threads == cores.available():  # not told: a core that counts as two has one
            threads = min(threads, torch.get_num_threads())
        if device == "cpu" and o.precision == "bf16" and lacks_bf16():
            log.warning(
                "this processor has no bf16 arithmetic (avx512_bf16, amx_bf16), so --precision "
                "bf16 will be slow: use fp32 or a GPU, unless the federation has agreed on bf16"
            )
        step = STEPS[device != "cpu"]
        batch = o.batch_size or (step * threads if device == "cpu" else GPU_BATCH)
        backbone = load_backbone(
            o.backbone, weights=o.weights, seed=o.seed, image_size=side, nodes=o.nodes
        )
        module = prepare_for_inference(backbone.module, device)
        if o.views is not None:
            module = OverViews(module, o.seen, side).eval()
        work = -(-batch // step) * step, o.workers or cores.threads(), threads, step
        return cls(backbone, preprocessing, o.precision, TORCH, *work, device, module)

    def empty(self, size: int) -> U8:
        """In pinned memory for a GPU, so that the transfer needs no further copy."""
        if not self.device.startswith("cuda"):
            return super().empty(size)
        side = self.preprocessing.crop
        shape = size, 3, side, side
        pinned: U8 = torch.zeros(shape, dtype=torch.uint8, pin_memory=True).numpy()
        return pinned

    def working(self) -> AbstractContextManager[Any]:
        return cores.torch_threads(torch, self.threads)

    def begun(self, batch: Batch) -> Callable[[], F32]:
        """Begin a batch, in steps of the network; calling the result waits for the rows.

        Raises `InputError`: the device's memory is full.
        """
        try:
            parts = self._begun(batch)
        # The class of the exception depends on the device.
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"out of memory on {self.device} with {self.step} images at a time ({reason}); use "
                "another --device, a smaller --image-size or --precision bf16"
            ) from error
        return lambda: np.concatenate([part() for part in parts])[: self.batch][batch.good]

    def _begun(self, batch: Batch) -> list[Callable[[], F32]]:
        """Begin the steps of a batch.

        The number of threads that share a step can change its last bits, so on a processor each
        step has one thread, and several threads take steps in turn.
        """
        steps = [partial(self._one_step, batch, k) for k in range(0, self.batch, self.step)]
        if self.device != "cpu":
            return [step() for step in steps]
        one_each = partial(torch.set_num_threads, 1)
        # Around all steps: each puts the process's settings back as it found them.
        with (
            cores.torch_threads(torch),
            arithmetic("cpu", self.precision),
            ThreadPoolExecutor(self.threads, initializer=one_each) as pool,
        ):
            return [one.result() for one in [pool.submit(step) for step in steps]]

    def _one_step(self, batch: Batch, start: int) -> Callable[[], F32]:
        images = torch.from_numpy(batch.pixels[start : start + self.step])
        if len(images) < self.step:
            images = torch.cat([images, images[-1:].expand(self.step - len(images), -1, -1, -1)])
        return start_inference(self.module, images, self.preprocessing, self.device, self.precision)

    def made_of(self) -> dict[str, Any]:
        return {"torch": torch.__version__, "torchvision": version("torchvision")}

    def device_name(self) -> str:
        if self.device.startswith("cuda"):
            return str(torch.cuda.get_device_name(self.device))
        return super().device_name()
