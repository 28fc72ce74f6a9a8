"""Exact statistics against float32 and float64 ones: seconds, bytes, accuracy.

    python benchmarks/bench_modes.py TRAIN.h5 TEST.h5    float32 features (--dtype float32)
    python benchmarks/bench_modes.py                     random features, no accuracy

Accuracies are of the least-squares head (ridge 0) for several fraction bits.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from measure import alternately, machine
from scipy.linalg.blas import dsyrk, ssyrk

from afltool.files.features import open_features
from afltool.heads import make_head
from afltool.math.blas import pack
from afltool.math.gram import FixedPoint, encode, gram_and_cross
from afltool.math.metrics.counting import score_metrics
from afltool.values.statistics import Context

BLOCK = 4096


def load(path: str) -> tuple[np.ndarray, np.ndarray]:
    with open_features(Path(path)) as features:
        return np.asarray(features.read_stored(0, len(features))), features.labels


def blocks(X: np.ndarray) -> list[np.ndarray]:
    return [X[i : i + BLOCK] for i in range(0, len(X), BLOCK)]


def main() -> None:
    print(machine())
    files = sys.argv[1:3]
    if files:
        (X, y), (T, t) = load(files[0]), load(files[1])
    else:
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(20_000, 1280)).astype(np.float32), rng.integers(0, 10, 20_000)
        T, t = X[:0], y[:0]
    classes = int(y.max()) + 1
    fixed = encode(X, 9)
    real = X.astype(np.float64)

    def exact() -> None:
        for start in range(0, len(X), BLOCK):
            gram_and_cross(
                FixedPoint(fixed[start : start + BLOCK], 9), y[start : start + BLOCK], classes
            )

    def single() -> None:
        for block in blocks(X):
            pack(ssyrk(1.0, block.T))

    def double() -> None:
        for block in blocks(real):
            pack(dsyrk(1.0, block.T))

    seconds = alternately(exact, single, double, repeats=3)
    d = X.shape[1]
    print(
        f"{len(X)} × {d}, blocks of {BLOCK} rows; statistics of one client, uncompressed triangle"
    )
    sizes = {"exact int64": 8, "float32 products": 4, "float64 products": 8}
    stored = {"exact int64": 2, "float32 products": 4, "float64 products": 8}
    for (name, size), took in zip(sizes.items(), seconds, strict=True):
        print(
            f"{name:17} {took:7.3f} s   statistics {d * (d + 1) / 2 * size / 1e6:5.2f} MB   "
            f"features {len(X) * d * stored[name] / 1e6:6.1f} MB"
        )
    if len(T):
        for bits in (9, 8, 7, 6, 5, 4, None):
            print(f"top-1, {bits if bits is not None else 'float32'} fraction bits: "
                  f"{accuracy(X, y, T, t, classes, bits):.2%}")  # fmt: skip


def accuracy(
    X: np.ndarray, y: np.ndarray, T: np.ndarray, t: np.ndarray, classes: int, bits: int | None
) -> float:
    from dataclasses import replace

    head = make_head("linear", {"ridge": 0, "min_norm": True}).bind(X.shape[1], classes)

    def wrap(rows: np.ndarray) -> object:
        return rows if bits is None else FixedPoint(encode(rows, bits), bits)

    parts = ((wrap(X[i : i + BLOCK]), y[i : i + BLOCK]) for i in range(0, len(X), BLOCK))
    total = replace(head.gather(parts)[0], context=Context({"fraction_bits": bits}))
    return score_metrics(head.absorb(total)[0].decision_function(wrap(T)), t).top1


if __name__ == "__main__":
    main()
