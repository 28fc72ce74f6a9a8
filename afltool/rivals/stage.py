"""Stage `baseline`: a rival, simulated on cached features → a head, its accuracies and its costs.

head.h5            after the last round
head-held-out.h5   of the round that the held-out clients like best, where there are some
rounds.csv         what each round took and brought
summary.json       the three accuracies, settings, bytes and processor seconds
checkpoint.h5      while it runs: what the same command goes on from
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import cores, memory, progress
from ..errors import OutputExistsError, UsageError
from ..files.checkpoints import load_checkpoint, save_checkpoint
from ..files.features import Features, check_alike, open_features
from ..files.hdf5 import recipe
from ..files.heads import save_head
from ..files.outputs import check_own, refuse_inside
from ..files.partitions import partition_of
from ..files.schema import versions
from ..files.tables import write_json, write_records
from ..heads import make_head
from ..heads.base import Head
from ..math.gram import rows_as
from ..options.common import files_of
from ..plans.summary import tell_done
from ..plugins import need_torch
from ..progress import event, log
from ..stages.runner import Target, is_done
from ..values.arrays import canonical_json
from ..values.statistics import Context
from ..values.text import difference
from . import METHODS, make_settings
from .clients import Clients, dealt, tensor
from .network import DenseLayers
from .runner import Measured, Round, Run, State, curvature, stability
from .settings import Baseline, BaselineFolder, BaselineOptions, Settings

CHECKPOINT_SECONDS = 60.0
HEAD, HELD_OUT_HEAD = BaselineFolder.HEAD, BaselineFolder.HELD_OUT_HEAD
CHECKPOINT = BaselineFolder.CHECKPOINT
RESULTS = (BaselineFolder.SUMMARY, BaselineFolder.ROUNDS)


def baseline(o: Baseline) -> Path:
    """Train ``method`` (see `afltool.rivals`) and write the folder ``out``; returns it.

    ``settings`` are the method's, such as ``{"rounds": 100, "lr": 0.1}``. The result does not
    depend on ``threads``; an interrupted run goes on to the same bits.
    """
    method, features, out, overwrite = o.method, o.features, o.out, o.overwrite
    need_torch(f"training of {method}")
    refuse_inside(out, BaselineFolder.WRITES, files_of(o))
    wanted = make_settings(method, o.settings, o.preset)
    with open_features(features) as rows, open_features(o.test) as test:
        check_alike(rows.path, test.path)
        job = _Job(method, wanted, o, out, rows, test)
        if not is_done(Target(out / HEAD, job.recipe()), overwrite):
            begun = overwrite or (out / CHECKPOINT).exists()
            check_own((out / name for name in RESULTS), begun)
            is_done(Target(out / HELD_OUT_HEAD, job.recipe()), overwrite)  # refuses another one
            if overwrite:
                (out / CHECKPOINT).unlink(missing_ok=True)
            event("run_begun", folder=out, what="baseline", options=job.recipe())
            job.run()
    tell_done(out, HEAD)
    return out


@dataclass
class _Job:
    method: str
    settings: Settings
    options: BaselineOptions
    out: Path
    rows: Features
    test: Features

    def __post_init__(self) -> None:
        self.partition = partition_of(self.rows, self.options.partition)
        self.threads = self.options.threads or cores.available()
        self.begun = time.perf_counter()

    def recipe(self) -> dict[str, Any]:
        """What the result depends on."""
        more = self.options.to(BaselineOptions).stored("preset")
        inputs = {
            **self.rows.meaning,
            "partition": self.partition.digest(),
            "test": self.test.header["digest"],  # of the same space and classes
            **METHODS.version(self.method),
        }
        return recipe(
            "baseline", {"method": self.method, **self.settings.as_dict(), **more}, inputs
        )

    def run(self) -> None:
        """All rounds, from a checkpoint where there is one; then the files."""
        clients, held_out = self.federation()
        test = Measured(_tensor(self.test), self.test.labels)
        top = curvature(clients, not self.settings.no_bias)
        run = Run(self.method, self.settings, clients, test, held_out, threads=self.threads)
        facts = self.facts(run, top)
        self.train(run)
        self.write(run, facts)

    def federation(self) -> tuple[Clients, Measured | None]:
        """The clients that train, and the rows of those that are held out."""
        rows, p, order = self.rows, self.partition, self.rows.by_id
        X, labels = _tensor(rows), np.empty(len(rows), np.int64)
        labels[order] = p.effective_labels
        chosen = np.flatnonzero(~p.held_out).tolist()
        y = tensor(labels)
        clients = dealt(X, y, order, p.client, p.names, len(p.classes), chosen)
        if not len(clients):
            raise UsageError(f"{self.options.partition} leaves no client with rows to train on")
        held = np.sort(order[p.held_out[p.client]])
        return clients, Measured(X[tensor(held)], labels[held]) if len(held) else None

    def facts(self, run: Run, top: float) -> dict[str, Any]:
        """What is known before the first round, said on the way."""
        for note in run.method.notes():
            log.info("baseline: %s", note)
        if not run.network.linear:
            return {"largest_curvature": top, "stability": None}
        rate, classes = run.settings.rate(1), run.clients.classes
        edge = stability(rate, top, classes)
        note = "" if edge <= 2 else ", above 2: full gradient steps would oscillate"
        text = "baseline: η λ_max / C = %g · %.4g / %d = %.3g%s"
        log.info(text, rate, top, classes, edge, note)
        return {"largest_curvature": top, "stability": edge}

    def train(self, run: Run) -> None:
        place, made_by = self.out / CHECKPOINT, self.recipe()
        if place.exists():
            run.resume(_state(place, made_by))
        kept = time.monotonic()
        total = run.settings.rounds
        with progress.task(f"baseline {self.method}", total, "rounds", run.round) as task:
            while run.round < total:
                if progress.stop_requested() or time.monotonic() - kept > CHECKPOINT_SECONDS:
                    arrays = {name: a.numpy() for name, a in run.state.arrays().items()}
                    save_checkpoint(place, arrays, run.state.rounds, made_by)
                    kept = time.monotonic()
                progress.stop_point()
                run.advance()
                event("round", folder=self.out, round=run.round, figures=run.state.rounds[-1])
                task.advance()

    def write(self, run: Run, facts: dict[str, Any]) -> None:
        """The files of the folder; the head, by which a run is known to be done, comes last."""
        state, header = run.state, self.rows.header
        context = Context(header["space"], tuple(header["classes"]), {})
        report = {
            "method": self.method,
            "settings": run.settings.as_dict(),
            **run.method.facts,
            "phases": state.rounds,
        }
        summary = summarise(self.method, run, facts, len(self.test), len(self.partition.names))
        heads = {HEAD: state.weights}
        if state.best is not None:
            heads = {HELD_OUT_HEAD: state.best, **heads}
        write_records(state.rounds, self.out / BaselineFolder.ROUNDS, overwrite=True)
        solved = {name: head_of(run.network, theta) for name, theta in heads.items()}
        summary["head_digest"] = head_digest = solved[HEAD].digest()
        inputs = self.recipe()["inputs"]
        digests = {"train": inputs["features"], **{k: inputs[k] for k in ("partition", "test")}}
        summary |= {
            "partition": dict(self.partition.scheme),
            "digests": {**digests, "head": head_digest},
            "seconds": round(time.perf_counter() - self.begun, 3),
            "versions": versions(),
        }
        write_json(summary, self.out / BaselineFolder.SUMMARY, overwrite=True)
        how: dict[str, Any] = {"report": report, "threads": self.threads}
        for name, head in solved.items():
            save_head(self.out / name, head, self.recipe(), context, **how)
        (self.out / CHECKPOINT).unlink(missing_ok=True)


def _tensor(rows: Features) -> Any:
    """All rows as a float32 tensor (n, d)."""
    memory.need(4 * len(rows) * rows.dim, f"the rows of {rows.path} in memory")
    X = np.empty((len(rows), rows.dim), np.float32)
    for start, block in rows.blocks():
        X[start : start + len(block)] = rows_as(block, "float32")
    return tensor(X)


def _state(place: Path, made_by: Mapping[str, Any]) -> State:
    """What an interrupted run of the same command left."""
    header, arrays = load_checkpoint(place)
    now = json.loads(canonical_json(made_by))
    where = difference(dict(header["recipe"]), now, "in the file", "now")
    if where:
        raise OutputExistsError(
            f"{place} is of another run that was interrupted: {where}; choose another -o, or use "
            "--overwrite"
        )
    return State.of({k: tensor(a) for k, a in arrays.items()}, header["rounds"])


def head_of(network: DenseLayers, theta: Any) -> Head:
    """The solved head of weights θ (P,): linear, or a network where there are hidden layers."""
    layers = []
    for W, b in network.layers(network.model(theta)):
        bias = np.zeros(len(W)) if b is None else b.double().numpy()
        layers.append((W.double().numpy().T.copy(), bias))
    if network.linear:
        W, b = layers[0]
        made = make_head("linear", {"intercept": network.bias})
        head = made.restore(None, {"weights": np.vstack([W, b]) if network.bias else W})
    else:
        named = {f"weights-{n}": W for n, (W, _) in enumerate(layers)}
        named |= {f"bias-{n}": b for n, (_, b) in enumerate(layers)}
        head = make_head("network").restore(None, named)
    return head.bind(network.widths[0], network.widths[-1])


ON_TEST = "chosen by the test rows themselves, as the papers do: too good by that choice"


def summarise(method: str, run: Run, facts: dict[str, Any], n: int, clients: int) -> dict[str, Any]:
    """The three accuracies, settings, sums over rounds, and the rounds themselves; by client, too,
    where each has its own head.

    ``n`` test rows; ``clients`` in the partition, of which those without rows take no part.
    """
    rounds = run.state.rounds
    last, alone = rounds[-1], run.by_client()
    return {
        "method": method,
        "top1": last["top1"],
        "n": n,
        "accuracies": accuracies(rounds),
        **({"top1_by_client": alone} if alone else {}),
        "settings": run.settings.as_dict(),
        **facts,
        **run.method.facts,
        "clients": len(run.clients),
        "clients_dealt": clients,
        "rows": int(run.clients.sizes.sum()),
        "upload_bytes": sum(one["upload_bytes"] for one in rounds),
        "download_bytes": sum(one["download_bytes"] for one in rounds),
        "client_seconds": round(sum(one["gather_seconds"] for one in rounds), 3),
        "server_seconds": round(sum(one["solve_seconds"] for one in rounds), 3),
        "rounds": rounds,
    }


def accuracies(rounds: Sequence[Round]) -> dict[str, Any]:
    """Accuracies of the last round, the round best on held-out clients, the best on test rows."""
    measured = [(number, one) for number, one in enumerate(rounds, 1) if "top1" in one]
    last = measured[-1]
    facts: dict[str, Any] = {"last_round": _entry(*last)}
    if "held_out_top1" in last[1]:
        best = max(measured, key=lambda pair: (pair[1]["held_out_top1"], -pair[0]))
        facts["best_by_held_out_clients"] = _entry(*best)
    best = max(measured, key=lambda pair: (pair[1]["top1"], -pair[0]))
    facts["best_on_test_rows"] = {**_entry(*best), "note": ON_TEST}
    return facts


def _entry(number: int, one: Round) -> dict[str, Any]:
    keys = ("top1", "top1_max", "top1_spread", "held_out_top1")
    return {"round": number, **{key: one[key] for key in keys if key in one}}
