"""A backbone as a graph that runs without PyTorch, and what PyTorch makes of known pictures."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Sequence

import numpy as np

from ...errors import EngineError
from ...options.nodes import Node
from ...values.arrays import F32, U8
from .models import Backbone, load_backbone
from .onnx_graphs import PACKAGES, exported
from .preprocessing import Preprocessing

PIXELS, FEATURES = "pixels", "features"  # the graph's input and output


def frozen_graph(
    name: str, weights: str, seed: int, nodes: Sequence[Node], preprocessing: Preprocessing
) -> tuple[Backbone, U8, F32]:
    """The backbone, its graph as ONNX, and its features (n, d) of `Preprocessing.probe`.

    The graph takes uint8 (n, 3, s, s). The features are those of a plain pass of PyTorch.

    Raises `EngineError`: the network cannot be exported, or the exporter's packages are not here.
    """
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise EngineError(f"a graph is made with {package}: pip install 'afltool[fast]'")
    side = preprocessing.crop
    backbone = load_backbone(name, weights=weights, seed=seed, image_size=side, nodes=nodes)
    return backbone, _graph(backbone, preprocessing), _expected(backbone, preprocessing)


def _expected(backbone: Backbone, preprocessing: Preprocessing) -> F32:
    import torch

    from .inference import infer

    return infer(backbone.module, torch.from_numpy(preprocessing.probe()), preprocessing)


def _graph(backbone: Backbone, preprocessing: Preprocessing) -> U8:
    import torch

    from .graph import FromPixels
    from .slices import whole_passes

    module = FromPixels(preprocessing, whole_passes(copy.deepcopy(backbone.module))).eval()
    example = torch.from_numpy(preprocessing.probe()[:2])
    try:
        proto = exported(module, example, {0: "n"}, PIXELS, [FEATURES])
        data = proto.SerializeToString(deterministic=True)
    # The tracer runs the network on stand-ins, which can fail in any way; a message of protobuf
    # holds at most 2 GB.
    except Exception as error:
        reason = str(error).strip().partition("\n")[0][:200]
        raise EngineError(
            f"{backbone.name} cannot be made a graph ({type(error).__name__}: {reason})"
        ) from error
    return np.frombuffer(data, np.uint8)
