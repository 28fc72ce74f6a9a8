"""The request of an extraction, and the recipe that follows from it."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from ...files.hdf5 import recipe, strict
from ...options.common import frozen_in
from ...options.datasets import DATASETS, check_dataset_name, named
from ...options.features import ExtractOptions, store_folder
from ...options.grammars import STAGES, WHOLE, Part
from ...values.arrays import Digest
from ..backbones.families import family_version, source_of, weights_state
from ..backbones.inference import resolve_device
from ..backbones.models import kind_of_weights, load_backbone
from ..backbones.preprocessing import Preprocessing
from ..images import dataset_state, open_dataset, read_classes
from ..images.base import ImageDataset
from ..images.files import default_data_root
from .frozen import Frozen, read_frozen
from .remembered import Known, known, recall, remember, surroundings

#: The recipe holds the digests of what these name: the images, the weights, the preprocessing.
BY_CONTENT = {"data", "classes", "weights", "seed", "preprocess", "image_size",
              "path_column", "label_column"}  # fmt: skip
#: The recipe always holds these; it holds the others, newer or rare, only if not default.
ALWAYS = {"backbone", "precision", "dtype", "fraction_bits", "split", "limit", "shard",
          "skip_corrupt"}  # fmt: skip


@dataclass
class Asked:
    """The request: the options, and the part of the images that they mean."""

    given: ExtractOptions
    part: Part = WHOLE
    opened: ImageDataset | None = None
    frozen: Frozen | None = None

    @classmethod
    def of(cls, o: ExtractOptions) -> Self:
        """What ``o`` asks for; where its backbone is a file, with what the file says."""
        if not frozen_in(o.backbone):
            return cls(o, o.part)
        frozen = read_frozen(Path(o.backbone))
        return cls(frozen.options(o, o.backbone), o.part, frozen=frozen)

    @cached_property
    def known(self) -> Known:
        """The weights and the preprocessing of the backbone; without PyTorch where that can be."""
        if self.frozen is not None:
            return Known(self.frozen.made_by["options"]["weights"], self.frozen.preprocessing)
        return known(self.given.backbone, self.given, store_folder(self.given))

    def dataset(self) -> ImageDataset:
        """The images, listed once."""
        if self.opened is None:
            o = self.given
            self.opened = open_dataset(
                o.data,
                o.split,
                data_root=o.data_root,
                classes=self.classes(),
                limit=o.limit,
                unlabelled=o.unlabelled,
                path_column=o.path_column,
                label_column=o.label_column,
            )
        return self.opened

    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes, from their file if they are in one."""
        given = self.given.classes
        return read_classes(given) if isinstance(given, Path) else given

    def preprocessing(self) -> Preprocessing:
        """How images are prepared; views may be cut from larger squares than the network sees."""
        way = self.known.preprocessing
        return way.at(self.given.seen.outer(way.crop))

    def side(self) -> int:
        """Of the squares that the network sees."""
        return self.given.seen.inner(self.preprocessing().crop)

    def nodes(self) -> list[dict[str, Any]]:
        """The layers that give features, in the order they run, and the `penultimate`.

        Each with ``name``, ``layer`` (its class), ``width`` (features of one image once pooled),
        ``output`` (channels and positions, or tokens and width), ``place`` (its number of how many)
        and ``stages``: what `--node stages` takes of it, or None. No image and no weights are read;
        layers that run more than once or behind the classifier are left out. Nodes of the traced
        graph that are no layers are not listed.
        """
        from ..backbones.nodes import list_nodes

        return list_nodes(self.given.backbone, self.side())

    def check(self, here: bool) -> None:
        """Refuse names that do not exist and files that are missing; no image is read.

        ``here``: the data set and the device are on this machine, so they are checked, too.
        """
        o = self.given
        check_dataset_name(o.data)
        side = self.side()
        if self.frozen is None:
            kind_of_weights(source_of(o.backbone), o.weights)
            if o.nodes:  # whether the network has these is only known once it is built
                load_backbone(o.backbone, weights="random", image_size=side, nodes=o.nodes)
        if here:
            resolve_device(o.device)
            self.dataset()
        else:
            self.classes()

    def options(self) -> dict[str, Any]:
        """The options that the recipe holds as they are."""
        o = self.given
        shard = None if self.part.count == 1 else str(self.part)
        kept = {
            k: v
            for k, v in o.stored(*BY_CONTENT, "node").items()
            if k in ALWAYS | o.changed().keys()
        }
        values = {name: getattr(o, name) for name in kept}
        if nodes := [str(node) for node in o.nodes]:  # one as a text, several as a list
            values["node"] = nodes[0] if len(nodes) == 1 else nodes
        if o.backbone.startswith("timm:") and any(node.name == STAGES for node in o.nodes):
            values["stages"] = "feature_info"  # up to 0.3 the networks' own shapes decided
        return {**values, "fraction_bits": o.bits, "shard": shard}

    def recipe(self) -> dict[str, Any]:
        dataset, o = self.dataset(), self.given
        options = {
            **self.options(),
            "weights": self.known.weights,
            "preprocessing": self.preprocessing().fingerprint(),
        }
        inputs = {"images": dataset.fingerprint, "classes": list(dataset.classes)}
        inputs |= DATASETS.version(named(o.data)[0].name) | family_version(o.backbone)
        return recipe("extract", options, inputs)

    def states(self) -> list[Any]:
        """File states that show, at little cost, whether data and weights have changed."""
        o = self.given
        data = dataset_state(o.data, o.data_root or default_data_root())
        return [data or self.dataset().fingerprint, weights_state(o.weights)]

    def key(self, states: list[Any]) -> str:
        """Digest of everything that decides the recipe, which takes longer to make."""
        more = {name: getattr(self.given, name) for name in BY_CONTENT}
        classes = self.classes()
        more |= {"classes": classes and list(classes)}
        if self.frozen is not None:
            more["frozen"] = dict(self.frozen.made_by)
        everything = {"options": {**self.options(), **more}, "states": states, **surroundings()}
        return Digest().json("answer", everything).hex()


def in_store(request: Asked) -> tuple[Path, dict[str, Any]]:
    """The path of the features in the store, and their recipe.

    The key there is a digest of the recipe. To make it takes seconds: PyTorch, torchvision and the
    data set have to be imported for the digests in it. So the recipe is remembered.
    """
    folder, begun = store_folder(request.given), time.time_ns()  # the clock of file systems
    states = request.states()
    key = request.key(states)
    made_by = recall(folder, key)
    if made_by is None:
        made_by = request.recipe()
        remember(folder, key, made_by, states, begun)
    return _place(request.given, made_by), made_by


def is_kept(request: Asked) -> bool:
    """Whether the store has a file for these features; needs no images and no PyTorch."""
    made_by = recall(store_folder(request.given), request.key(request.states()))
    return made_by is not None and _place(request.given, made_by).exists()


def _place(options: ExtractOptions, made_by: dict[str, Any]) -> Path:
    """One for both where images may be left out and where not: what is done serves both."""
    words = f"{options.backbone}-{Path(options.data).name}-{options.split}"
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", words)
    digests = (Digest().json("recipe", one).hex()[:16] for one in (made_by, strict(made_by)))
    own, shared = (store_folder(options) / f"{name}-{digest}.h5" for digest in digests)
    return own if own.exists() else shared  # up to 0.3 each had its own
