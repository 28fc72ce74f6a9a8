"""Runtimes that run a frozen graph on a processor, without PyTorch.

To add one: a class with the members of `Engine`, the ``precisions`` that it has and the ``extra``
that installs it, made as ``cls(graph, side, threads, precision)``; and its line in `ENGINES`. A
step of one size runs on one thread, so no feature depends on the batch or the number of threads.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, Protocol

import numpy as np

from ...errors import EngineError
from ...values.arrays import F32, U8
from ..backbones.freezing import FEATURES, PIXELS

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
        found: F32 = self._session.run([FEATURES], {PIXELS: pixels})[0]
        return found


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
        found: F32 = np.array(request.infer([pixels])[0], dtype=np.float32)
        return found


ENGINES: Mapping[str, Callable[[bytes, int, int, str], Engine]] = {
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
}


def is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def version_of(name: str) -> str:
    return metadata.version(name)


def started(
    name: str, graph: bytes, side: int, threads: int, precision: str, probe: U8, expected: F32
) -> Engine:
    """The engine called ``name`` with a graph, once its features of the probe are PyTorch's.

    Raises `EngineError`: it is not installed, cannot run this graph, or gives other features.
    """
    cls: Any = ENGINES[name]
    if not is_installed(name):
        raise EngineError(f"{name} is not installed: pip install 'afltool[{cls.extra}]'")
    if precision not in cls.precisions:
        raise EngineError(f"{name} computes in {' or '.join(cls.precisions)}, not in {precision}")
    what = f"{name} {version_of(name)}"
    try:
        engine: Engine = cls(graph, side, threads, precision)
        found = in_steps(engine, probe)
    except EngineError:
        raise
    # The runtimes raise classes of their own, and RuntimeError.
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise EngineError(f"{what} cannot run this network: {reason}") from error
    _compare(found, expected, TOLERANCE[precision], what)
    return engine


def _compare(found: F32, expected: F32, tolerance: float, what: str) -> None:
    """Refuse features that are not PyTorch's."""
    if found.shape != expected.shape:
        raise EngineError(f"{what} gives {found.shape} features, PyTorch {expected.shape}")
    away = float(np.abs(found - expected).max() / max(float(np.abs(expected).max()), 1e-30))
    if not away <= tolerance:  # NaN, too
        raise EngineError(
            f"{what} gives other features than PyTorch on known pictures: they differ by "
            f"{away:.2g} of the largest, more than {tolerance:g}; use another version of it, or "
            "--engine torch"
        )


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
