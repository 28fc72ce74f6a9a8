"""FedFisher: heads merged by their Fisher information, in one shot; K-FAC or diagonal.

Jhunjhunwala, Wang, Joshi, "FedFisher: Leveraging Fisher information for one-shot federated
learning", AISTATS 2024. K-FAC: see `_curvature`, with G_k = diag(mean P) − PᵀP/n_k. Diagonal:

    F_k = (P∘(1 − P))ᵀ(X̃∘X̃) / n_k,   W = Σ p_k F_k∘W_k / Σ p_k F_k,   W̄ where that is below 1e-6

The authors' code takes 2,000 steps like Adam's, stopped by training rows at the server; here both
are solved to the end. A client of one class has P → Y, and its Fisher information vanishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..options import option
from ._by_curvature import ByCurvature
from .base import average
from .fedlpa import CurvatureSettings
from .network import Tensor

if TYPE_CHECKING:
    from ..values.arrays import F64

FLOOR = 1e-6  # of the diagonal Fisher information, below which the average is kept


@dataclass(frozen=True, kw_only=True)
class FedFisherSettings(CurvatureSettings):
    """Options of FedFisher."""

    epochs: int = option(30, "local epochs", at_least=1, at_most=10**5)
    fisher: str = option(
        "kfac", "which approximation of the Fisher information", choices=("kfac", "diagonal")
    )


class FedFisher(ByCurvature):
    """AFL's appendix A.3 has it, with the settings of its own code."""

    name = "fedfisher"
    settings_class = FedFisherSettings
    preset: ClassVar = {"rounds": 1, "lr": 0.01, "momentum": 0.9, "epochs": 30}

    def factor(self, P: F64, y: Any) -> F64:
        from ._curvature import fisher

        return fisher(P)

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        if self.settings.fisher == "kfac":
            return super().merge(round, who, start, theta)
        import numpy as np

        from . import _curvature as cv

        shares = self.clients.shares[list(who)]
        heads = cv.matrices(self.network, theta)
        top, bottom = np.zeros_like(heads[0]), np.zeros_like(heads[0])
        for k, W, p in zip(who, heads, shares / shares.sum(), strict=True):
            F = cv.diagonal_fisher(self.clients, self.network, k, W)
            top += p * F * W
            bottom += p * F
        mean = cv.matrices(self.network, average(theta.double(), self.weigh(who))[None])[0]
        merged = np.divide(top, bottom, out=mean, where=bottom >= FLOOR)
        return cv.flat(self.network, merged, theta)

    def upload(self, round: int) -> int:
        return super().upload(round) if self.settings.fisher == "kfac" else 2 * self.network.size
