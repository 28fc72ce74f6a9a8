"""Stage `extract`: images → frozen backbone → a feature file, resumable, cached in a store.

Images are decoded by threads while the network runs. Every batch has the same size (the last one
is filled up), so a feature does not depend on where a run began, stopped or was split.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import progress
from ..digest import Digest
from ..errors import AflError, InvalidDataError, UsageError
from ..files import recipe, up_to_date
from ..store import schema
from ..store.features import FeatureWriter, writing_features
from ..store.provenance import provenance
from ._options import check_format, parse_shard

if TYPE_CHECKING:
    import torch

log = logging.getLogger("afltool")
COMMIT_SECONDS = 5.0
AHEAD = 4  # batches decoded ahead of the network


def extract(
    backbone: str,
    data: str,
    split: str = "train",
    out: str | Path | None = None,
    *,
    weights: str = "default",
    seed: int = 0,
    preprocess: str = "paper",
    image_size: int | None = None,
    classes: Sequence[str] | None = None,
    limit: int | None = None,
    shard: str | None = None,
    dtype: str = "int16",
    fraction_bits: int = 9,
    precision: str = "fp32",
    batch_size: int | None = None,
    device: str = "auto",
    workers: int | None = None,
    data_root: str | Path | None = None,
    checksums: str | Path | None = None,
    store: str | Path | None = None,
    skip_corrupt: bool = False,
    overwrite: bool = False,
) -> Path:
    """Write what enters the backbone's last classifier layer, for every image of a split.

    Without ``out`` the file lies in the store (``store``, else $AFLTOOL_STORE, else ./afl-store)
    under a key of everything that changes a feature, and is made once. ``shard`` 'I/N' extracts
    part I of N (see `merge`). ``skip_corrupt`` leaves out images that cannot be read and counts
    them; otherwise the first one ends the run.
    """
    from ..backbones import preprocessing_for, weights_identity
    from ..datasets import open_dataset, read_checksums

    check_format(dtype, fraction_bits)
    for name, number in (("--batch-size", batch_size), ("--workers", workers)):
        if number is not None and number < 1:
            raise UsageError(f"{name} is at least 1; found {number}")
    part, parts = parse_shard(shard)
    dataset = open_dataset(
        data,
        split,
        data_root=None if data_root is None else Path(data_root),
        classes=classes,
        limit=limit,
        checksums=None if checksums is None else read_checksums(Path(checksums)),
    )
    preprocessing = preprocessing_for(preprocess, backbone, weights, image_size)
    made_by = recipe(
        "extract",
        {
            "backbone": backbone,
            "weights": weights_identity(backbone, weights, seed),
            "preprocessing": preprocessing.fingerprint(),
            "precision": precision,
            "dtype": dtype,
            "fraction_bits": fraction_bits if dtype == "int16" else None,
            "split": split,
            "limit": limit,
            "shard": None if parts == 1 else f"{part}/{parts}",
            "skip_corrupt": skip_corrupt,
        },
        {"images": dataset.fingerprint, "classes": list(dataset.classes)},
    )
    path = _store_path(store, backbone, data, split, made_by) if out is None else Path(out)
    if up_to_date(path, made_by, overwrite):
        return path
    n = len(dataset)
    indices = range(n * part // parts, n * (part + 1) // parts)
    if not indices:
        raise UsageError(f"--shard {shard}: {n} images make at most {n} shards with an image each")
    job = _Job(
        dataset,
        indices,
        preprocessing,
        made_by,
        batch_size,
        device,
        precision,
        workers or cores(),
        skip_corrupt,
        fraction_bits if dtype == "int16" else None,
    )
    job.load(backbone, weights, seed)
    job.run(path, dtype, {"data": data, "split": split, "limit": limit})
    return path


def cores() -> int:
    """Processors this process may use: SLURM_CPUS_PER_TASK, else its affinity."""
    given = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return int(given) if given.isdigit() and int(given) > 0 else len(os.sched_getaffinity(0))


def _store_path(
    store: str | Path | None, backbone: str, data: str, split: str, made_by: dict[str, Any]
) -> Path:
    folder = Path(store or os.environ.get("AFLTOOL_STORE") or "afl-store")
    key = Digest().json("recipe", made_by).hex()[:16]
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", f"{backbone}-{Path(data).name}-{split}")
    return folder / f"{name}-{key}.h5"


@dataclass
class _Job:
    """One extraction under way."""

    dataset: Any
    indices: range
    preprocessing: Any
    made_by: dict[str, Any]
    batch_size: int | None
    device: str
    precision: str
    workers: int
    skip_corrupt: bool
    bits: int | None
    skipped: dict[int, str] = field(default_factory=dict)

    def load(self, backbone: str, weights: str, seed: int) -> None:
        """Build the network on its device and choose the batch."""
        from ..backbones import (
            default_batch_size,
            load_backbone,
            prepare_for_inference,
            resolve_device,
        )

        self.device = resolve_device(self.device)
        self.batch = self.batch_size or default_batch_size(self.device)
        size = self.preprocessing.crop
        self.backbone = load_backbone(backbone, weights=weights, seed=seed, image_size=size)
        self.module = prepare_for_inference(
            self.backbone.module, self.device, self.precision, image_size=size
        )

    def run(self, path: Path, dtype: str, source: dict[str, Any]) -> None:
        """Extract every image not yet in the partial file, and finish the file."""
        key = Digest().json("recipe", self.made_by).hex()
        dim, n = self.backbone.dim, len(self.indices)
        with writing_features(path, dim, dtype, self.bits, key, n) as writer:
            if writer.state is not None:
                self.skipped = dict(writer.state["skipped"])
            at = writer.rows + len(self.skipped)
            if at:
                log.info("extract: %d of %d images are done, going on from there", at, n)
            with progress.task("extract", n, "images", at) as task:
                self.fill(writer, at, task)
            kept = [i for i in self.indices if i not in self.skipped]
            if not kept:
                raise InvalidDataError(f"none of the {n} images could be read")
            ids, labels = self.dataset.row_ids[kept], self.dataset.labels[kept]
            writer.finish(labels, ids, self.header(source))
        if self.skipped:
            log.warning("extract: %d corrupt images were left out (see info)", len(self.skipped))

    def fill(self, writer: FeatureWriter, at: int, task: progress.Task) -> None:
        """Append features from position ``at`` on; what is done is committed before any error."""
        last = time.monotonic()
        try:
            for count, rows in self.features(at):
                self.append(writer, rows)
                task.advance(count)
                whole = writer.rows % schema.CHUNK_ROWS == 0
                if progress.stop_requested() or (
                    whole and time.monotonic() - last > COMMIT_SECONDS
                ):
                    self.commit(writer)
                    last = time.monotonic()
                progress.stop_point()
        except AflError:
            self.commit(writer)
            raise
        self.commit(writer)

    def append(self, writer: FeatureWriter, rows: np.ndarray) -> None:
        """Add the rows of a batch; what cannot be written is said with the names of its images."""
        try:
            writer.append(rows)
        except InvalidDataError as error:
            batch = [i for i in self.indices if i not in self.skipped][writer.rows :][: len(rows)]
            first, last = (self.dataset.describe(i) for i in (batch[0], batch[-1]))
            raise InvalidDataError(f"images {first} to {last}: {error}") from None

    def commit(self, writer: FeatureWriter) -> None:
        # Images skipped behind the last written row are met again after a restart.
        done = writer.rows
        known = [(i, why) for i, why in self.skipped.items() if self.rank(i) <= done]
        writer.commit({"skipped": known})

    def rank(self, index: int) -> int:
        """Rows written before this image, given the images skipped before it."""
        before = sum(1 for i in self.skipped if i < index)
        return index - self.indices.start - before

    def features(self, at: int) -> Iterator[tuple[int, np.ndarray]]:
        """(images consumed, features) batch by batch."""
        from ..backbones import infer

        size = self.batch
        batch: list[torch.Tensor] = []
        consumed = 0
        for image in self.images(at):
            consumed += 1
            if image is not None:
                batch.append(image)
            if len(batch) == size:
                yield consumed, self.through(infer, batch, size)
                batch, consumed = [], 0
        if batch:
            yield consumed, self.through(infer, batch, size)

    def through(self, infer: Any, batch: list[torch.Tensor], size: int) -> np.ndarray:
        """One batch through the network; a short one is filled up with its last image."""
        import torch

        full = torch.stack(batch + [batch[-1]] * (size - len(batch)))
        rows = infer(self.module, full, self.preprocessing, self.device, self.precision)
        return np.asarray(rows[: len(batch)])

    def images(self, at: int) -> Iterator[torch.Tensor | None]:
        """Decoded images in order, None for one that is left out; threads work ahead."""
        from ..datasets import CorruptImageError

        waiting: deque[tuple[int, Future[torch.Tensor]]] = deque()
        todo = iter(self.indices[at:])
        with ThreadPoolExecutor(self.workers) as pool:
            try:
                for _ in range(AHEAD * self.batch):
                    self.submit(pool, todo, waiting)
                while waiting:
                    index, future = waiting.popleft()
                    try:
                        yield future.result()
                    except CorruptImageError as error:
                        if not self.skip_corrupt:
                            raise
                        self.skipped[index] = str(error)
                        yield None
                    self.submit(pool, todo, waiting)
            finally:
                pool.shutdown(cancel_futures=True)

    def submit(self, pool: ThreadPoolExecutor, todo: Iterator[int], waiting: Any) -> None:
        index = next(todo, None)
        if index is not None:
            waiting.append((index, pool.submit(self.decode, index)))

    def decode(self, index: int) -> torch.Tensor:
        image: torch.Tensor = self.preprocessing.apply(self.dataset.load(index))
        return image

    def header(self, source: dict[str, Any]) -> dict[str, Any]:
        import torch

        space = {
            "backbone": self.backbone.name,
            "weights": self.backbone.weights_digest,
            "node": self.backbone.node,
            "preprocessing": {
                **self.preprocessing.describe(),
                "fingerprint": self.preprocessing.fingerprint(),
            },
            "precision": self.precision,
            "dim": self.backbone.dim,
            "dtype": "float32" if self.bits is None else "int16",
            "fraction_bits": self.bits,
        }
        rows = {
            **source,
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
                batch_size=self.batch,
                device=self.device,
                threads=torch.get_num_threads(),
            ),
            "space": space,
            "classes": list(self.dataset.classes),
            "source": rows,
        }
