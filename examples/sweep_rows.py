"""The rows that `sweep.py` fits heads on: views, layers and fraction bits of pairs of files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from one_head import Data

from afltool.files.features import open_features
from afltool.math.gram import FixedPoint
from afltool.options.partition import PartitionOptions
from afltool.partitions.assignment import assign


@dataclass(frozen=True)
class Source:
    """A pair of feature files, one view of the images."""

    view: str
    train: Path
    test: Path
    seconds: float | None = None  # of extraction, an image


class Rows:
    """The rows of a source, by layers and fraction bits; what was asked for last stays."""

    def __init__(
        self, source: Source, clients: int, alpha: float, seeds: int, noise: float = 0.0
    ) -> None:
        with open_features(source.train) as train, open_features(source.test) as test:
            self.whole = Data.of(train, test, clients, alpha)
            self.digests = [train.header["digest"], test.header["digest"]]
            self.dealt = [
                assign(train.row_ids, train.labels, len(train.classes), PartitionOptions(
                    clients=clients, alpha=alpha, held_out=0.1, seed=seed, label_noise=noise))
                for seed in range(seeds)
            ]  # fmt: skip
        self.whole = replace(self.whole, y=self.dealt[0].effective_labels)
        self.slices = self.whole.space.get("slices", [])
        self._kept: tuple[Any, list[Data]] = (None, [])

    def has(self, layers: str) -> bool:
        """Whether the files have so many nodes, and more where a number is asked for."""
        return layers == "first" or (
            bool(self.slices) and (layers == "all" or int(layers) < len(self.slices))
        )

    def at(self, layers: str, bits: int) -> list[Data]:
        """The data with the clients of each seed."""
        if self._kept[0] != (layers, bits):
            count = {"first": 1, "all": None}.get(layers) if layers.isalpha() else int(layers)
            data = self.whole if count is None else first_slices(self.whole, count)
            data = data.converted(bits)
            every = [replace(data, client=d.client, held_out=d.held_out) for d in self.dealt]
            self._kept = ((layers, bits), every)
        return self._kept[1]


def first_slices(data: Data, count: int) -> Data:
    """The columns of the first nodes alone."""
    slices = data.space.get("slices", [])[:count]
    if not slices:
        return data
    dim = sum(int(one["dim"]) for one in slices)

    def cut(X: FixedPoint) -> FixedPoint:
        return FixedPoint(np.ascontiguousarray(X.values[:, :dim]), X.bits)

    left = {k: v for k, v in data.space.items() if k != "slices"}
    several = {"slices": slices} if count > 1 else {}
    return replace(data, X=cut(data.X), test=cut(data.test), space={**left, **several, "dim": dim})
