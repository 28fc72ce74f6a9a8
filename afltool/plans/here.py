"""`run`: every stage on one machine, in a folder whose files `afltool.plans.layout` names.

What is done and valid is kept; the same command goes on where another one stopped.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from ..cache.cache import Cache
from ..errors import OutputExistsError, RidgeNeededError
from ..files.atomic import link_or_copy, write_text
from ..files.hdf5 import read_header
from ..files.heads import HeadFile, load_head
from ..files.outputs import make_folder
from ..files.scratch import Scratch
from ..files.statistics import load_statistics
from ..files.tables import write_confusion, write_json, write_records
from ..inputs import distinct_files
from ..options import flag
from ..options.used_with import refuse_unused
from ..progress import log
from ..stages._rounds import last_separability, told
from ..stages.aggregate import aggregate
from ..stages.evaluate import evaluate
from ..stages.extract import extract
from ..stages.head import head as make_head_file
from ..stages.local_stats import local_stats
from ..stages.partition import partition
from ..stages.solve import solve
from .checks import check_before, check_own_files, holds_clients_out, is_linked
from .config import KEEP_LAST, RunConfig, is_of_run
from .last_round import finished_round, remove_rounds
from .layout import RunFolder
from .shared import Alone, Shared, extract_key, head_key, metrics_key, partition_key
from .solve_options import at_solve, serves
from .summary import costs, made_with


def run(
    config: RunConfig, out: str | Path, *, overwrite: bool = False, shared: Shared | None = None
) -> Path:
    """Carry out every stage of a run in the folder ``out``; what is done and valid is kept.

    What one round leaves for the next stays in memory, as far as `HereOptions.memory` allows, and
    what does not fit in a file without a name in the folder; see `cache.cache`. Everything that
    can be checked without work is checked first: options, the head, the backbone, paths.
    ``shared``: what other runs of this process have made already is linked, not made again. Returns
    the folder.
    """
    folder = RunFolder(out)
    check_before(config, folder)
    check_own_files(config, folder, overwrite)
    make_folder(folder.root)
    shared = shared or Alone()
    with (
        closing(Scratch(folder.root)) as scratch,
        Cache(config.here.room(), scratch.of, shared.sums) as cache,
    ):
        return _Run(config, folder, overwrite, shared, cache).all()


class _Run:
    def __init__(
        self, config: RunConfig, folder: RunFolder, overwrite: bool, shared: Shared, cache: Cache
    ) -> None:
        self.config, self.folder, self.overwrite = config, folder, overwrite
        self.shared, self.cache = shared, cache
        self.stages: list[dict[str, Any]] = []
        self.started_with = folder.first_head
        self.at_solve: dict[str, Any] = {}  # options of the head that are others than in its file

    def all(self) -> Path:
        if self.overwrite or not self.folder.options.exists():
            self.keep_options()
        train, test = self.features("train"), self.features("test")
        clients = self.timed("partition", lambda: self.partition(train))
        start = self.started_with = self.timed("head", self.first_head)
        self.at_solve = at_solve(self.config, start, self.cache)
        number = None if self.overwrite else finished_round(self.folder, self.config, start)
        if number is not None:
            remove_rounds(self.folder, number)
            self.folder.name_result(number)
            self.keep_options()
            return self.folder.root
        self.say_exchange(start)
        rounds = not load_head(start, self.cache)[0].options.one_round()
        for part in (self.config.here, self.config.local_stats, self.config.evaluate):
            refuse_unused(part, {"rounds": rounds})
        check_room(start, train, self.cache)
        heads, uploads = self.rounds(train, clients, start)
        metrics = self.measure(heads, train, test)
        self.summary(load_head(heads[-1], self.cache), metrics, uploads)
        self.folder.name_result(len(heads))  # last: a file with another name is read anew
        self.keep_options()
        if self.config.here.keep_rounds == KEEP_LAST:
            self.remove_rounds(len(heads))
        return self.folder.root

    def remove_rounds(self, last: int) -> None:
        self.shared.remove_rounds(self.folder, last)
        if last > 1:
            log.info(
                "the heads and totals of rounds 1 to %d are removed (--keep-rounds last); what was "
                "measured after each of them is in %s", last - 1, RunFolder.SUMMARY,
            )  # fmt: skip

    def keep_options(self) -> None:
        """Write run.toml, unless it says this run already, be it with comments of its owner."""
        if not is_of_run(self.folder.options, self.config):
            text = self.config.with_absolute_paths().to_toml()
            with distinct_files():  # the options may have been read from this very file
                write_text(text, self.folder.options, overwrite=True)

    def timed(self, name: str, work: Callable[[], Path]) -> Path:
        begun, worked = time.perf_counter(), time.process_time()
        path = work()
        seconds, worked = time.perf_counter() - begun, time.process_time() - worked
        took = {"seconds": round(seconds, 3), "processor_seconds": round(worked, 4)}
        self.stages.append({"stage": name, **took, "file": path.name})
        log.info("%s: %s (%.1f s)", name, path, seconds)
        return path

    def features(self, split: str) -> Path:
        """Features from the store, linked into the folder; or merged there by a batch system."""
        own = self.config.own
        given = own.train_features if split == "train" else own.test_features
        place = self.folder.features(split)

        def work() -> Path:
            if given is None and self.made_here(split, place):
                return place
            return link_file(given or self.kept(split), place, "features", self.overwrite)

        return self.timed(f"{'extract' if given is None else 'features'} {split}", work)

    def kept(self, split: str) -> Path:
        key = partial(extract_key, split, vars(self.config.extract))
        return self.shared.value(key, lambda: self.extract(split))

    def made_here(self, split: str, place: Path) -> bool:
        try:
            return place.exists() and self.extract(split, place) == place
        except OutputExistsError:
            return False

    def extract(self, split: str, out: Path | None = None) -> Path:
        assert self.config.extract is not None  # where no features are given
        return extract(replace(self.config.extract, split=split), out)

    def partition(self, train: Path) -> Path:
        given, place = self.config.own.partition, self.folder.clients
        if given is not None:
            return link_file(given, place, "partition", self.overwrite)
        options = self.config.partition
        assert options is not None  # where no partition is given
        make = partial(partition, train, place, options, overwrite=self.overwrite)
        key = partial(partition_key, train, vars(options))
        return self.shared.file(key, place, "partition", make)

    def first_head(self) -> Path:
        c, place = self.config, self.folder.first_head
        if c.first_head is not None:
            return c.first_head
        for name, value in c.for_data().items():
            data = "the given features" if c.extract is None else f"--data {c.extract.data}"
            log.info("%s %s for %s is %s", flag(name), c.head_options[name], data, value)
        if not self.overwrite and place.exists() and serves(c, place):
            return place  # what was gathered for it is
        options, w = c.all_head_options(), self.overwrite
        return make_head_file(
            c.own.head, place, head_options=options, overwrite=w, cache=self.cache
        )

    def say_exchange(self, start: Path) -> None:
        if self.config.cheaper():
            log.info(
                "all clients take part in every round: they send only what changes of ΦᵀΦ "
                "(--incremental); --full-gram sends all of it, as in the paper"
            )
        # What clients send in later rounds: the option that they follow, or the phases' full sums.
        self.exchange = load_head(start, self.cache)[0].options.same_clients() or "full"

    def rounds(
        self, train: Path, clients: Path, head: Path
    ) -> tuple[list[Path], list[dict[str, Any]]]:
        """Gather and solve until the head says that it is done; the heads after each round."""
        uploads: list[dict[str, Any]] = []
        heads: list[Path] = []
        holds_out = holds_clients_out(self.config)
        for number in count(1):
            total = self.folder.total(number)
            held = self.folder.held_out(number) if holds_out else None
            self.gather(train, clients, head, number, held)
            uploads.append(self.upload(number))
            with self.another_ridge(head, number):
                solved = self.timed("solve", partial(self.solve, total, held, head, number))
            before, head = head, solved
            heads.append(head)
            for path in (total, held, before):
                if path is not None:
                    self.cache.forget(path)
            if load_head(head, self.cache)[0].phase() is None:
                return heads, uploads
        raise AssertionError("count() does not end")

    @contextmanager
    def another_ridge(self, head: Path, number: int) -> Iterator[None]:
        """Inside, a message that asks for a ridge says which command goes on with what is done.

        In later rounds none does: the rounds before were solved with the ridge that they had.
        """
        try:
            yield
        except RidgeNeededError as error:
            first = number == 1 and isinstance(self.shared, Alone)
            may = "ridge" in load_head(head, self.cache)[0].options.changeable()
            if first and may and is_of_run(self.folder.options, self.config):
                words = ["afltool", "run", self.folder.options, "-o", self.folder.root]
                again = shlex.join([*map(str, words), "--ridge", "auto"])
                error.args = (f"{error}. What is done is kept, and this goes on from it: {again}",)
            raise

    def gather(
        self, train: Path, clients: Path, head: Path, number: int, held: Path | None
    ) -> None:
        w, total, each = self.overwrite, self.folder.total(number), self.folder.stats(number)
        options, keep = self.config.local_stats, self.config.own.keep_clients
        options = replace(options, partition=clients, sum=not keep, held_out=None if keep else held)
        made = partial(local_stats, train, head, each if keep else total, options)
        self.timed("local-stats", partial(made, overwrite=w, cache=self.cache))
        if keep:
            adding = replace(self.config.aggregate, held_out=held)
            added = partial(aggregate, [each], total, adding, overwrite=w, cache=self.cache)
            self.timed("aggregate", added)

    def upload(self, number: int) -> dict[str, Any]:
        """Bytes that one client sends in this round: measured files, or the total's arrays."""
        path = self.folder.total(number)
        header = read_header(path, "statistics", self.cache)
        total = load_statistics(path, cache=self.cache)
        entry = {"phase": total.phase, "arrays_at_most": total.payload_bytes}
        entry["gather_seconds"] = header["provenance"].get("seconds")
        if self.config.own.keep_clients:
            sizes = [p.stat().st_size for p in self.folder.stats(number).glob("*.h5")]
            entry["mean_file"] = round(sum(sizes) / len(sizes))
        return entry

    def solve(self, total: Path, held: Path | None, head: Path, number: int) -> Path:
        how = replace(self.config.solve, head=head, validate=held)
        place, options, w = self.folder.head(number), self.at_solve, self.overwrite
        made = partial(solve, total, place, how, head_options=options)
        make = partial(made, overwrite=w, cache=self.cache)
        key = partial(
            head_key, head, total, held, {**vars(self.config.solve), **options}, self.cache
        )
        return self.shared.file(key, place, "head", make)

    def measure(self, heads: list[Path], train: Path, test: Path) -> dict[str, Any]:
        """Metrics of the last head; with --each-round also the accuracies after every round."""
        place = self.folder / RunFolder.METRICS
        self.timed(
            "evaluate",
            lambda: write_json(self.evaluated(heads, test, train), place, overwrite=True),
        )
        metrics: dict[str, Any] = json.loads(place.read_text())
        formulas = self.config.evaluate.formulas
        write_confusion(metrics, self.folder / RunFolder.CONFUSION, True, formulas)
        return metrics

    def evaluated(self, heads: list[Path], test: Path, train: Path | None = None) -> dict[str, Any]:
        options, each = self.config.evaluate, self.config.evaluate.each_round
        how = replace(
            options,
            earlier=tuple(heads[:-1]) if each else (),
            train=train if self.config.own.train_accuracy else None,
        )
        asked = [each, options.separability]
        key = partial(metrics_key, heads, [test, how.train], asked, self.cache)
        make = partial(evaluate, heads[-1], test, how, cache=self.cache)
        return self.shared.metrics(key, make, head=heads[-1], features=test)

    def summary(
        self, head: HeadFile, metrics: dict[str, Any], uploads: list[dict[str, Any]]
    ) -> None:
        rounds = told(head.rounds, metrics.get("rounds", []), uploads)
        write_records(rounds, self.folder / RunFolder.ROUNDS, overwrite=True)
        last = read_header(self.folder.total(1), "statistics")
        found = {
            "top1": metrics["top1"],
            "top5": metrics["top5"],
            "n": metrics["n"],
            **({"train_top1": metrics["train"]["top1"]} if "train" in metrics else {}),
            **last_separability(metrics),
            "clients": len(last["clients"]["names"]),
            "total_digest": last["digest"],
            "head_digest": metrics["head"]["digest"],
            "bytes_per_client": uploads,
            "exchange": self.exchange,
            **{k: v for k, v in head.report.items() if k == "density"},  # tables show it
            **costs(uploads, self.stages),
            **made_with(self.config, self.folder, self.started_with, len(uploads), self.at_solve),
            "rounds": rounds,
            "stages": self.stages,
        }
        write_json(found, self.folder / RunFolder.SUMMARY, overwrite=True)


def check_room(head: Path, train: Path, cache: Cache) -> None:
    """Refuse a head that this machine cannot solve before any row is read for it."""
    loaded, _ = load_head(head, cache)
    if loaded.phase() is not None:
        loaded.options.check_room(read_header(train, "features", cache)["space"]["dim"])


def link_file(kept: Path, place: Path, kind: str, overwrite: bool = False) -> Path:
    """A file from elsewhere under the name that a run has for it; see `is_linked`."""
    return place if is_linked(kept, place, kind, overwrite) else link_or_copy(kept, place, kind)
