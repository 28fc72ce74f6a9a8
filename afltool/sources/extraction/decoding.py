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
from itertools import islice

from ...errors import AflError, InputError
from ...values.arrays import U8
from ..images.base import CorruptImageError

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
    decode: Callable[[int], U8],
    indices: range,
    size: int,
    workers: int,
    empty: Callable[[int], U8],
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
