"""`run`: the whole road on one machine, in a folder whose file names show it.

    01-features-train.h5  01-features-test.h5   (hard links into the store)
    02-clients.h5         who owns which row
    03-head0.h5           what the federation agrees on
    04-total.h5           the sum of all clients' statistics (04-stats/ with --keep-clients)
    05-head.h5            the solved head
    06-metrics.json       accuracies; 06-confusion.csv
    06-rounds.csv         what each round took and brought
    summary.json          what was done, how long it took, how many bytes a client sends
    run.toml              the options: `afltool run run.toml -o FOLDER` goes on

A head of several rounds adds 04-total-2.h5, 05-head-2.h5 and so on.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from ..datasets import read_classes
from ..errors import InputError, OutputExistsError
from ..files import load_head
from ..heads import OPTIONS
from ..report.rounds import write_rounds
from ..report.tables import write_confusion, write_json, write_text
from ..store.hdf5 import read_header
from ._rounds import after_each_round, told
from .aggregate import aggregate
from .evaluate import evaluate
from .extract import extract
from .head import head as make_head_file
from .inspect import info
from .local_stats import local_stats
from .partition import partition
from .run_config import RunConfig, to_toml, with_absolute_paths
from .solve import solve

log = logging.getLogger("afltool")
OPTIONS_FILE = "run.toml"


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
        options = self.folder / OPTIONS_FILE
        if self.overwrite or not options.exists():
            self.keep_options(options)
        train, test = self.features("train"), self.features("test")
        clients = self.timed("partition", lambda: self.partition(train))
        start = self.timed("head", self.first_head)
        heads, uploads = self.rounds(train, clients, start)
        metrics = self.measure(heads, test)
        self.summary(metrics, uploads, self.told(heads[-1], metrics, uploads))
        self.keep_options(options)
        return self.folder

    def keep_options(self, place: Path) -> None:
        write_text(to_toml(with_absolute_paths(self.config)), place)

    def timed(self, name: str, work: Callable[[], Path]) -> Path:
        begun = time.perf_counter()
        path = work()
        seconds = time.perf_counter() - begun
        self.stages.append({"stage": name, "seconds": round(seconds, 3), "file": path.name})
        log.info("%s: %s (%.1f s)", name, path, seconds)
        return path

    def features(self, split: str) -> Path:
        """Features from the store, linked into the folder; or merged there by a batch system."""
        c = self.config
        given = c.train_features if split == "train" else c.test_features
        place = self.folder / f"01-features-{split}.h5"

        def work() -> Path:
            if given is None and self.made_here(split, place):
                return place
            return link_features(given or self.extract(split), place)

        return self.timed(f"extract {split}", work)

    def made_here(self, split: str, place: Path) -> bool:
        try:
            return place.exists() and self.extract(split, place) == place
        except OutputExistsError:
            return False

    def extract(self, split: str, out: Path | None = None) -> Path:
        c = self.config
        assert c.backbone is not None
        assert c.data is not None
        return extract(
            c.backbone,
            c.data,
            split,
            out,
            weights=c.weights,
            node=c.node,
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
        place = self.folder / "03-head0.h5"
        return make_head_file(c.head, place, options=head_options(c), overwrite=self.overwrite)

    def rounds(
        self, train: Path, clients: Path, head: Path
    ) -> tuple[list[Path], list[dict[str, Any]]]:
        """Gather and solve until the head says that it is done; the heads after each round."""
        uploads: list[dict[str, Any]] = []
        heads: list[Path] = []
        for number in count(1):
            suffix = "" if number == 1 else f"-{number}"
            total = self.folder / f"04-total{suffix}.h5"
            held = self.folder / f"04-held-out{suffix}.h5" if self.config.held_out else None
            self.gather(train, clients, head, total, held, suffix)
            uploads.append(self.upload(total, suffix))
            following = self.folder / f"05-head{suffix}.h5"
            head = self.timed("solve", lambda: self.solve(total, held, head, following))  # noqa: B023
            heads.append(head)
            if load_head(head)[0].phase() is None:
                return heads, uploads
        raise AssertionError("count() does not end")

    def gather(
        self,
        train: Path,
        clients: Path,
        head: Path,
        total: Path,
        held: Path | None,
        suffix: str,
    ) -> None:
        w = self.overwrite
        options: dict[str, Any] = {
            "partition": clients,
            "participation": self.config.participation,
            "participation_seed": self.config.partition_seed,
            "cache": self.config.cache,
            "overwrite": w,
        }
        if not self.config.keep_clients:
            self.timed(
                "local-stats",
                lambda: local_stats(train, head, total, sum=True, held_out=held, **options),
            )
            return
        each = self.folder / f"04-stats{suffix}"
        self.timed("local-stats", lambda: local_stats(train, head, each, **options))
        self.timed("aggregate", lambda: aggregate([each], total, held_out=held, overwrite=w))

    def upload(self, total: Path, suffix: str) -> dict[str, Any]:
        """Bytes that one client sends in this round: measured files, or the total's arrays."""
        each = self.folder / f"04-stats{suffix}"
        found = info(total)
        entry = {"phase": found["phase"], "arrays_at_most": found["payload_bytes"]}
        entry["gather_seconds"] = found["provenance"].get("seconds")
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

    def measure(self, heads: list[Path], test: Path) -> dict[str, Any]:
        """Metrics of the last head; with --each-round also the accuracies after every round."""
        place = self.folder / "06-metrics.json"
        self.timed("evaluate", lambda: write_json(self.evaluated(heads, test), place))
        metrics: dict[str, Any] = json.loads(place.read_text())
        write_confusion(metrics, self.folder / "06-confusion.csv")
        return metrics

    def evaluated(self, heads: list[Path], test: Path) -> dict[str, Any]:
        if not self.config.each_round:
            return evaluate(heads[-1], test)
        return after_each_round(heads, lambda head: evaluate(head, test, each_round=True))

    def told(
        self, head: Path, metrics: dict[str, Any], uploads: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The rounds of the last head's report, with what was measured beside it."""
        rounds = told(load_head(head)[0], metrics.get("rounds", []), uploads)
        write_rounds(rounds, self.folder / "06-rounds.csv")
        return rounds

    def summary(
        self,
        metrics: dict[str, Any],
        uploads: list[dict[str, Any]],
        rounds: list[dict[str, Any]],
    ) -> None:
        last = read_header(self.folder / "04-total.h5", "statistics")
        found = {
            "top1": metrics["top1"],
            "top5": metrics["top5"],
            "n": metrics["n"],
            "clients": len(last["clients"]["names"]),
            "total_digest": last["digest"],
            "head_digest": metrics["head"]["digest"],
            "bytes_per_client": uploads,
            "rounds": rounds,
            "stages": self.stages,
        }
        write_json(found, self.folder / "summary.json")


def head_options(config: RunConfig) -> dict[str, Any]:
    """The options of a run's head, its seed among them."""
    seed = {} if config.head_seed is None else {"seed": config.head_seed}
    return {**config.head_options, **seed}


def link_features(kept: Path, place: Path) -> Path:
    """Features from elsewhere under the name that a run has for them."""
    digest = read_header(kept, "features")["digest"]
    if not place.exists() or read_header(place, "features")["digest"] != digest:
        _link(kept, place)
    return place


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
