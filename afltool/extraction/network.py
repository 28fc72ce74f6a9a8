"""A frozen backbone: from images to rows of features.

Threads decode images and run the network on them, by PyTorch (`torch_engine`) or by a runtime of
graphs (`engines`); Pillow and the engines work without holding Python's lock.
"""

from __future__ import annotations

import platform
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib import metadata
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import parallel
from ..datasets.base import CorruptImageError
from ..errors import AflError, InputError
from ..options.grammars import Views
from ..progress import log
from ..values.arrays import F32, U8

if TYPE_CHECKING:
    from ..backbones.models import Facts
    from ..backbones.preprocessing import Preprocessing
    from ..datasets.base import ImageDataset
    from ..datasets.from_paths import NamedImages


class Engine(ABC):
    """What runs a network; every step has one size, so no feature depends on how a run was cut."""

    name: str
    step: int  # images that are run together
    threads: int  # that call `run` at a time
    batch, device = 16, "cpu"  # images that a thread decodes before it runs them, and where

    @abstractmethod
    def run(self, pixels: U8) -> F32:
        """Features (step, d) of uint8 (step, 3, side, side); called by several threads."""

    def working(self) -> AbstractContextManager[Any]:
        """Around all runs: settings of the process."""
        return nullcontext()

    def versions(self) -> dict[str, str]:
        """Of the packages that run it, by name."""
        return {self.name: metadata.version(self.name)}

    def device_name(self) -> str:
        """What the device is called."""
        return platform.processor() or platform.machine()


@dataclass(frozen=True)
class Batch:
    """Images ``indices`` of a data set; ``bad``: those that cannot be used, with the reason."""

    indices: range
    bad: dict[int, CorruptImageError]

    @property
    def good(self) -> list[int]:
        """Places in ``indices`` that hold an image."""
        return [k for k, index in enumerate(self.indices) if index not in self.bad]

    def part(self, start: int, stop: int) -> Batch:
        """The images in places ``start`` to ``stop`` − 1."""
        indices = self.indices[start:stop]
        return Batch(indices, {i: error for i, error in self.bad.items() if i in indices})


@dataclass
class Network:
    """A backbone that is ready to run; made by `engines.load_network`.

    ``graph``: digest of the graph that is run, if one is; ``remarks``: the number of images and one
    of them, by what is said of them.
    """

    backbone: Facts
    preprocessing: Preprocessing
    precision: str
    views: Views
    engine: Engine
    graph: str = ""
    remarks: dict[str, tuple[int, str]] = field(default_factory=dict)  # images, and one of them
    _adding: Lock = field(default_factory=Lock)

    def __str__(self) -> str:
        way, name = self.preprocessing, self.engine.name
        return (
            f"{self.backbone.name} ({self.backbone.weights}) of {way.crop} × {way.crop} pixels, "
            f"mean {' '.join(f'{one:g}' for one in way.mean)}, on {self.engine.device} "
            f"({self.engine.device_name()}), in {self.precision}, by {name} "
            f"{self.engine.versions()[name]}"
        )

    def decode(self, pictures: ImageDataset | NamedImages, index: int) -> U8:
        """A picture as the network sees it, before it is normalized."""
        picture = pictures.load(index)
        for text in picture.info.get("remarks", ()):
            with self._adding:
                count = self.remarks.get(text, (0, ""))[0] + 1
                self.remarks[text] = count, pictures.describe(index)
        try:
            return self.preprocessing.pixels(picture)
        except ValueError as error:
            raise CorruptImageError(pictures.describe(index), str(error)) from error

    def features(
        self, decode: Callable[[int], U8], indices: range, skip_corrupt: bool = False
    ) -> Iterator[tuple[Batch, F32]]:
        """Batches of the images ``indices`` with the features of their good ones, float32 (n, d).

        ``decode(index)`` gives an image as (3, side, side) uint8. Threads work on the next batches
        while one is written. Unless ``skip_corrupt``, the first image that cannot be used ends it
        with its `CorruptImageError`, after the batches before it.
        """
        n, size = len(indices), self.engine.batch
        parts = (indices[k : k + size] for k in range(0, n, size))
        turns = BoundedSemaphore(self.engine.threads)

        def work(part: range) -> tuple[Batch, F32]:
            batch, pixels = _decoded(decode, part)
            if batch.bad and not skip_corrupt:
                raise batch.bad[min(batch.bad)]
            if not pixels:
                return batch, np.empty((0, self.backbone.dim), np.float32)
            with turns:
                return batch, self.rows(np.stack(pixels))

        with warnings.catch_warnings(), self.engine.working():
            # Of readers, about tags; pixels that are damaged are errors.
            warnings.filterwarnings("ignore", module="PIL|pydicom")
            try:
                yield from parallel.map_threads(work, parts)
            finally:
                for text, (images, where) in self.remarks.items():
                    log.info("%d images, such as %s: %s", images, where, text)
                self.remarks.clear()

    def rows(self, pixels: U8) -> F32:
        """Features (n, d) of squares (n, 3, side, side).

        Over views it is their mean: float32 features are added up in float64 in this order, and
        divided and rounded once.
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

    def describe_engine(self) -> dict[str, Any]:
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


def _decoded(decode: Callable[[int], U8], part: range) -> tuple[Batch, list[U8]]:
    """The pixels of those images that can be used."""
    pixels, batch = list[U8](), Batch(part, {})
    for index in part:
        try:
            pixels.append(decode(index))
        except CorruptImageError as error:
            batch.bad[index] = error
        except (AflError, MemoryError):
            raise
        except Exception as error:  # of whatever library: a thread must not end without a word
            raise InputError(
                f"a thread that decodes images failed at image {index} "
                f"({type(error).__name__}: {error}); run the same command again to go on"
            ) from error
    return batch, pixels
