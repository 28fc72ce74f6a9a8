"""Views × layers × heads × fraction bits of one frozen backbone: accuracy against a client's bytes.

    python examples/sweep.py OUT                                        scikit-learn's digits
    python examples/sweep.py OUT plain=TRAIN.h5,TEST.h5 flip=TRAIN.h5,TEST.h5 [--only TEXT]

A feature file of several nodes (`extract --node stages`) is tried whole and with its first node
alone; --layers first 2 3 all has the first two and three nodes too. For every head of `HEADS`:

1. a tenth of 100 Dirichlet(0.1) clients is held out, and chooses the ridge or penalty: least
   squared error, of softmax heads least log loss; test rows choose nothing;
2. the head is solved from all clients with that choice, and scored on the test rows;
3. the files of five clients are weighed, as in frontier.py (MB a client, all rounds).

A seed is that of the partition, of the held-out clients and of what a head draws. The sums of a
head of one round are gathered once for all seeds that it does not draw from: those of the clients
that stay are the sums of all minus those of the held-out ones, exactly.

Every result is a small JSON file in OUT/cache: a sweep can be stopped, gone on with, and done in
pieces (--only TEXT, --table). OUT/sweep.csv has every seed, OUT/sweep.md the means. Seconds an
image are those of `extract`; give them as plain=TRAIN.h5,TEST.h5,0.009. With --noise 0.2 a fifth of
the training rows, held-out ones too, have a wrong label.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from frontier import Cache, NotThere, digits
from one_head import (
    BLOCK,
    Data,
    Options,
    Road,
    has_seed,
    log_loss,
    solved,
    squared_error,
    started,
    weigh,
)
from sweep_rows import Rows, Source

from afltool.heads.base import Found, Head
from afltool.heads.checks import with_options
from afltool.heads.least_squares import held_out_error
from afltool.heads.problem import Problem
from afltool.math.ridge_choice import FactoredSystem, choose
from afltool.values.statistics import Statistics


@dataclass(frozen=True)
class One:
    """A line of the table: a head, what its statistics depend on, and what is chosen or solved.

    ``layers``: 'first', 'all', or '' for both. ``tried``: options of which held-out clients take
    the best; none: nothing is chosen, and they are not asked. ``walk``: the ridge is searched by
    Cholesky factors, for systems that are too wide for eigenvectors.
    """

    title: str
    name: str
    options: Options
    solve: Options
    tried: tuple[Options, ...] = ({},)
    layers: str = ""
    bits: tuple[int, ...] = (9,)
    walk: bool = False


def beside(width: int, layers: str = "") -> One:
    """Random features beside the raw ones, in fixed point with three fraction bits."""
    options = {"width": width, "with_linear": True, "intercept": True, "compute": "fixed"}
    return One(
        f"{width:,} random features beside", "random-features", options, {}, layers=layers,
        bits=(3,), walk=True,
    )  # fmt: skip


def deep(layers: int, where: str) -> One:
    options = {"layers": layers, "preset": "cifar10", "incremental": True}
    return One(f"DeepAFL, T = {layers}", "deepafl", options, {}, (), where)


AFL = {"intercept": True}
PENALTIES = tuple({"penalty": p} for p in (1e-3, 3e-3, 1e-2, 3e-2))
HEADS = [
    One("AFL", "linear", AFL, {"ridge": "auto"}, bits=(9, 3)),
    One("AFL, standardized", "linear", AFL, {"ridge": "auto", "standardize": True}),
    One("softmax", "softmax", {}, {}, PENALTIES, bits=(3,)),
    One(
        "softmax, 1,024 random features beside",
        "softmax",
        {
            "features": "random",
            "width": 1024,
            "with_linear": True,
            "compute": "fixed",
        },
        {},
        PENALTIES[2:3],
        "all",
        (3,),
    ),
    *(beside(width) for width in (1024, 2048)),
    *(beside(width, "all") for width in (4096, 6144)),
    deep(20, "first"),
    deep(10, "all"),
]
SMALL = [
    HEADS[0],
    One("softmax", "softmax", {"rounds": 3}, {}, ({"penalty": 1e-3}, {"penalty": 1e-1})),
    beside(100),
    One("DeepAFL, T = 2", "deepafl", {"layers": 2, "width": 64}, {}, ()),
]


# ---------------------------------------------------------------- heads of one round


class Sums:
    """Sums over all rows and over held-out clients; those asked for last stay in memory."""

    def __init__(self) -> None:
        self._kept: dict[Any, Statistics] = {}

    def of(self, data: Data, key: list[Any], head: Head, seed: int) -> tuple[Statistics, ...]:
        """Of the clients that stay, and of the held-out ones of this seed."""
        drawn = [*key, seed if head.options.as_dict().get("seed") is not None else None]
        self._forget(drawn)
        held = self._gathered(data, [*drawn, "held", seed], head, data.held_out[data.client])
        whole = self._gathered(data, [*drawn, "all"], head, np.full(len(data.y), True))
        return whole - held, held, whole

    def _forget(self, key: list[Any]) -> None:
        text = json.dumps(key)[:-1]
        self._kept = {k: v for k, v in self._kept.items() if k.startswith(text)}

    def _gathered(self, data: Data, key: list[Any], head: Head, rows: np.ndarray) -> Statistics:
        text = json.dumps(key)
        if text not in self._kept:
            self._kept[text] = Road(data, np.flatnonzero(rows)).statistics(head)
        return self._kept[text]


def ridge_by_factors(head: Head, kept: Statistics, held: Statistics) -> float:
    """The ridge that held-out clients choose, one Cholesky factorisation a trial."""
    problem = Problem.of(kept, head.options.intercept)
    H, side = problem.H, len(problem.G)
    start = 10 ** round(np.log10(1e-3 * np.trace(problem.G) / side))
    system = FactoredSystem(
        problem.G.copy, H, problem.target, kept.rows, lambda ridge: np.full(side, ridge),
        float(start), problem.outside,
    )  # fmt: skip
    return choose(system, None, held_out_error(held, problem)).ridge


# ---------------------------------------------------------------- one line of the table


class Sweep:
    """All lines for one source: chosen, tested and weighed, each once."""

    def __init__(self, rows: Rows, cache: Cache) -> None:
        self.rows, self.cache, self.sums = rows, cache, Sums()

    def line(self, one: One, layers: str, bits: int, seed: int) -> dict[str, Any]:
        data = self.rows.at(layers, bits)[seed]
        key = [layers, bits, one.name, one.options]
        drawn = seed if has_seed(one.name, one.options) else None
        chosen = self.cache(
            "choose", [*key, one.solve, one.tried, seed], lambda: self._choose(data, one, key, seed)
        )
        options = {**one.solve, **chosen["options"]}
        tested = self.cache(
            "test", [*key, options, drawn], lambda: self._test(data, one, key, options, seed)
        )
        sent = self.cache("weigh", key, lambda: weigh(
            self.rows.at(layers, bits)[0], one.name, one.options, tested["rounds"]
        ))  # fmt: skip
        return {
            "head": one.title, "layers": layers, "bits": bits, "seed": seed,
            "columns": int(data.space["dim"]), "rounds": tested["rounds"],
            "megabytes": sum(sent["bytes_by_round"]) / 1e6, "held_out_top1": chosen["top1"],
            "held_out_error": chosen["error"], "top1": tested["top1"],
            "options": json.dumps(options),
        }  # fmt: skip

    def _head(self, data: Data, one: One, seed: int) -> Head:
        drawn = {"seed": seed} if has_seed(one.name, one.options) else {}
        return started(data, one.name, {**one.options, **drawn})

    def _choose(self, data: Data, one: One, key: list[Any], seed: int) -> dict[str, Any]:
        """The best of what is tried, by the held-out clients; its error and accuracy on them."""
        if not one.tried:
            return {"error": None, "top1": None, "options": {}}
        apart = data.held_out[data.client]
        found = []
        for tried in one.tried:
            head = self._head(data, replace(one, options={**one.options, **tried}), seed)
            if head.one_round:
                kept, held, _ = self.sums.of(data, key, head, seed)
                walked = {"ridge": ridge_by_factors(head, kept, held)} if one.walk else {}
                head, done = with_options(head, **one.solve, **walked).absorb(
                    kept, None if one.walk else held
                )
                tried = {**tried, "ridge": ridge_of(done)}
            else:
                head, _ = solved(data, head, np.flatnonzero(~apart))
            error, top1 = measured(head, data.X, data.y, np.flatnonzero(apart))
            found.append({"error": error, "top1": top1, "options": tried})
        return min(found, key=lambda one: one["error"])

    def _test(
        self, data: Data, one: One, key: list[Any], options: Options, seed: int
    ) -> dict[str, Any]:
        """Solved from all clients; top-1 on the test rows."""
        begun, rounds = time.process_time(), 1
        head = self._head(data, one, seed)
        if head.one_round:
            head, _ = with_options(head, **options).absorb(self.sums.of(data, key, head, seed)[2])
        else:
            head = self._head(data, replace(one, options={**one.options, **options}), seed)
            head, facts = solved(data, head, np.arange(len(data.y)))
            rounds = facts["rounds"]
        _, top1 = measured(head, data.test, data.truth, np.arange(len(data.truth)))
        return {"top1": top1, "rounds": rounds, "seconds": time.process_time() - begun}


def ridge_of(done: Found) -> float:
    """The chosen ridge."""
    return float(done.head["ridge"])


def measured(head: Head, X: Any, y: np.ndarray, rows: np.ndarray) -> tuple[float, float]:
    """Squared error (softmax: log loss) a row, and top-1."""
    measure = log_loss if head.log_probabilities else squared_error
    error, hits = 0.0, 0
    for at in range(0, len(rows), BLOCK):
        part = rows[at : at + BLOCK]
        scores = head.decision_function(X[part])
        error += measure(scores, y[part])
        hits += int((scores.argmax(1) == y[part]).sum())
    return error / len(rows), hits / len(rows)


# ---------------------------------------------------------------- all lines, the table


def lines(a: argparse.Namespace, source: Source, heads: list[One]) -> Iterator[dict[str, Any]]:
    rows = Rows(source, a.clients, a.alpha, a.seeds, a.noise)
    task = [*rows.digests, a.clients, a.alpha, *([a.noise] if a.noise else [])]
    sweep = Sweep(rows, Cache(a.out / "cache", task, a.table))
    for layers in filter(rows.has, a.layers):
        for one in heads:
            for bits in one.bits if one.layers in ("", layers) else ():
                if a.only not in f"{source.view} {layers} {bits} {one.title}":
                    continue
                for seed in range(a.seeds):
                    with suppress(NotThere):
                        line = sweep.line(one, layers, bits, seed)
                        yield {"view": source.view, **line, "seconds": source.seconds}


def table(found: pd.DataFrame) -> str:
    """Markdown: means over seeds; ± is the standard error of the mean where there are several."""
    names = ["views", "layers", "d", "head", "bits", "rounds", "MB a client", "s an image",
             "held-out top-1, %", "test top-1, %"]  # fmt: skip
    out = [f"| {' | '.join(names)} |", "| --- " * len(names) + "|"]
    for (view, layers, head, bits), group in found.groupby(
        ["view", "layers", "head", "bits"], sort=False
    ):
        cells = [
            view, layers, f"{group.columns_.iloc[0]:,}", head, str(bits),
            f"{group.rounds.mean():g}", f"{group.megabytes.mean():.1f}",
            "" if group.seconds.isna().all() else f"{group.seconds.mean():.3g}",
            spread(group.held_out_top1), spread(group.top1),
        ]  # fmt: skip
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out) + "\n"


def spread(values: pd.Series) -> str:
    if values.isna().all():
        return ""
    error = f" ± {100 * values.std(ddof=1) / len(values) ** 0.5:.2f}" if len(values) > 1 else ""
    return f"{100 * values.mean():.2f}{error}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("sources", nargs="*", help="VIEW=TRAIN.h5,TEST.h5[,SECONDS AN IMAGE]")
    parser.add_argument("--only", default="", help="lines 'VIEW LAYERS BITS HEAD' with this text")
    parser.add_argument("--table", action="store_true", help="of the results that are there")
    parser.add_argument("--layers", nargs="+", default=["first", "all"], help="first, all, 2, 3 …")
    parser.add_argument("--noise", type=float, default=0.0, help="share of wrong training labels")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--alpha", type=float, default=0.1)
    return parser.parse_args()


def source(text: str) -> Source:
    view, _, files = text.partition("=")
    train, test, *seconds = files.split(",")
    return Source(view, Path(train), Path(test), float(seconds[0]) if seconds else None)


def main() -> None:
    a = arguments()
    a.out.mkdir(parents=True, exist_ok=True)
    sources = [source(text) for text in a.sources] or [Source("pixels", *digits(a.out))]
    found = []
    for one in sources:
        for line in lines(a, one, HEADS if a.sources else SMALL):
            found.append(line)
            print("{view}, {layers}, {bits} bits, {head}, seed {seed}: {top1:.2%}".format(**line),
                  flush=True)  # fmt: skip
    if not found:
        raise SystemExit(f"no line holds {a.only!r}, or none of them is done")
    frame = pd.DataFrame(found)
    frame.to_csv(a.out / "sweep.csv", index=False)
    text = table(frame.rename(columns={"columns": "columns_"}))
    (a.out / "sweep.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
