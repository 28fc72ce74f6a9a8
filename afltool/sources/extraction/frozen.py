"""A frozen backbone: its graph and all that is known of it; from a file, or kept in the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import AflError, CorruptFileError, UsageError
from ...files.backbones import load_frozen, save_frozen
from ...files.recipes import recipe
from ...options.features import ExtractOptions, SeenOptions
from ...options.files import FROZEN, frozen_in
from ...options.nodes import Node, parse_nodes
from ...options.used_with import flag
from ...progress import log
from ...values.arrays import F32, U8
from ...values.digest import Digest
from ..backbones.freezing import frozen_graph
from ..backbones.preprocessing import Preprocessing
from ..backbones.slices import Slice
from .remembered import GRAPHS, known, store_folder, surroundings


@dataclass(frozen=True, eq=False)
class Frozen:
    """See `afltool.sources.backbones.models.Backbone` for what the first fields are.

    ``made_by``: its recipe; ``expected``: PyTorch's features of `Preprocessing.probe`.
    """

    name: str
    weights: str
    weights_digest: str
    node: str
    dim: int
    slices: tuple[Slice, ...]
    nodes: tuple[Node, ...]
    preprocessing: Preprocessing
    licence: str
    made_by: Mapping[str, Any] = field(repr=False)
    graph: U8 = field(repr=False)
    expected: F32 = field(repr=False)

    def about(self) -> dict[str, Any]:
        """What the header of its file says."""
        plain = ("name", "weights", "weights_digest", "node", "dim", "licence")
        return {
            **{name: getattr(self, name) for name in plain},
            "nodes": [str(node) for node in self.nodes],
            "slices": [one.describe() for one in self.slices],
            "preprocessing": self.preprocessing.describe(),
        }

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the graph."""
        return Digest().array("graph", self.graph, "|u1").hex()

    def save(self, path: Path) -> Path:
        return save_frozen(path, self.about(), self.graph, self.expected, self.made_by)

    def options(self, o: ExtractOptions, path: str) -> ExtractOptions:
        """``o`` with what this backbone is, instead of its file's name.

        Raises `UsageError`: an option says something else.
        """
        own: dict[str, Any] = {
            "node": self.nodes,
            "preprocess": self.preprocessing.name,
            "image_size": self.preprocessing.crop,
        }
        for name, value in own.items():
            if name in o.chosen() and getattr(o, name) != value:
                raise UsageError(
                    f"{path} was frozen with another {flag(name)}: leave {flag(name)} out, or "
                    f"freeze the backbone again with it"
                )
        for name in ("weights", "seed"):
            if name in o.chosen():
                raise UsageError(f"{path} has its weights in it: leave {flag(name)} out")
        return replace(o, backbone=self.name, **own)


def frozen_file(backbone: str) -> Path | None:
    """The file that the name of a backbone means, if it means one."""
    return Path(backbone) if frozen_in(backbone) else None


def read_frozen(path: Path) -> Frozen:
    """The frozen backbone in a file.

    Raises `InputError`, `CorruptFileError`: there is none, it is damaged, or of another program.
    """
    header, graph, expected = load_frozen(path)
    about = dict(header["backbone"])
    try:
        nodes = parse_nodes(tuple(about.pop("nodes")))
        slices = tuple(Slice(**one) for one in about.pop("slices"))
        preprocessing = Preprocessing.of(about.pop("preprocessing"))
        str(header["recipe"]["options"]["weights"])
        return Frozen(
            nodes=nodes,
            slices=slices,
            preprocessing=preprocessing,
            made_by=header["recipe"],
            graph=graph,
            expected=expected,
            **about,
        )
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise CorruptFileError(
            f"{path} is damaged, or of another version of afltool: {error}"
        ) from None


def recipe_of(
    name: str, o: SeenOptions, identity: str, preprocessing: Preprocessing
) -> dict[str, Any]:
    """The recipe of a frozen backbone; ``identity``: of its weights."""
    options = {
        "backbone": name,
        "weights": identity,
        "node": [str(node) for node in o.nodes],
        "preprocessing": preprocessing.describe(),
    }
    return recipe("backbone", options, {})


def freeze(
    name: str,
    o: SeenOptions,
    preprocessing: Preprocessing,
    made_by: Mapping[str, Any],
    licence: str = "",
) -> Frozen:
    """Make the graph with PyTorch. Raises `EngineError`: this network cannot be a graph."""
    backbone, graph, expected = frozen_graph(name, o.weights, o.seed, o.nodes, preprocessing)
    return Frozen(
        backbone.name,
        backbone.weights,
        backbone.weights_digest,
        backbone.node,
        backbone.dim,
        backbone.slices,
        o.nodes,
        preprocessing,
        licence,
        made_by,
        graph,
        expected,
    )


def kept(o: ExtractOptions, preprocessing: Preprocessing) -> Frozen:
    """The backbone of ``o``, frozen: from the store, else made and kept there."""
    folder = store_folder(o)
    weights = known(o.backbone, o, folder, keep=True).weights
    made_by = recipe_of(o.backbone, o, weights, preprocessing)
    key = Digest().json("graph", {"recipe": made_by, **surroundings()}).hex()[:16]
    place = folder / GRAPHS / f"{o.backbone.replace(':', '_')}-{key}{FROZEN}"
    if place.exists():
        try:
            return read_frozen(place)
        except AflError as error:
            log.warning("%s; the graph is made again", error)
            place.unlink(missing_ok=True)
    frozen = freeze(o.backbone, o, preprocessing, made_by)
    try:
        frozen.save(place)
    except AflError as error:  # a store that cannot be written costs time only
        log.warning("the graph of %s is not kept: %s", o.backbone, error)
    return frozen
