"""SAFLe's equations without the matrix in memory: from a disk, and by conjugate gradients.

    python benchmarks/bench_safle_large.py [FOLDER [E …]]        default: /tmp, 128 256

Codes of V = 32 (overlap, G = 5) of the rows of `synthetic.py`, 20,000 × 256 features, ten classes;
one thread, processor seconds. All ways solve (ΦᵀΦ + λI) W = ΦᵀY for λ = 100 and 1 from one total:

    in memory    the matrix from the counts and its Cholesky factor in place, as `solve` does
    from disk    block columns of the factor in a file, read again for each later one, not cached
    gradients    conjugate gradients of all classes at once, scaled by the diagonal; ΦᵀΦ W comes
                 from the counts, one group of codes after the other; until the residual is small

*error* is the largest difference of the scores of 2,000 rows from those in memory, *agree* the
share of equal predictions. Density is the share of the counts of pairs that are not 0: a sparse
matrix has 12 bytes a number.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from measure import machine
from scipy import linalg
from synthetic import feature_file

from afltool.files.features import open_features
from afltool.heads import make_head
from afltool.heads.safle.head import SafleHead
from afltool.math.blas import Cholesky
from afltool.math.counts import fill_lower, with_margins
from afltool.values.statistics import Context, Statistics

ROWS, DIM, CLASSES, PANEL = 20_000, 256, 10, 1024
TOLERANCES = (1e-3, 1e-5, 1e-8)
Array = np.ndarray


def gathered(path: Path, experts: int) -> tuple[SafleHead, Statistics, Array]:
    """The head, its counts, and the codes of the first rows."""
    options = {"experts": experts, "group_size": 5, "ridge": 1.0}
    head = make_head("safle", options).bind(DIM, CLASSES)
    with open_features(path) as rows:
        blocks = [(X, rows.labels[at : at + len(X)]) for at, X in rows.blocks()]
        context = Context(rows.header["space"])
    histogram, _ = head.gather(blocks)
    head, _ = head.absorb(replace(histogram, context=context))
    return head, head.gather(blocks)[0], head.coder().codes(blocks[0][0][:2000])


class Counted:
    """ΦᵀΦ + λI of the counts, never whole: the rows of one group of codes after the other."""

    def __init__(self, total: Statistics, ridge: float) -> None:
        self.labels, self.pairs = total.arrays["labels"], total.arrays["pairs"]
        self.groups, self.size, _ = self.labels.shape
        self.side, self.ridge = self.groups * self.size, ridge
        self.diagonal = self.labels.sum(axis=2).ravel() + ridge

    def rows(self, j: int) -> Array:
        """Of group j, left of its own block: (V, j V)."""
        block = with_margins(self.labels, self.pairs, j)
        return block.transpose(1, 0, 2).reshape(self.size, -1).astype(np.float64)

    def times(self, W: Array) -> Array:
        out = self.diagonal[:, None] * W
        for j in range(1, self.groups):
            here, before = slice(j * self.size, (j + 1) * self.size), slice(0, j * self.size)
            rows = self.rows(j)
            out[here] += rows @ W[before]
            out[before] += rows.T @ W[here]
        return out

    def whole(self) -> Array:
        A = np.zeros((self.side, self.side))
        fill_lower(self.labels, self.pairs, A)
        A.flat[:: self.side + 1] += self.ridge
        return A

    def panel(self, a: int, b: int) -> Array:
        """Columns a … b−1 from row a on, the lower triangle; groups must not be cut."""
        out = np.zeros((self.side - a, b - a))
        for j in range(a // self.size, self.groups):
            rows = self.rows(j)[:, a:b] if j else np.zeros((self.size, 0))
            at = j * self.size - a
            out[at : at + self.size, : rows.shape[1]] = rows
        np.fill_diagonal(out, self.diagonal[a:b])
        return out


def gradients(A: Counted, H: Array) -> Iterator[tuple[float, int, Array]]:
    """(tolerance, products so far, W) for each of `TOLERANCES`; one step length for each class."""
    scale = 1.0 / A.diagonal[:, None]
    W, R = np.zeros_like(H), H.copy()
    Z = scale * R
    P, rz, norm = Z.copy(), (R * Z).sum(axis=0), np.linalg.norm(H, axis=0)
    wanted = list(TOLERANCES)
    for number in range(1, 5001):
        Q = A.times(P)
        step = rz / np.maximum((P * Q).sum(axis=0), 1e-300)
        W += step * P
        R -= step * Q
        while wanted and (np.linalg.norm(R, axis=0) < wanted[0] * norm).all():
            yield wanted.pop(0), number, W.copy()
        if not wanted:
            return
        Z = scale * R
        after = (R * Z).sum(axis=0)
        P, rz = Z + after / np.maximum(rz, 1e-300) * P, after


class OnDisk:
    """L of A = L Lᵀ as block columns in a file, made and used one after the other."""

    def __init__(self, A: Counted, folder: Path) -> None:
        self.side, self.read = A.side, 0
        self.starts = list(range(0, A.side, PANEL))
        with tempfile.TemporaryFile(dir=folder) as file:
            self.file = os.dup(file.fileno())
        self.places: dict[int, int] = {}
        end = 0
        for a in self.starts:
            b = min(a + PANEL, A.side)
            part = A.panel(a, b)
            for k in self.starts[: a // PANEL]:
                left = self.column(k, a)
                part -= left @ left[: b - a].T
            corner = linalg.cholesky(part[: b - a], lower=True, check_finite=False)
            part[: b - a] = corner
            below = linalg.solve_triangular(corner, part[b - a :].T, lower=True, check_finite=False)
            part[b - a :] = below.T
            self.places[a] = end
            end += os.pwrite(self.file, np.ascontiguousarray(part).data.cast("B"), end)
            os.fsync(self.file)
            os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)
        self.bytes = end

    def column(self, k: int, a: int) -> Array:
        """Block column k from row a on, from the disk."""
        width = min(PANEL, self.side - k)
        found = np.empty((self.side - a, width))
        at, left = self.places[k] + 8 * width * (a - k), found.data.cast("B")
        while left:
            done = os.preadv(self.file, [left], at)
            left, at = left[done:], at + done
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)
        self.read += found.nbytes
        return found

    def solve(self, H: Array) -> Array:
        W = H.copy()
        for a in self.starts:
            L, b = self.column(a, a), min(a + PANEL, self.side)
            W[a:b] = linalg.solve_triangular(L[: b - a], W[a:b], lower=True)
            W[b:] -= L[b - a :] @ W[a:b]
        for a in self.starts[::-1]:
            L, b = self.column(a, a), min(a + PANEL, self.side)
            W[a:b] -= L[b - a :].T @ W[b:]
            W[a:b] = linalg.solve_triangular(L[: b - a], W[a:b], lower=True, trans="T")
        os.close(self.file)
        return W


def scores(codes: Array, W: Array, size: int) -> Array:
    tables = W.reshape(len(codes), size, -1)
    return sum(table[row] for table, row in zip(tables, codes, strict=True))


class Clock:
    """Processor seconds, of them those in the kernel, and seconds."""

    def __init__(self) -> None:
        self.begun = self._now()

    def _now(self) -> tuple[float, float, float]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime, used.ru_stime, time.perf_counter()

    def __str__(self) -> str:
        work, kernel, wall = (b - a for a, b in zip(self.begun, self._now(), strict=True))
        return f"{work:8.1f} s (kernel {kernel:5.1f}), by the clock {wall:7.1f} s"


def one(folder: Path, experts: int) -> None:
    head, total, codes = gathered(feature_file(folder, ROWS, CLASSES, DIM), experts)
    size, pairs = head.options.size, total.arrays["pairs"]
    H = total.arrays["labels"].reshape(-1, CLASSES).astype(np.float64)
    density, matrix = np.count_nonzero(pairs) / pairs.size, 8 * len(H) ** 2 / 1e9
    print(f"E = {experts}, V = {size}, D = {len(H)}: 8 D² = {matrix:.2f} GB;", end=" ")
    print(f"density {density:.2f}, largest count {pairs.max()}")
    for ridge in (100.0, 1.0):
        A, clock = Counted(total, ridge), Clock()
        exact = Cholesky(A.whole()).solve(H)
        print(f"  λ = {ridge:5g}  in memory {clock}")
        wanted, clock = scores(codes, exact, size), Clock()
        disk = OnDisk(A, folder)
        W = disk.solve(H)
        moved = f"{disk.bytes / 1e9:.2f} GB written, {disk.read / 1e9:.2f} GB read"
        print(f"             from disk {clock}; {moved}; error {np.abs(W - exact).max():.0e}")
        clock = Clock()
        for tolerance, products, W in gradients(A, H):
            found = scores(codes, W, size)
            same = (found.argmax(1) == wanted.argmax(1)).mean()
            error = f"error {np.abs(found - wanted).max():.0e}, agree {same:.2%}"
            print(f"   to {tolerance:5.0e}    gradients {clock}; {products} products; {error}")


def main(folder: str = "", *experts: str) -> None:
    print(machine())
    for each in map(int, experts or ("128", "256")):
        one(Path(folder or tempfile.mkdtemp()), each)


if __name__ == "__main__":
    main(*sys.argv[1:])
