"""Whether sums still tell the deviation of a feature that lies far from zero.

Σ(x − x̄)² = Σx² − N x̄² cancels: with |x̄| = r times the deviation, rounding Σx² once changes it by
r² times the spacing of float64. A whole sum has ten to thirty such roundings as its error, as
measured for 400 to 400,000 rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import NumericalError
from ..values.arrays import F64, Array

FARTHEST = 1e6  # |x̄| / deviation: rounding then is below 1 % of Σ(x − x̄)², and 10 % at three times
CONSTANT = 1e4  # roundings: class sums of a constant feature differ by less (measured: one)


@dataclass(frozen=True)
class Moments:
    """Of d features: ``means`` x̄, ``raw`` Σx², ``centred`` Σ(x − x̄)² and ``varies``, all (d,).

    ``varies``: whether the class means differ. Class sums lose r times the spacing, not r² times,
    so they tell a feature that varies from a constant one where ``centred`` is rounding alone.
    """

    means: F64
    raw: F64
    centred: F64
    varies: Array

    @classmethod
    def of(cls, raw: F64, H: F64, counts: Array) -> Moments:
        """From Σx² (d,), the class sums XᵀY (d, C) and the rows of each class (C,).

        >>> Moments.of(np.array([4.0]), np.array([[2.0, 0.0]]), np.array([1, 1])).centred
        array([2.])
        """
        rows = float(counts.sum())
        means = H.sum(axis=1) / rows
        expected = np.outer(means, counts)
        differ = np.abs(H - expected) > CONSTANT * np.finfo(float).eps * np.abs(expected)
        return cls(means, raw, raw - rows * means**2, np.asarray(differ.any(axis=1)))

    def check(self, ridge: F64 | float, constant: bool) -> None:
        """Refuse with `NumericalError` features that vary, but whose deviation is lost.

        ``ridge``: what is added to ``centred``, (d,) or one for all; beside a large ridge the loss
        does not matter. ``constant``: whether the problem has a constant feature. Without one a
        single such feature takes its place, and only a second one needs their deviations.
        """
        lost = (self.centred + ridge < self.raw / FARTHEST**2) & (self.raw > 0)
        bad = np.flatnonzero(lost & self.varies)
        if not len(bad) or not (constant or lost.sum() > 1):
            return
        j = int(bad[np.argmax(np.abs(self.means[bad]))])
        raise NumericalError(
            f"feature {j} lies too far from zero: its mean is {self.means[j]:.4g}, more than "
            f"{FARTHEST:.0e} times its deviation, which sums of float64 no longer tell "
            f"({len(bad)} of {len(lost)} features are like this): subtract a number near the mean "
            "that all sites agree on before import, or leave the feature out"
        )
