"""Runtimes that run a frozen graph on a processor, without PyTorch.

To add one: a class with the members of `Engine`, the ``precisions`` that it has and the ``extra``
that installs it, made as ``cls(graph, side, threads, precision)``; and its line in `ENGINES`. A
step of one size runs on one thread, so no feature depends on the batch or the number of threads.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ... import cores
from ...errors import EngineError, UsageError
from ...options.features import AUTO, TORCH, ExtractOptions
from ...options.grammars import Views
from ...progress import log
from ...values.arrays import F32, U8
from ..backbones.freezing import FEATURES, PIXELS
from ..backbones.inference import resolve_device
from ..backbones.preprocessing import Preprocessing
from .frozen import Frozen, kept
from .network import Batch, Network

#: Largest difference from PyTorch that an engine may have on known pictures, relative to the
#: largest feature: rounding in another order (1e-5 as seen), and an arithmetic of 8 bits (0.12).
TOLERANCE = {"fp32": 1e-4, "bf16": 0.3}


class Engine(Protocol):
    """A runtime with a graph that is ready to run."""

    step: int  # images that are run together

    def run(self, pixels: U8) -> F32:
        """Features (step, d) of uint8 (step, 3, side, side); called by several threads."""


class OnnxRuntime:
    """ONNX Runtime: a step of one image, as fast as larger ones on one thread."""

    step, precisions, extra = 1, ("fp32",), "fast"

    def __init__(self, graph: bytes, side: int, threads: int, precision: str) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"]
        )

    def run(self, pixels: U8) -> F32:
        features: F32 = self._session.run([FEATURES], {PIXELS: pixels})[0]
        return features


class OpenVino:
    """OpenVINO: a step of 16 images, since bf16 gains a half by it."""

    step, precisions, extra = 16, ("fp32", "bf16"), "openvino"

    def __init__(self, graph: bytes, side: int, threads: int, precision: str) -> None:
        import openvino

        core = openvino.Core()
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


ENGINES: Mapping[str, Callable[[bytes, int, int, str], Engine]] = {
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
}


def is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def started(name: str, frozen: Frozen, threads: int, precision: str) -> Engine:
    """The engine called ``name`` with a graph, once its features of the probe are PyTorch's.

    Raises `EngineError`: it is not installed, cannot run this graph, or gives other features.
    """
    cls: Any = ENGINES[name]
    if not is_installed(name):
        raise EngineError(f"{name} is not installed: pip install 'afltool[{cls.extra}]'")
    if precision not in cls.precisions:
        raise EngineError(f"{name} computes in {' or '.join(cls.precisions)}, not in {precision}")
    what, way = f"{name} {metadata.version(name)}", frozen.preprocessing
    try:
        engine: Engine = cls(frozen.graph.tobytes(), way.crop, threads, precision)
        steps, expected = in_steps(engine, way.probe()), frozen.expected
    except EngineError:
        raise
    # The runtimes raise classes of their own, and RuntimeError.
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise EngineError(f"{what} cannot run this network: {reason}") from error
    if steps.shape != expected.shape:
        raise EngineError(f"{what} gives {steps.shape} features, PyTorch {expected.shape}")
    away = float(np.abs(steps - expected).max() / max(float(np.abs(expected).max()), 1e-30))
    if not away <= TOLERANCE[precision]:  # NaN, too
        raise EngineError(
            f"{what} gives other features than PyTorch on known pictures: they differ by "
            f"{away:.2g} of the largest, more than {TOLERANCE[precision]:g}; use another version "
            "of it, or --engine torch"
        )
    return engine


def in_steps(engine: Engine, pixels: U8) -> F32:
    """Features of any number of images, in steps of the engine; the last one is filled up."""
    n, rows = len(pixels), []
    for start in range(0, n, engine.step):
        part = pixels[start : start + engine.step]
        missing = engine.step - len(part)
        if missing:
            part = np.concatenate([part, np.repeat(part[-1:], missing, axis=0)])
        rows.append(engine.run(np.ascontiguousarray(part)))
    return np.concatenate(rows)[:n]


IMAGES = 16  # of a batch, for each thread


@dataclass
class GraphNetwork(Network):
    """A frozen backbone in an engine.

    Each thread takes the next images of a batch. A step has one size and one thread, so a feature
    depends neither on ``batch`` nor on the number of threads.
    """

    backbone: Frozen
    runtime: Engine
    views: Views
    _pool: ThreadPoolExecutor | None = field(default=None, repr=False)

    @contextmanager
    def working(self) -> Iterator[None]:
        with ThreadPoolExecutor(self.threads) as self._pool:
            try:
                yield
            finally:
                self._pool.shutdown(cancel_futures=True)

    def begun(self, batch: Batch) -> Callable[[], F32]:
        assert self._pool is not None
        good = batch.good
        parts: list[Future[F32]] = [
            self._pool.submit(self._features, batch.pixels[good[start : start + self.step]])
            for start in range(0, len(good), self.step)
        ]
        none = np.empty((0, self.backbone.dim), dtype=np.float32)
        return lambda: np.concatenate([none, *(part.result() for part in parts)])

    def _features(self, pixels: U8) -> F32:
        """The mean over views, added up as in `afltool.sources.backbones.nodes.OverViews`."""
        side = self.backbone.preprocessing.crop
        rows: list[F32] = []
        for top, left in self.views.corners(side):
            square = pixels[..., top : top + side, left : left + side]
            for view in [square, square[..., ::-1]][: 1 + self.views.flip]:
                rows.append(in_steps(self.runtime, view))
        if len(rows) == 1:
            return rows[0]
        total: Any = sum(one.astype(np.float64) for one in rows)
        mean: F32 = (total / len(rows)).astype(np.float32)
        return mean

    def made_of(self) -> dict[str, Any]:
        return {self.engine: metadata.version(self.engine), "graph": self.backbone.digest}


# ---------------------------------------------------------------- the choice

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
    autocast, and networks that cannot be a graph.

    Raises `EngineError`: the engine that was named cannot run it, or there is none for ``frozen``.
    """
    if frozen and o.engine == TORCH:
        raise UsageError("a frozen backbone runs without PyTorch: leave out --engine")
    by_graph = frozen or (is_installed(CHOSEN) and o.precision == "fp32" and _on_cpu(o.device))
    engine = (CHOSEN if by_graph else TORCH) if o.engine == AUTO else o.engine
    if engine != TORCH:
        try:
            graph = frozen or kept(o, preprocessing.at(o.seen.inner(preprocessing.crop)))
            threads = cores.threads()
            runtime = started(engine, graph, threads, o.precision)
            work = o.batch_size or IMAGES * threads, o.workers or threads, threads, runtime.step
            own = "cpu", runtime, o.seen
            return GraphNetwork(graph, preprocessing, o.precision, engine, *work, *own)
        except EngineError as error:
            if o.engine != AUTO or frozen:
                raise
            log.warning("%s: PyTorch runs the network", error)
    from .torch_network import TorchNetwork

    return TorchNetwork.build(o, preprocessing)


def _on_cpu(device: str) -> bool:
    """Whether ``device`` is the processor; PyTorch is imported only where there may be a GPU."""
    if device != "auto" or not is_installed("torch"):
        return device in ("auto", "cpu")
    if sys.platform == "linux" and not any(Path(gpu).exists() for gpu in GPUS):
        return True
    return resolve_device() == "cpu"
