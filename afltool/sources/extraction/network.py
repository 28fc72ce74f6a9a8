"""A frozen backbone: from images to rows of features.

Images are decoded by threads while the network runs; what runs it is PyTorch (`torch_network`) or a
runtime of graphs (`graph_network`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...values.arrays import F32, U8
from ..images.base import CorruptImageError
from .decoding import Batch, batches

if TYPE_CHECKING:
    from ..backbones.models import Facts
    from ..backbones.preprocessing import Preprocessing
    from ..images.base import Pictures


@dataclass
class Network:
    """A backbone that is ready to run; made by `choice.load_network`.

    Attributes:
        batch: images that are decoded together.
        steps: sizes of steps with the image at which each begins; a size can change the last bits.
    """

    backbone: Facts
    preprocessing: Preprocessing
    precision: str
    batch: int
    workers: int
    steps: list[list[int]]
    engine: str

    def decode(self, pictures: Pictures, index: int) -> U8:
        """A picture as the network sees it, before it is normalised."""
        picture = pictures.load(index)
        try:
            return self.preprocessing.pixels(picture)
        except ValueError as error:
            raise CorruptImageError(pictures.describe(index), str(error)) from error

    def features(
        self, decode: Callable[[int], U8], indices: range, skip_corrupt: bool = False
    ) -> Iterator[tuple[Batch, F32]]:
        """Batches of the images ``indices`` with the features of their good ones, float32 (n, d).

        ``decode(index)`` gives an image as (3, side, side) uint8; `CorruptImageError` where it
        cannot be used. The network works on the next batch while the last one is written, where it
        can. The first image that cannot be used ends it with its `CorruptImageError`, unless
        ``skip_corrupt``; the batches before it are yielded first.
        """
        before: tuple[Batch, Callable[[], F32]] | None = None
        with self.working():
            for batch in batches(decode, indices, self.batch, self.workers, self.empty):
                if batch.bad and not skip_corrupt:
                    if before:
                        yield before[0], before[1]()
                    raise batch.bad[min(batch.bad)]
                begun = self.begun(batch)
                if before:
                    yield before[0], before[1]()
                before = batch, begun
            if before:
                yield before[0], before[1]()

    def empty(self, size: int) -> U8:
        """So many pictures of zeros."""
        side = self.preprocessing.crop
        return np.zeros((size, 3, side, side), dtype=np.uint8)

    def working(self) -> AbstractContextManager[Any]:
        """Around all batches of a run: what they share."""
        return nullcontext()

    def begun(self, batch: Batch) -> Callable[[], F32]:
        """Begin a batch; calling the result waits for the rows of its good images."""
        raise NotImplementedError

    def slice_of(self, column: int) -> str:
        """The name of the slice that a column is in; '' where there are none."""
        for one in self.backbone.slices:
            if column < one.dim:
                return one.name
            column -= one.dim
        return ""

    def where(self) -> dict[str, Any]:
        """The provenance entries about the network: engine, versions, device, sizes of steps."""
        raise NotImplementedError

    def identity(self) -> list[str]:
        """What a partial file must be of to be gone on with, beside its recipe: the engine."""
        return []
