"""A frozen backbone on its device: from images to rows of features, in steps of one size.

Images are decoded by threads while the network runs. Every step of the network has the same size
(the last one is filled up), so a feature does not depend on where a run began, stopped or was
split.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ...errors import InputError
from ...options.features import ExtractOptions
from ...progress import log
from ...values.arrays import F32
from .decoding import Batch, batches

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ..backbones.models import Backbone
    from ..backbones.preprocessing import Preprocessing
    from ..images.base import Pictures

#: Images in a step of the network where the batch may not change the last bits.
STEADY_STEP = {"cpu": 16}
STEADY_STEP_ELSEWHERE = 64


@dataclass
class Network:
    """A backbone on a device; made by `load`.

    Attributes:
        batch: images that are decoded together.
        step: images that the network takes at a time: ``batch``, or less where memory is full.
        steps: sizes of steps with the image at which each begins; a size can change the last bits.
        steady: a step has one size whatever the batch, and on a CPU one thread, so that a feature
            does not depend on them either.
    """

    backbone: Backbone
    module: nn.Module
    preprocessing: Preprocessing
    precision: str
    device: str
    batch: int
    step: int
    workers: int
    steady: bool = False
    steps: list[list[int]] = field(default_factory=list)

    @classmethod
    def load(cls, o: ExtractOptions, preprocessing: Preprocessing) -> Self:
        """Build the network that ``o`` asks for, on its device, and choose the batch."""
        from ..backbones.inference import default_batch_size, prepare_for_inference, resolve_device
        from ..backbones.models import load_backbone
        from ..backbones.slices import over_views

        side, device = o.seen.inner(preprocessing.crop), resolve_device(o.device)
        batch = step = o.batch_size or default_batch_size(device)
        if o.steady:
            step = STEADY_STEP.get(device, STEADY_STEP_ELSEWHERE)
            batch = -(-(o.batch_size or max(batch, step * threads())) // step) * step
        backbone = load_backbone(
            o.backbone, weights=o.weights, seed=o.seed, image_size=side, nodes=o.nodes
        )
        module = prepare_for_inference(
            backbone.module, device, image_size=side, optimise=not o.plain
        )
        if o.views is not None:
            module = over_views(module, o.seen, side)
        workers = o.workers or cores()
        return cls(
            backbone, module, preprocessing, o.precision, device, batch, step, workers, o.steady
        )

    def decode(self, pictures: Pictures, index: int) -> torch.Tensor:
        """A picture as the network sees it, before it is normalised."""
        from ..images.base import CorruptImageError

        picture = pictures.load(index)
        try:
            image: torch.Tensor = self.preprocessing.apply(picture)
        except ValueError as error:
            raise CorruptImageError(pictures.describe(index), str(error)) from error
        return image

    def features(
        self, decode: Callable[[int], torch.Tensor], indices: range, skip_corrupt: bool = False
    ) -> Iterator[tuple[Batch, F32]]:
        """Batches of the images ``indices`` with the features of their good ones, float32 (n, d).

        ``decode(index)`` gives an image as (3, side, side) uint8; `CorruptImageError` where it
        cannot be used. A GPU works on the next batch while the last one is written. The first image
        that cannot be used ends it with its `CorruptImageError`, unless ``skip_corrupt``; the
        batches before it are yielded first.
        """
        side, pinned = self.preprocessing.crop, self.device.startswith("cuda")
        shape = self.batch, 3, side, side
        before: tuple[Batch, Callable[[], F32]] | None = None
        for batch in batches(decode, indices, shape, self.workers, pinned):
            if batch.bad and not skip_corrupt:
                if before:
                    yield before[0], before[1]()
                raise batch.bad[min(batch.bad)]
            begun = self._through(batch)
            if before:
                yield before[0], before[1]()
            before = batch, begun
        if before:
            yield before[0], before[1]()

    def _through(self, batch: Batch) -> Callable[[], F32]:
        """Begin a batch, in steps of the network; calling the result waits for the rows.

        When the device's memory is full, the step size is halved for the rest of the run.
        """
        from ..backbones.inference import free_memory, is_out_of_memory

        while True:
            try:
                parts = self._begun(batch)
                break
            # The class of the exception depends on the device.
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                self._halve(error)
            free_memory(self.device)
        self._note_step(batch)
        return lambda: np.concatenate([part() for part in parts])[: self.batch][batch.good]

    def _begun(self, batch: Batch) -> list[Callable[[], F32]]:
        """Begin the steps of a batch.

        The number of threads that share a step can change its last bits. Where a feature may not
        depend on it, each step has one thread, and several threads take steps in turn.
        """
        import torch

        from ..backbones.inference import arithmetic

        steps = [partial(self._one_step, batch, k) for k in range(0, self.batch, self.step)]
        if not self.steady or self.device != "cpu":
            return [step() for step in steps]
        before = threads()
        torch.set_num_threads(1)
        try:
            # Around all steps: each puts the process's settings back as it found them.
            with (
                arithmetic("cpu", self.precision),
                ThreadPoolExecutor(before, initializer=partial(torch.set_num_threads, 1)) as pool,
            ):
                return [one.result() for one in [pool.submit(step) for step in steps]]
        finally:
            torch.set_num_threads(before)

    def _one_step(self, batch: Batch, start: int) -> Callable[[], F32]:
        import torch

        from ..backbones.inference import start_inference

        images = batch.pixels[start : start + self.step]
        if len(images) < self.step:
            images = torch.cat([images, images[-1:].expand(self.step - len(images), -1, -1, -1)])
        return start_inference(self.module, images, self.preprocessing, self.device, self.precision)

    def _halve(self, error: Exception) -> None:
        if self.step == 1:
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"out of memory on {self.device} with a single image ({reason}); use another "
                "--device, a smaller --image-size or --precision bf16"
            ) from error
        log.warning(
            "out of memory on %s with %d images per step; going on with %d",
            self.device,
            self.step,
            self.step // 2,
        )
        self.step //= 2

    def _note_step(self, batch: Batch) -> None:
        if not self.steps or self.steps[-1][1] != self.step:
            self.steps.append([batch.indices.start, self.step])

    def slice_of(self, column: int) -> str:
        """The name of the slice that a column is in; '' where there are none."""
        for one in self.backbone.slices:
            if column < one.dim:
                return one.name
            column -= one.dim
        return ""

    def where(self) -> dict[str, Any]:
        """The provenance entries about the network: versions, device, sizes of steps."""
        from importlib.metadata import version

        import torch

        return {
            "torch": torch.__version__,
            "torchvision": version("torchvision"),
            "batch_size": self.step,
            "batch_sizes": self.steps,
            "device": self.device,
            "device_name": _device_name(self.device),
            "threads": threads(),
        }


def threads() -> int:
    """Threads that PyTorch computes with in this process."""
    import torch

    return torch.get_num_threads()


def cores() -> int:
    """Processors this process may use: SLURM_CPUS_PER_TASK, else its affinity."""
    given = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return int(given) if given.isdigit() and int(given) > 0 else len(os.sched_getaffinity(0))


def _device_name(device: str) -> str:
    import platform

    import torch

    if torch.device(device).type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return platform.processor() or platform.machine()
