"""Runtimes that run a frozen graph on a processor, without PyTorch, and the choice of one.

To add one: a class with the members of `network.Engine`, the ``precisions`` that it has and the
``extra`` that installs it, made as ``cls(graph, side, threads, precision)``; and its line in
`ENGINES`. A step runs on one thread, so no feature depends on the number of threads.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from .. import parallel
from ..backbones.models import load_backbone
from ..backbones.preprocessing import Preprocessing
from ..errors import EngineError, UsageError
from ..options.features import AUTO, TORCH, ExtractOptions
from ..plugins import install
from ..progress import log
from ..values.arrays import F32, U8
from .frozen import FEATURES, PIXELS, Frozen, get_or_freeze, has_graph
from .network import Engine, Network, in_steps

#: Largest difference from PyTorch that an engine may have on known pictures, relative to the
#: largest feature: rounding in another order (1e-5 as seen), and an arithmetic of 8 bits (0.12).
TOLERANCE = {"fp32": 1e-4, "bf16": 0.3}


class OnnxRuntime(Engine):
    """ONNX Runtime: a step of one image, as fast as larger ones on one thread."""

    name, step, precisions, extra = "onnxruntime", 1, ("fp32",), "fast"

    def __init__(self, graph: bytes, side: int, threads: int, precision: str) -> None:
        import onnxruntime

        self.threads, options = threads, onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"]
        )

    def run(self, pixels: U8) -> F32:
        features: F32 = self._session.run([FEATURES], {PIXELS: pixels})[0]
        return features


class OpenVino(Engine):
    """OpenVINO: a step of 16 images, since bf16 gains a half by it."""

    name, step, precisions, extra = "openvino", 16, ("fp32", "bf16"), "openvino"

    def __init__(self, graph: bytes, side: int, threads: int, precision: str) -> None:
        import openvino

        self.threads, core = threads, openvino.Core()
        can = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        if precision == "bf16" and "BF16" not in can:
            raise EngineError("this processor has no bf16 arithmetic: use --precision fp32")
        model = core.read_model(graph)
        model.reshape([self.step, 3, side, side])
        how = {
            "NUM_STREAMS": threads,
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[precision],
        }
        self._compiled = core.compile_model(model, "CPU", how)
        self._own = threading.local()

    def run(self, pixels: U8) -> F32:
        request = getattr(self._own, "request", None)
        if request is None:
            request = self._own.request = self._compiled.create_infer_request()
        features: F32 = np.array(request.infer([pixels])[0], dtype=np.float32)
        return features


ENGINES: Mapping[str, Any] = {one.name: one for one in (OnnxRuntime, OpenVino)}


def is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def start_engine(name: str, frozen: Frozen, threads: int, precision: str) -> Engine:
    """The engine called ``name`` with a graph, once its features of the probe are PyTorch's."""
    cls = ENGINES[name]
    if not is_installed(name):
        raise EngineError(f"{name} is not installed: {install(cls.extra)}")
    if precision not in cls.precisions:
        raise EngineError(f"{name} computes in {' or '.join(cls.precisions)}, not in {precision}")
    what, way, expected = f"{name} {metadata.version(name)}", frozen.preprocessing, frozen.expected
    try:
        engine: Engine = cls(frozen.graph.tobytes(), way.crop, threads, precision)
        away = np.abs(in_steps(engine, way.probe()) - expected).max()
    except EngineError:
        raise
    # The runtimes raise classes of their own, and RuntimeError; features of another shape differ.
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise EngineError(f"{what} cannot run this network: {reason}") from error
    share = float(away / max(float(np.abs(expected).max()), 1e-30))
    if not share <= TOLERANCE[precision]:  # NaN, too
        raise EngineError(
            f"{what} gives other features than PyTorch on known pictures: they differ by "
            f"{share:.2g} of the largest, more than {TOLERANCE[precision]:g}; use another version "
            "of it, or --engine torch"
        )
    return engine


CHOSEN = "onnxruntime"  # by auto
#: What Linux has where there is a GPU that PyTorch could use; elsewhere PyTorch is asked.
GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


def load_network(
    o: ExtractOptions, preprocessing: Preprocessing, frozen: Frozen | None = None
) -> Network:
    """The network that ``o`` asks for; ``frozen``: this one, and no PyTorch.

    ``auto`` takes onnxruntime on a processor, in fp32, where it is installed and agrees with
    PyTorch on known pictures: its features are in the same space. OpenVINO's are in a space of
    their own, so it has to be named. PyTorch runs what is left: GPUs, bf16 and fp16 as
    autocast, and networks that cannot be a graph. Raises `EngineError`.
    """
    if frozen and o.engine == TORCH:
        raise UsageError("a frozen backbone runs without PyTorch: leave out --engine")
    side, graph = o.seen.inner(preprocessing.crop), frozen
    name, engine = CHOSEN if frozen and o.engine == AUTO else chosen(o), None
    if name != TORCH:
        try:
            graph = frozen or get_or_freeze(o, preprocessing.at(side))
            engine = start_engine(name, graph, parallel.threads(), o.precision)
        except EngineError as error:
            if o.engine != AUTO or frozen:
                raise
            log.warning("%s: PyTorch runs the network", error)
    backbone: Any = graph
    if engine is None or graph is None:
        from .torch_engine import TorchEngine

        graph, device = None, device_of(o.device)
        backbone = load_backbone(
            o.backbone, weights=o.weights, seed=o.seed, image_size=side, nodes=o.nodes
        )
        engine = TorchEngine(backbone.module, preprocessing, device, o.precision)
    digest = graph.digest if graph else ""
    return Network(backbone, preprocessing, o.precision, o.seen, engine, digest)


def log_if_first(o: ExtractOptions) -> None:
    """Say that the network will be frozen before PyTorch is loaded, which takes seconds, too."""
    if chosen(o) != TORCH and not has_graph(o):
        log.info("the store has no graph of %s yet: PyTorch is loaded, for freezing it", o.backbone)


def chosen(o: ExtractOptions) -> str:
    """The engine that is tried."""
    if o.engine != AUTO:
        return o.engine
    fits = is_installed(CHOSEN) and o.precision == "fp32"
    return CHOSEN if fits and device_of(o.device) == "cpu" else TORCH


def device_of(name: str) -> str:
    """``auto`` is ``cuda`` where there is one, else ``cpu``. `UsageError`: no such device here.

    PyTorch is imported only where it has to be asked.
    """
    none = sys.platform == "linux" and not any(Path(gpu).exists() for gpu in GPUS)
    if name == "cpu" or (name == "auto" and (none or not is_installed("torch"))):
        return "cpu"
    from .torch_engine import usable

    return usable(name)
