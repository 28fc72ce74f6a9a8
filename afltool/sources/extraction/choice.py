"""Which engine runs a network.

``auto`` takes onnxruntime on a processor, in fp32, where it is installed and agrees with PyTorch on
known pictures: its features are in the same space. OpenVINO's are in a space of their own, so it
has to be named. PyTorch runs what is left: GPUs, ``--plain``, bf16 and fp16 as autocast, and
networks that cannot be a graph.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import EngineError, UsageError
from ...options.features import AUTO, TORCH, ExtractOptions
from ...progress import log
from .engines import is_installed
from .frozen import Frozen, kept
from .graph_network import GraphNetwork

if TYPE_CHECKING:
    from ..backbones.preprocessing import Preprocessing
    from .network import Network

CHOSEN = "onnxruntime"  # by auto
#: What Linux has where there is a GPU that PyTorch could use; elsewhere PyTorch is asked.
GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


def load_network(
    o: ExtractOptions, preprocessing: Preprocessing, frozen: Frozen | None = None
) -> Network:
    """The network that ``o`` asks for; ``frozen``: this one, and no PyTorch.

    Raises `EngineError`: the engine that was named cannot run it, or there is none for ``frozen``.
    """
    engine = _engine_of(o, frozen)
    if engine != TORCH:
        try:
            side = o.seen.inner(preprocessing.crop)
            graph = frozen or kept(o, preprocessing.at(side))
            return GraphNetwork.build(o, preprocessing, graph, engine)
        except EngineError as error:
            if o.engine != AUTO or frozen:
                raise
            log.warning("%s: PyTorch runs the network", error)
    from .torch_network import TorchNetwork

    return TorchNetwork.build(o, preprocessing)


def _engine_of(o: ExtractOptions, frozen: Frozen | None) -> str:
    if frozen and TORCH in (o.engine, "plain" * o.plain):
        raise UsageError("a frozen backbone runs without PyTorch: leave out --engine and --plain")
    if o.engine != AUTO:
        return o.engine
    if frozen or (
        is_installed(CHOSEN) and o.precision == "fp32" and not o.plain and _on_cpu(o.device)
    ):
        return CHOSEN
    return TORCH


def _on_cpu(device: str) -> bool:
    """Whether ``device`` is the processor; PyTorch is imported only where there may be a GPU."""
    if device != "auto":
        return device == "cpu"
    if importlib.util.find_spec("torch") is None:
        return True
    if sys.platform == "linux" and not any(Path(gpu).exists() for gpu in GPUS):
        return True
    from ..backbones.inference import resolve_device

    return resolve_device() == "cpu"
