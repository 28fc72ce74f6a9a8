"""PyTorch as the engine of a network, on a processor or a GPU; the graphs are of its modules.

Channels-last layout makes a convolutional network 8 to 20 % faster on a processor, and steps of 16
images up to eight times faster than of 256: small ones reuse memory that the allocator holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce
from importlib.metadata import version
from operator import add, attrgetter

import torch
from torch import Tensor, backends, nn

from .. import parallel
from ..backbones.preprocessing import Preprocessing
from ..errors import InputError, UsageError
from ..options.features import TORCH
from ..options.grammars import Views
from ..values.arrays import F32, U8
from .network import Engine

STEPS = 16, 64  # images of a step: on a processor, elsewhere

#: Values of ``--precision`` and torch's types of the arithmetic; features are always float32.
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
#: Operations of `torch.backends` that may be computed with fewer bits than float32 has.
_REDUCIBLE = ("cuda.matmul", "cudnn.conv", "mkldnn.matmul", "mkldnn.conv")


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


class Features(nn.Module):
    """Squares, uint8 (n, 3, s, s) → features (n, d) float32."""

    def __init__(self, preprocessing: Preprocessing, network: nn.Module) -> None:
        super().__init__()
        self.preprocessing, self.network = preprocessing, network

    def forward(self, pixels: Tensor) -> Tensor:
        features: Tensor = self.network(self.preprocessing.normalize(pixels)).float()
        return features


class OverViews(nn.Module):
    """Squares (n, 3, outer, outer) → the mean over views of ``side``, (n, d)."""

    def __init__(self, network: nn.Module, views: Views, side: int) -> None:
        super().__init__()
        self.network, self.views, self.side = network, views, side

    def forward(self, x: Tensor) -> Tensor:
        parts = []
        for top, left in self.views.corners(self.side):
            square = x[..., top : top + self.side, left : left + self.side]
            for view in [square, square.flip(-1)][: 1 + self.views.flip]:
                parts.append(self.network(view).float().double())
        mean: Tensor = (reduce(add, parts) / len(parts)).float()
        return mean


def usable(device: str) -> str:
    """``auto`` is ``cuda`` where there is one, else ``cpu``. `UsageError`: no such device here."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=device)
    # An unknown name is a RuntimeError, a build without CUDA an AssertionError.
    except Exception as error:
        raise UsageError(f"no device {device!r} on this machine: {error}.") from error
    return device


def prepare_for_inference(module: nn.Module, device: str = "cpu") -> nn.Module:
    """``module`` frozen, on ``device`` and channels-last."""
    module.eval().requires_grad_(False)
    return module.to(memory_format=torch.channels_last).to(device)


def infer(
    module: nn.Module,
    batch: Tensor,
    preprocessing: Preprocessing,
    device: str = "cpu",
    precision: str = "fp32",
) -> F32:
    """Features of uint8 images (n, 3, s, s) as float32 (n, dim); fp32 has no TF32 in it."""
    with torch.inference_mode(), arithmetic(device, precision):
        features: Tensor = module(preprocessing.normalize(batch.to(device))).float()
    return features.cpu().numpy()


@contextmanager
def arithmetic(device: str, precision: str) -> Iterator[None]:
    """Set the precision of the enclosed computation, whatever the settings of the process."""
    with ExitStack() as after:
        if precision != "fp32":
            kind = torch.device(device).type
            after.enter_context(torch.autocast(kind, dtype=PRECISIONS[precision]))
        elif hasattr(backends.cudnn, "conv"):
            for place in (attrgetter(name)(backends) for name in _REDUCIBLE):
                after.callback(setattr, place, "fp32_precision", place.fp32_precision)
                place.fp32_precision = "ieee"
        else:
            after.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
            after.callback(setattr, backends.cudnn, "allow_tf32", backends.cudnn.allow_tf32)
            torch.set_float32_matmul_precision("highest")
            backends.cudnn.allow_tf32 = False
        yield
