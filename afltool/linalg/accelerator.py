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

from .counts import Codes, Counts, pair_count

F64 = NDArray[np.float64]
log = logging.getLogger("afltool")

ROWS = 2**16  # whose one-hot vectors are on the device at a time
TILE = 4096  # columns of ΦᵀΦ made at a time
STEP = 8  # int8 products want sides that are multiples of this, and
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
    return 2 * columns * (rows + STEP) + 8 * groups * rows + 4 * TILE * columns


def add_pairs(codes: Codes, size: int, counts: Counts, device: str) -> None:
    """As `counts.add_pairs`, equal to the last count, by products of one-hot int8 blocks.

    2·N·(E(V−1))²/2 operations of int8 with int32 sums, which are exact for the rows taken at once:
    no product exceeds their number.
    """
    assert ROWS <= _EXACT
    for start in range(0, codes.shape[1], ROWS):
        _add_block(codes[:, start : start + ROWS], size, counts, device)


def _add_block(codes: Codes, size: int, counts: Counts, device: str) -> None:
    import torch

    phi, each = _one_hot(codes, size, device), size - 1
    groups = len(codes)
    together = max(1, TILE // each)
    for first in range(0, groups, together):
        last = min(first + together, groups)
        begin, wide = first * each, _rounded(last * each)
        rows = phi[begin : max(wide, begin + LEAST)]
        tile = torch._int_mm(rows, phi[:wide].t())[: (last - first) * each].cpu().numpy()
        for j in range(first, last):
            part = tile[(j - first) * each : (j - first + 1) * each, : j * each]
            block = part.reshape(each, j, each).transpose(1, 0, 2)
            counts[pair_count(j) : pair_count(j + 1)] += block


def _one_hot(codes: Codes, size: int, device: str) -> Any:
    """Φᵀ without codes 0, int8 (E(V−1), n) with zeros around it to sides that products want."""
    import torch

    groups, rows = codes.shape
    at = torch.from_numpy(codes.astype(np.int64)).to(device)
    whole = torch.zeros((groups, size, _rounded(rows)), dtype=torch.int8, device=device)
    whole[:, :, :rows].scatter_(1, at[:, None], 1)
    columns = groups * (size - 1)
    phi = torch.zeros((columns + LEAST + STEP, whole.shape[2]), dtype=torch.int8, device=device)
    phi[:columns] = whole[:, 1:].reshape(columns, -1)
    return phi


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
