"""Models as .onnx: packed by PyTorch's exporter, run by onnxruntime."""

from __future__ import annotations

import logging
import warnings
from itertools import chain
from typing import Any

from ..errors import UsageError
from ..values.arrays import Array
from ..values.json_text import json_text
from .model import KEY, Model

OPSET = 18
MOST = 2**31 - 2**20  # bytes that one protobuf message holds, with some room for the graph


def pack(model: Model) -> bytes:
    """The graph with its weights in one message; equal models give equal bytes."""
    import torch

    if model.bytes() > MOST:
        raise UsageError(
            f"the model has {model.bytes() / 1e9:.1f} GB of numbers and one .onnx file holds at "
            "most 2: export it as .pt2 or .safetensors"
        )
    shapes = (dict(model.free),)
    noise = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in noise]
    for logger in noise:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            program: Any = torch.onnx.export(
                model.module, (model.example,), dynamo=True, opset_version=OPSET, verbose=False,
                dynamic_shapes=shapes, input_names=[model.input], output_names=model.outputs,
            )  # fmt: skip
    finally:
        for logger, level in zip(noise, levels, strict=True):
            logger.setLevel(level)
    proto = program.model_proto
    _forget(proto)
    for key, value in ((KEY, model.text()), ("classes", json_text(model.metadata["classes"]))):
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


def _forget(proto: Any) -> None:
    """Take out what the exporter notes of every node: names and lines of this machine's files."""
    graph = proto.graph
    parts = graph.node, graph.value_info, graph.input, graph.output, graph.initializer
    for part in chain((proto, graph), *parts):
        del part.metadata_props[:]
        part.doc_string = ""


def run(data: bytes, model: Model, given: Array) -> dict[str, Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return model.named(session.run(list(model.outputs), {model.input: given}))
