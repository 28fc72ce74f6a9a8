"""Models as .onnx: packed by PyTorch's exporter, run by onnxruntime."""

from __future__ import annotations

from ..errors import UsageError
from ..extraction.frozen import exported
from ..values.arrays import Array
from ..values.text import json_text
from .build import FREE, KEY, Model

MOST = 2**31 - 2**20  # bytes that one protobuf message holds, with some room for the graph


def pack(model: Model) -> bytes:
    """The graph with its weights in one message; equal models give equal bytes."""
    numbers = sum(t.nbytes for t in model.module.state_dict().values())
    if numbers > MOST:
        raise UsageError(f"{numbers / 1e9:.1f} GB of numbers: .onnx holds 2, export it as .pt2")
    proto = exported(model.module, model.example, FREE, model.input, model.outputs)
    for key, value in ((KEY, model.text()), ("classes", json_text(model.metadata["classes"]))):
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    return bytes(proto.SerializeToString(deterministic=True))


def run(data: bytes, model: Model, given: Array) -> dict[str, Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return model.named(session.run(list(model.outputs), {model.input: given}))
