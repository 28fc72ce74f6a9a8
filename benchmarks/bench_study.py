"""What a study costs beside its cells, and a table by one study against separate runs.

    python benchmarks/bench_study.py [--cells 500]
    python benchmarks/bench_study.py --table [--rows 50000 --dim 1280]
    python benchmarks/bench_study.py --jobs 2 [--rows 20000 --dim 256] [--repeats 3]

The many cells are linear heads on 600 rows of 8 features with different ridges. Everything between
the start of the study and its end that is not inside `run` is the study's own: expanding the grid,
naming cells, looking at what is there, and going through a finished study once more.

The table is the AFL row of AFL's table 1: 4 partitions × 3 seeds of cached features, 100 clients.
One `afltool study` is timed, then the 12 `afltool run` that it prints, one process each; their
digests are compared.

With --jobs, 24 equal cells that share nothing (random features of 24 seeds) are carried out by one
process and by N, in turn; the median of the ratios of pairs is printed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from measure import command, machine
from synthetic import feature_file

import afltool
from afltool.lab.studies.cells import Cell, StudyFolder
from afltool.lab.studies.spec import read_study
from afltool.runs import local

MOST_MS = 20.0  # a cell
TABLE = """
train-features = "{train}"
test-features = "{test}"
clients = 100
seed = [0, 1, 2]
head = "linear"
[[split]]
alpha = [0.1, 0.05]
[[split]]
scheme = "shards"
shards-per-client = [4, 2]
"""
EQUAL = """
train-features = "{train}"
test-features = "{test}"
clients = 20
alpha = 0.1
head = "random-features"
width = 1024
head-seed = {seeds}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=500)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--dim", type=int, default=1280)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as scratch:
        at = Path(scratch)
        if given.jobs:
            return equal(at, given.rows, given.dim, given.jobs, given.repeats)
        return table(at, given.rows, given.dim) if given.table else many(at, given.cells)


def many(at: Path, cells: int) -> int:
    """The study's own processor time, a cell."""
    rng = np.random.default_rng(0)
    for name, n in (("train", 600), ("test", 200)):
        np.savez(at / f"{name}.npz", x=rng.normal(size=(n, 8)), y=np.arange(n) % 4)
        afltool.import_embeddings(at / f"{name}.npz", at / f"{name}.h5")
    (at / "many.toml").write_text(
        f'train-features = "{at}/train.h5"\ntest-features = "{at}/test.h5"\nclients = 4\n'
        f"ridge = {[1 + i / 1000 for i in range(cells)]}\n"
    )
    inside, real = [0.0], local.run

    def timed(*args, **options):
        begun = time.process_time()
        try:
            return real(*args, **options)
        finally:
            inside[0] += time.process_time() - begun

    local.run = timed
    begun = time.process_time()
    afltool.study(at / "many.toml", at / "S", most=cells)
    own = time.process_time() - begun - inside[0]
    begun = time.process_time()
    afltool.study(at / "many.toml", at / "S", most=cells)
    again = time.process_time() - begun
    print(f"{cells} cells: {1000 * inside[0] / cells:.1f} ms a cell inside run (processor)")
    print(f"the study itself: {1000 * own / cells:.2f} ms a cell, expected below {MOST_MS:g}")
    print(f"gone through once more: {1000 * again / cells:.2f} ms a cell")
    return int(1000 * own / cells > MOST_MS)


def table(at: Path, rows: int, dim: int) -> int:
    """One study against the commands that it prints."""
    train, test = feature_file(at, rows, 10, dim), feature_file(at, rows // 5, 10, dim, seed=1)
    (at / "table.toml").write_text(TABLE.format(train=train, test=test))
    one = command("study", at / "table.toml", "-o", at / "S")
    wanted = read_study(at / "table.toml")
    alone = StudyFolder(at / "alone")
    lines = [line for cell in wanted.cells for line in cell.commands(alone)]
    runs = [command(*line) for line in lines]
    wall, cpu = (sum(times) for times in zip(*runs, strict=True))
    cells = wanted.cells
    equal = all(digests(at / "S", cell) == digests(at / "alone", cell) for cell in cells)
    print(f"{rows} × {dim}, {len(cells)} cells; digests are {'equal' if equal else 'NOT equal'}")
    print(f"one study: {one.wall:.1f} s, {one.cpu:.1f} processor seconds")
    print(f"{len(lines)} runs: {wall:.1f} s, {cpu:.1f} processor seconds")
    return int(not equal)


def equal(at: Path, rows: int, dim: int, jobs: int, repeats: int) -> int:
    """24 equal cells by one process and by several."""
    train, test = feature_file(at, rows, 10, dim), feature_file(at, rows // 5, 10, dim, seed=1)
    (at / "equal.toml").write_text(EQUAL.format(train=train, test=test, seeds=[*range(24)]))
    ratios = []
    for i in range(repeats):
        one, many = (
            command("study", at / "equal.toml", "-o", at / f"S{i}-{n}", "--jobs", n)
            for n in ((1, jobs))
        )
        ratios.append(one.wall / many.wall)
        print(
            f"{rows} × {dim}: 1 process {one.wall:.1f} s ({one.cpu:.1f} of processor), {jobs} "
            f"processes {many.wall:.1f} s ({many.cpu:.1f}): {ratios[-1]:.2f} × as fast"
        )
    same = all(
        digests(at / "S0-1", cell) == digests(at / f"S0-{jobs}", cell)
        for cell in read_study(at / "equal.toml").cells
    )
    print(f"median {median(ratios):.2f} ×; digests are {'equal' if same else 'NOT equal'}")
    return int(not same)


def digests(folder: Path, cell: Cell) -> dict[str, str]:
    place = StudyFolder(folder).cell(cell.key) / "summary.json"
    found: dict[str, str] = json.loads(place.read_text())["digests"]
    return found


if __name__ == "__main__":
    raise SystemExit(main())
