"""Stage `extract`: images → frozen backbone → a feature file, resumable, cached in a store.

Images are decoded by threads while the network runs. Every step of the network has the same size
(the last one is filled up), so a feature does not depend on where a run began, stopped or was
split.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import progress
from ..digest import Digest
from ..errors import InputError, InvalidDataError, UsageError
from ..extraction.asked import Asked
from ..extraction.decoding import Batch, Decoder
from ..extraction.kept import in_store, is_kept
from ..options import made, takes
from ..options.features import ExtractOptions
from ..options.shards import parse_shard
from ..store import schema
from ..store.features import FeatureWriter, writing_features
from ..store.provenance import provenance
from ..store.recipes import up_to_date

if TYPE_CHECKING:
    import torch

    from ..datasets import ImageDataset

log = logging.getLogger("afltool")
COMMIT_SECONDS = 5.0


@takes(ExtractOptions)
def extract(
    backbone: str,
    data: str,
    split: str = "train",
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
    **options: Any,
) -> Path:
    """Write the features of every image of a split: what enters the backbone's classifier.

    ``options`` are the other fields of `ExtractOptions`; ``classes`` may be the names themselves.
    ``node`` chooses another place in the network (see `afltool.backbones.nodes.cut_at`). Without
    ``out`` the file lies in the store (``store``, else $AFLTOOL_STORE, else ./afl-store) under a
    key of everything that changes a feature, and is made once. ``shard`` 'I/N' extracts part I of
    N (see `merge`); 'slurm' takes I and N from the job. ``skip_corrupt`` leaves out images that
    cannot be read and counts them; otherwise the first one ends the run. ``plain`` gives the bits
    of a plain PyTorch loop over the same batches: no batch norm folded, no channels-last.
    """
    o = made(ExtractOptions, {"backbone": backbone, "data": data, "split": split, **options})
    asked = Asked(o, *parse_shard(o.shard))
    path, made_by = in_store(asked) if out is None else (Path(out), asked.recipe())
    if up_to_date(path, made_by, overwrite):
        return path
    # Only now, so that an answer from the store needs neither the images nor PyTorch.
    dataset, preprocessing = asked.dataset(), asked.preprocessing()
    n = len(dataset)
    part, parts = asked.part, asked.parts
    indices = range(n * part // parts, n * (part + 1) // parts)
    if not indices:
        raise UsageError(
            f"--shard {o.shard}: {n} images make at most {n} shards with an image each"
        )
    job = _Job(
        asked, dataset, indices, preprocessing, made_by, o.batch_size, o.device,
        o.workers or cores(),
    )  # fmt: skip
    job.load()
    job.run(path)
    return path


def check_extraction(options: ExtractOptions, *, here: bool = True) -> None:
    """Refuse an extraction that would fail: unknown names, missing files, an absent device.

    No image is read. Nothing is looked at where the store has the answer. ``here``: the images are
    extracted on this machine; elsewhere its data sets and devices are not known.
    """
    asked = Asked(options, *parse_shard(options.shard))
    if not (here and is_kept(asked)):
        asked.check(here)


def cores() -> int:
    """Processors this process may use: SLURM_CPUS_PER_TASK, else its affinity."""
    given = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return int(given) if given.isdigit() and int(given) > 0 else len(os.sched_getaffinity(0))


@dataclass
class _Job:
    """One extraction under way."""

    asked: Asked
    dataset: ImageDataset
    indices: range
    preprocessing: Any
    made_by: dict[str, Any]
    batch_size: int | None
    device: str
    workers: int
    skipped: dict[int, str] = field(default_factory=dict)
    steps: list[list[int]] = field(default_factory=list)

    def load(self) -> None:
        """Build the network on its device and choose the batch."""
        from ..backbones import (
            default_batch_size,
            load_backbone,
            prepare_for_inference,
            resolve_device,
        )

        a, size = self.asked.given, self.preprocessing.crop
        self.device = resolve_device(self.device)
        self.batch = self.step = self.batch_size or default_batch_size(self.device)
        self.backbone = load_backbone(
            a.backbone, weights=a.weights, seed=a.seed, image_size=size, node=a.node
        )
        self.module = prepare_for_inference(
            self.backbone.module, self.device, a.precision, image_size=size, optimise=not a.plain
        )

    def run(self, path: Path) -> None:
        """Extract every image not yet in the partial file, and finish the file."""
        a, key = self.asked.given, Digest().json("recipe", self.made_by).hex()
        dim, n = self.backbone.dim, len(self.indices)
        with writing_features(path, dim, a.dtype, a.bits, key, n) as writer:
            if writer.state is not None:
                self.skipped = dict(writer.state["skipped"])
                self.steps = list(writer.state.get("steps", []))
            at = writer.rows + len(self.skipped)
            if at:
                log.info("extract: %d of %d images are done, going on from there", at, n)
            with progress.task("extract", n, "images", at) as task:
                self.fill(writer, at, task)
            if not writer.rows:
                raise InvalidDataError(f"none of the {n} images could be read")
            kept = self.kept()
            ids, labels = self.dataset.row_ids[kept], self.dataset.labels[kept]
            writer.finish(labels, ids, self.header())
        if self.skipped:
            log.warning("extract: %d corrupt images were left out (see info)", len(self.skipped))

    def kept(self) -> Any:
        """Indices of the images that have a row, in order."""
        every = np.arange(self.indices.start, self.indices.stop)
        return every[~np.isin(every, list(self.skipped))] if self.skipped else every

    def fill(self, writer: FeatureWriter, at: int, task: progress.Task) -> None:
        """Append features from position ``at`` on; what is done is committed before any error."""
        last = time.monotonic()
        try:
            for batch, rows in self.features(at):
                for part, its_rows in at_chunks(batch, rows, writer.rows):
                    self.append(writer, part, its_rows)
                    task.advance(len(part.indices))
                    whole = writer.rows % schema.CHUNK_ROWS == 0
                    if whole and time.monotonic() - last > COMMIT_SECONDS:
                        self.commit(writer)
                        last = time.monotonic()
                if progress.stop_requested():
                    self.commit(writer)
                progress.stop_point()
        except Exception:  # whatever it is: the batches before it are not lost
            self.commit(writer)
            raise
        self.commit(writer)

    def append(self, writer: FeatureWriter, batch: Batch, rows: np.ndarray) -> None:
        """Add the rows of a batch; what cannot be written is said with the names of its images."""
        try:
            if len(rows):
                writer.append(rows)
        except InvalidDataError as error:
            first, last = (self.dataset.describe(batch.indices[k]) for k in (0, -1))
            raise InvalidDataError(f"images {first} to {last}: {error}") from None
        self.skipped.update((index, str(why)) for index, why in sorted(batch.bad.items()))

    def commit(self, writer: FeatureWriter) -> None:
        writer.commit({"skipped": list(self.skipped.items()), "steps": self.steps})

    def features(self, at: int) -> Iterator[tuple[Batch, np.ndarray]]:
        """Batches with the features of their good images.

        A GPU has the next batch to work on while the last one is written.
        """
        decoder = Decoder(
            self.decode,
            self.preprocessing.crop,
            self.batch,
            self.workers,
            pinned=self.device.startswith("cuda"),
        )
        before: tuple[Batch, Callable[[], np.ndarray]] | None = None
        for batch in decoder.batches(self.indices[at:]):
            if batch.bad and not self.asked.given.skip_corrupt:
                if before:
                    yield before[0], before[1]()
                raise batch.bad[min(batch.bad)]
            begun = self.through(batch)
            if before:
                yield before[0], before[1]()
            before = batch, begun
        if before:
            yield before[0], before[1]()

    def through(self, batch: Batch) -> Callable[[], np.ndarray]:
        """Begin a batch, in steps of the network; the result waits for the rows of good images.

        Where the device's memory is full, steps are halved, for good.
        """
        from ..backbones import free_memory, is_out_of_memory

        while True:
            try:
                parts = [self.one_step(batch, k) for k in range(0, self.batch, self.step)]
                break
            # Which class it is depends on the device.
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                self.halve(error)
            free_memory(self.device)
        self.note_step(batch)
        return lambda: np.concatenate([part() for part in parts])[: self.batch][batch.good]

    def one_step(self, batch: Batch, start: int) -> Callable[[], np.ndarray]:
        import torch

        from ..backbones import start_inference

        images = batch.pixels[start : start + self.step]
        if len(images) < self.step:
            images = torch.cat([images, images[-1:].expand(self.step - len(images), -1, -1, -1)])
        return start_inference(
            self.module, images, self.preprocessing, self.device, self.asked.given.precision
        )

    def halve(self, error: Exception) -> None:
        if self.step == 1:
            reason = str(error).partition("\n")[0]
            raise InputError(
                f"out of memory on {self.device} with a single image ({reason}); use another "
                "--device, a smaller --image-size or --precision bf16"
            ) from error
        log.warning(
            "extract: out of memory on %s with %d images a step; going on with %d",
            self.device,
            self.step,
            self.step // 2,
        )
        self.step //= 2

    def note_step(self, batch: Batch) -> None:
        """Keep from which image on steps have which size: it can change the last bits."""
        if not self.steps or self.steps[-1][1] != self.step:
            self.steps.append([batch.indices.start, self.step])

    def decode(self, index: int) -> torch.Tensor:
        from ..datasets import CorruptImageError

        picture = self.dataset.load(index)
        try:
            image: torch.Tensor = self.preprocessing.apply(picture)
        except ValueError as error:
            raise CorruptImageError(self.dataset.describe(index), str(error)) from error
        return image

    def header(self) -> dict[str, Any]:
        import torch

        a = self.asked.given
        space = {
            "backbone": self.backbone.name,
            "weights": self.backbone.weights_digest,
            "node": self.backbone.node,
            "preprocessing": {
                **self.preprocessing.describe(),
                "fingerprint": self.preprocessing.fingerprint(),
            },
            "precision": a.precision,
            "dim": self.backbone.dim,
            "dtype": a.dtype,
            "fraction_bits": a.bits,
        }
        rows = {
            "data": a.data,
            "split": a.split,
            "limit": a.limit,
            "shard": self.made_by["options"]["shard"],
            "weights": self.backbone.weights,
            "input": self.dataset.fingerprint,
            "skipped": [
                {"row": self.dataset.row_ids[i].decode(errors="replace"), "why": why}
                for i, why in sorted(self.skipped.items())
            ],
        }
        return {
            "recipe": self.made_by,
            "provenance": provenance(
                torch=torch.__version__,
                torchvision=version("torchvision"),
                batch_size=self.step,
                batch_sizes=self.steps,
                device=self.device,
                device_name=_device_name(self.device),
                threads=torch.get_num_threads(),
            ),
            "space": space,
            "classes": list(self.dataset.classes),
            "source": rows,
        }


def at_chunks(batch: Batch, rows: np.ndarray, done: int) -> Iterator[tuple[Batch, np.ndarray]]:
    """The batch, cut where ``done`` rows and its own fill a chunk of the file.

    Only whole chunks are committed: one that is written again later could be lost with its rows.
    """
    room = schema.CHUNK_ROWS - done % schema.CHUNK_ROWS
    if room < len(rows):
        cut = batch.good[room]
        yield batch.part(0, cut), rows[:room]
        yield batch.part(cut, len(batch.indices)), rows[room:]
    else:
        yield batch, rows


def _device_name(device: str) -> str:
    import platform

    import torch

    if torch.device(device).type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return platform.processor() or platform.machine()
