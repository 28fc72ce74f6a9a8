"""Images decoded ahead of the network, by threads, into batches of bytes.

Threads are enough, because Pillow decodes and resizes without holding Python's lock. They write
into the batch itself, which is in pinned memory on a GPU machine, so that the transfer needs no
further copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import AflError, InputError
from ..images.base import CorruptImageError

if TYPE_CHECKING:
    import torch

AHEAD = 4  # batches decoded ahead of the network
PIECE = 8  # most images that a thread decodes at a time: each hand-over needs the lock


@dataclass(frozen=True)
class Batch:
    """Images ``indices`` of a data set as ``pixels`` (size, 3, s, s) uint8; a short one is padded.

    ``bad``: the images that cannot be used, with the reason; their pixels are zeros.
    """

    indices: range
    pixels: torch.Tensor
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


class Decoder:
    """Decodes with ``decode(index)`` → (3, side, side) uint8, in ``workers`` threads."""

    def __init__(
        self,
        decode: Callable[[int], torch.Tensor],
        side: int,
        size: int,
        workers: int,
        pinned: bool,
    ) -> None:
        self.decode, self.size, self.workers = decode, size, workers
        self.shape, self.pinned = (size, 3, side, side), pinned
        self.piece = min(PIECE, max(1, size // workers))

    def batches(self, indices: range) -> Iterator[Batch]:
        """Batches of the images ``indices``, in order."""
        starts = range(0, len(indices), self.size)
        todo = iter([indices[start : start + self.size] for start in starts])
        waiting: deque[tuple[Batch, list[Future[None]]]] = deque()
        with ThreadPoolExecutor(self.workers) as pool:
            try:
                for _ in range(AHEAD):
                    self._submit(pool, next(todo, None), waiting)
                while waiting:
                    batch, parts = waiting.popleft()
                    for part in parts:
                        part.result()
                    yield batch
                    self._submit(pool, next(todo, None), waiting)
            finally:
                pool.shutdown(cancel_futures=True)

    def _submit(
        self,
        pool: ThreadPoolExecutor,
        indices: range | None,
        waiting: deque[tuple[Batch, list[Future[None]]]],
    ) -> None:
        import torch

        if indices is None:
            return
        pixels = torch.zeros(self.shape, dtype=torch.uint8, pin_memory=self.pinned)
        batch = Batch(indices, pixels, {})
        starts = range(0, len(indices), self.piece)
        waiting.append((batch, [pool.submit(self._fill, batch, start) for start in starts]))

    def _fill(self, batch: Batch, start: int) -> None:
        for k in range(start, min(start + self.piece, len(batch.indices))):
            try:
                batch.pixels[k] = self.decode(batch.indices[k])
            except CorruptImageError as error:
                batch.bad[batch.indices[k]] = error
            except (AflError, MemoryError):
                raise
            except Exception as error:
                raise InputError(
                    f"a thread that decodes images failed at image {batch.indices[k]} "
                    f"({type(error).__name__}: {error}); what is done is kept: run the same "
                    "command again, or with --workers 1"
                ) from error
