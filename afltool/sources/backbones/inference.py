"""Running a frozen network as fast as its arithmetic allows.

Measured on 2 cores (AMD Zen 4, AVX-512, torch 2.15, fp32, images/s of the model alone):

=============================  ======================  ======================
network, side                  batches of 16           batches of 256
=============================  ======================  ======================
resnet18, 224: plain           41                      27
… channels last                51                      38
… and folded batch norm        56                      51
efficientnet_lite0, 128        314                     37
… channels last                383                     135
… and folded batch norm        415                     182
=============================  ======================  ======================

Large batches are slower on a CPU: each layer's output is new memory, and mapping and clearing it
takes the kernel a third of the time. Small batches reuse memory that the allocator still holds.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...values.arrays import F32

if TYPE_CHECKING:
    from torch import Tensor, nn

    from .preprocessing import Preprocessing

#: Values of ``--precision`` and torch's types of the arithmetic; features are always float32.
PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}

#: Largest difference, relative to the largest output, that folding batch norms may make.
FOLDING_TOLERANCE = 1e-4


def resolve_device(name: str = "auto") -> str:
    """``auto`` is ``cuda`` where there is one, else ``cpu``.

    Raises `UsageError`: no such device here.
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=name)
    # An unknown name is a RuntimeError, a build without CUDA an AssertionError.
    except Exception as error:
        raise UsageError(f"no device {name!r} on this machine: {error}.") from error
    return name


def default_batch_size(device: str) -> int:
    """Images per step: few on a CPU (see the table above), many on a GPU."""
    return 16 if device == "cpu" else 256


def prepare_for_inference(
    module: nn.Module, device: str = "cpu", *, image_size: int = 224
) -> nn.Module:
    """``module`` frozen, on ``device``, channels-last and with folded batch norm.

    A folded network is a copy and differs from ``module`` in the last bits only (relative 1e-6 as
    measured; above 1e-4 the batch norms are not folded).
    """
    import torch

    module.eval().requires_grad_(False)
    module = fold_batch_norm(module, image_size).to(memory_format=torch.channels_last)
    return module.to(device)


def infer(
    module: nn.Module,
    batch: Tensor,
    preprocessing: Preprocessing,
    device: str = "cpu",
    precision: str = "fp32",
) -> F32:
    """Features of uint8 images ``(n, 3, s, s)`` as float32 ``(n, dim)``; see `start_inference`."""
    return start_inference(module, batch, preprocessing, device, precision)()


