"""What a study costs beside its cells: processor seconds outside of the runs, per cell.

    python benchmarks/bench_study.py [--cells 500]

The cells are linear heads on 600 rows of 8 features with different ridges. Everything between the
start of the study and its end that is not inside `run` is the study's own: expanding the grid,
naming cells, looking at what is there, and going through a finished study once more.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import afltool
from afltool.studies import execution
from afltool.studies.description import read

MOST_MS = 20.0  # a cell


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=500)
    cells = parser.parse_args().cells
    with tempfile.TemporaryDirectory() as scratch:
        at = Path(scratch)
        rng = np.random.default_rng(0)
        for name, n in (("train", 600), ("test", 200)):
            np.savez(at / f"{name}.npz", x=rng.normal(size=(n, 8)), y=np.arange(n) % 4)
            afltool.import_embeddings(at / f"{name}.npz", at / f"{name}.h5")
        (at / "many.toml").write_text(
            f'train-features = "{at}/train.h5"\ntest-features = "{at}/test.h5"\nclients = 4\n'
            f"ridge = {[1 + i / 1000 for i in range(cells)]}\n"
        )
        inside, real = [0.0], execution.run

        def timed(*args, **options):
            begun = time.process_time()
            try:
                return real(*args, **options)
            finally:
                inside[0] += time.process_time() - begun

        execution.run = timed
        begun = time.process_time()
        execution.study(read(at / "many.toml"), at / "S", most=cells)
        own = time.process_time() - begun - inside[0]
        begun = time.process_time()
        execution.study(read(at / "many.toml"), at / "S", most=cells)
        again = time.process_time() - begun
    print(f"{cells} cells: {1000 * inside[0] / cells:.1f} ms a cell inside run (processor)")
    print(f"the study itself: {1000 * own / cells:.2f} ms a cell, expected below {MOST_MS:g}")
    print(f"gone through once more: {1000 * again / cells:.2f} ms a cell")
    return int(1000 * own / cells > MOST_MS)


if __name__ == "__main__":
    raise SystemExit(main())
