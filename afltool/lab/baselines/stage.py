"""Stage `baseline`: a method, simulated on cached features → a head, its accuracies and its costs.

head.h5            after the last round
head-held-out.h5   of the round that the held-out clients like best, where there are some
rounds.csv         what each round took and brought
summary.json       the three accuracies, settings, bytes and processor seconds
checkpoint.npz     while it runs: what the same command goes on from
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ... import memory, parallel, progress
from ...errors import OutputExistsError, UsageError
from ...files.features import Features, check_alike, open_features
from ...files.hdf5 import recipe
from ...files.heads import save_head
from ...files.outputs import check_own, refuse_inside
from ...files.partitions import partition_of
from ...files.recipes import Target, change, is_done
from ...files.row_cache import read_arrays, write_arrays
from ...files.schema import versions
from ...files.tables import write_json, write_records
from ...heads import make_head
from ...heads.base import Head
from ...inputs import parsed_json
from ...math.gram import rows_as
from ...options.common import files_of
from ...plugins import need_torch
from ...progress import event, log
from ...runs.summary import tell_done
from ...values.arrays import canonical_json
from ...values.statistics import Context
from . import METHODS, make_settings
from .clients import Clients, dealt
from .network import DenseLayers
from .runner import Measured, Round, Run, State
from .settings import Baseline, BaselineFolder, BaselineOptions, Settings

CHECKPOINT_SECONDS = 60.0


def baseline(o: Baseline) -> Path:
    """Train ``method`` (see `afltool.lab.baselines`) and write the folder ``out``; returns it.

    ``settings`` are the method's, such as ``{"rounds": 100, "lr": 0.1}``. The result does not
    depend on ``threads``; an interrupted run goes on to the same bits.
    """
    need_torch(f"training of {o.method}")
    refuse_inside(o.out, BaselineFolder.WRITES, files_of(o))
    settings = make_settings(o.method, o.settings, o.preset)
    with open_features(o.features) as rows, open_features(o.test) as test:
        check_alike(rows.path, test.path)
        job = _Job(settings, o, rows, test)
        if o.overwrite or is_done(Target(job.head, job.recipe)).word != "done":
            begun = o.overwrite or job.checkpoint.exists()
            results = BaselineFolder.SUMMARY, BaselineFolder.ROUNDS
            check_own((o.out / name for name in results), begun)
            is_done(Target(job.held_out_head, job.recipe), o.overwrite)  # refuses another one
            if o.overwrite:
                job.checkpoint.unlink(missing_ok=True)
            event("run_begun", folder=o.out, what="baseline", options=job.recipe)
            job.run()
    tell_done(o.out, BaselineFolder.HEAD)
    return o.out


@dataclass
class _Job:
    settings: Settings
    options: Baseline
    rows: Features
    test: Features

    def __post_init__(self) -> None:
        o, self.begun = self.options, time.perf_counter()
        self.partition = partition_of(self.rows, o.partition)
        self.head, self.held_out_head = (
            o.out / BaselineFolder.HEAD,
            o.out / BaselineFolder.HELD_OUT_HEAD,
        )
        self.checkpoint = o.out / BaselineFolder.CHECKPOINT
        chosen = {"method": o.method, **self.settings.as_dict()}
        more = o.to(BaselineOptions).stored("preset")
        inputs = {
            **self.rows.meaning,
            "partition": self.partition.digest(),
            "test": self.test.header["digest"],  # of the same space and classes
            **METHODS.version(o.method),
        }
        self.recipe = recipe("baseline", chosen | more, inputs)

    def run(self) -> None:
        """All rounds, from a checkpoint where there is one; then the files."""
        clients, held_out = self.federation()
        test = Measured(_tensor(self.test), self.test.labels)
        threads = self.options.threads or parallel.available()
        run = Run(self.options.method, self.settings, clients, test, held_out, threads=threads)
        for note in run.notes:
            log.info("baseline: %s", note)
        self.train(run)
        self.write(run)

    def federation(self) -> tuple[Clients, Measured | None]:
        """The clients that train, and the rows of those that are held out."""
        import torch

        rows, p, order = self.rows, self.partition, self.rows.by_id
        X, labels = _tensor(rows), np.empty(len(rows), np.int64)
        labels[order] = p.effective_labels
        chosen, y = np.flatnonzero(~p.held_out).tolist(), torch.from_numpy(labels)
        clients = dealt(X, y, order, p.client, p.names, len(p.classes), chosen)
        if not len(clients):
            raise UsageError(f"{self.options.partition} leaves no client with rows to train on")
        held = np.sort(order[p.held_out[p.client]])
        return clients, Measured(X[held], labels[held]) if len(held) else None

    def train(self, run: Run) -> None:
        if self.checkpoint.exists():
            run.resume(_state(self.checkpoint, self.recipe))
        kept, total = time.monotonic(), run.settings.rounds
        with progress.task(f"baseline {self.options.method}", total, "rounds", run.round) as task:
            while run.round < total:
                if progress.stop_requested() or time.monotonic() - kept > CHECKPOINT_SECONDS:
                    arrays = {name: a.numpy() for name, a in run.state.memory.items()}
                    what = {"recipe": self.recipe, "rounds": run.state.rounds}
                    write_arrays(self.checkpoint, canonical_json(what), arrays)
                    kept = time.monotonic()
                progress.stop_point()
                run.advance()
                figures = run.state.rounds[-1]
                event("round", folder=self.options.out, round=run.round, figures=figures)
                task.advance()

    def write(self, run: Run) -> None:
        """The files of the folder; the head, by which a run is known to be done, comes last."""
        state, header, out = run.state, self.rows.header, self.options.out
        heads = dict[Path, Head]()
        if "best" in state.memory:
            heads[self.held_out_head] = head_of(run.network, state.memory["best"])
        heads[self.head] = head_of(run.network, state.weights)
        write_records(state.rounds, out / BaselineFolder.ROUNDS, overwrite=True)
        digest, inputs = heads[self.head].digest(), self.recipe["inputs"]
        digests = {"train": inputs["features"], **{k: inputs[k] for k in ("partition", "test")}}
        summary = {
            **summarise(self.options.method, run),
            "clients_dealt": len(self.partition.names),
            "head_digest": digest,
            "partition": dict(self.partition.scheme),
            "digests": {**digests, "head": digest},
            "seconds": round(time.perf_counter() - self.begun, 3),
            "versions": versions(),
        }
        write_json(summary, out / BaselineFolder.SUMMARY, overwrite=True)
        kept = ("method", "settings", *run.method.facts)
        report = {**{name: summary[name] for name in kept}, "phases": state.rounds}
        context = Context(header["space"], tuple(header["classes"]), {})
        for path, head in heads.items():
            save_head(path, head, self.recipe, context, report=report, threads=run.threads)
        self.checkpoint.unlink(missing_ok=True)


def _tensor(rows: Features) -> Any:
    """All rows as a float32 tensor (n, d)."""
    import torch

    memory.need(4 * len(rows) * rows.dim, f"the rows of {rows.path} in memory")
    X = np.empty((len(rows), rows.dim), np.float32)
    for start, block in rows.blocks():
        X[start : start + len(block)] = rows_as(block, "float32")
    return torch.from_numpy(X)


def _state(place: Path, made_by: Mapping[str, Any]) -> State:
    """What an interrupted run of the same command left."""
    import torch

    text, arrays = read_arrays(place)
    what = parsed_json(text, place)
    if where := change(what["recipe"], json.loads(canonical_json(made_by))):
        raise OutputExistsError(
            f"{place} is of another run that was interrupted: {where}; choose another -o, or use "
            "--overwrite"
        )
    return State({k: torch.from_numpy(a) for k, a in arrays.items()}, what["rounds"])


def head_of(network: DenseLayers, theta: Any) -> Head:
    """The solved head of weights θ (P,): linear, or a network where there are hidden layers."""
    arrays = {}
    for n, (W, b) in enumerate(network.layers(network.model(theta.double()))):
        arrays[f"weights-{n}"] = W.numpy().T.copy()
        arrays[f"bias-{n}"] = np.zeros(len(W)) if b is None else b.numpy()
    if network.linear:
        W, b = arrays.values()
        made = make_head("linear", {"intercept": network.bias})
        head = made.restore(None, {"weights": np.vstack([W, b]) if network.bias else W})
    else:
        head = make_head("network").restore(None, arrays)
    return head.bind(network.widths[0], network.widths[-1])


def summarise(method: str, run: Run) -> dict[str, Any]:
    """The three accuracies, settings, sums over rounds, and the rounds themselves; by client, too,
    where each has its own head. Clients without rows take no part."""
    rounds, alone = run.state.rounds, run.by_client()

    def total(name: str) -> Any:
        return sum(one[name] for one in rounds)

    return {
        "method": method,
        "top1": rounds[-1]["top1"],
        "n": len(run.test.y),
        "accuracies": accuracies(rounds),
        **({"top1_by_client": alone} if alone else {}),
        "settings": run.settings.as_dict(),
        **run.method.facts,
        "clients": len(run.clients),
        "rows": int(run.clients.sizes.sum()),
        "upload_bytes": total("upload_bytes"),
        "download_bytes": total("download_bytes"),
        "client_seconds": round(total("gather_seconds"), 3),
        "server_seconds": round(total("solve_seconds"), 3),
        "rounds": rounds,
    }


def accuracies(rounds: Sequence[Round]) -> dict[str, Any]:
    """Accuracies of the last round, the round best on held-out clients, the best on test rows."""
    names = ("top1", "top1_max", "top1_spread", "held_out_top1")
    measured = [
        {"round": number, **{name: one[name] for name in names if name in one}}
        for number, one in enumerate(rounds, 1)
        if "top1" in one
    ]
    facts: dict[str, Any] = {"last_round": measured[-1]}
    if "held_out_top1" in measured[-1]:
        best = max(measured, key=lambda one: (one["held_out_top1"], -one["round"]))
        facts["best_by_held_out_clients"] = best
    best = max(measured, key=lambda one: (one["top1"], -one["round"]))
    note = "chosen by the test rows themselves, as the papers do: too good by that choice"
    facts["best_on_test_rows"] = {**best, "note": note}
    return facts
