"""What counting scored rows adds to scoring them, and `evaluate --counts` beside `evaluate`.

    python benchmarks/bench_evaluate.py [ROWS]        default: 20000

Processor seconds of one thread, the median of some turns. *Scoring* is the product of rows in
float64 with the weights of a linear head, and nothing else; the rows are in memory.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import alternately, command, machine

import afltool
from afltool.math.metrics import counting
from afltool.values.bins import SCORES


def counting_beside_scoring(rows: int, dim: int, classes: int) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(rows, dim)), rng.integers(0, classes, rows)
    W = rng.normal(size=(dim, classes)) / dim**0.5 / 5
    S = X @ W
    S[np.arange(rows), y] += 0.8
    into = {k: np.zeros(s, np.int64) for k, s in counting.shapes(classes, SCORES).items()}
    scoring, counted = alternately(
        lambda: X @ W, lambda: counting.count(into, S, None, y, SCORES), clock=time.process_time
    )
    told = f"{dim} features, {classes} classes: scoring {scoring / rows * 1e9:.0f} ns a row"
    print(f"{told}, counting {counted / rows * 1e9:.0f} ns, {counted / scoring:.0%}")


def commands(rows: int, dim: int, classes: int, folder: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, rows)
    x = (rng.normal(size=(rows, dim)) + 3 * np.eye(classes, dim)[y]).astype(np.float32)
    np.savez(folder / "x.npz", x=x, y=y)
    features = afltool.import_embeddings(folder / "x.npz", folder / f"x{dim}-{classes}.h5")
    total = afltool.local_stats(features, "linear", folder / "t.h5", client="a", sum=True)
    head = afltool.solve(total, folder / f"h{dim}-{classes}.h5", ridge=1.0)
    words = ("evaluate", head, features)
    took = [
        min(command(*words, *more, OMP_NUM_THREADS="1").cpu for _ in range(5))
        for more in ((), ("--counts", "-o", folder / f"o{dim}", "--overwrite"))
    ]
    print(f"{dim} features, {classes} classes, whole commands: evaluate {took[0]:.2f} s, "
          f"evaluate --counts {took[1]:.2f} s")  # fmt: skip
    (folder / "t.h5").unlink()


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    print(machine())
    for dim, classes in ((512, 10), (2048, 10), (512, 100), (2048, 100)):
        counting_beside_scoring(rows, dim, classes)
    with tempfile.TemporaryDirectory() as folder:
        for classes in (10, 100):
            commands(rows, 512, classes, Path(folder))


if __name__ == "__main__":
    main()
