"""The ridge of a solve with noise: AdaSSP's rule, with a bound of the noise of the gram.

Wang, "Revisiting differentially private linear regression", UAI 2018, algorithm 2.
"""

from __future__ import annotations

import math

import numpy as np

from ..math.triangle import unpack
from ..values.arrays import F64
from ..values.statistics import Statistics
from .differential import OFF

FAILURE = 0.05  # probability that the bound on the noise does not hold
NOTHING = 0.05  # σ in integer units, below which all integer noise is 0: 1 / 0.05 / 2 is ten σ
# How far an integer of noise is from the Gaussian that it goes with: two roundings by 1/2, or two
# discrete Gaussians, each within 2 (docs/privacy.md).
ROUNDING = 4.0
# With a ridge of the bound alone, the noisy gram may be nearly singular: 6 points less top-1 where
# 5,000 rows stand against the noise of ε = 0.5. With 1.5, noise is at most two thirds of the ridge.
MARGIN = 1.5


def ridge_of(total: Statistics) -> float:
    """AdaSSP's ridge for a total with noise."""
    unit = 4.0 ** -total.context.space["fraction_bits"]
    G = unpack(total.arrays["gram"]) * unit
    sigma = total.context.noise["sigma"]
    bound = noise_bound(len(G), sigma["gram"], sigma.get(OFF, sigma["gram"]), len(total.clients))
    return adassp_ridge(G, bound * unit)


def noise_bound(d: int, diagonal: float, off: float, clients: int) -> float:
    """A bound of the spectral norm of the gram's noise that fails with probability ρ = 5 %.

    s (√(2d) + √(2 ln(2/ρ))) + 4 d K in integer units, with s = √K max(σ, √2 σ') for K ``clients``,
    whose noise has the standard deviation σ on the ``diagonal`` and σ' ``off`` it. docs/privacy.md
    has the proof. 0 where σ is so small that integers have no noise.
    """
    if max(diagonal, off) <= NOTHING:
        return 0.0
    s = math.sqrt(clients) * max(diagonal, math.sqrt(2) * off)
    return s * (math.sqrt(2 * d) + math.sqrt(2 * math.log(2 / FAILURE))) + ROUNDING * d * clients


def adassp_ridge(G: F64, bound: float) -> float:
    """AdaSSP's ridge: a bound on the gram's noise, minus a bound on the gram's least eigenvalue.

    λ = max(0, 1.5 b − λ_min), b the ``bound``. λ_min is the least eigenvalue of the noisy gram
    ``G`` (d, d) less b, at least 0: a function of published numbers, so it uses no privacy budget.
    """
    least = float(np.linalg.eigvalsh(G)[0]) if bound else 0.0
    return max(0.0, MARGIN * bound - max(0.0, least - bound))