def start_inference(
    module: nn.Module, batch: Tensor, preprocessing: Preprocessing, device: str, precision: str
) -> Callable[[], F32]:
    """Begin `infer`; calling the result waits for the features.

    fp32 is IEEE single precision throughout (no TF32); bf16 and fp16 are autocast. The batch stays
    in its memory format: a channels-last network brings its layout along with its weights. A GPU
    works while the caller prepares the next batch and writes the last one, provided that ``batch``
    is in pinned memory; a CPU has finished when this returns.

    Raises: the device's own exception when its memory is full; `is_out_of_memory` recognises it.
    """
    import torch

    kind = torch.device(device).type
    with torch.inference_mode(), arithmetic(kind, precision):
        pixels = preprocessing.normalise(batch.to(device, non_blocking=True))
        features: Tensor = module(pixels).float()
    if kind != "cuda":
        return lambda: features.cpu().numpy()
    host = torch.empty(features.shape, dtype=torch.float32, pin_memory=True)
    host.copy_(features, non_blocking=True)
    copied: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's
    copied.record(torch.cuda.current_stream(torch.device(device)))

    def wait() -> F32:
        copied.synchronize()
        return host.numpy()

    return wait


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a computation failed because its device, a GPU or the CPU, ran out of memory."""
    import torch

    words = ("can't allocate memory", "not enough memory", "ALLOC_FAILED")
    return isinstance(error, torch.cuda.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )


#: Operations of `torch.backends` that may be computed with fewer bits than float32 has.
_REDUCIBLE = ("cuda.matmul", "cudnn.conv", "mkldnn.matmul", "mkldnn.conv")


@contextmanager
def arithmetic(device_type: str, precision: str) -> Iterator[None]:
    """Set the precision of the enclosed computation, independent of the settings of the process.

    fp32: no TensorFloat-32 and no bfloat16 inside. Since PyTorch 2.9 each backend has a setting for
    each operation, and the older getters raise where these differ.
    """
    import torch
    from torch import backends

    with ExitStack() as after:
        if precision != "fp32":
            after.enter_context(
                torch.autocast(device_type, dtype=getattr(torch, PRECISIONS[precision]))
            )
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


# --- batch norm -----------------------------------------------------------------------------------


def fold_batch_norm(module: nn.Module, image_size: int = 224) -> nn.Module:
    """A copy with each batch norm that directly follows a convolution folded into its weights.

    Pairs are found by running the network once, so any code in between is seen. If the result
    differs by more than `FOLDING_TOLERANCE`, or the copy cannot run, this returns ``module``
    itself.
    """
    import torch

    # Inference tensors have no versions, which are needed to detect changes in place.
    with torch.inference_mode(False), torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        probe = torch.rand(2, 3, image_size, image_size, generator=generator) * 2 - 1
        pairs = _conv_norm_pairs(module, probe[:1])
        if not pairs:
            return module
        folded = copy.deepcopy(module)
        for conv, norm in pairs:
            _fold(folded, conv, norm)
        return folded if _same_output(module, folded, probe) else module


def _conv_norm_pairs(module: nn.Module, probe: Tensor) -> list[tuple[str, str]]:
    """Pairs of names: a convolution, and the batch norm whose input is its output."""
    from torch import nn

    made_by: dict[int, tuple[str, Tensor, int]] = {}
    pairs: list[tuple[str, str]] = []
    runs: Counter[str] = Counter()

    def after_conv(name: str, output: Any) -> None:
        runs[name] += 1
        # Kept, so that no later tensor gets its id; a new version shows a change in place.
        made_by[id(output)] = (name, output, output._version)

    def before_norm(name: str, given: Any) -> None:
        runs[name] += 1
        conv, _, version = made_by.get(id(given), ("", None, -1))
        if version == given._version:
            pairs.append((conv, name))

    with ExitStack() as hooks:
        for name, layer in module.named_modules():
            if isinstance(layer, nn.Conv2d):
                hook = layer.register_forward_hook(lambda _m, _i, o, n=name: after_conv(n, o))
            elif isinstance(layer, nn.BatchNorm2d) and layer.running_mean is not None:
                hook = layer.register_forward_pre_hook(lambda _m, i, n=name: before_norm(n, i[0]))
            else:
                continue
            hooks.callback(hook.remove)
        module(probe)
    return [pair for pair in pairs if runs[pair[0]] == runs[pair[1]] == 1]


def _fold(module: nn.Module, conv_name: str, norm_name: str) -> None:
    """y = s (w∗x + b − μ) + β with s = γ / √(σ² + ε), computed in float64."""
    from torch import nn
    from torch.nn.utils import fuse_conv_bn_eval

    conv: Any = module.get_submodule(conv_name)
    norm: Any = module.get_submodule(norm_name)
    wide = (copy.deepcopy(layer).double().eval() for layer in (conv, norm))
    fused = fuse_conv_bn_eval(*wide).float()
    conv.weight, conv.bias = fused.weight, fused.bias
    parent, _, attribute = norm_name.rpartition(".")
    # timm's batch norm has its activation inside.
    rest = [getattr(norm, part) for part in ("drop", "act") if hasattr(norm, part)]
    replacement = nn.Sequential(*rest) if rest else nn.Identity()
    setattr(module.get_submodule(parent), attribute, replacement.eval())


def _same_output(module: nn.Module, folded: nn.Module, probe: Tensor) -> bool:
    expected = module(probe)
    try:
        output = folded(probe)
    # A network that uses the insides of its batch norms keeps them.
    except Exception:
        return False
    difference = (output - expected).abs().max()
    return bool(difference <= FOLDING_TOLERANCE * expected.abs().max())
