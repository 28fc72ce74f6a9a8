"""`run`: carries a plan out on this machine, in a folder whose files `plans.layout` names.

What is done and valid is kept; the same command goes on where another one stopped.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from .. import cores
from ..errors import RidgeNeededError
from ..files.atomic import write_text
from ..files.hdf5 import read_header
from ..files.heads import load_head
from ..files.outputs import make_folder
from ..files.schema import EVALUATION, MADE_OF, versions
from ..files.statistics import load_statistics
from ..files.tables import write_confusion, write_json, write_records
from ..inputs import distinct_files
from ..math.metrics.counting import TOPS
from ..memory import Cache
from ..options.base import flag
from ..progress import event, heard, log
from ..stages._rounds import last_separability, rounds_of, told
from ..values.names import Phase
from .checks import at_solve, check_before, check_own_files, serves
from .config import KEEP_LAST, RunConfig, is_of_run
from .layout import RunFolder
from .made import Alone
from .plan import Step, next_steps
from .summary import costs, digests, finished_round, remove_rounds, resolved, tell_done


def run(
    config: RunConfig, out: str | Path, *, overwrite: bool = False, made: Alone | None = None
) -> Path:
    """Carry out every step of a run in the folder ``out``; what is done and valid is kept.

    What one round leaves for the next stays in memory, as far as `HereOptions.memory` allows; what
    does not fit is computed again; see `memory`. Everything that can be checked without work is
    checked first: options, the head, the backbone, paths. ``made``: what other runs have made
    already is linked, not made again. Returns the folder.
    """
    folder = RunFolder(out)
    check_before(config, folder)
    check_own_files(config, folder, overwrite)
    make_folder(folder.root)
    made = made or Alone()
    event("run_begun", folder=folder.root, what="run", options=config.meaning())
    with (
        cores.using(config.here.threads),
        Cache(config.here.room(made.processes), made.sums) as cache,
    ):
        _Run(config, folder, overwrite, made, cache).all()
    tell_done(folder.root)
    return folder.root


class _Run:
    """The steps of a run under way."""

    def __init__(
        self, config: RunConfig, folder: RunFolder, overwrite: bool, made: Alone, cache: Cache
    ) -> None:
        self.config, self.folder, self.overwrite = config, folder, overwrite
        self.made, self.cache = made, cache
        self.start = config.first_head or folder.first_head
        self.stages: list[dict[str, Any]] = []  # what each step took
        self.heads: list[Path] = []  # after each round
        self.uploads: list[dict[str, Any]] = []  # of each round
        self.late: dict[str, Any] = {}  # options of the head that are others than in its file

    def all(self) -> None:
        if self.overwrite or not self.folder.options.exists():
            self.keep_options()
        plan = next_steps(self.config, self.folder, self.phase, lambda: self.late)
        self.carry_out(next(plan))
        number = None if self.overwrite else finished_round(self.folder, self.config, self.start)
        if number is not None:
            remove_rounds(self.folder, number)
        else:
            self.look_at_head()
            self.late = at_solve(self.config, self.start, self.cache)
            for steps in plan:
                self.carry_out(steps)
            self.summary()
        last = number or len(self.heads)
        self.folder.name_result(last)  # last: a file with another name is read anew
        self.keep_options()
        if number is None and self.config.here.keep_rounds == KEEP_LAST:
            self.remove_rounds(last)

    def phase(self, head: Path) -> Phase | None:
        return load_head(head, self.cache).head.phase()

    def look_at_head(self) -> None:
        """Refuse a head that this machine cannot solve, before any row is read for it."""
        head = load_head(self.start, self.cache).head
        if self.config.cheaper():
            log.info(
                "all clients take part in every round: they send only what changes of ΦᵀΦ "
                "(--incremental); --full-gram sends all of it, as in the paper"
            )
        if head.phase() is not None:
            train = read_header(self.folder.features("train"), "features")
            head.options.check_room(train["space"]["dim"])

    def remove_rounds(self, last: int) -> None:
        remove_rounds(self.folder, last)
        if last > 1:
            log.info(
                "the heads and totals of rounds 1 to %d are removed (--keep-rounds last); what was "
                "measured after each of them is in %s",
                last - 1,
                RunFolder.SUMMARY,
            )

    def keep_options(self) -> None:
        """Write run.toml, unless it says this run already, be it with comments of its owner."""
        if not is_of_run(self.folder.options, self.config):
            text = self.config.with_absolute_paths().to_toml()
            with distinct_files():  # the options may have been read from this very file
                write_text(text, self.folder.options, overwrite=True)

    def carry_out(self, steps: list[Step]) -> None:
        """Make what the steps make, and note what each took."""
        ways = {"head": self.first_head, "solve": self.solved, "evaluate": self.measured}
        for step in steps:
            where = {"folder": self.folder.root, "step": step.name}
            event("step_begun", **where)
            begun, worked = time.perf_counter(), time.process_time()
            path = ways.get(step.stage.name, self.once)(step)
            seconds, worked = time.perf_counter() - begun, time.process_time() - worked
            took = {"seconds": round(seconds, 3), "processor_seconds": round(worked, 4)}
            self.stages.append({"stage": step.name, **took, "file": path.name})
            event("step_done", **where, path=path, kind=step.stage.writes, **took)
            log.info("%s: %s (%.1f s)", step.name, path, seconds)

    def once(self, step: Step) -> Path:
        return self.made.carry_out(step, self.overwrite, self.cache)

    def first_head(self, step: Step) -> Path:
        c, place = self.config, self.folder.first_head
        for name, value in c.for_data().items():
            data = "the given features" if c.extract is None else f"--data {c.extract.data}"
            log.info("%s %s for %s is %s", flag(name), c.head_options[name], data, value)
        if not self.overwrite and place.exists() and serves(c, place):
            return place  # what was gathered for it is
        return self.once(step)

    def solved(self, step: Step) -> Path:
        """The head after a round; with it nothing asks for the sums and the head before again."""
        files = step.files()
        self.uploads.append(self.upload(len(self.heads) + 1))
        with self.another_ridge():
            self.heads.append(self.once(step))
        for path in files.values():
            assert isinstance(path, Path)
            self.cache.forget(path)
        if heard():
            [figures] = rounds_of(load_head(self.heads[-1], self.cache).rounds[-1:], {}) or [{}]
            event("round", folder=self.folder.root, round=len(self.heads), figures=figures)
        return self.heads[-1]

    def upload(self, number: int) -> dict[str, Any]:
        """Bytes that one client sends in this round: its files, all or a few, and a bound."""
        path = self.folder.total(number)
        header = read_header(path, "statistics", self.cache)
        total = load_statistics(path, cache=self.cache)
        entry = {"phase": total.phase, "arrays_at_most": total.payload_bytes}
        entry["gather_seconds"] = header["provenance"].get("seconds")
        if self.config.own.keep_clients:
            sizes = [p.stat().st_size for p in self.folder.stats(number).glob("*.h5")]
        else:
            sizes = header["provenance"].get("client_files", [])
        if sizes:
            entry |= {"mean_file": round(sum(sizes) / len(sizes)), "files": len(sizes)}
        return entry

    @contextmanager
    def another_ridge(self) -> Iterator[None]:
        """Inside, a message that asks for a ridge says which command goes on with what is done.

        In later rounds none does: the rounds before were solved with the ridge that they had.
        """
        try:
            yield
        except RidgeNeededError as error:
            first = not self.heads and self.made.sums is None
            may = "ridge" in load_head(self.start, self.cache).head.options.changeable()
            if first and may and is_of_run(self.folder.options, self.config):
                words = ["afltool", "run", self.folder.options, "-o", self.folder.root]
                again = shlex.join([*map(str, words), "--ridge", "auto"])
                error.args = (f"{error}. What is done is kept, and this goes on from it: {again}",)
            raise

    def measured(self, step: Step) -> Path:
        """Metrics of the last head; with --each-round also the accuracies after every round."""
        files, options = step.files(), self.config.evaluate
        evaluated = partial(step.stage.module.evaluate_run, options, files, self.cache)
        metrics = self.made.value(step, evaluated, self.cache)
        own = {role: {**metrics[role], "path": str(files[role])} for role in MADE_OF[EVALUATION]}
        self.metrics = {**metrics, **own}
        place = write_json(self.metrics, self.folder / RunFolder.METRICS, overwrite=True)
        write_confusion(self.metrics, self.folder / RunFolder.CONFUSION, True)
        return place

    def summary(self) -> None:
        """Write what was done, how long it took, how many bytes a client sends."""
        solved, metrics = load_head(self.heads[-1], self.cache), self.metrics
        rounds = told(solved.rounds, metrics.get("rounds", []), self.uploads)
        write_records(rounds, self.folder / RunFolder.ROUNDS, overwrite=True)
        total = read_header(self.folder.total(1), "statistics")
        facts = {
            **{name: metrics[name] for name in (*TOPS, "n") if name in metrics},
            **({"train_top1": metrics["train"]["top1"]} if "train" in metrics else {}),
            **last_separability(metrics),
            "clients": len(total["clients"]["names"]),
            "total_digest": total["digest"],
            "head_digest": metrics["head"]["digest"],
            "bytes_per_client": self.uploads,
            # What clients send in later rounds: the option that they follow, or the full sums.
            "exchange": solved.head.options.same_clients() or "full",
            **{k: v for k, v in solved.report.items() if k == "density"},  # tables show it
            **costs(self.uploads, self.stages),
            "options": resolved(self.config, self.start, self.late),
            "partition": dict(read_header(self.folder.clients, "partition")["scheme"]),
            "digests": digests(self.folder, self.start, len(self.heads)),
            "versions": versions(),
            "rounds": rounds,
            "stages": self.stages,
        }
        write_json(facts, self.folder / RunFolder.SUMMARY, overwrite=True)
