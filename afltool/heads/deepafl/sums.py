"""Sums of products of rows in float32 or float64; `fixed` has those of integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...math.gram import product, real_cross, real_gram
from ...values.arrays import F64, Array
from ...values.statistics import Statistics

Labels = NDArray[np.int64]
RECONSTRUCTION, ENERGY = "reconstruction", "energy"  # arrays of (88)


class Sums:
    """What clients add up, and how the server reads it: products in the type of the rows, float64.

    A number format of its own overrides all of it.
    """

    kind = "f"  # or 'i', see `base.Shape`

    def gram(self, rows: Array) -> Array:
        """rowsᵀ rows, one triangle."""
        return real_gram(rows)

    def classes(self, rows: Array, y: Labels, classes: int) -> Array:
        """rowsᵀ Y (d, C)."""
        return real_cross(rows, y, classes)

    def between(self, rows: Array, others: Array) -> Array:
        """rowsᵀ others (d, e) of features, or of features and what `residual` or `rest` gives."""
        return product(rows.T, others).astype(np.float64)

    def energy(self, rows: Array) -> Array:
        """‖rows‖²: one number, or the sum of squares of each feature."""
        return np.array([(rows.astype(np.float64) ** 2).sum()])

    def residual(self, phi: Array, W: F64, y: Labels) -> Array:
        """Y − ΦW (n, C)."""
        found = product(phi, W.astype(phi.dtype))
        np.negative(found, out=found)
        found[np.arange(len(y)), y] += 1
        return found

    def rest(self, phi0: Array, phi: Array | None, Q: F64 | None) -> Array:
        """Φ_0 − ΦQ (n, d_Φ); Φ_0 itself without Q."""
        if phi is None or Q is None:
            return phi0
        return np.asarray(phi0 - product(phi, Q.astype(phi.dtype)))

    def read(self, total: Statistics) -> Statistics:
        """The same sums as float64 in units of one, for the server's solves."""
        return total
