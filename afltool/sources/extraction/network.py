"""A frozen backbone: from images to rows of features.

Images are decoded by threads while the network runs; what runs it is PyTorch (`torch_network`) or a
runtime of graphs (`engines`). Threads are enough, because Pillow decodes and resizes without
holding Python's lock. They write into the batch itself, in pinned memory on a GPU machine.
"""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import AflError, InputError
from ...values.arrays import F32, U8
from ..images.base import CorruptImageError

if TYPE_CHECKING:
    from ..backbones.models import Facts
    from ..backbones.preprocessing import Preprocessing
    from ..images.base import Pictures


@dataclass
class Network:
    """A backbone that is ready to run; made by `engines.load_network`.

    Attributes:
        batch: images that are decoded together.
        step: images that the network takes at a time.
        threads: that run the network.
    """

    backbone: Facts
    preprocessing: Preprocessing
    precision: str
    engine: str
    batch: int
    workers: int
    threads: int
    step: int
    device: str

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

    def made_of(self) -> dict[str, Any]:
        """Versions, by name, and the digest of a graph."""
        raise NotImplementedError

    def where(self) -> dict[str, Any]:
        """The provenance entries about the network: engine, versions, device, size of a step."""
        names = ("engine", "device", "threads")
        return {
            **{name: getattr(self, name) for name in names},
            **self.made_of(),
            "batch_size": self.step,
            "device_name": self.device_name(),
        }

    def device_name(self) -> str:
        return platform.processor() or platform.machine()


AHEAD = 4  # batches decoded ahead of the network
PIECE = 8  # most images that a thread decodes at a time: each hand-over needs the lock


@dataclass(frozen=True)
class Batch:
    """Images ``indices`` of a data set as ``pixels`` (size, 3, s, s) uint8; a short one is padded.

    ``bad``: the images that cannot be used, with the reason; their pixels are zeros.
    """

    indices: range
    pixels: U8
    bad: dict[int, CorruptImageError]

    @property
    def good(self) -> list[int]:
        """Places in ``pixels`` that hold an image."""
        return [k for k, index in enumerate(self.indices) if index not in self.bad]

    def part(self, start: int, stop: int) -> Batch:
        """The images in places ``start`` to ``stop`` − 1."""
        indices = self.indices[start:stop]
        bad = {index: error for index, error in self.bad.items() if index in indices}
        return Batch(indices, self.pixels[start:stop], bad)


def batches(
    decode: Callable[[int], U8], indices: range, size: int, workers: int, empty: Callable[[int], U8]
) -> Iterator[Batch]:
    """Batches of ``size`` of the images ``indices``, in order.

    ``decode(index)`` → (3, side, side) uint8 runs in ``workers`` threads; ``empty(size)`` is a
    batch of zeros for them to fill.
    """
    piece = min(PIECE, max(1, size // workers))
    todo = (indices[start : start + size] for start in range(0, len(indices), size))

    def begun(part: range) -> tuple[Batch, list[Future[None]]]:
        batch = Batch(part, empty(size), {})
        places = (range(len(part))[start : start + piece] for start in range(0, len(part), piece))
        return batch, [pool.submit(_fill, batch, one, decode) for one in places]

    with ThreadPoolExecutor(workers) as pool:
        try:
            waiting = deque(begun(part) for part in islice(todo, AHEAD))
            while waiting:
                batch, parts = waiting.popleft()
                for part in parts:
                    part.result()
                yield batch
                waiting.extend(begun(part) for part in islice(todo, 1))
        finally:
            pool.shutdown(cancel_futures=True)


def _fill(batch: Batch, places: range, decode: Callable[[int], U8]) -> None:
    for k in places:
        try:
            batch.pixels[k] = decode(batch.indices[k])
        except CorruptImageError as error:
            batch.bad[batch.indices[k]] = error
        except (AflError, MemoryError):
            raise
        except Exception as error:  # of whatever library: a thread must not end without a word
            raise InputError(
                f"a thread that decodes images failed at image {batch.indices[k]} "
                f"({type(error).__name__}: {error}); what is done is kept: run the same "
                "command again, or with --workers 1"
            ) from error
