"""What counting scored rows adds to scoring them, and `evaluate --counts` beside `evaluate`.

    OMP_NUM_THREADS=1 python benchmarks/bench_evaluate.py [ROWS]        default: 10000

Processor seconds of one thread, the median of some turns. *Bare* is the product of rows in float64
that are in memory with the weights of a linear head; *scores* is what `evaluate` does to have them:
read, convert, multiply, block by block. The *floor* is what of counting is one call of NumPy each
and cannot be left out: the highest score of each row, and one cell more of each class.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import alternately, command, machine

import afltool
from afltool.files.features import open_features
from afltool.files.heads import load_solved_head
from afltool.math.metrics import counting
from afltool.values.ridge_spec import parse_bins

SCORES = parse_bins("-0.5:1.5:240")


def made(rows: int, dim: int, classes: int, folder: Path) -> tuple[Path, Path]:
    """A linear head and the features that it was solved from."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, rows)
    x = (rng.normal(size=(rows, dim)) + 3 * np.eye(classes, dim)[y]).astype(np.float32)
    np.savez(folder / "x.npz", x=x, y=y)
    features = afltool.import_embeddings(folder / "x.npz", folder / f"x{dim}-{classes}.h5")
    total = folder / f"t{dim}-{classes}.h5"
    afltool.local_stats(features, "linear", total, client="a", sum=True)
    return afltool.solve(
        total, folder / f"h{dim}-{classes}.h5", head_options={"ridge": 1.0}
    ), features


def counting_beside_scoring(head: Path, features: Path) -> None:
    solved = load_solved_head(head).head
    with open_features(features) as rows:
        blocks = [solved.decision_function(block) for _, block in rows.blocks()]
        labels = np.split(rows.labels, np.cumsum([len(S) for S in blocks])[:-1])
        X, W = np.ones((len(rows), rows.dim)), np.ones((rows.dim, len(rows.classes)))
        into = {k: np.zeros(s, int) for k, s in counting.shapes(W.shape[1], SCORES).items()}
        cells = [np.arange(W.shape[1]) * 240 + (np.abs(S) * 99).astype(int) % 240 for S in blocks]

        def count() -> None:
            for S, y in zip(blocks, labels, strict=True):
                counting.count(into, S, S, y, SCORES)

        def floor() -> None:
            for S, at in zip(blocks, cells, strict=True):
                S.argmax(axis=1)
                np.bincount(at.ravel(), minlength=240 * W.shape[1])

        took = alternately(
            lambda: X @ W,
            lambda: [solved.decision_function(block) for _, block in rows.blocks()],
            count,
            floor,
            repeats=9,
            clock=time.process_time,
        )
        bare, scores, counted, least = (one / len(rows) * 1e9 for one in took)
        shares = f"{counted / bare:.1%} and {counted / scores:.1%}"
        print(
            f"{rows.dim} features, {len(rows.classes)} classes, ns a row: bare {bare:.0f}, ", end=""
        )
        print(
            f"scores {scores:.0f}, counting {counted:.0f}: {shares}; floor {least:.0f}", flush=True
        )


def commands(head: Path, features: Path) -> None:
    words = ("evaluate", head, features)
    with tempfile.TemporaryDirectory() as out:
        took = [
            min(command(*words, *more, OMP_NUM_THREADS="1").cpu for _ in range(5))
            for more in ((), ("--counts", "-o", out, "--overwrite"))
        ]
    print(f"  whole commands: evaluate {took[0]:.2f} s, evaluate --counts {took[1]:.2f} s")


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    print(machine())
    for dim in (512, 1280, 2048):
        for classes in (10, 100):
            with tempfile.TemporaryDirectory() as folder:
                head, features = made(rows, dim, classes, Path(folder))
                counting_beside_scoring(head, features)
                commands(head, features)


if __name__ == "__main__":
    main()
