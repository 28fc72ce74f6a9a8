"""Random features of rows, σ(XA + a): in a compute type, or in fixed point as the rows are.

Those of fixed-point rows are the same integers in every block and have the fraction bits of the
rows; `heads.integer_features` has what is computed.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ...cache.cache import Kept
from ...math.fixedpoint import FixedPoint, Rows, rows_as
from ...values.arrays import Array
from ..integer_features import Tabled, in_fixed_point
from ..options import FIXED
from ..projections import Projections, projection
from .options import RandomFeaturesOptions


def fixed_lift(options: RandomFeaturesOptions, dim: int, bits: int) -> Tabled:
    """X ↦ σ(XA + a) for rows of ``dim`` features with ``bits`` fraction bits."""
    made = projection(options.projection, options.seed, 0, dim, options.width)
    remedy = "use --activation tanh, or extract with fewer --fraction-bits"
    return Tabled(made, options.activation, bits, bits, remedy)


class Lift:
    """X ↦ σ(XA + a): rows (n, d) → (n, width), of the type of the rows."""

    def __init__(self, options: RandomFeaturesOptions) -> None:
        self._options = options
        self._random = Projections(options.projection, options.seed)
        self._fixed = Kept(partial(fixed_lift, options), 0)

    def rows(self, X: Rows) -> Rows:
        """The rows in the compute type; `UsageError` for fixed and rows that are real."""
        compute = self._options.compute
        return in_fixed_point(X) if compute == FIXED else rows_as(X, compute)

    def __call__(self, rows: Rows) -> Array:
        """σ(XA + a) of rows in a compute type, or of fixed-point rows int16 of as many bits."""
        if isinstance(rows, FixedPoint):
            return self._fixed(rows.dim, rows.bits)(rows.values)
        o = self._options
        return self._random(0, rows.shape[1], o.width)(rows, o.activation)

    def beside(self, lifted: Array, rows: Rows) -> Rows:
        """The result of a call, followed by the rows themselves if asked for."""
        values = rows.values if isinstance(rows, FixedPoint) else rows
        both = np.hstack([lifted, values]) if self._options.with_linear else lifted
        return FixedPoint(both, rows.bits) if isinstance(rows, FixedPoint) else both
