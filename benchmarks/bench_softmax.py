"""The softmax head: seconds of a round, rounds to the optimum, accuracy for a number of bytes.

    python benchmarks/bench_softmax.py speed [ROWS] [CLASSES]
    python benchmarks/bench_softmax.py rounds TRAIN.h5 TEST.h5
    python benchmarks/bench_softmax.py bytes digits|fashion [PENALTY] [ROUNDS]
    python benchmarks/bench_softmax.py choose TRAIN.h5 RESULTS.jsonl NAME [PENALTY …]
    python benchmarks/bench_softmax.py final TRAIN.h5 TEST.h5 RESULTS.jsonl [MEGABYTES …]

speed: one round (gradient and loss of all rows) against one pass of its two products, Φ·V and Φᵀ·R,
on float64 rows in memory, whole and in blocks of the fastest size; in turn, least seconds.

choose: every kind of features and penalty is fitted on nine tenths of the clients (Dirichlet 0.1,
100 clients); the loss of the others after each round is written down beside the bytes that a client
sends: the mean size of the files of every tenth client, in each phase. final: the features, penalty
and rounds with the least held-out loss within a budget, from all clients, seeds 0 to 2, on the test
rows, which have chosen nothing.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from measure import machine

from afltool.files.features import open_features
from afltool.files.statistics import save_statistics
from afltool.heads import make_head
from afltool.heads.base import Found, Head, binding
from afltool.math import softmax as sm
from afltool.math.gram import FixedPoint, Rows
from afltool.memory import Carried
from afltool.options.partition import PartitionOptions
from afltool.partitions.assignment import assign
from afltool.values.statistics import Client, ClientId, Context, Statistics

BLOCK, MOST = 4096, 100
Array = np.ndarray
Options = dict[str, Any]

# ---------------------------------------------------------------- what is tried


def random(width: int, beside: bool, activation: str = "tanh") -> Options:
    given = {"features": "random", "width": width, "activation": activation}
    return {**given, "with_linear": True} if beside else given


TRIED: dict[str, Options] = {
    "raw": {},
    **{f"random {w}": random(w, False) for w in (1536, 2048, 3072, 4096)},
    **{f"gelu {w}": random(w, False, "gelu") for w in (2048, 3072)},
    **{f"random {w} beside raw": random(w, True) for w in (512, 768, 1792, 3072)},
}
PENALTIES = (1e-3, 3e-3, 1e-2)


@dataclass
class Data:
    """Rows and labels in memory."""

    X: Rows
    y: Array
    space: dict[str, Any]
    classes: tuple[str, ...]

    @classmethod
    def read(cls, path: str) -> Data:
        with open_features(Path(path)) as rows:
            X = rows.rows(0, len(rows))
            return cls(X, rows.labels, rows.header["space"], rows.classes)

    def some(self, rows: Array) -> Data:
        return replace(self, X=self.X[rows], y=self.y[rows])

    def blocks(self) -> Iterator[tuple[Rows, Array]]:
        for at in range(0, len(self.y), BLOCK):
            yield self.X[at : at + BLOCK], self.y[at : at + BLOCK]


class Site:
    """Whoever gathers statistics of some rows; keeps what they carry from round to round."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.carried: Carried = Carried()

    def gather(self, head: Head) -> Statistics:
        who = {ClientId("all"): Client(len(self.data.y))}
        found, self.carried = head.gather(self.data.blocks(), who, self.carried)
        return replace(found, context=Context(self.data.space, self.data.classes, binding(head)))


def started(data: Data, options: Options) -> Head:
    return make_head("softmax", options).bind(data.space["dim"], len(data.classes))


def dealt(data: Data) -> tuple[Array, Array]:
    """Client of each row, and whether each client is held out."""
    ids = np.char.mod("%06d", np.arange(len(data.y))).astype("S")
    found = assign(
        ids, data.y, len(data.classes), PartitionOptions(clients=100, alpha=0.1, held_out=0.1)
    )
    return found.client, found.held_out


# ---------------------------------------------------------------- accuracy for bytes


def choose(train: str, results: str, name: str, *penalties: str) -> None:
    data = Data.read(train)
    owner, held_out = dealt(data)
    kept, held = (Site(data.some(held_out[owner] == which)) for which in (False, True))
    totals: list[Statistics] = []
    sent = weighed(data, owner, TRIED[name])
    for penalty in map(float, penalties or PENALTIES):
        begun = time.perf_counter()
        head = started(data, {**TRIED[name], "penalty": penalty, "rounds": MOST})
        rounds = [done for _, done in fitting(head, kept, held, totals)][len(totals) :]
        losses = [done.round["validation_loss"] for done in rounds]
        entry = {"name": name, "penalty": penalty, "bytes": sent, "losses": losses}
        with Path(results).open("a") as file:
            file.write(json.dumps(entry) + "\n")
        print(f"{name:20} μ {penalty:g}: {min(losses):.5f} after {int(np.argmin(losses))} rounds, "
              f"{time.perf_counter() - begun:.0f} s, {sent}", flush=True)  # fmt: skip


