"""What the checks of statistics cost: aggregate of 1,000 files, and local-stats that writes them.

    python benchmarks/bench_checks.py [--before TREE]   TREE: a checkout without them

Sides take turns, each command in a process of its own with one thread, into an empty folder. Heads:
linear at d = 512, SAFLe with 64 codes.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path

import numpy as np
from measure import Took, command, machine

ROWS, DIM, CLASSES, CLIENTS = 20_000, 512, 10, 1_000
HEADS = {"linear": ["linear"], "safle": ["safle", "--thresholds", "range:-2:2", "--experts", "64"]}


def run(tree: Path, *args: object) -> Took:
    """What one command of the package in ``tree`` takes, with one thread."""
    return command(*args, PYTHONPATH=str(tree), OMP_NUM_THREADS="1")


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
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=[*HEADS])
    given = parser.parse_args()
    here = Path(__file__).resolve().parents[1]
    trees = {"before": given.before.resolve()} if given.before else {}
    trees["after"] = here
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        inputs(here, folder)
        for name in given.heads:
            print_times(name, measured(folder, name, trees, given.repeats))


def measured(
    folder: Path, name: str, trees: dict[str, Path], repeats: int
) -> dict[str, dict[str, list[Took]]]:
    """What each command took, by side; before it writes, the files of the other side are gone."""
    found: dict[str, dict[str, list[Took]]] = {"local-stats": {}, "aggregate": {}}
    for number in range(repeats):
        for side in sorted(trees, reverse=number % 2 == 1):
            stats = folder / name
            for what, args in {
                "local-stats": [folder / "x.h5", "--partition", folder / "c.h5", "--head",
                                folder / f"{name}.h5", "-o", stats],
                "aggregate": [stats, "-o", folder / f"{name}-total.h5"],
            }.items():  # fmt: skip
                found[what].setdefault(side, []).append(run(trees[side], what, *args))
            shutil.rmtree(stats)
            (folder / f"{name}-total.h5").unlink()
    return found


def print_times(name: str, found: dict[str, dict[str, list[Took]]]) -> None:
    """Medians, and the ratio of those of both sides."""
    for what, sides in found.items():
        medians = {
            side: Took(*map(statistics.median, zip(*times, strict=True)))
            for side, times in sides.items()
        }
        for side, took in sorted(medians.items(), reverse=True):
            least = min(one.cpu for one in sides[side])
            print(
                f"{name:7} {what:11} {side:6} wall {took.wall:6.2f} s, processor {took.cpu:6.2f} s "
                f"(least {least:.2f})"
            )
        if len(medians) == 2:
            a, b = medians["after"], medians["before"]
            print(
                f"{name:7} {what:11} after : before  wall {a.wall / b.wall:.2f}, "
                f"processor {a.cpu / b.cpu:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
