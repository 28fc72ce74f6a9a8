"""Stage `backbone`: a network by name → one file that runs without PyTorch."""

from __future__ import annotations

from ..errors import UsageError
from ..options.common import FROZEN
from ..options.features import Backbone
from ..progress import log
from ..sources.backbones.families import preprocessing_for
from ..sources.backbones.models import weights_identity
from ..sources.extraction.frozen import freeze, recipe_of
from .runner import Files, Job, StageFunction


@StageFunction
def backbone(o: Backbone, files: Files) -> Job:
    """Write a frozen backbone: its graph as ONNX, preprocessing, nodes, weights and their licence.

    A federation hands this file out: whoever gives it to `extract` or `predict` as ``backbone``
    makes features of the same space as with the name, in ONNX Runtime or OpenVINO. The graph takes
    squares of uint8 (n, 3, s, s). The file also has PyTorch's features of four known pictures,
    which every engine has to make before it is used.

    Raises `EngineError`: the network cannot be a graph.
    """
    name, out = o.name, o.out
    if out.suffix != FROZEN:
        raise UsageError(f"{out}: the name of a frozen backbone ends in {FROZEN}")
    way = preprocessing_for(o.preprocess, name, o.weights, o.image_size)
    made_by = recipe_of(name, o, weights_identity(name, o.weights, o.seed), way)
    made_by["options"] |= {"licence": o.licence} if o.licence else {}

    def write() -> None:
        frozen = freeze(name, o, way, made_by, o.licence or "not told")
        frozen.save(out)
        log.info("backbone: %s, %d features an image, %s", name, frozen.dim, frozen.weights)

    return Job.of_rows(out, made_by, write)
