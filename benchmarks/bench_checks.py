"""What the checks of statistics cost: aggregate of 1,000 files, and local-stats that writes them.

    python benchmarks/bench_checks.py [--before TREE]   TREE: a checkout without them

Sides take turns, each in a process of its own with one thread. Heads: linear at d = 512, SAFLe with
64 codes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import machine

ROWS, DIM, CLASSES, CLIENTS = 20_000, 512, 10, 1_000
HEADS = {"linear": ["linear"], "safle": ["safle", "--thresholds", "range:-2:2", "--experts", "64"]}


def run(tree: Path, *args: object) -> float:
    """Seconds of one command of the package in ``tree``."""
    code = "from afltool.cli import main; main()"
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code, "-q", *map(str, args)], check=True, cwd=tree,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return time.perf_counter() - begun


def inputs(here: Path, folder: Path) -> None:
    rng = np.random.default_rng(0)
    x = np.maximum(rng.normal(size=(ROWS, DIM)), 0).astype(np.float32)
    np.savez(folder / "x.npz", x=x, y=rng.integers(0, CLASSES, ROWS))
    run(here, "import", folder / "x.npz", "-o", folder / "x.h5")
    run(here, "partition", folder / "x.h5", "--scheme", "iid", "--clients", CLIENTS,
        "-o", folder / "c.h5")  # fmt: skip
    for name, options in HEADS.items():
        run(here, "head", *options, "-o", folder / f"{name}.h5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    here = Path(__file__).resolve().parents[1]
    trees = {"before": given.before.resolve()} if given.before else {}
    trees["after"] = here
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        inputs(here, folder)
        for name in HEADS:
            seconds: dict[tuple[str, str], list[float]] = {}
            for _ in range(given.repeats):
                for side, tree in trees.items():
                    stats = folder / f"{name}-{side}"
                    for what, args in {
                        "local-stats": [folder / "x.h5", "--partition", folder / "c.h5", "--head",
                                        folder / f"{name}.h5", "-o", stats],
                        "aggregate": [stats, "-o", folder / "total.h5"],
                    }.items():  # fmt: skip
                        took = run(tree, what, *args, "--overwrite")
                        seconds.setdefault((what, side), []).append(took)
            for (what, side), found in sorted(seconds.items()):
                print(f"{name:7} {what:11} {side:6} {statistics.median(found):7.2f} s")


if __name__ == "__main__":
    main()
