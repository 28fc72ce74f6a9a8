"""Accuracy of the linear head against ε: noise at each client, and shared under masks.

python benchmarks/bench_privacy.py TRAIN.h5 TEST.h5 OUT [CLIP] [SEEDS]

K = 1, 10, 100 clients of equal size, ε = 0.25 … 64, δ = 1e-5; rows are clipped to the norm CLIP (by
default the median norm of the training rows, which is a look at private data: a federation agrees
on a number it knows otherwise). The masks are left out here: they change no number (tests). Writes
OUT/privacy.csv and OUT/privacy.png.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import pandas as pd
from measure import machine

from afltool.files.features import open_features
from afltool.heads import make_head
from afltool.heads.checks import with_options
from afltool.math.gram import FixedPoint, real
from afltool.privacy.differential import Noise, clip_rows, ridge_of
from afltool.values.statistics import Client, ClientId, Context, Statistics

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0)
CLIENTS = (1, 10, 100)
DELTA = 1e-5


def read(path: Path) -> tuple[FixedPoint, np.ndarray, Context]:
    with open_features(path) as rows:
        X = np.concatenate([block for _, block in rows.stored_blocks()])
        context = Context(rows.header["space"], tuple(rows.header["classes"]))
        return FixedPoint(X, rows.bits), rows.labels, context


def of_clients(head, X: FixedPoint, y: np.ndarray, context: Context, clients: int):
    """The statistics of each of so many clients, rows dealt in turn."""
    found = []
    for k in range(clients):
        part = head.gather([(X[np.arange(k, len(y), clients)], y[k::clients])])[0]
        who = {ClientId(str(k)): Client(None)}
        found.append(replace(part, context=context, clients=who))
    return found


def noisy_total(parts: list[Statistics], made: Noise, seed: int) -> Statistics:
    rng = np.random.default_rng([seed, 99])
    return reduce(add, (made.added(part, rng.bytes(32)) for part in parts))


def accuracy(head, summed: Statistics, X: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Top-1 on the test rows, and the ridge."""
    ridge = ridge_of(summed) if summed.context.noise else 0.0
    solved, _ = with_options(head, ridge=ridge).absorb(summed)
    return float((solved.scores(X).argmax(axis=1) == y).mean()), ridge


def main(train: Path, test: Path, out: Path, clip: float | None = None, seeds: int = 3) -> None:
    print(machine())
    out.mkdir(parents=True, exist_ok=True)
    X, y, context = read(train)
    T, z, _ = read(test)
    norms = np.sqrt((X.values.astype(float) ** 2).sum(axis=1)) / 2**X.bits
    clip = float(np.median(norms)) if clip is None else clip
    print(f"{len(y)} rows of {X.dim} features, clip {clip:.2f}: {(norms > clip).mean():.1%} longer")
    head = make_head("linear").bind(X.dim, len(context.classes))
    points = []
    whole = of_clients(head, X, y, context, 1)[0]
    plain = accuracy(with_options(head, min_norm=True), whole, real(T), z)[0]
    clipped = FixedPoint(clip_rows(X.values, int(clip * 2**X.bits)), X.bits)
    for clients in CLIENTS:
        parts = of_clients(head, clipped, y, context, clients)
        for form in ("local", "distributed")[: 1 if clients == 1 else 2]:
            members = 1 if form == "local" else 2 * clients // 3  # the threshold, less one
            for epsilon in EPSILONS:
                made = Noise(epsilon, DELTA, clip, X.bits, members)
                for seed in range(seeds):
                    top1, ridge = accuracy(head, noisy_total(parts, made, seed), real(T), z)
                    points.append((clients, form, epsilon, seed, top1, ridge))
                mean = np.mean([p[4] for p in points[-seeds:]])
                print(f"K = {clients:3d} {form:11s} ε = {epsilon:5g}: {mean:.4f}", flush=True)
    table = pd.DataFrame(points, columns=["clients", "form", "epsilon", "seed", "top1", "ridge"])
    table.to_csv(out / "privacy.csv", index=False)
    draw(table, plain, out / "privacy.png")
    print(f"without noise and clipping: {plain:.4f}")


def draw(table: pd.DataFrame, plain: float, path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for (clients, form), rows in table.groupby(["clients", "form"]):
        by = rows.groupby("epsilon")["top1"]
        style = "-" if form == "local" else "--"
        where = "at each client" if form == "local" else "shared under masks"
        axes.errorbar(
            by.mean().index, 100 * by.mean(), 100 * by.std(), fmt=style, marker="o", capsize=2,
            color=f"C{CLIENTS.index(clients)}", label=f"K = {clients}, noise {where}",
        )  # fmt: skip
    axes.axhline(100 * plain, color="black", linewidth=1, label="no noise")
    axes.set(xscale="log", xlabel="ε of one row (δ = 1e-5)", ylabel="top-1 on the test rows, %")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    numbers = [float(a) for a in sys.argv[4:5]] + [int(a) for a in sys.argv[5:6]]
    main(*map(Path, sys.argv[1:4]), *numbers)
