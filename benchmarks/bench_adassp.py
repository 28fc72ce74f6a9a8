"""Accuracy under noise by how the gram's noise is drawn and bounded: before, and by factors of b.

python benchmarks/bench_adassp.py TRAIN.h5 TEST.h5 [CLIENTS] [SEEDS]

Noise at each client, δ = 1e-5, rows clipped to their median norm. "before": σ on all entries of the
gram and AdaSSP's own bound of its norm, σ √(d ln(2d²/0.05)); "own": that bound with σ/√2 off the
diagonal; then λ = c b − λ_min for factors c of the bound b (docs/privacy.md).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from bench_privacy import DELTA, noisy_total, of_clients, read
from measure import machine

from afltool.heads import make_head
from afltool.heads.checks import with_options
from afltool.math.blas import unpack
from afltool.math.gram import FixedPoint, real
from afltool.privacy.differential import FAILURE, OFF, Noise, clip_rows, noise_bound
from afltool.values.statistics import Statistics

FACTORS = (1.0, 1.5, 2.0, 3.0)


class Before(Noise):
    """σ on all entries of the gram."""

    def sigmas(self, sizes: Mapping[str, int]) -> dict[str, float]:
        found = super().sigmas(sizes)
        return {**found, OFF: found["gram"]}


def ridges(total: Statistics) -> dict[str, float]:
    """The ridge of each rule."""
    unit, clients = 4.0 ** -total.context.space["fraction_bits"], len(total.clients)
    G = unpack(total.arrays["gram"]) * unit
    d, least, sigma = len(G), float(np.linalg.eigvalsh(G)[0]), total.context.noise["sigma"]
    own = sigma["gram"] * unit * math.sqrt(clients * d * math.log(2 * d * d / FAILURE))
    b = noise_bound(d, sigma["gram"], sigma[OFF], clients) * unit
    bounds = {"own": (1.0, own), **{f"{c:g} b": (c, b) for c in FACTORS}}
    return {name: max(0, c * s - max(0, least - s)) for name, (c, s) in bounds.items()}


def main(train: Path, test: Path, clients: int = 1, seeds: int = 3) -> None:
    print(machine())
    X, y, context = read(train)
    T, z, _ = read(test)
    clip = float(np.median(np.sqrt((X.values.astype(float) ** 2).sum(axis=1))) / 2**X.bits)
    head = make_head("linear").bind(X.dim, len(context.classes))
    clipped = FixedPoint(clip_rows(X.values, int(clip * 2**X.bits)), X.bits)
    parts = of_clients(head, clipped, y, context, clients)
    print(f"{len(y)} rows of {X.dim} features, clip {clip:.4g}, {clients} clients, {seeds} seeds")
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        found: dict[str, list[float]] = {}
        for kind in (Before, Noise):
            for seed in range(seeds):
                total = noisy_total(parts, kind(epsilon, DELTA, clip, X.bits), seed)
                for rule, ridge in ridges(total).items():
                    if kind is Noise or rule == "own":
                        solved, _ = with_options(head, ridge=ridge).absorb(total)
                        top1 = float((solved.scores(real(T)).argmax(axis=1) == z).mean())
                        found.setdefault("before" if kind is Before else rule, []).append(top1)
        means = "  ".join(f"{rule}: {np.mean(each):.2%}" for rule, each in found.items())
        print(f"ε = {epsilon:g}  {means}", flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]), *map(int, sys.argv[3:]))
