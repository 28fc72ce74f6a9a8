"""Heads of clients that are computed apart: digests, deviations, and what each client takes.

    python benchmarks/bench_apart.py TRAIN.h5 TEST.h5 OUT [--clients 100 1000] [--layers 20]

The tables of docs/results deal the same rows to other clients and sum them once, so that equal
totals there are equal by construction. Here each client's sums are made from its own rows alone and
added up, for every head, partition (Dirichlet α = 0.1 and 0.01, two and four shards a client) and
number of clients; beside them one client that has all rows. A line has whether the last total has
that client's digest, the largest deviation of a test score (of the largest score), how many test
rows are predicted otherwise, top-1, and processor seconds: of all clients, of the median one, of
the slowest, of the server. A cell is kept in OUT/apart.json: the same command goes on.

One thread. CIFAR-10's 50,000 rows of 1,280 features take 23 minutes with T = 5, and 37 with T = 20
and 100 clients alone. The pairwise law on client files: `afltool study afl-table3`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measure import machine

import afltool
from afltool import parallel
from afltool.files.features import open_features
from afltool.files.partitions import load_partition
from afltool.heads import make_head
from afltool.heads.base import Head, binding
from afltool.math.gram import FixedPoint, Rows
from afltool.memory import Carried
from afltool.values.statistics import Client, ClientId, Context, Sum

PARTITIONS: dict[str, dict[str, Any]] = {
    "α = 0.1": {"alpha": 0.1},
    "α = 0.01": {"alpha": 0.01},
    "four shards": {"scheme": "shards", "shards_per_client": 4},
    "two shards": {"scheme": "shards", "shards_per_client": 2},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("train", "test", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--experts", type=int, default=512)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    print(machine(), flush=True)
    with parallel.thread_limit(1):
        apart(args)


class Data(NamedTuple):
    X: Rows
    y: np.ndarray
    space: dict[str, Any]
    classes: tuple[str, ...]


def rows(path: Path) -> Data:
    with open_features(path) as file:
        data, space = file.data[()], file.header["space"]
        X = data if file.bits is None else FixedPoint(data, file.bits)
        return Data(X, file.labels, space, tuple(file.classes))


def kept(path: Path, name: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What is known of a cell, or now found out."""
    known = json.loads(path.read_text()) if path.exists() else {}
    if name not in known:
        known[name] = work()
        path.write_text(json.dumps(known, indent=1))
    found: dict[str, Any] = known[name]
    return found


def apart(args: argparse.Namespace) -> None:
    deep = {"layers": args.layers, "width": args.width, "ridge": 1.0, "block_ridge": 0.1}
    heads: dict[str, dict[str, Any]] = {
        "linear": {"ridge": 0},
        "safle": {"experts": args.experts},
        "deepafl": deep,
    }
    train, test = rows(args.train), rows(args.test)
    print("| head | partition | clients | digest | deviation | otherwise | top-1, % "
          "| clients, s | median, s | slowest, s | server, s |")  # fmt: skip
    print("| --- " * 11 + "|")
    for name, options in heads.items():
        for partition, dealt in dealings(args):
            setting = f"{name} {options} {partition} {dealt}"

            def cell(name=name, options=options, dealt=dealt) -> dict[str, Any]:
                owner = np.zeros(len(train.y), int) if dealt is None else owners(args, dealt)
                return measured(make_head(name, options), train, test, owner, args.out / name)

            show(name, partition, dealt, kept(args.out / "apart.json", setting, cell))


def dealings(args: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """One client with all rows, then each partition for each number of clients."""
    yield "all rows", None
    for clients in args.clients:
        yield from ((name, {**how, "clients": clients}) for name, how in PARTITIONS.items())


def owners(args: argparse.Namespace, dealt: dict[str, Any]) -> np.ndarray:
    """The client of each row, from the file that `afltool partition` writes."""
    path = args.out / ("-".join(str(value) for value in dealt.values()) + ".h5")
    return load_partition(afltool.partition(args.train, path, **dealt)).client


def measured(head: Head, train: Data, test: Data, owner: np.ndarray, start: Path) -> dict[str, Any]:
    """A head of clients with these rows; beside it scores of the head of one, which comes first."""
    mine = [np.flatnonzero(owner == k) for k in range(owner.max() + 1)]
    carried: list[Any] = [Carried() for _ in mine]
    seconds, server, digest = np.zeros(len(mine)), 0.0, ""
    head = head.bind(train.space["dim"], len(train.classes))
    while head.phase() is not None:
        running = None
        for k, own in enumerate(mine):
            block, begun = (train.X[own], train.y[own]), time.process_time()
            who = {ClientId(str(k)): Client(len(own))}
            one, carried[k] = head.gather([block], who, carried[k])
            seconds[k] += time.process_time() - begun
            running = Sum(one) if running is None else running.add(one)
        assert running is not None
        context = Context(train.space, train.classes, binding(head))
        total, begun = replace(running.result(), context=context), time.process_time()
        digest, head = total.digest(), head.absorb(total)[0]
        server += time.process_time() - begun
    *_, (_, found) = head.round_scores(test.X)
    scores = np.asarray(found)
    if len(mine) == 1:
        np.savez(start.with_suffix(".npz"), scores=scores, digest=digest)
    whole = np.load(start.with_suffix(".npz"))
    return {
        "equal": digest == str(whole["digest"]),
        "deviation": float(np.abs(scores - whole["scores"]).max() / np.abs(whole["scores"]).max()),
        "otherwise": int((scores.argmax(1) != whole["scores"].argmax(1)).sum()),
        "top1": float((scores.argmax(1) == test.y).mean()),
        "seconds": [*map(float, (seconds.sum(), np.median(seconds), seconds.max())), server],
    }


def show(head: str, partition: str, dealt: dict[str, Any] | None, found: dict[str, Any]) -> None:
    clients = 1 if dealt is None else dealt["clients"]
    digest, deviation = "equal" if found["equal"] else "other", f"{found['deviation']:.1e}"
    seconds = [f"{one:.3g}" for one in found["seconds"]]
    top1 = f"{100 * found['top1']:.2f}"
    cells = [head, partition, f"{clients:,}", digest, deviation, found["otherwise"], top1, *seconds]
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()
