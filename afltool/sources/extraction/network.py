"""A frozen backbone: from images to rows of features.

Images are decoded by threads while other threads run the network, by PyTorch (`torch_engine`) or by
a runtime of graphs (`engines`). Threads are enough, because Pillow and the engines work without
holding Python's lock.
"""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...errors import AflError, InputError
from ...options.grammars import Views
from ...values.arrays import F32, U8
from ..images.base import CorruptImageError

if TYPE_CHECKING:
    from ..backbones.models import Facts
    from ..backbones.preprocessing import Preprocessing
    from ..images.base import Pictures


class Engine(Protocol):
    """What runs a network; every step has one size, so no feature depends on how a run was cut."""

    name: str
    device: str
    step: int  # images that are run together
    threads: int  # that call `run` at a time
    batch: int  # images that are decoded together

    def run(self, pixels: U8) -> F32:
        """Features (step, d) of uint8 (step, 3, side, side); called by several threads."""

    def working(self) -> AbstractContextManager[Any]:
        """Around all runs: settings of the process."""

    def versions(self) -> dict[str, str]:
        """Of the packages that run it, by name."""

    def device_name(self) -> str:
        """What the device is called."""


class OnProcessor:
    """What engines on a processor have in common."""

    device = "cpu"

    def device_name(self) -> str:
        return platform.processor() or platform.machine()


@dataclass
class Network:
    """A backbone that is ready to run; made by `engines.load_network`.

    Attributes:
        batch: images that are decoded together, by ``workers`` threads.
        views: those of an image whose features are averaged.
        graph: digest of the graph that is run, if one is.
    """

    backbone: Facts
    preprocessing: Preprocessing
    precision: str
    views: Views
    engine: Engine
    batch: int
    workers: int
    graph: str = ""

    def __str__(self) -> str:
        way, name = self.preprocessing, self.engine.name
        return (
            f"{self.backbone.name} ({self.backbone.weights}) of {way.crop} × {way.crop} pixels, "
            f"mean {' '.join(f'{one:g}' for one in way.mean)}, on {self.engine.device} "
            f"({self.engine.device_name()}), in {self.precision}, by {name} "
            f"{self.engine.versions()[name]}"
        )

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
        cannot be used. The network works on the next batch while the last one is written. The first
        image that cannot be used ends it with its `CorruptImageError`, unless ``skip_corrupt``; the
        batches before it are yielded first.
        """
        waiting: deque[tuple[Batch, list[Future[F32]]]] = deque()
        side, step = self.preprocessing.crop, self.engine.step
        none = np.empty((0, self.backbone.dim), dtype=np.float32)
        with self.engine.working(), ThreadPoolExecutor(self.engine.threads) as pool:
            try:
                for batch in batches(decode, indices, self.batch, self.workers, side):
                    ends = bool(batch.bad) and not skip_corrupt
                    good = [] if ends else batch.good
                    steps = (good[k : k + step] for k in range(0, len(good), step))
                    parts = [pool.submit(self.rows, batch.pixels[one]) for one in steps]
                    waiting.append((batch, parts))
                    while len(waiting) > 1:
                        done, parts = waiting.popleft()
                        yield done, np.concatenate([none, *(part.result() for part in parts)])
                    if ends:
                        raise batch.bad[min(batch.bad)]
                for done, parts in waiting:
                    yield done, np.concatenate([none, *(part.result() for part in parts)])
            finally:
                pool.shutdown(cancel_futures=True)

    def rows(self, pixels: U8) -> F32:
        """Features (n, d) of squares (n, 3, side, side).

        Over views V it is (f_1 + … + f_V) / V of float32 features, added up in float64 in this
        order and rounded once.
        """
        side = self.views.inner(self.preprocessing.crop)
        found: list[F32] = []
        for top, left in self.views.corners(side):
            square = pixels[..., top : top + side, left : left + side]
            for view in [square, square[..., ::-1]][: 1 + self.views.flip]:
                found.append(in_steps(self.engine, view))
        if len(found) == 1:
            return found[0]
        total: Any = sum(one.astype(np.float64) for one in found)
        mean: F32 = (total / len(found)).astype(np.float32)
        return mean

    def slice_of(self, column: int) -> str:
        """The name of the slice that a column is in; '' where there are none."""
        for one in self.backbone.slices:
            if column < one.dim:
                return one.name
            column -= one.dim
        return ""

    def where(self) -> dict[str, Any]:
        """The provenance entries about the network: engine, versions, device, size of a step."""
        engine = self.engine
        return {
            "engine": engine.name,
            "device": engine.device,
            "threads": engine.threads,
            **engine.versions(),
            **({"graph": self.graph} if self.graph else {}),
            "batch_size": engine.step,
            "device_name": engine.device_name(),
        }


def in_steps(engine: Engine, pixels: U8) -> F32:
    """Features of any number of images, in steps of the engine; the last one is filled up."""
    n, rows = len(pixels), []
    for start in range(0, n, engine.step):
        part = pixels[start : start + engine.step]
        if missing := engine.step - len(part):
            part = np.concatenate([part, np.repeat(part[-1:], missing, axis=0)])
        rows.append(engine.run(np.ascontiguousarray(part)))
    return np.concatenate(rows)[:n]


AHEAD = 4  # batches decoded ahead of the network
PIECE = 8  # most images that a thread decodes at a time: each hand-over needs the lock


@dataclass(frozen=True)
class Batch:
    """Images ``indices`` of a data set as ``pixels`` (n, 3, s, s) uint8.

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
    decode: Callable[[int], U8], indices: range, size: int, workers: int, side: int
) -> Iterator[Batch]:
    """Batches of ``size`` of the images ``indices``, in order.

    ``decode(index)`` → (3, side, side) uint8 runs in ``workers`` threads.
    """
    piece = min(PIECE, max(1, size // workers))
    todo = (indices[start : start + size] for start in range(0, len(indices), size))

    def begun(part: range) -> tuple[Batch, list[Future[None]]]:
        batch = Batch(part, np.zeros((len(part), 3, side, side), np.uint8), {})
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
