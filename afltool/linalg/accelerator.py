"""What a GPU does better, in torch: counting pairs of codes by int8 products, and Cholesky factors.

The same functions run on CPU tensors, where they are tested against `counts` and LAPACK. A GPU is
used when there is one (CUDA_VISIBLE_DEVICES= hides it) with memory enough. Counts are integers, so
they do not depend on it; a factor differs in its last bits from another device's.
"""

from __future__ import annotations

import ctypes
import logging
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import NumericalError
from .counts import Codes, Counts, pair_count

F64 = NDArray[np.float64]
log = logging.getLogger("afltool")

ROWS = 2**16  # whose one-hot vectors are on the device at a time
TILE = 4096  # columns of ΦᵀΦ made at a time
STEP = 16  # int8 products want sides (8) and addresses (16 bytes) that are multiples of this, and
LEAST = 32  # more than 16 rows
_EXACT = 2**31 - 1  # what sums of int32 hold


@cache
def gpu() -> str | None:
    """'cuda' when torch can use it here. Without a driver torch, seconds to load, is not asked."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    import torch

    return "cuda" if torch.cuda.is_available() else None


def fits(device: str | None, size: int, what: str) -> bool:
    """Whether there is a device with so many bytes free; says so where there is too little."""
    if device is None or device == "cpu":
        return device is not None
    import torch

    free = int(torch.cuda.mem_get_info()[0])
    if size > free:
        log.info("%s: %.1f GB do not fit on the GPU (%.1f GB free)", what, size / 1e9, free / 1e9)
    return size <= free


# ---------------------------------------------------------------- counts


def pairs_bytes(groups: int, size: int, rows: int) -> int:
    """Bytes that `add_pairs` takes on the device."""
    columns, rows = groups * size, min(rows, ROWS)
    codes = 2 * columns * (rows + STEP) + 8 * rows * (groups + _together(size))
    return codes + 8 * max(TILE, size) * columns


def add_pairs(codes: Codes, size: int, counts: Counts, device: str) -> None:
    """As `counts.add_pairs`, equal to the last count, by products of one-hot int8 blocks.

    2·N·(E(V−1))²/2 operations of int8 with int32 sums, which are exact for the rows taken at once:
    no product exceeds their number. Each product is checked against one with a vector; raises
    ``NumericalError`` when the device multiplies wrongly.
    """
    assert ROWS <= _EXACT
    for start in range(0, codes.shape[1], ROWS):
        _add_block(codes[:, start : start + ROWS], size, counts, device)


def _add_block(codes: Codes, size: int, counts: Counts, device: str) -> None:
    import torch

    at = torch.from_numpy(codes.astype(np.int64)).to(device)
    phi, each, groups = _one_hot(at, size), size - 1, len(codes)
    check = _Check(at, size)
    for first in range(0, groups, _together(size)):
        last = min(first + _together(size), groups)
        begin, wide, high = first * each, _rounded(last * each), (last - first) * each
        rows = phi[begin : begin + max(_rounded(high), LEAST)]
        tile = torch._int_mm(rows, phi[:wide].t())[:high]
        check(tile, first, last)
        found = tile.cpu().numpy()
        for j in range(first, last):
            part = found[(j - first) * each : (j - first + 1) * each, : j * each]
            block = part.reshape(each, j, each).transpose(1, 0, 2)
            counts[pair_count(j) : pair_count(j + 1)] += block


def _one_hot(at: Any, size: int) -> Any:
    """Φᵀ without codes 0, int8 (E(V−1), n) with zeros around it to sides that products want."""
    import torch

    groups, rows = at.shape
    whole = torch.zeros((groups, size, _rounded(rows)), dtype=torch.int8, device=at.device)
    whole[:, :, :rows].scatter_(1, at[:, None], 1)
    columns = groups * (size - 1)
    phi = torch.zeros((columns + LEAST, whole.shape[2]), dtype=torch.int8, device=at.device)
    phi[:columns] = whole[:, 1:].reshape(columns, -1)
    return phi


class _Check:
    """Whether (ΦᵀΦ)v = Φᵀ(Φv), v of random signs (Freivalds, 1977): E·n integer additions.

    A wrong row of a product passes with probability 1/2 at the most. cuBLAS of CUDA 12.1 gave wrong
    int8 products of unlucky sides without a word (PyTorch's issue 107671).
    """

    def __init__(self, at: Any, size: int) -> None:
        """``at`` (E, n), the codes on the device; tiles then come from the first group on."""
        import torch

        signs = np.random.default_rng(0).integers(0, 2, (len(at), size)) * 2 - 1
        signs[:, 0] = 0  # codes 0 have no column
        self._torch, self._at = torch, at
        self._signs = torch.from_numpy(signs).to(at.device)
        self._seen = torch.zeros(at.shape[1], dtype=torch.int64, device=at.device)  # Φv so far

    def __call__(self, tile: Any, first: int, last: int) -> None:
        """``tile``: rows of groups first … last−1 of ΦᵀΦ, columns of all groups before last."""
        at, signs = self._at[first:last], self._signs
        self._seen += signs[first:last].gather(1, at).sum(0)
        wanted = self._torch.zeros_like(signs[first:last])
        wanted.scatter_add_(1, at, self._seen.expand_as(at))
        v = self._torch.zeros(tile.shape[1], dtype=self._torch.int32, device=tile.device)
        flat = signs[:last, 1:].reshape(-1)
        v[: len(flat)] = flat
        found = (tile * v).sum(1, dtype=self._torch.int64)
        wrong = int((found != wanted[:, 1:].reshape(-1)).sum())
        if wrong:
            raise NumericalError(
                f"{wrong} of {len(found)} rows of an int8 product are wrong on {tile.device} "
                f"(PyTorch {self._torch.__version__}, CUDA {self._torch.version.cuda}): nothing "
                "was written; CUDA_VISIBLE_DEVICES= counts on the CPU"
            )


def _together(size: int) -> int:
    """Groups whose rows of ΦᵀΦ are made at a time."""
    return max(1, TILE // (size - 1))


def _rounded(count: int) -> int:
    return -(-count // STEP) * STEP


# ---------------------------------------------------------------- factors


class Factor:
    """A = L Lᵀ on a device: `solve` and `half` take and give NumPy arrays."""

    def __init__(self, A: F64, device: str) -> None:
        """From the lower triangle of A (D, D); 16 D² bytes on the device, A is left as it is.

        Raises ``LinAlgError`` when A is not positive definite to working precision.
        """
        import torch

        L, failed = torch.linalg.cholesky_ex(torch.from_numpy(A).to(device))
        if int(failed):
            raise np.linalg.LinAlgError(
                f"{int(failed)}-th leading minor of the array is not positive definite"
            )
        self._L, self._torch, self.device = L, torch, device

    def solve(self, B: F64) -> F64:
        """A⁻¹B (D, C)."""
        found: F64 = self._torch.cholesky_solve(self._there(B), self._L).cpu().numpy()
        return found

    def half(self, B: F64) -> F64:
        """L⁻¹B (D, C), whose squares add up to tr(BᵀA⁻¹B)."""
        solve = self._torch.linalg.solve_triangular
        found: F64 = solve(self._L, self._there(B), upper=False).cpu().numpy()
        return found

    def _there(self, B: F64) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(B)).to(self.device)


def factor_bytes(side: int) -> int:
    """Bytes that a `Factor` takes on the device."""
    return 17 * side * side
