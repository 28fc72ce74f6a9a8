"""From a PyTorch module to a graph as ONNX, by PyTorch's exporter; a backbone as such a graph."""

from __future__ import annotations

import copy
import importlib.util
import logging
import warnings
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import EngineError
from ..plugins import install
from ..values.arrays import F32, U8
from .models import Backbone
from .preprocessing import Preprocessing

if TYPE_CHECKING:
    from torch import Tensor, nn

OPSET = 18
PACKAGES = ("onnx", "onnxscript")  # that the exporter needs
PIXELS, FEATURES = "pixels", "features"  # input and output of the graph of a frozen backbone


def exported(
    module: nn.Module, example: Tensor, free: Mapping[int, str], given: str, outputs: Sequence[str]
) -> Any:
    """The graph as a protobuf message; equal modules give equal messages.

    ``free``: the axes of the ``example`` that may have any length; ``given``: the input's name.
    """
    import torch

    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # of the exporter
    try:
        with warnings.catch_warnings(action="ignore"):
            program: Any = torch.onnx.export(
                module, (example,), dynamo=True, opset_version=OPSET, verbose=False,
                dynamic_shapes=(dict(free),), input_names=[given], output_names=list(outputs),
            )  # fmt: skip
    finally:
        logging.disable(before)
    proto, graph = program.model_proto, program.model_proto.graph
    parts = graph.node, graph.value_info, graph.input, graph.output, graph.initializer
    # The exporter notes names and lines of this machine's files at every node.
    for part in chain((proto, graph), *parts):
        del part.metadata_props[:]
        part.doc_string = ""
    return proto


def frozen_graph(backbone: Backbone, preprocessing: Preprocessing) -> tuple[U8, F32]:
    """The graph of a backbone as ONNX, and its features (n, d) of `Preprocessing.probe`.

    It takes uint8 (n, 3, s, s); the features are those of a plain pass of PyTorch. `EngineError`:
    the network cannot be exported, or the exporter's packages are not here.
    """
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise EngineError(f"a graph is made with {package}: {install('fast')}")
    import torch

    from .graph import Features
    from .inference import infer

    module = Features(preprocessing, copy.deepcopy(backbone.module)).eval()
    probe = torch.from_numpy(preprocessing.probe())
    try:
        proto = exported(module, probe[:2], {0: "n"}, PIXELS, [FEATURES])
        graph = np.frombuffer(proto.SerializeToString(deterministic=True), np.uint8)
    # The tracer runs the network on stand-ins, which can fail in any way; a message of protobuf
    # holds at most 2 GB.
    except Exception as error:
        reason = str(error).strip().partition("\n")[0][:200]
        raise EngineError(
            f"{backbone.name} cannot be made a graph ({type(error).__name__}: {reason})"
        ) from error
    return graph, infer(backbone.module, probe, preprocessing)
