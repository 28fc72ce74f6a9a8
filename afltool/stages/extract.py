"""Stages `extract`: images → a feature file, resumable, in a store; `backbone`: one frozen file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import progress
from ..backbones.families import preprocessing_for
from ..errors import InvalidDataError, UsageError
from ..extraction.engines import load_network, log_if_first
from ..extraction.frozen import freeze, make_recipe
from ..extraction.network import Batch, Network
from ..extraction.request import ExtractionRequest, get_store_path
from ..extraction.space import make_space
from ..files import schema
from ..files.atomic import link_or_copy
from ..files.features import FeatureWriter, writing_features
from ..files.hdf5 import strict
from ..files.recipes import Recipe
from ..files.schema import get_engine_facts, provenance
from ..options.common import FROZEN
from ..options.features import Backbone, ExtractOptions
from ..progress import log
from ..values.arrays import U8, Digest
from .runner import Files, Job, StageFunction

COMMIT_SECONDS = 5.0


@StageFunction
def extract(o: ExtractOptions, files: Files) -> Job:
    """Write the features of every image of a split: what enters the backbone's classifier.

    Without ``out`` the file lies in the store (``store``, else $AFLTOOL_STORE, else ./afl-store)
    under a key of everything that changes a feature, and is made once; with both ``out`` and
    ``store``, ``out`` is a link to it.
    """
    request = ExtractionRequest.of(o)
    if request.frozen is None and not (o.out and o.out.exists()):
        _ = request.dataset  # whose names and files are refused before anything is said
        log_if_first(o)
    path, made_by = get_store_path(request) if o.out is None else (o.out, request.recipe())

    def write() -> None:
        if o.out is not None and o.store is not None:
            link_or_copy(extract(replace(o, out=None)), path, "features")
            return
        # Only now, so that an answer from the store needs neither the images nor PyTorch.
        _ = request.dataset
        network = load_network(request.given, request.preprocessing(), request.frozen)
        log.info("extract: %s", network)
        _Extraction(request, network, made_by).run(path)

    return Job.for_file(path, made_by, write)


@dataclass
class _Extraction:
    """One extraction under way."""

    asked: ExtractionRequest
    network: Network
    made_by: Recipe
    skipped: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.given, self.dataset = self.asked.given, self.asked.dataset
        n = len(self.dataset)
        self.indices = range(n)[self.given.part.of(n)]  # a shard may have none
        self.space = dict(make_space(self.network, self.given))

    def run(self, path: Path) -> None:
        """Extract every image not yet in the partial file, and finish the file."""
        n, how = len(self.indices), get_engine_facts(self.network.describe_engine())
        recipe = Digest().json("recipe", strict(self.made_by)).hex()
        key = f"{how} in steps of {self.network.engine.step} with the recipe {recipe}"
        with writing_features(path, self.space, key) as writer:
            self.skipped = dict(writer.state["skipped"] if writer.state else ())
            if self.skipped and not self.given.skip_corrupt:
                why = self.skipped[min(self.skipped)]
                raise InvalidDataError(f"{why} To try it again, remove {path}.partial.")
            if at := writer.rows + len(self.skipped):
                log.info("extract: %d of %d images are done, going on from there", at, n)
            with progress.task("extract", n, "images", at) as task:
                self.fill(writer, at, task)
            if n and not writer.rows:
                raise InvalidDataError(f"none of the {n} images could be read")
            kept = np.setdiff1d(np.arange(n) + self.indices.start, list(self.skipped))
            every = self.dataset.labels
            labels = None if every is None else every[kept]
            writer.finish(labels, self.dataset.row_ids[kept], self.header())
        if self.skipped:
            n, lists = len(self.skipped), f"afltool info {path} --field source.skipped lists them"
            log.warning("extract: %d corrupt images were left out; %s", n, lists)

    def fill(self, writer: FeatureWriter, at: int, task: progress.Task) -> None:
        """Append features from position ``at`` on; what is done is committed before any error."""
        last, todo, skip = time.monotonic(), self.indices[at:], self.given.skip_corrupt
        try:
            for batch, rows in self.network.features(self.decode, todo, skip):
                for part, its_rows in at_chunks(batch, rows, writer.rows):
                    self.append(writer, part, its_rows)
                    whole = writer.rows % schema.CHUNK_ROWS == 0
                    if whole and time.monotonic() - last > COMMIT_SECONDS:
                        self.commit(writer)
                        last = time.monotonic()
                task.advance(len(batch.indices))
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

    def decode(self, index: int) -> U8:
        return self.network.decode(self.dataset, index)

    def commit(self, writer: FeatureWriter) -> None:
        writer.commit({"skipped": list(self.skipped.items())})

    def header(self) -> dict[str, Any]:
        named, skipped = self.dataset.row_ids, sorted(self.skipped.items())
        listed = [{"row": named[i].decode(errors="replace"), "why": why} for i, why in skipped]
        return {
            "recipe": self.made_by,
            "provenance": provenance(**self.network.describe_engine()),
            "space": self.space,
            "classes": list(self.dataset.classes),
            "source": {
                **{name: getattr(self.given, name) for name in ("data", "split", "limit")},
                "shard": self.made_by["options"]["shard"],
                "weights": self.network.backbone.weights,
                "input": self.dataset.fingerprint,
                "skipped": listed,
            },
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


@StageFunction
def backbone(o: Backbone, files: Files) -> Job:
    """Write a frozen backbone: its graph as ONNX, preprocessing, nodes, weights and their license.

    `extract` and `predict` make features of the same space of it as of the name, in ONNX Runtime or
    OpenVINO. The graph takes squares of uint8 (n, 3, s, s). The file also has PyTorch's features of
    four known pictures, which every engine has to make before it is used. Raises `EngineError`: the
    network cannot be a graph.
    """
    name, out = o.name, o.out
    if out.suffix != FROZEN:
        raise UsageError(f"{out}: the name of a frozen backbone ends in {FROZEN}")
    way = preprocessing_for(o.preprocess, name, o.weights, o.image_size)
    made_by = make_recipe(name, o, way)
    made_by["options"] |= {"licence": o.license} if o.license else {}

    def write() -> None:
        frozen = freeze(name, o, way, made_by, o.license or "not told")
        frozen.save(out)
        log.info("backbone: %s, %d features an image, %s", name, frozen.dim, frozen.weights)

    return Job.for_file(out, made_by, write)
