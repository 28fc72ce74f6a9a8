"""Stage `baseline`: a method, simulated on cached features → a head, its accuracies and its costs.

head.h5            after the last round
head-held-out.h5   of the round that the held-out clients like best, where there are some
rounds.csv         what each round took and brought
summary.json       the three accuracies, settings, bytes and processor seconds
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import memory, progress
from ...errors import UsageError
from ...files.features import Features, check_alike
from ...files.hdf5 import recipe
from ...files.heads import write_head
from ...files.outputs import check_own, refuse_inside
from ...files.partitions import load_matching_partition
from ...files.recipes import FOR_PEOPLE, Target
from ...files.schema import versions
from ...files.tables import write_json, write_records
from ...heads import make_head
from ...heads.base import Head
from ...math.gram import rows_as
from ...options.common import list_option_files
from ...partitions import Partition
from ...plugins import require_torch
from ...progress import event
from ...runs.summary import log_done
from ...stages.runner import Files, Job, StageFunction
from ...values.statistics import Context
from . import IN_FILES, METHODS, make_settings
from .clients import Clients, assigned_clients
from .network import DenseLayers
from .runner import Measured, Round, Run
from .settings import Baseline, BaselineFolder, BaselineOptions


@StageFunction
def baseline(o: Baseline, files: Files) -> Job:
    """Train ``method`` (see `afltool.lab.baselines`) and write the folder ``out``; returns it.

    ``settings`` are the method's, such as ``{"rounds": 100, "lr": 0.1}``. The result does not
    depend on ``threads``.
    """
    require_torch(f"training of {o.method}")
    refuse_inside(o.out, BaselineFolder.WRITES, list_option_files(o))
    settings = make_settings(o.method, o.settings, o.preset)
    rows, test = files.features(o.features), files.features(o.test)
    check_alike(rows.path, test.path)
    partition = load_matching_partition(rows, o.partition)
    chosen = {"method": IN_FILES.get(o.method, o.method), **settings.GONE, **settings.as_dict()}
    inputs = {
        **rows.meaning,
        "partition": partition.digest(),
        "test": test.header["digest"],  # of the same space and classes
        **METHODS.version(o.method),
    }
    made_by = recipe("baseline", chosen | o.to(BaselineOptions).recipe_options("preset"), inputs)
    places = [BaselineFolder.HEAD]
    if partition.held_out[partition.client].any():
        places.insert(0, BaselineFolder.HELD_OUT_HEAD)
    heads = [Target(o.out / name, made_by) for name in places]
    summary, table = o.out / BaselineFolder.SUMMARY, o.out / BaselineFolder.ROUNDS
    check_own((summary, table), o.overwrite or heads[-1].path.exists())
    told = [] if summary.exists() else [Target(summary, FOR_PEOPLE)]  # which is written last

    def compute(todo: Sequence[Target]) -> None:
        begun = time.perf_counter()
        event("run_begun", folder=o.out, what="baseline", options=made_by)
        clients, held_out = _federation(rows, partition, o.partition)
        run = Run(o.method, settings, clients, Measured(_tensor(test), test.labels), held_out)
        _train(run, o)
        found, final = summarize(o.method, run), build_head(run.network, run.weights)
        report = {name: found[name] for name in ("method", "settings", *run.method.facts)}
        context = Context(rows.header["space"], rows.classes, {})
        report |= {"phases": run.rounds}
        every = [*(build_head(run.network, run.best) for _ in heads[:-1]), final]
        for target, one in zip(heads, every, strict=True):
            write_head(target.path, made_by, one, context=context, report=report)
        write_records(run.rounds, table, overwrite=True)
        digests = {"train": inputs["features"], **{k: inputs[k] for k in ("partition", "test")}}
        found |= {
            "head_digest": final.digest(),
            "partition": dict(partition.scheme),
            "digests": {**digests, "head": final.digest()},
            "seconds": round(time.perf_counter() - begun, 3),
            "versions": versions(),
        }
        write_json(found, summary, overwrite=True)
        log_done(o.out, BaselineFolder.HEAD)

    return Job([*heads, *told], compute, o.out)


def _federation(
    rows: Features, partition: Partition, path: Path
) -> tuple[Clients, Measured | None]:
    """The clients that train, and the rows of those that are held out."""
    import torch

    order, X, labels = rows.by_id, _tensor(rows), np.empty(len(rows), np.int64)
    labels[order] = partition.effective_labels
    chosen, y = np.flatnonzero(~partition.held_out), torch.from_numpy(labels)
    names, classes = partition.names, len(partition.classes)
    clients = assigned_clients(X, y, order, partition.client, names, classes, chosen)
    if not len(clients):
        raise UsageError(f"{path} leaves no client with rows to train on")
    held = np.sort(order[partition.held_out[partition.client]])
    return clients, Measured(X[held], labels[held]) if len(held) else None


def _train(run: Run, o: Baseline) -> None:
    """All rounds."""
    total = run.settings.rounds
    with progress.task(f"baseline {o.method}", total, "rounds") as task:
        for number in range(1, total + 1):
            progress.stop_point()
            run.advance()
            event("round", folder=o.out, round=number, figures=run.rounds[-1])
            task.advance()


def _tensor(rows: Features) -> Any:
    """All rows as a float32 tensor (n, d)."""
    import torch

    memory.require_memory(4 * len(rows) * rows.dim, f"the rows of {rows.path} in memory")
    X = np.empty((len(rows), rows.dim), np.float32)
    for start, block in rows.blocks():
        X[start : start + len(block)] = rows_as(block, "float32")
    return torch.from_numpy(X)


def build_head(network: DenseLayers, theta: Any) -> Head:
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


def summarize(method: str, run: Run) -> dict[str, Any]:
    """The three accuracies, settings, sums over rounds, and the rounds themselves. Clients without
    rows take no part."""
    names = ("upload_bytes", "download_bytes", "gather_seconds", "solve_seconds")
    up, down, clients, server = (sum(one[name] for one in run.rounds) for name in names)
    return {
        "method": method,
        "top1": run.rounds[-1]["top1"],
        "n": len(run.test.y),
        "accuracies": accuracies(run.rounds),
        "settings": run.settings.as_dict(),
        **run.method.facts,
        "clients": len(run.clients),
        "rows": int(run.clients.sizes.sum()),
        "upload_bytes": up,
        "download_bytes": down,
        "client_seconds": round(clients, 3),
        "server_seconds": round(server, 3),
        "rounds": run.rounds,
    }


def accuracies(rounds: Sequence[Round]) -> dict[str, Any]:
    """Accuracies of the last round, the round best on held-out clients, the best on test rows."""
    names = ("top1", "top1_max", "top1_spread", "held_out_top1")
    measured = [
        {"round": number, **{name: one[name] for name in names if name in one}}
        for number, one in enumerate(rounds, 1)
        if "top1" in one
    ]

    def best(name: str) -> dict[str, Any]:
        return max(measured, key=lambda one: (one[name], -one["round"]))

    facts = {"last_round": measured[-1]}
    if "held_out_top1" in measured[-1]:
        facts["best_by_held_out_clients"] = best("held_out_top1")
    note = "chosen by the test rows themselves, as the papers do: too good by that choice"
    return {**facts, "best_on_test_rows": {**best("top1"), "note": note}}
