"""Stage `backbone`: a network by name → one file that runs without PyTorch."""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError
from ..files.hdf5 import up_to_date
from ..options.common import FROZEN
from ..options.features import Backbone, default_store
from ..progress import log
from ..sources.extraction.frozen import freeze, recipe_of
from ..sources.extraction.remembered import known


def backbone(o: Backbone) -> Path:
    """Write a frozen backbone: its graph as ONNX, preprocessing, nodes, weights and their licence.

    A federation hands this file out: whoever gives it to `extract` or `predict` as ``backbone``
    makes features of the same space as with the name, in ONNX Runtime or OpenVINO. The graph takes
    squares of uint8 (n, 3, s, s). The file also has PyTorch's features of four known pictures,
    which every engine has to make before it is used.

    Raises `EngineError`: the network cannot be a graph.
    """
    name, out, overwrite = o.name, o.out, o.overwrite
    if out.suffix != FROZEN:
        raise UsageError(f"{out}: the name of a frozen backbone ends in {FROZEN}")
    known_one = known(name, o, default_store())
    made_by = recipe_of(name, o, known_one.weights, known_one.preprocessing)
    made_by["options"] |= {"licence": o.licence} if o.licence else {}
    if up_to_date(out, made_by, overwrite):
        return out
    frozen = freeze(name, o, known_one.preprocessing, made_by, o.licence or "not told")
    frozen.save(out)
    log.info("backbone: %s, %d features an image, %s", name, frozen.dim, frozen.weights)
    return out
