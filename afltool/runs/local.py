"""`run`: carries a plan out on this machine, in a folder whose files `runs.folder` names."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import parallel
from ..files.hdf5 import read_header
from ..files.heads import HeadFile
from ..files.outputs import make_folder
from ..files.schema import versions
from ..files.tables import write_confusion, write_json, write_records
from ..math.metrics.counting import TOPS
from ..options.evaluation import Evaluate
from ..progress import event, has_listener, log
from ..stages.runner import AGAIN, MISSING, Artifact, Files
from ..values.names import MEASURES, Phase
from .config import RunConfig, keep_options, with_features
from .folder import RunFolder
from .plan import Step, next_steps
from .step_cache import StepCache
from .summary import costs, digests, log_done, resolve_options
from .validation import check_before, check_own_files, serves


def run(
    config: RunConfig, out: str | Path, *, overwrite: bool = False, made: StepCache | None = None
) -> Path:
    """Carry out every step of a run in the folder ``out``; what is done and valid is kept.

    All that can be checked without work is checked first. What a round leaves for the next stays in
    memory as far as `HereOptions.memory` allows. ``made``: links what other runs have made.
    """
    folder, config = RunFolder(out), with_features(config)
    check_before(config, folder)
    check_own_files(config, folder, overwrite)
    make_folder(folder.root)
    made = made or StepCache()
    event("run_begun", folder=folder.root, what="run", options=config.given_options())
    with parallel.thread_limit(config.here.threads):
        files = Files(config.here.room(made.processes))
        _Run(config, folder, overwrite, made, files).run_all()
    log_done(folder.root)
    return folder.root


class _Run:
    def __init__(
        self, config: RunConfig, folder: RunFolder, overwrite: bool, made: StepCache, files: Files
    ) -> None:
        self.config, self.folder, self.overwrite = config, folder, overwrite
        self.made, self.files = made, files
        self.start = config.first_head or folder.first_head
        self.stages: list[dict[str, Any]] = []  # what each step took
        self.heads: list[Path] = []  # after each round
        self.uploads: list[dict[str, Any]] = []  # of each round

    def run_all(self) -> None:
        if self.overwrite or not self.folder.options.exists():
            keep_options(self.config, self.folder.options)
        plan = next_steps(self.config, self.folder, self.phase)
        self.carry_out(next(plan))
        head = self.files.head(self.start).head
        if head.phase() is not None:  # refuses what this machine cannot solve, before any row
            train = read_header(self.folder.features("train"), "features")
            head.bind(train["space"]["dim"], len(train["classes"])).check_room()
        for steps in plan:
            self.carry_out(steps)
        self.summary()
        self.folder.name_result(len(self.heads))  # last: a file with another name is read anew
        keep_options(self.config, self.folder.options)

    def phase(self, head: Path) -> Phase | None:
        return self.files.head(head).head.phase()

    def carry_out(self, steps: list[Step]) -> None:
        ways = {"head": self.first_head, "solve": self.after_solve, "evaluate": self.measure}
        for step in steps:
            where = {"folder": self.folder.root, "step": step.name}
            event("step_begun", **where)
            begun, worked = time.perf_counter(), time.process_time()
            made = ways.get(step.stage.name, self.run_once)(step)
            path = made.path
            seconds, worked = time.perf_counter() - begun, time.process_time() - worked
            took = {"seconds": round(seconds, 3), "processor_seconds": round(worked, 4)}
            self.stages.append({"stage": step.name, **took, "file": path.name})
            event("step_done", **where, path=path, kind=step.stage.writes, **took)
            log.info("%s: %s %s (%.1f s)", step.name, path, made.how, seconds)

    def run_once(self, step: Step) -> Artifact:
        return self.made.carry_out(step, self.overwrite, self.files)

    def first_head(self, step: Step) -> Artifact:
        place = self.folder.first_head
        if not self.overwrite and serves(self.config, place):
            return Artifact(place)  # what was gathered for it is
        return self.run_once(step)

    def after_solve(self, step: Step) -> Artifact:
        """The head after a round; with it nothing asks for the sums and the head before again."""
        self.uploads.append(self.upload(len(self.heads) + 1))
        made = self.run_once(step)
        self.heads.append(made.path)
        for path in step.inputs.values():
            assert isinstance(path, Path)
            self.files.forget(path)
        if has_listener():
            [figures] = self.files.head(made.path).rounds_with({})[-1:] or [{}]
            event("round", folder=self.folder.root, round=len(self.heads), figures=figures)
        return made

    def upload(self, number: int) -> dict[str, Any]:
        """Bytes that one client sends in this round: its files, all or a few, and a bound."""
        total, header = self.files.statistics(self.folder.total(number))
        entry = {"phase": total.phase, "arrays_at_most": total.payload_bytes}
        entry["gather_seconds"] = header["provenance"].get("seconds")
        if self.config.own.keep_clients:
            sizes = [p.stat().st_size for p in self.folder.stats(number).glob("*.h5")]
            entry |= {"mean_file": round(sum(sizes) / len(sizes)), "files": len(sizes)}
        return entry

    def measure(self, step: Step) -> Artifact:
        """Metrics of the last head; with --each-round also the accuracies after every round."""
        files: Any = step.inputs
        with self.files.reading():
            self.metrics = evaluate_rounds(step, self.files)
        for role in ("head", "features"):
            self.metrics[role] = {**self.metrics[role], "path": str(files[role])}
        place = self.folder / RunFolder.METRICS
        how = AGAIN if place.exists() else MISSING
        write_json(self.metrics, place, overwrite=True)
        write_confusion(self.metrics, self.folder / RunFolder.CONFUSION, True)
        return Artifact(place, how)

    def summary(self) -> None:
        solved, metrics = self.files.head(self.heads[-1]), self.metrics
        rounds = describe_rounds(solved, metrics.get("rounds", []), self.uploads)
        write_records(rounds, self.folder / RunFolder.ROUNDS, overwrite=True)
        total, train = read_header(self.folder.total(1), "statistics"), metrics.get("train", {})
        facts = {
            **{name: metrics[name] for name in (*TOPS, "n") if name in metrics},
            **({"train_top1": train["top1"]} if train else {}),
            **_last_separability("", metrics),
            **_last_separability("train_", train),
            "clients": len(total["clients"]["names"]),
            "total_digest": total["digest"],
            "head_digest": metrics["head"]["digest"],
            "bytes_per_client": self.uploads,
            # What clients send in later rounds: the option that they follow, or the full sums.
            "exchange": solved.head.options.same_clients or "full",
            **{k: v for k, v in solved.report.items() if k == "density"},  # tables show it
            **costs(self.uploads, self.stages),
            "options": resolve_options(self.config, self.start),
            "partition": dict(read_header(self.folder.clients, "partition")["scheme"]),
            "digests": digests(self.folder, self.start, len(self.heads)),
            "versions": versions(),
            "rounds": rounds,
            "stages": self.stages,
        }
        write_json(facts, self.folder / RunFolder.SUMMARY, overwrite=True)


Round = dict[str, Any]
#: What `evaluate` finds after a round; ``kept`` says that it is the head's own.
FOUND = ("top1", "top5", "kept", *MEASURES)


def evaluate_rounds(step: Step, files: Files) -> dict[str, Any]:
    """What `evaluate` finds of the last head of a run, and after each of its rounds.

    The step's inputs: ``head`` and ``features``; ``earlier``: the heads of the rounds before, in
    order, for the rounds that the last one does not hold; ``train``: training features, whose
    figures are ``train``, and those of rounds ``train_top1`` ….
    """
    inputs: Mapping[str, Any] = step.inputs
    facts = _evaluate_rows(step, inputs["features"], files)
    if "train" not in inputs:
        return facts
    theirs, kept = _evaluate_rows(step, inputs["train"], files), ("top1", "top5", "n", "features")
    facts["train"] = {k: theirs[k] for k in (*kept, "separability") if k in theirs}
    if "rounds" in facts:
        after, names = measure(theirs.get("rounds", [])), {"top1", *MEASURES}
        of = {p: {f"train_{k}": a[k] for k in names & a.keys()} for p, a in after.items()}
        facts["rounds"] = [{**one, **of.get(one["phase"], {})} for one in facts["rounds"]]
    return facts


def _evaluate_rows(step: Step, features: Path, files: Files) -> dict[str, Any]:
    """That of one file of rows; the last head says what it can, the others what is left."""
    inputs: Mapping[str, Any] = step.inputs
    last, earlier = inputs["head"], inputs.get("earlier", ())
    o: Any = step.options

    def asked(head: Path, separability: bool) -> dict[str, Any]:
        call = Evaluate(head, features, each_round=o.each_round, separability=separability)
        found: dict[str, Any] = step.stage.function.job(call, files)
        return found

    metrics = asked(last, o.separability)
    after = measure(metrics.get("rounds", []))
    for path in reversed(earlier):
        file, rows = files.head(path), files.features(features, again=True)
        scored = file.head.round_scores(rows.rows(0, 1))
        if not {file.phase_of(name) for name, _ in scored} <= after.keys():
            known = measure(asked(path, False).get("rounds", []))
            after = {**{name: {**one, "kept": False} for name, one in known.items()}, **after}
    if earlier:
        metrics["rounds"] = files.head(last).rounds_with(after)
    return metrics


def measure(rounds: Sequence[Round]) -> dict[str, Round]:
    names = (*FOUND, *(f"train_{name}" for name in FOUND))
    return {one["phase"]: {k: one[k] for k in names if k in one} for one in rounds if "top1" in one}


def describe_rounds(
    head: HeadFile, evaluated: Sequence[Round], uploads: Sequence[dict[str, Any]]
) -> list[Round]:
    """The rounds of the head's file, with accuracies and uploads; these get ``download`` bytes."""
    more = measure(evaluated)
    for one in uploads:
        sent = {"gather_seconds": one["gather_seconds"], "upload_bytes": one["arrays_at_most"]}
        sent |= {"file_bytes": one["mean_file"]} if "mean_file" in one else {}
        more[one["phase"]] = {**sent, **more.get(one["phase"], {})}
    rounds = head.rounds_with(more)
    download = {one["phase"]: one["download_bytes"] for one in rounds}
    for one in uploads:
        one["download"] = download.get(one["phase"])
    return rounds


def _last_separability(start: str, metrics: Mapping[str, Any]) -> dict[str, float]:
    last = metrics.get("separability", [])[-1:]
    return {f"{start}{name}": one[name] for one in last for name in MEASURES}
