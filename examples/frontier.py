"""Accuracy against the bytes that a client sends: the sweep behind docs/decisions/frontier.md.

    python examples/frontier.py OUT                                  scikit-learn's digits, seconds
    python examples/frontier.py OUT TRAIN.h5 TEST.h5 [--only TEXT]   feature files, an hour or more

Every configuration of `CONFIGURATIONS` is

1. weighed: the statistics of a few clients are written as `local-stats` writes them, for every
   round, and their files added up (`bytes`: what a client sends, on average);
2. chosen by held-out clients: solved without a tenth of the clients, whose squared error (log loss
   of softmax heads), summed over their rows, also chooses the ridge; test rows choose nothing;
3. tested: solved from all clients with that ridge, for every seed, and scored on the test rows.

With --fraction-bits 9 3 every head is tried on features converted to each of these as well.
Each result is a small JSON file in OUT/cache, so a sweep can be stopped, gone on with, and done in
pieces (--only). At the end stand OUT/frontier.csv, OUT/frontier.png and the best of each family for
every budget. Bytes are uploads alone; every head also downloads what the next round needs.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from frontier_picture import plot_frontier
from one_head import Data, Options, choose, has_seed, test, weigh

import afltool
from afltool.files.features import open_features
from afltool.values.arrays import Digest


def safle(experts: int, group_size: int, buckets: int = 8, hybrid: bool = False) -> tuple:
    """Family, name and options of one SAFLe head; its ridge is chosen by held-out clients."""
    options = {"experts": experts, "group_size": group_size, "buckets": buckets}
    if hybrid:
        return "SAFLe hybrid", "safle", {**options, "with_linear": True, "ridge": "100:10000:5"}
    return "SAFLe", "safle", {**options, "ridge": "100:10000:5"}


def lift(width: int) -> tuple:
    options = {"width": width, "with_linear": True, "ridge": "1:1000:7"}
    return "random features", "random-features", options


# One line each: the family in the picture, the head's name, its options.
CONFIGURATIONS: list[tuple[str, str, Options]] = [
    ("AFL", "linear", {"ridge": "0.1:10000:6"}),
    *(lift(width) for width in (512, 1024, 2048, 3072)),
    ("DeepAFL", "deepafl", {"layers": 20, "preset": "cifar10", "incremental": True}),
    ("DeepAFL", "deepafl", {"layers": 20, "width": 512, "preset": "cifar10", "incremental": True}),
    *(safle(e, 3) for e in (512, 1024, 1600, 2400)),
    *(safle(e, 2) for e in (1024, 2048, 3200)),
    *(safle(e, 4) for e in (512, 768)),
    *(safle(e, 5) for e in (256, 512)),
    *(safle(e, 3, buckets) for e in (1024, 1600) for buckets in (2, 4, 16)),
    *(safle(e, 3, hybrid=True) for e in (256, 448, 512, 768, 1024, 1600, 2048)),
    *(safle(e, 3, buckets, hybrid=True) for e in (512, 1024) for buckets in (2, 4)),
    *(safle(e, 2, hybrid=True) for e in (1024, 2048)),
    ("softmax", "softmax", {}),
    ("softmax", "softmax", {"features": "random", "width": 1024, "with_linear": True}),
    ("softmax", "softmax", {"features": "random", "width": 2048, "with_linear": True}),
]
SMALL = [
    ("AFL", "linear", {"ridge": "1e-2:1e2:5"}),
    ("random features", "random-features", {"width": 200, "ridge": "1:1000:4"}),
    ("DeepAFL", "deepafl", {"layers": 3, "width": 64, "incremental": True}),
    *(("SAFLe", "safle", {"experts": e, "group_size": 2, "ridge": "1:100:3"}) for e in (32, 128)),
    ("SAFLe hybrid", "safle", {"experts": 64, "with_linear": True, "ridge": "1:100:3"}),
    ("softmax", "softmax", {"rounds": 5}),
    ("softmax", "softmax", {"features": "random", "width": 100, "rounds": 5}),
]


# ---------------------------------------------------------------- the sweep and its table


class NotThere(Exception):
    """A result that is not in the cache and is not to be computed."""


class Cache:
    """One JSON file a result; what is there is not computed again."""

    def __init__(self, folder: Path, task: Any, only: bool = False) -> None:
        self.folder, self.task, self.only = folder, task, only
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, what: str, key: Any, work: Any) -> dict[str, Any]:
        name = Digest().json("task", [self.task, key]).hex()[:16]
        path = self.folder / f"{what}-{name}.json"
        if not path.exists() and self.only:
            raise NotThere(path)
        if not path.exists():
            begun = time.perf_counter()
            found = work()
            took = round(time.perf_counter() - begun, 1)
            path.with_suffix(".partial").write_text(json.dumps({**found, "key": key, "took": took}))
            path.with_suffix(".partial").rename(path)
            print(f"  {what} {key}: {took} s", flush=True)
        return json.loads(path.read_text())


def sweep(data: Data, cache: Cache, one: tuple[str, str, Options], seeds: int) -> list[dict]:
    """Rows of the table: one, or for a head of layers one after each layer."""
    family, name, options = one
    chosen = cache("choose", [name, options], lambda: choose(data, name, options))
    ridge = {} if chosen["ridge"] is None else {"ridge": chosen["ridge"]}
    options = {**options, **ridge}
    tests = []
    for seed in range(seeds if has_seed(name, options) else 1):
        with suppress(NotThere):  # then the seeds that are there have to do, if there is one
            work = partial(test, data, name, options, seed)
            tests.append(cache("test", [name, options, seed], work))
    if not tests:
        raise NotThere(options)
    weighed = partial(weigh, data, name, options, chosen["rounds"])
    upto = np.cumsum(cache("weigh", [name, options], weighed)["bytes_by_round"])
    seconds = float(np.mean([t["solve_seconds"] for t in tests]))
    found = []
    for layer, error in enumerate(chosen["held_out_error"]):
        last = layer == len(chosen["held_out_error"]) - 1
        rounds = chosen["rounds"] if last else 2 * layer + 1  # of a head of layers
        tops = np.array([t["top1"][layer] for t in tests])
        spread = tops.std(ddof=1) / len(tops) ** 0.5 if len(tops) > 1 else None
        found.append({
            "family": family, "head": name, "options": json.dumps(options), "layers": layer,
            "rounds": rounds, "megabytes": upto[rounds - 1] / 1e6, "held_out_error": error,
            "solve_seconds": seconds, "top1": tops.mean(), "standard_error": spread,
            "seeds": len(tops),
        })  # fmt: skip
    return found


def best_within(table: pd.DataFrame, budget: float, seconds: float) -> pd.DataFrame:
    """Of each family what the held-out clients like best, within megabytes and solve seconds."""
    fits = table[(table.megabytes <= budget) & (table.solve_seconds <= seconds)]
    return fits.loc[fits.groupby("family").held_out_error.idxmin()].assign(budget=budget)


def digits(folder: Path) -> tuple[Path, Path]:
    """scikit-learn's digits, split by its own generator, as feature files."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    parts = train_test_split(x / 16, y, test_size=0.25, stratify=y, random_state=0)
    for name, rows, labels in (("train", *parts[::2]), ("test", *parts[1::2])):
        np.savez(folder / f"{name}.npz", x=rows, y=labels)
        afltool.import_embeddings(folder / f"{name}.npz", folder / f"{name}.h5", backbone="pixels")
    return folder / "train.h5", folder / "test.h5"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("features", type=Path, nargs="*", help="TRAIN.h5 TEST.h5")
    parser.add_argument("--only", default="", help="configurations that hold this text")
    parser.add_argument("--fraction-bits", type=int, nargs="+", default=[None],
                        help="features are converted to each of these first")  # fmt: skip
    parser.add_argument("--cached", action="store_true", help="only what an earlier run left")
    parser.add_argument("--budgets", type=float, nargs="+", default=[12.0, 25.0, 50.0])
    parser.add_argument("--solve-seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--alpha", type=float, default=0.1)
    return parser.parse_args()


