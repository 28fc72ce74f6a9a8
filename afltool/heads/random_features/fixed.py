"""Random features of fixed-point rows, also in fixed point: the same integers in every block.

They have the fraction bits of the rows; `heads.tabled` has what is computed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ...linalg.fixedpoint import FixedPoint, Rows
from ..projections import projection
from ..tabled import Tabled
from .options import RandomFeaturesOptions


class FixedLift(Tabled):
    """X ↦ σ(XA + a) for rows of ``dim`` features with ``bits`` fraction bits."""

    def __init__(self, options: RandomFeaturesOptions, dim: int, bits: int) -> None:
        made = projection(options.projection, options.seed, 0, dim, options.width)
        remedy = "take --activation tanh, or extract with fewer --fraction-bits"
        super().__init__(made, options.activation, bits, bits, remedy)
        self.dim = dim


class FixedFeatures:
    """[σ(XA + a), X if asked] of fixed-point rows, in fixed point of the same fraction bits."""

    def __init__(self, options: RandomFeaturesOptions) -> None:
        self._options = options
        self._lift: FixedLift | None = None

    def lift(self, X: Rows) -> NDArray[np.int16]:
        """σ(XA + a) alone; `UsageError` for rows that are not in fixed point."""
        if not isinstance(X, FixedPoint):
            raise UsageError(
                f"--compute fixed needs int16 features; these are {X.dtype}: take --compute "
                "float32 or float64, or extract with --dtype int16"
            )
        if self._lift is None or (self._lift.dim, self._lift.bits) != (X.dim, X.bits):
            self._lift = FixedLift(self._options, X.dim, X.bits)
        return self._lift(X.values)

    def features(self, X: Rows) -> FixedPoint:
        """All of them, in fixed point."""
        lifted = self.lift(X)
        assert isinstance(X, FixedPoint)  # otherwise `lift` has refused them
        return self.beside(lifted, X)

    def beside(self, lifted: NDArray[np.int16], X: FixedPoint) -> FixedPoint:
        """The result of `lift`, followed by the rows themselves if asked for."""
        values = np.hstack([lifted, X.values]) if self._options.with_linear else lifted
        return FixedPoint(values, X.bits)
