"""What an extraction was asked for: the options that decide its features. Not a stage itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import recipe
from ._answers import answer_key

if TYPE_CHECKING:
    from ..datasets import ImageDataset


@dataclass
class Asked:
    """What was asked for: all that decides the features."""

    backbone: str
    data: str
    split: str
    weights: str
    seed: int
    node: str | None
    preprocess: str
    image_size: int | None
    classes: tuple[str, ...] | None
    limit: int | None
    part: int
    parts: int
    dtype: str
    fraction_bits: int | None
    precision: str
    plain: bool
    skip_corrupt: bool
    data_root: Path | None
    checksums: Path | None
    opened: ImageDataset | None = None

    def dataset(self) -> ImageDataset:
        """The images, listed once."""
        from ..datasets import open_dataset

        if self.opened is None:
            self.opened = open_dataset(
                self.data,
                self.split,
                data_root=self.data_root,
                classes=self.classes,
                limit=self.limit,
                checksums=self.stated(),
            )
        return self.opened

    def stated(self) -> dict[str, str] | None:
        from ..datasets import read_checksums

        return None if self.checksums is None else read_checksums(self.checksums)

    def preprocessing(self) -> Any:
        from ..backbones import preprocessing_for

        return preprocessing_for(self.preprocess, self.backbone, self.weights, self.image_size)

    def options(self) -> dict[str, Any]:
        """Options that the recipe holds as they are; rare ones only where they were given."""
        rare = {"node": self.node, "plain": self.plain}
        return {
            "backbone": self.backbone,
            "precision": self.precision,
            "dtype": self.dtype,
            "fraction_bits": self.fraction_bits,
            "split": self.split,
            "limit": self.limit,
            "shard": None if self.parts == 1 else f"{self.part}/{self.parts}",
            "skip_corrupt": self.skip_corrupt,
            **{name: value for name, value in rare.items() if value},
        }

    def recipe(self) -> dict[str, Any]:
        from ..backbones import weights_identity

        dataset = self.dataset()
        options = {
            **self.options(),
            "weights": weights_identity(self.backbone, self.weights, self.seed),
            "preprocessing": self.preprocessing().fingerprint(),
        }
        inputs = {"images": dataset.fingerprint, "classes": list(dataset.classes)}
        return recipe("extract", options, inputs)

    def states(self) -> list[Any]:
        """What tells, at little cost, that data and weights are the same as the last time."""
        from ..backbones import weights_state
        from ..datasets import dataset_state, default_data_root

        data = dataset_state(self.data, self.data_root or default_data_root())
        return [data or self.dataset().fingerprint, weights_state(self.weights)]

    def key(self, states: list[Any]) -> str:
        more = {
            "data": self.data,
            "weights": self.weights,
            "seed": self.seed,
            "preprocess": self.preprocess,
            "image_size": self.image_size,
            "classes": self.classes and list(self.classes),
            "checksums": self.stated(),
        }
        return answer_key({**self.options(), **more}, states)
