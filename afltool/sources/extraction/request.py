"""The request of an extraction, and the recipe that follows from it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ...files.recipes import recipe
from ...options.datasets import DATASETS, named
from ...options.features import ExtractOptions
from ...options.shards import WHOLE, Part
from ...values.digest import Digest
from ...values.parsed import text_form
from ..backbones.preprocessing import Preprocessing
from .frozen import Frozen, frozen_file, read_frozen
from .remembered import Known, known, store_folder, surroundings

if TYPE_CHECKING:
    from ..images.base import ImageDataset


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
        path = frozen_file(o.backbone)
        if path is None:
            return cls(o, o.part)
        frozen = read_frozen(path)
        return cls(frozen.options(o, str(path)), o.part, frozen=frozen)

    @property
    def known(self) -> Known:
        """The weights and the preprocessing of the backbone; without PyTorch where that can be."""
        if self.frozen is not None:
            return Known(self.frozen.made_by["options"]["weights"], self.frozen.preprocessing)
        return known(self.given.backbone, self.given, store_folder(self.given))

    def dataset(self) -> ImageDataset:
        """The images, listed once."""
        from ..images import open_dataset

        if self.opened is None:
            o = self.given
            self.opened = open_dataset(
                o.data,
                o.split,
                data_root=o.data_root,
                classes=self.classes(),
                limit=o.limit,
                checksums=self.stated(),
                unlabelled=o.unlabelled,
                path_column=o.path_column,
                label_column=o.label_column,
            )
        return self.opened

    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes, from their file if they are in one."""
        from ..images import read_classes

        given = self.given.classes
        return read_classes(given) if isinstance(given, Path) else given

    def stated(self) -> dict[str, str] | None:
        from ..images.files import read_checksums

        given = self.given.checksums
        return None if given is None else read_checksums(given)

    def preprocessing(self) -> Preprocessing:
        """How images are prepared; views may be cut from larger squares than the network sees."""
        found = self.known.preprocessing
        return found.at(self.given.seen.outer(found.crop))

    def nodes(self) -> list[dict[str, Any]]:
        """The layers that give features, in the order they run, and the `penultimate`.

        Each with ``name``, ``layer`` (its class), ``width`` (features of one image once pooled),
        ``output`` (channels and positions, or tokens and width), ``place`` (its number of how many)
        and ``stages``: what `--node stages` takes of it, or None. No image and no weights are read;
        layers that run more than once or behind the classifier are left out. Nodes of the traced
        graph that are no layers are not listed.
        """
        from ..backbones.listing import nodes_of

        side = self.given.seen.inner(self.preprocessing().crop)
        return nodes_of(self.given.backbone, side)

    def check(self, here: bool) -> None:
        """Refuse names that do not exist and files that are missing; no image is read.

        ``here``: the data set and the device are on this machine, so they are checked, too.
        """
        from ...options.datasets import check_dataset_name
        from ..backbones.families import source_of
        from ..backbones.inference import resolve_device
        from ..backbones.models import kind_of_weights, load_backbone

        o = self.given
        check_dataset_name(o.data)
        side = o.seen.inner(self.preprocessing().crop)
        if self.frozen is None:
            kind_of_weights(source_of(o.backbone), o.weights)
        if (
            o.nodes and self.frozen is None
        ):  # whether the network has these nodes is only known once it is built
            load_backbone(o.backbone, weights="random", image_size=side, nodes=o.nodes)
        if here:
            resolve_device(o.device)
            self.dataset()
        else:
            self.classes()
            self.stated()

    def options(self) -> dict[str, Any]:
        """The options that the recipe holds as they are."""
        o = self.given
        shard = None if self.part.count == 1 else str(self.part)
        decisive = {f.name for f in fields(o) if f.metadata["in_result"]} - BY_CONTENT - {"node"}
        names = decisive & (ALWAYS | o.chosen().keys())
        found = {name: text_form(getattr(o, name)) for name in names} | self._nodes()
        return {**found, "fraction_bits": o.bits, "shard": shard}

    def _nodes(self) -> dict[str, Any]:
        """One node as a text, several as a list, none for what enters the classifier."""
        nodes = [str(node) for node in self.given.nodes]
        return {"node": nodes[0] if len(nodes) == 1 else nodes} if nodes else {}

    def recipe(self) -> dict[str, Any]:
        from ..backbones.families import family_version

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
        from ..backbones.families import weights_state
        from ..images import dataset_state
        from ..images.files import default_data_root

        o = self.given
        data = dataset_state(o.data, o.data_root or default_data_root())
        return [data or self.dataset().fingerprint, weights_state(o.weights)]

    def key(self, states: list[Any]) -> str:
        """Digest of everything that decides the recipe, which takes longer to make."""
        more = {name: getattr(self.given, name) for name in BY_CONTENT}
        classes = self.classes()
        more |= {"classes": classes and list(classes), "checksums": self.stated()}
        if self.frozen is not None:
            more["frozen"] = dict(self.frozen.made_by)
        everything = {"options": {**self.options(), **more}, "states": states, **surroundings()}
        return Digest().json("answer", everything).hex()
