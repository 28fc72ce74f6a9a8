"""The feature space: what rows must have in common to be added up or scored.

`make_space` gives the space of a network; `options_for` the options of a network for a space, so
that a head's user can make features for it. Callers compare the space of the rebuilt network with
the whole space, so a field that `options_for` does not know is refused by name, never ignored. How
files become RGB (`afltool.datasets.pixels`) has no field, as there is one way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..backbones.families import WHOLE
from ..backbones.preprocessing import Preprocessing
from ..errors import CorruptFileError, UsageError
from ..options.features import AUTO, ExtractOptions
from ..options.grammars import Node, Views, parse_views

if TYPE_CHECKING:
    from .network import Network

OWN_SPACE = ("openvino",)  # engines whose features differ more than those of PyTorch by itself
_OUTPUT = "output of "  # of a node that --node named; see `afltool.backbones.nodes`


def make_space(network: Network, o: ExtractOptions) -> dict[str, Any]:
    """The space of the rows that ``network`` makes, stored as ``o`` says."""
    backbone, preprocessing = network.backbone, network.preprocessing
    return {
        "backbone": backbone.name,
        "weights": backbone.weights_digest,
        "node": backbone.node,
        **({"slices": [asdict(one) for one in backbone.slices]} if backbone.slices else {}),
        "preprocessing": {**preprocessing.describe(), "fingerprint": preprocessing.fingerprint()},
        **({"views": str(o.views)} if o.views is not None else {}),
        **({"engine": network.engine.name} if network.engine.name in OWN_SPACE else {}),
        "precision": network.precision,
        "dim": backbone.dim,
        "dtype": o.dtype,
        "fraction_bits": o.bits,
    }


def options_for(space: Mapping[str, Any], **how: Any) -> ExtractOptions:
    """The options of an extraction into ``space``; ``how``: options that no space has.

    Raises `UsageError`: imported features, whose network is not known; `CorruptFileError`: no space
    of an extraction.
    """
    if space.get("preprocessing", ...) is None:
        raise UsageError(
            f"the features of {space.get('backbone')!r} were imported, so the network that made "
            "them is not known here: give a feature file of them instead of images"
        )
    way = get_preprocessing(space)
    try:
        views = parse_views(str(space["views"])) if "views" in space else Views()
        if how.get("engine", AUTO) == AUTO and "engine" in space:
            how = {**how, "engine": space["engine"]}
        how["dtype"] = space["dtype"]
        if space["fraction_bits"] is not None:
            how["fraction_bits"] = space["fraction_bits"]
        return ExtractOptions(
            backbone=space["backbone"],
            image_size=views.inner(way.crop),
            views=str(views) or None,
            node=_get_node_value(space),
            precision=space["precision"],
            **how,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(f"the feature space {dict(space)} has no {error}") from None


def _get_node_value(space: Mapping[str, Any]) -> tuple[str, ...]:
    """The value of ``--node``, reconstructed from a space."""
    if "slices" in space:
        slices = [Node(str(one["name"]), None, float(one["scale"])) for one in space["slices"]]
        return tuple(map(str, slices))
    node = str(space["node"])
    named = node.removeprefix(_OUTPUT).partition(", averaged over ")[0]
    return (named,) if node.startswith(_OUTPUT) and node != WHOLE else ()


def get_preprocessing(space: Mapping[str, Any]) -> Preprocessing:
    """How images are prepared in ``space``. `CorruptFileError`: in no possible way."""
    described = space.get("preprocessing")
    try:
        fields = {k: v for k, v in dict(described or {}).items() if k != "fingerprint"}
        return Preprocessing.of(fields)
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise CorruptFileError(
            f"preprocessing {described!r} cannot be done here ({error}); the head is damaged, or "
            "of another version of afltool"
        ) from None