def fitting(
    head: Head, kept: Site, held: Site | None = None, totals: list[Statistics] | None = None
) -> Iterator[tuple[Head, Found]]:
    """Head and round after each phase; ``totals`` of the first ones, kept here, know no penalty."""
    totals = [] if totals is None else totals
    for number in count():
        phase = head.phase()
        if phase is None:
            return
        if phase.startswith("gradient"):
            head, done = head.absorb(kept.gather(head), held and held.gather(head))
        else:
            if number == len(totals):
                totals.append(kept.gather(head))
            head, done = head.absorb(totals[number])
        yield head, done


def weighed(data: Data, owner: Array, options: Options) -> dict[str, float]:
    """Mean bytes of a client's file: of all first phases together, and of a gradient round."""
    head = started(data, {**options, "rounds": 1})
    sites = [Site(data.some(owner == k)) for k in range(0, 100, 10)]
    pooled = Site(data.some(owner % 10 == 0))
    found, downloads = {"first": 0.0, "round": 0.0, "down": 0.0}, list[int]()
    while head.phase() is not None:
        kind = "round" if str(head.phase()).startswith("gradient") else "first"
        with tempfile.TemporaryDirectory() as folder:
            sizes = [
                save_statistics(Path(folder) / f"{k}.h5", site.gather(head), {}).stat().st_size
                for k, site in enumerate(sites)
            ]
        found[kind] += float(np.mean(sizes))
        head, done = head.absorb(pooled.gather(head))
        downloads.append(done.round["download_bytes"])
    found["down"] = downloads[-2]
    return found


def candidates(results: str) -> Iterator[tuple[float, float, str, float, int]]:
    """(held-out loss, bytes sent, name, penalty, rounds) of every number of rounds."""
    for line in Path(results).read_text().splitlines():
        entry = json.loads(line)
        for rounds, loss in enumerate(entry["losses"]):  # of the point that so many rounds made
            sent = entry["bytes"]["first"] + rounds * entry["bytes"]["round"]
            if rounds:
                yield loss, sent, entry["name"], entry["penalty"], rounds


def final(train: str, test: str, results: str, *budgets: str) -> None:
    data, fresh = Data.read(train), Data.read(test)
    for budget in budgets or ("12", "25", "50"):
        within = [c for c in candidates(results) if c[1] <= float(budget) * 1e6]
        loss, sent, name, penalty, rounds = min(within)
        options = {**TRIED[name], "penalty": penalty, "rounds": rounds}
        scores = []
        for seed in range(3) if TRIED[name] else (0,):
            seeded = {**options, "seed": seed} if TRIED[name] else options
            *_, (head, _) = fitting(started(data, seeded), Site(data))
            scores.append(accuracy(head, fresh))
            print(f"{budget} MB, seed {seed}: {100 * scores[-1]:.2f}", file=sys.stderr, flush=True)
        shown = ", ".join(f"{100 * s:.2f}" for s in scores)
        print(
            f"{budget} MB: {name}, μ {penalty:g}, {rounds} rounds, held-out loss {loss:.4f}, "
            f"{sent / 1e6:.1f} MB up a client: {shown}; mean {100 * np.mean(scores):.2f}",
            flush=True,
        )


def accuracy(head: Head, data: Data) -> float:
    """Of the last solved head that a head holds."""
    right = 0
    for X, y in data.blocks():
        *_, (_, scores) = head.round_scores(X)
        right += int((scores.argmax(axis=1) == y).sum())
    return right / len(data.y)


# ---------------------------------------------------------------- rounds to the optimum


STEPS: dict[str, dict[str, Any]] = {"momentum": {"rounds": 300}}  # options of the methods
SHOWN = (0, 3, 5, 10, 20, 40, 80, 160)


def rounds(train: str, test: str, penalty: str = "1e-3") -> None:
    """Objective and test accuracy after each round, by each method."""
    data, fresh = Data.read(train), Data.read(test)
    site, totals = Site(data), list[Statistics]()
    print(machine())
    values: dict[str, list[float]] = {}
    for name, steps in STEPS.items():
        first = started(data, {"penalty": float(penalty), **steps})
        found, right = [], []
        for number, (head, done) in enumerate(fitting(first, site, None, totals)):
            found.append(done)
            if number in SHOWN:
                right.append(f"{number}: {100 * accuracy(head, fresh):.2f}")
        values[name] = objectives(found)
        norm = found[-1].round["gradient_norm"]
        print(f"{name}: gradient norm {norm:.1e} after {len(found) - 1} rounds; top-1", *right)
    optimum = min(map(min, values.values()))
    print(f"least objective {optimum:.6f}")
    for name, each in values.items():
        within = next((i for i, v in enumerate(each) if v <= 1.01 * optimum), None)
        above = (f"{i}: {100 * (min(each[: i + 1]) / optimum - 1):.2f}" for i in SHOWN)
        print(f"{name}: {within} rounds to within 1 %; per cent above the least:", *above)


