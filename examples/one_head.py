"""What `frontier.py` finds out about one head: bytes, the held-out clients' error, accuracy."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from afltool.files.features import Features
from afltool.files.statistics import save_statistics
from afltool.heads import make_head
from afltool.heads.base import Head, binding
from afltool.math.gram import FixedPoint, Rows, encode, real
from afltool.memory import Carried
from afltool.options.partition import PartitionOptions
from afltool.partitions.assignment import assign
from afltool.values.statistics import Context, Statistics

BLOCK = 4096  # rows at a time
WEIGHED = 5  # clients whose files are weighed, evenly spaced in the order of their sizes
Options = dict[str, Any]


@dataclass
class Data:
    """Everything in memory: rows of the training file with their clients, and the test rows."""

    X: Rows
    y: np.ndarray
    test: Rows
    truth: np.ndarray
    space: dict[str, Any]
    classes: tuple[str, ...]
    client: np.ndarray
    held_out: np.ndarray

    @classmethod
    def of(cls, train: Features, test: Features, clients: int, alpha: float) -> Data:
        labels = train.labels
        dealt = assign(
            train.row_ids, labels, len(train.classes),
            PartitionOptions(clients=clients, alpha=alpha, held_out=0.1),
        )  # fmt: skip
        return cls(
            train.rows(0, len(train)), labels, test.rows(0, len(test)), test.labels,
            train.header["space"], train.classes, dealt.client, dealt.held_out,
        )  # fmt: skip

    @property
    def bits(self) -> int | None:
        return self.space["fraction_bits"]

    def converted(self, bits: int | None) -> Data:
        """The same rows with other fraction bits, as `afltool convert` makes them."""
        if bits in (None, self.bits):
            return self
        X, test = (FixedPoint(encode(real(x), bits), bits) for x in (self.X, self.test))
        space = {**self.space, "dtype": "int16", "fraction_bits": bits}
        return replace(self, X=X, test=test, space=space)

    def blocks(self, rows: np.ndarray) -> list[tuple[Rows, np.ndarray]]:
        parts = (rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK))
        return [(self.X[part], self.y[part]) for part in parts]


class Road:
    """The rounds of a head over some rows, which stay in memory with what they carry along."""

    def __init__(self, data: Data, rows: np.ndarray) -> None:
        self.data, self.blocks = data, data.blocks(rows)
        self.carried: Carried = Carried()

    def statistics(self, head: Head) -> Statistics:
        found, self.carried = head.gather(self.blocks, carried=self.carried)
        context = Context(self.data.space, self.data.classes, binding(head))
        return replace(found, context=context)


def started(data: Data, name: str, options: Options) -> Head:
    dim = int(data.space["dim"])
    return make_head(name, options).bind(dim, len(data.classes))


def solved(data: Data, head: Head, rows: np.ndarray, held: Road | None = None) -> tuple[Head, Any]:
    """The head at its end, the seconds of all solves, the number of rounds and the last ridge."""
    road, seconds, rounds, ridge = Road(data, rows), 0.0, 0, None
    while head.phase() is not None:
        sums = road.statistics(head)
        validation = held and held.statistics(head)
        begun = time.perf_counter()
        head, done = head.absorb(sums, validation)
        ridge = done.round.get("ridge")
        seconds, rounds = seconds + time.perf_counter() - begun, rounds + 1
    return head, {"solve_seconds": seconds, "rounds": rounds, "ridge": ridge}


# ---------------------------------------------------------------- the three results of a head


def weigh(data: Data, name: str, options: Options, rounds: int) -> dict[str, Any]:
    """Bytes of a client's files, round by round, as the mean of a few clients of the federation."""
    sizes = np.bincount(data.client, minlength=len(data.held_out))
    places = np.linspace(0, len(sizes) - 1, WEIGHED + 2)[1:-1].round().astype(int)
    roads = [
        Road(data, np.flatnonzero(data.client == k))
        for k in np.argsort(sizes, kind="stable")[places]
    ]
    head, found = started(data, name, options), []
    for number in range(rounds):
        parts = [road.statistics(head) for road in roads]
        with TemporaryDirectory() as folder:
            place = Path(folder) / "statistics.h5"
            sizes = [save_statistics(place, one, {}).stat().st_size for one in parts]
        found.append(float(np.mean(sizes)))
        if number + 1 < rounds:
            head, _ = head.absorb(reduce(add, parts))
    return {"bytes_by_round": found}


def choose(data: Data, name: str, options: Options) -> dict[str, Any]:
    """Solve without the held-out clients; their error, after each layer where there are layers."""
    apart = data.held_out[data.client]
    kept, held = np.flatnonzero(~apart), np.flatnonzero(apart)
    path = isinstance(options.get("ridge"), str)  # several ridges, of which the clients choose one
    validation = Road(data, held) if path else None
    head, facts = solved(data, started(data, name, options), kept, validation)
    measure = log_loss if name == "softmax" else squared_error
    errors = sum(
        np.array([measure(scores, y) for scores in depths(head, X)]) for X, y in data.blocks(held)
    )
    ridge = facts["ridge"] if path else options.get("ridge")
    errors = (errors / len(held)).tolist()
    return {"held_out_error": errors, "ridge": ridge, "rounds": facts["rounds"]}


def test(data: Data, name: str, options: Options, seed: int) -> dict[str, Any]:
    """Solve from all clients with one seed; accuracy on the test rows, after each layer."""
    options = {**options, "seed": seed} if has_seed(name, options) else options
    head, facts = solved(data, started(data, name, options), np.arange(len(data.y)))
    hits: Any = 0
    for start in range(0, len(data.truth), BLOCK):
        part = slice(start, start + BLOCK)
        every = depths(head, data.test[part])
        hits = hits + np.array([(s.argmax(1) == data.truth[part]).sum() for s in every])
    return {"top1": (hits / len(data.truth)).tolist(), "solve_seconds": facts["solve_seconds"]}


def has_seed(name: str, options: Options) -> bool:
    return make_head(name, options).options.as_dict().get("seed") is not None


def depths(head: Head, X: Rows) -> list[np.ndarray]:
    """Scores after each layer; of a head without layers one alone."""
    return [scores for _, scores in head.round_scores(X)]


def squared_error(scores: np.ndarray, y: np.ndarray) -> float:
    return float(((scores - np.eye(scores.shape[1])[y]) ** 2).sum())


def log_loss(scores: np.ndarray, y: np.ndarray) -> float:
    top = scores.max(axis=1, keepdims=True)
    logs = top[:, 0] + np.log(np.exp(scores - top).sum(axis=1))
    return float((logs - scores[np.arange(len(y)), y]).sum())
