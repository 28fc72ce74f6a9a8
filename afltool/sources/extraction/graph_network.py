"""A network that a runtime of graphs runs on the processor; nothing here imports PyTorch."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ... import cores
from ...options.features import ExtractOptions
from ...options.views import Views
from ...values.arrays import F32, F64, U8
from ..backbones.preprocessing import Preprocessing
from .decoding import Batch
from .engines import Engine, in_steps, started, version_of
from .frozen import Frozen
from .network import Network

IMAGES = 16  # of a batch, for each thread


@dataclass
class GraphNetwork(Network):
    """A frozen backbone in an engine; made by `build`.

    Each thread takes the next images of a batch. A step has one size and one thread, so a feature
    depends neither on ``batch`` nor on the number of threads.
    """

    backbone: Frozen
    runtime: Engine
    views: Views
    threads: int
    _pool: ThreadPoolExecutor | None = field(default=None, repr=False)

    @classmethod
    def build(
        cls, o: ExtractOptions, preprocessing: Preprocessing, frozen: Frozen, engine: str
    ) -> GraphNetwork:
        """Start ``engine`` with the graph. Raises `EngineError`: it cannot run it as PyTorch."""
        threads, own = cores.threads(), frozen.preprocessing
        runtime = started(
            engine,
            frozen.graph.tobytes(),
            own.crop,
            threads,
            o.precision,
            own.probe(),
            frozen.expected,
        )
        return cls(
            frozen,
            preprocessing,
            o.precision,
            o.batch_size or IMAGES * threads,
            o.workers or threads,
            [[0, runtime.step]],
            engine,
            runtime,
            o.seen,
            threads,
        )

    @contextmanager
    def working(self) -> Iterator[None]:
        with ThreadPoolExecutor(self.threads) as self._pool:
            try:
                yield
            finally:
                self._pool.shutdown(cancel_futures=True)

    def begun(self, batch: Batch) -> Callable[[], F32]:
        assert self._pool is not None
        good, step = batch.good, self.runtime.step
        parts: list[Future[F32]] = [
            self._pool.submit(self._features, batch.pixels[good[start : start + step]])
            for start in range(0, len(good), step)
        ]
        if not parts:
            return lambda: np.empty((0, self.backbone.dim), dtype=np.float32)
        return lambda: np.concatenate([part.result() for part in parts])

    def _features(self, pixels: U8) -> F32:
        """The mean over views, added up as in `afltool.sources.backbones.slices.over_views`."""
        side = self.backbone.preprocessing.crop
        total: F64 | None = None
        for top, left in self.views.corners(side):
            square = pixels[..., top : top + side, left : left + side]
            for view in [square, square[..., ::-1]][: 1 + self.views.flip]:
                rows = in_steps(self.runtime, view)
                if len(self.views) == 1:
                    return rows
                total = rows.astype(np.float64) if total is None else total + rows
        assert total is not None
        return (total / len(self.views)).astype(np.float32)

    def where(self) -> dict[str, Any]:
        return {
            "engine": self.engine,
            self.engine: version_of(self.engine),
            "graph": self.backbone.digest,
            "batch_size": self.runtime.step,
            "batch_sizes": self.steps,
            "device": "cpu",
            "device_name": platform.processor() or platform.machine(),
            "threads": self.threads,
        }

    def identity(self) -> list[str]:
        return [self.engine, version_of(self.engine), self.backbone.digest]
