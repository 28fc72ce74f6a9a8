"""Models as .onnx: packed by PyTorch's exporter, xW + b without PyTorch; run by onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import UsageError
from ..heads.base import NOBODY
from ..sources.backbones.freezing import OPSET, exported
from ..values.arrays import Array
from ..values.text import json_text
from .build import KEY, Model

MOST = 2**31 - 2**20  # bytes that one protobuf message holds, with some room for the graph


def pack(model: Model) -> bytes:
    """The graph with its weights in one message; equal models give equal bytes."""
    if model.bytes() > MOST:
        raise UsageError(
            f"the model has {model.bytes() / 1e9:.1f} GB of numbers and one .onnx file holds at "
            "most 2: export it as .pt2"
        )
    if model.affine is None:
        proto = exported(model.module, model.example, model.free, model.input, model.outputs)
    else:
        proto = _affine(model, *model.affine)
    for key, value in ((KEY, model.text()), ("classes", json_text(model.metadata["classes"]))):
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value
    data: bytes = proto.SerializeToString(deterministic=True)
    return data


#: What `heads.graphs.Classifier` does with xW + b; what no line makes is an array.
_GRAPH = """
<ir_version: 10, opset_import: ["": {opset}]>
head (float[n, {dim}] features) => ({outputs}) {{
  x = Cast<to = 11>(features)
  scaled = Mul(x, one)
  whole = {rounding}(scaled)
  size = Abs(whole)
  within = LessOrEqual(size, reach)
  each = Cast<to = 11>(within)
  every = ReduceMin<keepdims = 1>(each, columns)
  good = Cast<to = 9>(every)
  kept = Where(good, whole, zero)
  row = Div(kept, one)
  product = MatMul(row, W)
  found = Add(product, b)
  scores = Where(good, found, nan)
  usable = Squeeze(good, columns)
  best = ArgMax<axis = 1, keepdims = 0>(found)
  predicted = Where(usable, best, nobody)
  {more}
}}
"""


def _affine(model: Model, W: Array, b: Array) -> Any:
    """The graph of a head whose scores are xW + b."""
    from onnx import checker, numpy_helper, parser

    kinds = dict.fromkeys(model.outputs, f"double[n, {len(b)}]") | {"predicted": "int64[n]"}
    more = "probabilities = Softmax<axis = 1>(scores)" if "probabilities" in kinds else ""
    outputs = ", ".join(f"{kind} {name}" for name, kind in kinds.items())
    rounding = "Identity" if model.bits is None else "Round"
    filled = {"opset": OPSET, "dim": len(W), "outputs": outputs, "rounding": rounding, "more": more}
    proto = parser.parse_model(_GRAPH.format(**filled))
    numbers = {"one": 2.0 ** (model.bits or 0), "reach": model.reach, "zero": 0.0, "nan": np.nan}
    arrays = {name: np.array(value) for name, value in numbers.items()}
    arrays |= {"columns": np.array([1]), "nobody": np.array(NOBODY)}
    arrays |= {"W": np.ascontiguousarray(W, "f8"), "b": np.ascontiguousarray(b, "f8")}
    made = (numpy_helper.from_array(array, name) for name, array in arrays.items())
    proto.graph.initializer.extend(made)
    checker.check_model(proto)
    return proto


def run(data: bytes, model: Model, given: Array) -> dict[str, Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return model.named(session.run(list(model.outputs), {model.input: given}))
