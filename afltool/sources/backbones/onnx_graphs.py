"""From a PyTorch module to a graph as ONNX, by PyTorch's exporter."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

OPSET = 18
PACKAGES = ("onnx", "onnxscript")  # that the exporter needs


def exported(
    module: nn.Module, example: Tensor, free: Mapping[int, str], given: str, outputs: Sequence[str]
) -> Any:
    """The graph as a protobuf message; equal modules give equal messages.

    ``free``: the axes of the ``example`` that may have any length; ``given``: the input's name.
    """
    import torch

    noise = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in noise]
    for logger in noise:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            program: Any = torch.onnx.export(
                module, (example,), dynamo=True, opset_version=OPSET, verbose=False,
                dynamic_shapes=(dict(free),), input_names=[given], output_names=list(outputs),
            )  # fmt: skip
    finally:
        for logger, level in zip(noise, levels, strict=True):
            logger.setLevel(level)
    _forget(program.model_proto)
    return program.model_proto


def _forget(proto: Any) -> None:
    """Take out what the exporter notes of every node: names and lines of this machine's files."""
    graph = proto.graph
    parts = graph.node, graph.value_info, graph.input, graph.output, graph.initializer
    for part in chain((proto, graph), *parts):
        del part.metadata_props[:]
        part.doc_string = ""
