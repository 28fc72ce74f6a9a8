"""`run`: the whole road on one machine, in a folder whose file names show it.

    01-features-train.h5  01-features-test.h5   (hard links into the store)
    02-clients.h5         who owns which row
    03-head0.h5           what the federation agrees on
    04-total.h5           the sum of all clients' statistics (04-stats/ with --keep-clients)
    05-head.h5            the solved head
    06-metrics.json       accuracies; 06-confusion.csv
    summary.json          what was done, how long it took, how many bytes a client sends

A head of several rounds adds 04-total-2.h5, 05-head-2.h5 and so on.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from ..datasets import read_classes
from ..errors import InputError
from ..files import load_head, load_partition
from ..heads import OPTIONS
from ..report.tables import write_confusion, write_json
from ..store.hdf5 import read_header
from .aggregate import aggregate
from .evaluate import evaluate
from .extract import extract
from .head import head as make_head_file
from .inspect import info
from .local_stats import local_stats
from .partition import partition
from .run_config import RunConfig
from .solve import solve

log = logging.getLogger("afltool")


def run(config: RunConfig, out: str | Path, *, overwrite: bool = False) -> Path:
    """Carry out every stage of a run in the folder ``out``; what is done and valid is kept."""
    return _Run(config, Path(out), overwrite).all()


class _Run:
    def __init__(self, config: RunConfig, folder: Path, overwrite: bool) -> None:
        self.config, self.folder, self.overwrite = config, folder, overwrite
        self.stages: list[dict[str, Any]] = []

    def all(self) -> Path:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the folder {self.folder}: {error.strerror}") from None
        train, test = self.features("train"), self.features("test")
        clients = self.timed("partition", lambda: self.partition(train))
        start = self.timed("head", self.first_head)
        solved, uploads = self.rounds(train, clients, start)
        metrics = self.measure(solved, test)
        self.summary(metrics, uploads)
        return self.folder

    def timed(self, name: str, work: Callable[[], Path]) -> Path:
        begun = time.perf_counter()
        path = work()
        seconds = time.perf_counter() - begun
        self.stages.append({"stage": name, "seconds": round(seconds, 3), "file": path.name})
        log.info("%s: %s (%.1f s)", name, path, seconds)
        return path

    def features(self, split: str) -> Path:
        """Features from the store, linked into the folder."""
        c = self.config
        given = c.features if split == "train" else c.test_features
        place = self.folder / f"01-features-{split}.h5"

        def work() -> Path:
            kept = given or self.extract(split)
            digest = read_header(kept, "features")["digest"]
            if not place.exists() or read_header(place, "features")["digest"] != digest:
                _link(kept, place)
            return place

        return self.timed(f"extract {split}", work)

    def extract(self, split: str) -> Path:
        c = self.config
        assert c.backbone is not None
        assert c.data is not None
        return extract(
            c.backbone,
            c.data,
            split,
            weights=c.weights,
            preprocess=c.preprocess,
            image_size=c.image_size,
            classes=None if c.classes is None else read_classes(c.classes),
            limit=c.limit,
            dtype=c.dtype,
            fraction_bits=c.fraction_bits,
            precision=c.precision,
            batch_size=c.batch_size,
            device=c.device,
            data_root=c.data_root,
            checksums=c.checksums,
            store=c.store,
            skip_corrupt=c.skip_corrupt,
        )

    def partition(self, train: Path) -> Path:
        c = self.config
        alpha = 0.1 if c.alpha is None and c.scheme.startswith("dirichlet") else c.alpha
        return partition(
            train,
            self.folder / "02-clients.h5",
            scheme=c.scheme,
            clients=100 if c.clients is None else c.clients,
            seed=c.partition_seed,
            alpha=alpha,
            shards_per_client=c.shards_per_client,
            min_size=c.min_size,
            held_out=c.held_out,
            label_noise=c.label_noise,
            overwrite=self.overwrite,
        )

    def first_head(self) -> Path:
        c = self.config
        if c.head not in OPTIONS:
            return Path(c.head)
        options = dict(c.head_options)
        if c.head_seed is not None:
            options["seed"] = c.head_seed
        place = self.folder / "03-head0.h5"
        return make_head_file(c.head, place, options=options, overwrite=self.overwrite)

    def rounds(self, train: Path, clients: Path, head: Path) -> tuple[Path, list[dict[str, Any]]]:
        """Gather and solve until the head says that it is done."""
        uploads: list[dict[str, Any]] = []
        for number in count(1):
            suffix = "" if number == 1 else f"-{number}"
            total = self.folder / f"04-total{suffix}.h5"
            held = self.folder / f"04-held-out{suffix}.h5" if self.config.held_out else None
            taking_part = self.draw(clients, head)
            self.gather(train, clients, head, total, held, suffix, taking_part)
            uploads.append(self.upload(total, suffix))
            following = self.folder / f"05-head{suffix}.h5"
            head = self.timed("solve", lambda: self.solve(total, held, head, following))  # noqa: B023
            if load_head(head)[0].phase() is None:
                return head, uploads
        raise AssertionError("count() does not end")

    def draw(self, clients: Path, head: Path) -> str | None:
        """The clients of a round, as --only takes them: one draw for each layer, by its number.

        Every held-out client stays; without --participation nothing is drawn.
        """
        share = self.config.participation
        if share == 1:
            return None
        held = load_partition(clients).held_out
        layer = re.search(r"\d+$", load_head(head)[0].phase() or "")
        number = int(layer[0]) if layer else 0
        rng = np.random.default_rng([self.config.partition_seed, number])
        training = np.flatnonzero(~held)
        drawn = rng.permutation(training)[: max(1, round(share * len(training)))]
        return ",".join(map(str, sorted([*drawn.tolist(), *np.flatnonzero(held).tolist()])))

    def gather(
        self,
        train: Path,
        clients: Path,
        head: Path,
        total: Path,
        held: Path | None,
        suffix: str,
        only: str | None,
    ) -> None:
        w, cache = self.overwrite, self.config.cache
        if not self.config.keep_clients:
            self.timed(
                "local-stats",
                lambda: local_stats(
                    train,
                    head,
                    total,
                    partition=clients,
                    only=only,
                    sum=True,
                    held_out=held,
                    cache=cache,
                    overwrite=w,
                ),
            )
            return
        each = self.folder / f"04-stats{suffix}"
        self.timed(
            "local-stats",
            lambda: local_stats(
                train, head, each, partition=clients, only=only, cache=cache, overwrite=w
            ),
        )
        self.timed("aggregate", lambda: aggregate([each], total, held_out=held, overwrite=w))

    def upload(self, total: Path, suffix: str) -> dict[str, Any]:
        """Bytes that one client sends in this round: measured files, or the total's arrays."""
        each = self.folder / f"04-stats{suffix}"
        found = info(total)
        entry = {"phase": found["phase"], "arrays_at_most": found["payload_bytes"]}
        if self.config.keep_clients:
            sizes = [p.stat().st_size for p in each.glob("*.h5")]
            entry["mean_file"] = round(sum(sizes) / len(sizes))
        return entry

    def solve(self, total: Path, held: Path | None, head: Path, out: Path) -> Path:
        return solve(
            total,
            out,
            head=head,
            validate=held,
            threads=self.config.threads,
            overwrite=self.overwrite,
        )

    def measure(self, head: Path, test: Path) -> dict[str, Any]:
        place = self.folder / "06-metrics.json"
        self.timed("evaluate", lambda: write_json(evaluate(head, test), place))
        metrics: dict[str, Any] = json.loads(place.read_text())
        write_confusion(metrics, self.folder / "06-confusion.csv")
        return metrics

    def summary(self, metrics: dict[str, Any], uploads: list[dict[str, Any]]) -> None:
        last = read_header(self.folder / "04-total.h5", "statistics")
        found = {
            "top1": metrics["top1"],
            "top5": metrics["top5"],
            "n": metrics["n"],
            "clients": len(last["clients"]["names"]),
            "total_digest": last["digest"],
            "head_digest": metrics["head"]["digest"],
            "bytes_per_client": uploads,
            "stages": self.stages,
        }
        write_json(found, self.folder / "summary.json")


def _link(source: Path, place: Path) -> None:
    """A hard link; a copy where the file system has none. Replaces what is there, atomically."""
    beside = place.with_name(place.name + ".partial")
    beside.unlink(missing_ok=True)
    try:
        try:
            os.link(source, beside)
        except OSError:
            shutil.copyfile(source, beside)
        os.replace(beside, place)
    except OSError as error:
        raise InputError(f"cannot write {place}: {error.strerror or error}") from None
