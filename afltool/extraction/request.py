"""The request of an extraction, and the recipe that follows from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from ..backbones.families import FAMILIES, get_source, preprocessing_for
from ..backbones.models import described, load_backbone, weights_identity
from ..backbones.preprocessing import Preprocessing
from ..datasets import open_dataset, read_classes
from ..datasets.base import ImageDataset
from ..datasets.packed import matching
from ..files.hdf5 import recipe, strict
from ..options.base import get_fields
from ..options.common import BEHIND_COLON, FROZEN_FILE
from ..options.datasets import DATASETS, parse_dataset
from ..options.features import ExtractOptions, default_store
from ..options.grammars import STAGES
from ..values.arrays import Digest
from .engines import device_of
from .frozen import Frozen, read_frozen

#: The recipe holds the digests of what these name: the images, the weights, the preprocessing.
BY_CONTENT = {"data", "classes", "y", "weights", "seed", "preprocess", "image_size"}
#: The recipe always holds these; it holds the others, newer or rare, only if not default.
ALWAYS = {"backbone", "precision", "dtype", "fraction_bits", "split", "limit", "shard",
          "skip_corrupt"}  # fmt: skip


@dataclass
class ExtractionRequest:
    """The request: the options, and the frozen backbone if they name the file of one."""

    given: ExtractOptions
    frozen: Frozen | None = None

    @classmethod
    def of(cls, o: ExtractOptions) -> Self:
        """What ``o`` asks for; where its backbone is a file, with what the file says."""
        frozen = read_frozen(Path(o.backbone)) if FROZEN_FILE.path(o.backbone) else None
        return cls(o if frozen is None else frozen.options(o), frozen)

    @cached_property
    def dataset(self) -> ImageDataset:
        """The images, listed once."""
        o = self.given
        how = {name: getattr(o, name) for name in ("data_root", "limit", "unlabeled", "y")}
        return open_dataset(o.data, o.split, classes=self.classes(), **how)

    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes, from their file if they are in one."""
        given = self.given.classes
        return read_classes(given) if isinstance(given, Path) else given

    def preprocessing(self) -> Preprocessing:
        """How images are prepared; views may be cut from larger squares than the network sees."""
        o = self.given
        way = (
            self.frozen.preprocessing
            if self.frozen is not None
            else preprocessing_for(o.preprocess, o.backbone, o.weights, o.image_size)
        )
        return way.at(o.seen.outer(way.crop))

    def side(self) -> int:
        """Of the squares that the network sees."""
        return self.given.seen.inner(self.preprocessing().crop)

    def check(self, here: bool) -> None:
        """Refuse names that do not exist and files that are missing; no image is read.

        ``here``: the data set and the device are on this machine, so they are checked, too.
        """
        o, side = self.given, self.side()
        if self.frozen is None:
            described(get_source(o.backbone), o.weights, o.seed)
            if o.nodes:  # whether the network has these is only known once it is built
                load_backbone(o.backbone, weights="random", image_size=side, nodes=o.nodes)
        if path := BEHIND_COLON.path(o.data):
            matching(path)
        if here:
            device_of(o.device)
            _ = self.dataset
        else:
            self.classes()

    def recipe(self) -> dict[str, Any]:
        """With the options as they are, or digests of what they name."""
        dataset, o = self.dataset, self.given
        unsaid = get_fields(type(o)).keys() - ALWAYS - o.changed_options().keys()
        options = o.recipe_options(*BY_CONTENT, "node", *unsaid)
        if nodes := [str(node) for node in o.nodes]:  # one as a text, several as a list
            options["node"] = nodes[0] if len(nodes) == 1 else nodes
        if o.backbone.startswith("timm:") and any(node.name == STAGES for node in o.nodes):
            options["stages"] = "feature_info"  # up to 0.3 the networks' own shapes decided
        options |= {"fraction_bits": o.bits, "shard": None if o.part.count == 1 else str(o.part)}
        options["weights"] = (
            str(self.frozen.made_by["options"]["weights"])
            if self.frozen is not None
            else weights_identity(o.backbone, o.weights, o.seed)
        )
        options["preprocessing"] = self.preprocessing().fingerprint()
        inputs = {"images": dataset.fingerprint, "classes": list(dataset.classes)}
        inputs |= DATASETS.version(parse_dataset(o.data)[0].name) | FAMILIES.version(
            o.backbone.partition(":")[0]
        )
        return recipe("extract", options, inputs)


def check_extraction(options: ExtractOptions, *, here: bool = True) -> None:
    """Refuse an extraction that would fail, unless the store has its answer; no image is read.

    ``here``: the images are extracted on this machine; elsewhere its data and devices are unknown.
    """
    request = ExtractionRequest.of(options)
    if not (here and get_store_path(request)[0].exists()):
        request.check(here)


def get_store_path(request: ExtractionRequest) -> tuple[Path, dict[str, Any]]:
    """The path of the features in the store, whose key is a digest of their recipe, and that.

    One for both where images may be left out and where not: what is done serves both.
    """
    made_by, o = request.recipe(), request.given
    words = f"{o.backbone}-{Path(o.data).name}-{o.split}"
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", words)
    key = Digest().json("recipe", strict(made_by)).hex()[:16]
    return (o.store or default_store()) / f"{name}-{key}.h5", made_by