def objectives(rounds: list[Found]) -> list[float]:
    return [done.round["objective"] for done in rounds if "objective" in done.round]


# ---------------------------------------------------------------- bytes to the converged accuracy


def bytes_sent(name: str, penalty: str = "1e-3", most: str = "200") -> None:
    """Rounds and bytes until the held-out accuracy is within 0.1 points of the converged one."""
    options = {"penalty": float(penalty), "rounds": int(most)}
    right, sizes = np.zeros(int(most) + 1), list[int]()
    sent: dict[str, float] = {}
    for train, test in SETS[name]():
        sent = sent or weighed(train, dealt(train)[0], {"penalty": float(penalty)})
        heads = [head for head, _ in fitting(started(train, options), Site(train))]
        after = [accuracy(head, test) * len(test.y) for head in heads]
        right += np.pad(after, (0, len(right) - len(after)), "edge")
        sizes.append(len(test.y))
    top1 = 100 * right / sum(sizes)
    near = top1 >= top1[-1] - 0.1 - 1e-9
    first, stays = int(near.argmax()), len(near) - int((~near[::-1]).argmax())
    print(f"{name}, μ {penalty}: converged {top1[-1]:.2f}")
    for what, number in (("first", first), ("for good", 0 if near.all() else stays)):
        megabytes = (sent["first"] + number * sent["round"]) / 1e6
        print(f"  {what} within 0.1 points after {number} rounds, {megabytes:.2f} MB")


def pixels(x: Array, y: Array) -> Data:
    values = FixedPoint(np.rint(512 * x).astype(np.int16), 9)
    space = {"dim": x.shape[1], "fraction_bits": 9}
    return Data(values, y.astype(np.int64), space, tuple(map(str, range(10))))


def digits() -> Iterator[tuple[Data, Data]]:
    """scikit-learn's digits, of which each of five folds is held out once."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import StratifiedKFold

    x, y = load_digits(return_X_y=True)
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(x, y):
        yield pixels(x[train] / 16, y[train]), pixels(x[test] / 16, y[test])


def fashion() -> Iterator[tuple[Data, Data]]:
    """Debian's dataset-fashion-mnist."""
    folder = Path("/usr/share/datasets/fashion-mnist")

    def read(name: str, start: int) -> Array:
        return np.frombuffer(gzip.open(folder / f"{name}-ubyte.gz").read()[start:], np.uint8)

    parts = (
        pixels(
            read(f"{part}-images-idx3", 16).reshape(-1, 784) / 255, read(f"{part}-labels-idx1", 8)
        )
        for part in ("train", "t10k")
    )
    yield next(parts), next(parts)


SETS = {"digits": digits, "fashion": fashion}

# ---------------------------------------------------------------- seconds of a round


def speed(rows: str = "60000", classes: str = "10") -> None:
    n, d, C = int(rows), 1280, int(classes)
    rng = np.random.default_rng(0)
    X = FixedPoint(np.abs(300 * rng.normal(size=(n, d))).astype(np.int16), 9)
    y, V = rng.integers(0, C, n), 0.1 * rng.normal(size=(d + 1, C))
    head = started(Data(X, y, {"dim": d}, tuple(map(str, range(C)))), {})
    one = X[:100], y[:100]
    head, _ = head.absorb(Site(Data(*one, {"dim": d, "fraction_bits": 9}, ())).gather(head))
    F, R = X.values.astype(np.float64), rng.normal(size=(n, C))
    kinds: dict[str, Callable[[], object]] = {
        "a round": lambda: head.gather((X[at : at + BLOCK], y[at : at + BLOCK])
                                        for at in range(0, n, BLOCK)),
        "two products, whole": lambda: (F @ V[:-1], F.T @ R),
        **{f"two products, {b} rows": lambda b=b: products(F, V[:-1], R, b)  # type: ignore[misc]
           for b in (64, 256, 1024)},
        "softmax alone": lambda: softmaxes(R, y),
    }  # fmt: skip
    took: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(7):
        for name, work in kinds.items():
            begun = time.process_time()
            work()
            took[name].append(time.process_time() - begun)
    print(machine())
    print(f"{n} × {d} int16 rows, {C} classes; least processor seconds of 7")
    mine = min(took["a round"])
    for name, times in took.items():
        print(f"{name:24} {min(times):.3f}  a round is {mine / min(times):.2f} times")


def products(F: Array, V: Array, R: Array, step: int) -> Array:
    total = np.zeros_like(V)
    for at in range(0, len(F), step):
        F[at : at + step] @ V
        total += F[at : at + step].T @ R[at : at + step]
    return total


def softmaxes(S: Array, y: Array) -> None:
    for at in range(0, len(S), BLOCK):
        sm.residual_and_loss(S[at : at + BLOCK].copy(), y[at : at + BLOCK])


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {
        "speed": speed, "rounds": rounds, "bytes": bytes_sent, "choose": choose, "final": final,
    }  # fmt: skip
    commands[sys.argv[1] if len(sys.argv) > 1 else "speed"](*sys.argv[2:])
