"""Sums of products of rows in float32 or float64; `fixed` has those of integers."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...arrays import F64, Array
from ...linalg.gram import product, real_cross, real_gram
from ...statistics import Statistics

Labels = NDArray[np.int64]
RECONSTRUCTION, ENERGY = "reconstruction", "energy"  # arrays of (88)


class Sums(Protocol):
    """What clients add up, in one number format, and how the server reads it."""

    kind: str  # 'i' or 'f', see `base.Shape`

    def gram(self, rows: Array) -> Array:
        """rowsᵀ rows, one triangle."""

    def classes(self, rows: Array, y: Labels, classes: int) -> Array:
        """rowsᵀ Y (d, C)."""

    def between(self, rows: Array, others: Array) -> Array:
        """rowsᵀ others (d, e) of two arrays of features."""

    def energy(self, rows: Array) -> Array:
        """‖rows‖²: one number, or the sum of squares of each feature."""

    def residual(self, phi: Array, W: F64, y: Labels) -> Array:
        """Y − ΦW (n, C)."""

    def rest(self, phi0: Array, phi: Array | None, Q: F64 | None) -> Array:
        """Φ_0 − ΦQ (n, d_Φ); Φ_0 itself without Q."""

    def with_residual(self, rows: Array, residual: Array) -> Array:
        """rowsᵀ residual, of what the two methods above return."""

    def read(self, total: Statistics) -> Statistics:
        """The same sums as float64 in units of one, for the server's solves."""


class RealSums:
    """Products in the type of the rows, as float64."""

    kind = "f"

    def gram(self, rows: Array) -> Array:
        return real_gram(rows)

    def classes(self, rows: Array, y: Labels, classes: int) -> Array:
        return real_cross(rows, y, classes)

    def between(self, rows: Array, others: Array) -> Array:
        return _real(product(rows.T, others))

    def energy(self, rows: Array) -> Array:
        return np.array([(rows.astype(np.float64) ** 2).sum()])

    def residual(self, phi: Array, W: F64, y: Labels) -> Array:
        found = product(phi, W.astype(phi.dtype))
        np.negative(found, out=found)
        found[np.arange(len(y)), y] += 1
        return found

    def rest(self, phi0: Array, phi: Array | None, Q: F64 | None) -> Array:
        if phi is None or Q is None:
            return phi0
        return np.asarray(phi0 - product(phi, Q.astype(phi.dtype)))

    def with_residual(self, rows: Array, residual: Array) -> Array:
        return self.between(rows, residual)

    def read(self, total: Statistics) -> Statistics:
        return total


def _real(a: NDArray[Any]) -> F64:
    return a.astype(np.float64)
