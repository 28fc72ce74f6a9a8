"""SAFLe's accuracy by bucketing and by shape of the codes, on feature files.

    python benchmarks/bench_safle.py TRAIN.h5 TEST.h5 [SET] [SEEDS]

Sets: ``bucketings``, the paper's table 2 at equal D = 4096, with a verdict on its order;
``shapes``, fewer and larger tables against more and smaller ones, and the hybrid; ``reference``,
the shapes of an independent prototype at ridge 100; ``thresholds``, where they come from: quantiles
of the training features on the grid (what the federated round finds, to the bit), NumPy's own
quantiles of the rows ('exact'), or evenly spaced ones; ``exact``, the largest reference shape with
those. Elsewhere thresholds are the quantiles on the grid.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from measure import digits, machine

from afltool.files.features import Features, open_features
from afltool.heads import make_head
from afltool.heads.base import Head, binding
from afltool.math.codes import grid, histogram, levels, quantiles
from afltool.math.gram import real
from afltool.math.metrics.counting import score_metrics
from afltool.values.statistics import Context

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
REFERENCE = [{"experts": e, "group_size": g} for e, g in ((512, 5), (768, 4), (1600, 3))]
THRESHOLDS = [
    {"experts": 512, "group_size": 3, "thresholds": name}
    for name in ("federated", "file", "exact", "range:0:1", "range:0:2", "range:0:6")
]
EXACT = [{"experts": 1600, "group_size": 3, "thresholds": "exact"}]
SETS = {
    "thresholds": THRESHOLDS,
    "exact": EXACT,
    "bucketings": BUCKETINGS,
    "shapes": SHAPES,
    "reference": REFERENCE,
}


def solved(train: Features, options: dict[str, Any]) -> tuple[Head, float, float]:
    """The head, the seconds of gathering and those of solving."""
    head, gathering, solving = started(train, {"ridge": 100.0, **options}), 0.0, 0.0
    while head.phase() is not None:
        blocks = ((X, train.labels[start : start + len(X)]) for start, X in train.blocks())
        begun = time.perf_counter()
        found = head.gather(blocks)[0]
        gathered = time.perf_counter()
        context = Context(train.header["space"], train.classes, binding(head))
        head, _ = head.absorb(replace(found, context=context))
        gathering += gathered - begun
        solving += time.perf_counter() - gathered
    return head, gathering, solving


def started(train: Features, options: dict[str, Any]) -> Head:
    """The head with its thresholds, unless they are to be found together."""
    where = options.get("thresholds", "file")
    cuts = None
    if where in ("file", "exact"):
        options = {k: v for k, v in options.items() if k != "thresholds"}
    head = make_head("safle", options)
    shares = levels(head.options.bucketing, head.options.buckets)
    if where == "exact":
        x = np.concatenate([real(X).astype(np.float32) for _, X in train.blocks()])
        cuts = np.quantile(x, shares, axis=0).T.astype(np.float64)
    elif where == "file":
        counts = sum(histogram(X) for _, X in train.blocks())
        cuts = quantiles(counts, shares, grid(train.header["space"]["fraction_bits"]))
    return replace(head, thresholds=cuts).bind(train.dim, len(train.classes))


def accuracy(head: Head, test: Features) -> float:
    right = 0.0
    for start, X in test.blocks():
        y = test.labels[start : start + len(X)]
        right += score_metrics(head.decision_function(X), y).as_dict(test.classes)["top1"] * len(y)
    return right / len(test)


def main(train_file: str, test_file: str, what: str = "shapes", seeds: str = "1") -> None:
    print(machine())
    configurations = SETS[what]
    with open_features(Path(train_file)) as train, open_features(Path(test_file)) as test:
        found = []
        for options in configurations:
            tops = []
            for seed in range(int(seeds)):
                head, gather, solve = solved(train, {**options, "seed": seed})
                tops.append(accuracy(head, test))
            found.append(tops)
            many = len(tops) > 1
            error = f" ± {np.std(tops, ddof=1) / len(tops) ** 0.5:.2%}" if many else ""
            print(
                f"{options}: {np.mean(tops):.2%}{error}, gather {gather:.0f} s, "
                f"solve {solve:.0f} s", flush=True,
            )  # fmt: skip
    if configurations is BUCKETINGS:
        for b, row in zip((2, 4, 8), np.array(found).reshape(3, 3, -1).mean(axis=2), strict=True):
            order = "yes" if row[0] < row[1] < row[2] else "no"
            print(f"B = {b}: integer < onehot < overlap: {order} ({row})")


if __name__ == "__main__":
    main(*(sys.argv[1:] or [*digits(), "bucketings"]))
