"""Seconds and memory of a SAFLe solve by the number of columns D, each in a fresh process.

    python benchmarks/bench_safle_solve.py [--threads N] [D …]      default: 4096 8192 16384

Random codes of V = 32, 20,000 rows, ten classes, a ridge of 100. `solve` is the whole of it: the
matrix from the counts, its factor in place, the weights, degrees of freedom from 32 probes. Peak
memory is the process's, with the counts in it; what `head` and `solve` ask for beforehand is
12 D² bytes. The residual is that of the equations, relative to their right-hand side.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from measure import fresh, machine, peak_mb

from afltool import parallel
from afltool.heads.safle.system import CountedSystem
from afltool.math.counts import add_labels, add_pairs, pair_count, quadratic
from afltool.values.names import Phase
from afltool.values.statistics import Statistics

SIZE, ROWS, CLASSES, RIDGE = 32, 20_000, 10, 100.0


def total_of(groups: int) -> Statistics:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, SIZE, (groups, ROWS)).astype(np.uint8)
    y = rng.integers(0, CLASSES, ROWS)
    labels = np.zeros((groups, SIZE, CLASSES), np.int64)
    pairs = np.zeros((pair_count(groups), SIZE - 1, SIZE - 1), np.int64)
    add_labels(codes, y, labels)
    add_pairs(codes, SIZE, pairs)
    return Statistics(Phase("codes"), {"labels": labels, "pairs": pairs}, np.bincount(y))


def child(side: int, threads: int) -> None:
    total = total_of(side // SIZE)
    before, begun, work = peak_mb(), time.perf_counter(), time.process_time()
    with parallel.thread_limit(threads):
        W, report = CountedSystem(total).solve(RIDGE, None)
    seconds, work = time.perf_counter() - begun, time.process_time() - work
    # Wᵀ((G + λI)W − H) = 0, summed up: a check that needs no second matrix
    H = total.arrays["labels"].reshape(-1, CLASSES)
    gap = quadratic(total.arrays["labels"], total.arrays["pairs"], W) + RIDGE * (W**2).sum()
    residual = abs(gap - (W * H).sum()) / (W * H).sum()
    print(seconds, work, before, peak_mb(), residual, report["degrees_of_freedom"])


def main(*sides: str) -> None:
    given = sides[:1] == ("--threads",)
    threads, sides = (int(sides[1]), sides[2:]) if given else (parallel.available(), sides)
    print(machine(), f"--threads {threads}")
    print("     D   solve, s  processor s  counts alone, GB   peak, GB   12 D², GB   residual")
    for side in map(int, sides or ("4096", "8192", "16384")):
        seconds, work, before, peak, residual, _ = map(
            float, fresh(__file__, str(side), str(threads))
        )
        print(
            f"{side:6} {seconds:10.1f} {work:12.1f} {before / 1e3:17.2f} {peak / 1e3:10.2f} "
            f"{12 * side**2 / 1e9:11.2f} {residual:10.1e}", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    if "--child" in sys.argv:
        child(int(sys.argv[2]), int(sys.argv[3]))
    else:
        main(*sys.argv[1:])
