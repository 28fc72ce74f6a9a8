"""DeepAFL in fixed point against float32 and float64: accuracy, processor seconds, bytes.

    python benchmarks/bench_fixed.py TRAIN.h5 TEST.h5 [ROWS] [WIDTH] [LAYERS] [BITS…]
    python benchmarks/bench_fixed.py digits

Defaults: 10,000 training rows, width 1024, 5 layers, 9 to 12 fraction bits. Every round gathers
the sums of all rows in blocks of 4,096 and solves; rows are carried from round to round.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from measure import machine

from afltool.files.features import open_features
from afltool.heads import make_head
from afltool.heads.base import binding
from afltool.math.gram import FixedPoint, encode, real
from afltool.memory import Carried
from afltool.values.statistics import Context

BLOCK = 4096
Data = tuple[FixedPoint, np.ndarray]


def load(path: str, rows: int | None = None) -> Data:
    """Rows of a file: all, or some drawn without replacement."""
    with open_features(Path(path)) as features:
        X, y = features.rows(0, len(features)), features.labels
    if not isinstance(X, FixedPoint):
        raise SystemExit(f"{path}: give int16 features")
    if rows is not None and rows < len(y):
        some = np.sort(np.random.default_rng(0).permutation(len(y))[:rows])
        X, y = X[some], y[some]
    return X, y


def digits() -> tuple[Data, Data]:
    """scikit-learn's digits, pixels 0 to 16 as 0 to 1, every third row for the test."""
    from sklearn.datasets import load_digits

    pixels, y = load_digits(return_X_y=True)
    X, test = encode(pixels / 16, 9), np.arange(len(y)) % 3 == 0
    return (FixedPoint(X[~test], 9), y[~test]), (FixedPoint(X[test], 9), y[test])


def trained(train: Data, options: dict[str, object]) -> tuple[object, dict[str, float]]:
    """The solved head, with processor seconds of clients and server."""
    X, y = train
    head = make_head("deepafl", options).bind(X.dim, int(y.max()) + 1)
    blocks = [(X[i : i + BLOCK], y[i : i + BLOCK]) for i in range(0, len(y), BLOCK)]
    carried: Carried = Carried()
    took = {"clients": 0.0, "server": 0.0}
    while head.phase() is not None:
        begun = time.process_time()
        found, carried = head.gather(blocks, carried=carried)
        took["clients"] += time.process_time() - begun
        found = replace(found, context=Context({"fraction_bits": X.bits}, (), binding(head)))
        begun = time.process_time()
        head, _ = head.absorb(found)
        took["server"] += time.process_time() - begun
    return head, took


def main(train: Data, test: Data, width: int, layers: int, bits: list[int]) -> None:
    print(machine())
    print(f"{len(train[1])} × {train[0].dim} training rows, {len(test[1])} test rows")
    common = {"width": width, "layers": layers, "preset": "cifar10"}
    ways = [{"compute": "float64"}, {"compute": "float32"}]
    ways += [{"compute": "fixed", "fixed_bits": n} for n in bits]
    wanted: np.ndarray | None = None
    trained((train[0][:BLOCK], train[1][:BLOCK]), {**common, "layers": 0})  # what loads once
    for way in ways:
        head, took = trained(train, {**common, **way})
        scores = np.concatenate(
            [head.decision_function(test[0][i : i + BLOCK]) for i in range(0, len(test[1]), BLOCK)]
        )
        wanted = scores if wanted is None else wanted
        phi = real(head.features.rows(train[0][:2000])[0])
        off = scores - wanted
        named = f"{way['compute']} {way.get('fixed_bits', '')}".strip()
        print(
            f"{named:9} top-1 {(scores.argmax(1) == test[1]).mean():.2%}   as float64 "
            f"{(scores.argmax(1) == wanted.argmax(1)).mean():.2%}, scores within "
            f"{np.abs(off).max():.2g} (rms {np.sqrt((off**2).mean()):.2g})"
            f"   clients {took['clients']:.2f} s, server {took['server']:.2f} s   "
            f"|Φ| up to {np.abs(phi).max():.2f}",
            flush=True,
        )


if __name__ == "__main__":
    given = sys.argv[1:]
    if given[:1] == ["digits"]:
        main(*digits(), 256, 5, [9, 10, 11, 12, 13])
    else:
        rows, width, layers = (*map(int, given[2:5]), *(10_000, 1024, 5)[len(given[2:5]) :])
        main(
            load(given[0], rows), load(given[1]), width, layers,
            [int(n) for n in given[5:]] or [9, 10, 11, 12],
        )  # fmt: skip
