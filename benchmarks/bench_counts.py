"""Co-occurrence counts of codes: the kernel against dense one-hot products and other candidates.

    python benchmarks/bench_counts.py [ROWS] [E] [V] [CANDIDATE …]        default: 8192 512 32 all

Every candidate counts the same random codes; all but numba come with the package. numba is tried
where it is installed (PYTHONPATH=FOLDER after pip install --target FOLDER numba). The kernel is
timed first and last, and the results are compared on a corner of the matrix.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from measure import machine
from scipy.linalg.blas import ssyrk
from scipy.sparse import csr_matrix

from afltool.math.counts import add_pairs, pair_count

Codes = np.ndarray


def kernel(codes: Codes, size: int) -> np.ndarray:
    """What afltool does."""
    pairs = np.zeros((pair_count(len(codes)), size - 1, size - 1), np.int64)
    add_pairs(codes, size, pairs)
    return pairs[0]


def dense_float32(codes: Codes, size: int) -> np.ndarray:
    """The symmetric product of dense one-hot rows: what it is measured against."""
    step, total = 8192, None
    for start in range(0, codes.shape[1], step):
        phi = one_hot(codes[:, start : start + step], size, torch.float32).numpy()
        total = ssyrk(1.0, phi.T, beta=1.0, c=total, lower=1, overwrite_c=1)
    return total[size + 1 : 2 * size, 1:size]


def sparse(codes: Codes, size: int) -> np.ndarray:
    """Blocks of the lower triangle by SciPy's sparse product."""
    groups, rows = codes.shape
    columns = (codes.T + np.arange(groups) * size).astype(np.int32)
    phi = csr_matrix((np.ones(codes.size, np.int32), columns.ravel(), np.arange(rows + 1) * groups))
    first, block = np.zeros(0), 64 * size
    for a in range(0, groups * size, block):
        product = phi[:, a : a + block].T.tocsr() @ phi[:, : a + block]
        first = product[size + 1 : 2 * size, 1:size].toarray() if a == 0 else first
    return first


def numba_kernel() -> Callable[[Codes, int], np.ndarray] | None:
    """A scatter loop over pairs of groups, compiled and threaded; None without numba."""
    try:
        import numba
    except ImportError:
        return None

    @numba.njit(parallel=True)
    def scatter(codes, size, pairs):  # type: ignore[no-untyped-def]
        groups, rows = codes.shape
        for back in numba.prange(groups):
            j = groups - 1 - back
            for other in range(j):
                cells = pairs[j * (j - 1) // 2 + other]
                for n in range(rows):
                    cells[codes[j, n], codes[other, n]] += 1

    def numba_scatter(codes: Codes, size: int) -> np.ndarray:
        pairs = np.zeros((pair_count(len(codes)), size, size), np.int64)
        scatter(codes, size, pairs)
        return pairs[0, 1:, 1:]

    numba_scatter(np.zeros((2, 1), np.uint8), 2)
    return numba_scatter


def one_hot(codes: Codes, size: int, dtype: torch.dtype) -> torch.Tensor:
    groups, rows = codes.shape
    phi = torch.zeros((rows, groups, size), dtype=dtype)
    phi.scatter_(2, torch.from_numpy(codes.T.astype(np.int64))[:, :, None], 1)
    return phi.view(rows, groups * size)


def main(rows: int = 8192, groups: int = 512, size: int = 32, *only: str) -> None:
    print(machine(), f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    print("load of the last minute:", Path("/proc/loadavg").read_text().split()[0])
    codes = np.random.default_rng(0).integers(0, size, (groups, rows)).astype(np.uint8)
    candidates = [kernel, numba_kernel(), sparse, dense_float32]
    chosen = [c for c in candidates if c and (not only or c.__name__ in only)]
    print(f"{rows} rows, E = {groups}, V = {size}: seconds, processor seconds of all threads")
    seconds, results = {}, []
    for turn, candidate in enumerate([*chosen, kernel]):
        begun, work = time.perf_counter(), time.process_time()
        results.append(candidate(codes, size))
        name = candidate.__name__ + (" again" if turn == len(chosen) else "")
        seconds[name] = time.perf_counter() - begun, time.process_time() - work
        print(f"  {name:14} {seconds[name][0]:8.2f} {seconds[name][1]:8.2f}", flush=True)
    assert all(np.array_equal(one, results[0]) for one in results)
    for name in seconds if "dense_float32" in seconds else ():
        ratios = [a / b for a, b in zip(seconds["dense_float32"], seconds[name], strict=True)]
        print(f"  {name:14} {ratios[0]:5.1f} times the speed of dense float32 ({ratios[1]:.1f})")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:])
