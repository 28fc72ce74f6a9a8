"""SAFLe's accuracy by bucketing and by shape of the codes, on feature files.

    python benchmarks/bench_safle.py TRAIN.h5 TEST.h5 [bucketings|shapes] [SEEDS]

``bucketings``: the paper's table 2 at equal D = 4096. ``shapes``: fewer and larger tables against
more and smaller ones, and the hybrid. Thresholds are quantiles of the training features.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from measure import machine

from afltool.heads import make_head
from afltool.heads.base import Head, Source
from afltool.metrics import score_metrics
from afltool.statistics import Context
from afltool.store.features import Features, open_features

INTEGER = {2: (3, 512), 4: (2, 256), 8: (2, 64)}  # G and E for D = 4096
BUCKETINGS = [
    {"bucketing": name, "buckets": b, "group_size": g, "experts": e}
    for b in (2, 4, 8)
    for name, (g, e) in (("integer", INTEGER[b]), ("onehot", (3, 512)), ("overlap", (3, 512)))
]
SHAPES = [
    {"experts": e, "group_size": g, "with_linear": linear, "ridge": ridge}
    for e, g in ((256, 5), (512, 4), (1024, 3))
    for linear in (False, True)
    for ridge in (100.0,)
]


def solved(train: Features, options: dict[str, Any]) -> tuple[Head, float, float]:
    """The head, the seconds of gathering and those of solving."""
    head = make_head("safle", {"thresholds": "file", "ridge": 100.0, **options})
    blocks = (X for _, X in train.blocks())
    head = head.with_source("thresholds", Source("features", train.header["digest"], blocks))
    head = head.bind(train.dim, len(train.classes))
    begun = time.perf_counter()
    found = head.collect((X, train.labels[start : start + len(X)]) for start, X in train.blocks())
    gathered = time.perf_counter()
    context = Context(train.header["space"], train.classes, head.binding())
    head = head.absorb(replace(found, context=context))
    return head, gathered - begun, time.perf_counter() - gathered


def accuracy(head: Head, test: Features) -> float:
    right = 0.0
    for start, X in test.blocks():
        y = test.labels[start : start + len(X)]
        right += score_metrics(head.scores(X), y).as_dict(test.classes)["top1"] * len(y)
    return right / len(test)


def main(train_file: str, test_file: str, what: str = "shapes", seeds: str = "1") -> None:
    print(machine())
    configurations = BUCKETINGS if what == "bucketings" else SHAPES
    with open_features(Path(train_file)) as train, open_features(Path(test_file)) as test:
        for options in configurations:
            tops = []
            for seed in range(int(seeds)):
                head, gather, solve = solved(train, {**options, "seed": seed})
                tops.append(accuracy(head, test))
            many = len(tops) > 1
            error = f" ± {np.std(tops, ddof=1) / len(tops) ** 0.5:.2%}" if many else ""
            print(
                f"{options}: {np.mean(tops):.2%}{error}, gather {gather:.0f} s, "
                f"solve {solve:.0f} s", flush=True,
            )  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