def main() -> None:
    a = arguments()
    a.out.mkdir(parents=True, exist_ok=True)
    files, configurations = (a.features, CONFIGURATIONS) if a.features else (digits(a.out), SMALL)
    with open_features(files[0]) as train, open_features(files[1]) as test_rows:
        whole = Data.of(train, test_rows, a.clients, a.alpha)
        task = [train.header["digest"], test_rows.header["digest"], a.clients, a.alpha]
    wanted = [one for one in configurations if a.only in json.dumps(one)]
    rows = []
    for bits in a.fraction_bits:
        data = whole.converted(bits)
        own = data.bits == whole.bits
        cache = Cache(a.out / "cache", task if own else [*task, data.bits], a.cached)
        for one in wanted:
            with suppress(NotThere):
                found = sweep(data, cache, one, a.seeds)
                rows += [{**row, "fraction_bits": data.bits} for row in found]
    if not rows:
        raise SystemExit(f"no configuration holds {a.only!r}, or none of them is done")
    table = pd.DataFrame(rows)
    table.to_csv(a.out / "frontier.csv", index=False)
    best = pd.concat([best_within(table, b, a.solve_seconds) for b in a.budgets])
    best.to_csv(a.out / "best.csv", index=False)
    columns = ["budget", "family", "fraction_bits", "megabytes", "top1", "standard_error",
               "options", "layers"]  # fmt: skip
    print("nothing is within a budget" if best.empty else best[columns].to_string(index=False))
    print(
        plot_frontier(table.to_dict("records"), a.out / "frontier.png", a.budgets, overwrite=True)
    )


if __name__ == "__main__":
    main()
