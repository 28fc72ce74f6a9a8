"""FedLPA and FedFisher: linear heads merged once, by the curvature of each client's loss.

The server's part of FedLPA and of FedFisher's K-FAC differs only in the factor G_k, see
`_curvature`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from .base import Method, average
from .network import Tensor
from .settings import MOST, Settings

if TYPE_CHECKING:
    from ..values.arrays import F64

FLOOR = 1e-6  # of the diagonal Fisher information, below which the average is kept


@dataclass(frozen=True, kw_only=True)
class CurvatureSettings(Settings):
    """Options of methods that merge heads once, by their curvature."""

    rounds: int = Field(default=1, ge=1, le=1, description="one: the method has a single round")
    lr: float = Field(default=0.01, gt=0, description="learning rate η of the clients")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="momentum of the local descent")
    epochs: int = Field(default=50, ge=1, le=MOST, description="local epochs")
    tolerance: float = Field(
        default=1e-8, gt=0, description="relative residual at which the server's iteration ends"
    )
    iterations: int = Field(
        default=1000, ge=1, le=MOST, description="largest number of the server's iterations"
    )


class ByCurvature(Method):
    """One shot: heads, A_k and G_k of every client, one linear system at the server."""

    one_shot = True

    @abstractmethod
    def factor(self, P: F64, y: Any) -> F64:
        """G_k (C, C) from the client's probabilities (n, C) and labels."""

    @property
    def damping(self) -> float:
        """ρ of ρI, which is added to both factors."""
        return getattr(self.settings, "damping", 0.0)

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        from . import _curvature as cv

        heads = cv.matrices(self.network, theta)
        system = cv.Quadratic(
            self.clients, self.network, who, heads, self.factor, self.damping, self.threads
        )
        mean = self.mean(who, theta)
        V, steps, left = cv.conjugate_gradients(
            system,
            system.precondition,
            system(heads - mean),
            self.settings.tolerance,
            self.settings.iterations,
        )
        self.facts |= {"iterations": steps, "relative_residual": left}
        return cv.flat(self.network, mean + V, theta)

    def mean(self, who: Sequence[int], theta: Tensor) -> F64:
        """W̄ (C, D)."""
        from . import _curvature as cv

        point: F64 = cv.matrices(self.network, average(theta.double(), self.weigh(who))[None])[0]
        return point

    def upload(self, round: int) -> int:
        D, C = self.network.widths[0] + self.network.bias, self.network.widths[-1]
        return self.network.size + D * (D + 1) // 2 + C * (C + 1) // 2

    def notes(self) -> list[str]:
        return ["one round: the clients train alone, then the server solves one linear system"]


@dataclass(frozen=True, kw_only=True)
class FedLPASettings(CurvatureSettings):
    """Options of FedLPA."""

    damping: float = Field(
        default=0.001**0.5, ge=0, description="ρ of ρI, which is added to both factors"
    )


class FedLPA(ByCurvature):
    """FedLPA: heads merged by a block-diagonal Laplace approximation, in one shot.

    Liu et al., "FedLPA: One-shot federated learning with layer-wise posterior aggregation", NeurIPS
    2024. G_k = (P − Y)ᵀ(P − Y)/n_k and ρI, ρ = √(1 − 0.999) in its scripts, on both factors. Here
    the system is solved to the end; the authors' code takes 10,000 gradient steps from
    (Σ p_k G_k)⁻¹ Z (Σ p_k A_k)⁻¹ and reports the better of both on the test rows. DeepAFL's table
    24 has it with 50 local epochs.
    """

    name = "fedlpa"
    settings_class = FedLPASettings
    preset: ClassVar = {"rounds": 1, "lr": 0.05, "momentum": 0.0, "epochs": 50}

    def factor(self, P: F64, y: Any) -> F64:
        from ._curvature import squared_residuals

        return squared_residuals(P, y)


@dataclass(frozen=True, kw_only=True)
class FedFisherSettings(CurvatureSettings):
    """Options of FedFisher."""

    epochs: int = Field(default=30, ge=1, le=MOST, description="local epochs")
    fisher: Literal["kfac", "diagonal"] = Field(
        default="kfac", description="which approximation of the Fisher information"
    )


class FedFisher(ByCurvature):
    """FedFisher: heads merged by their Fisher information, in one shot; K-FAC or diagonal.

    Jhunjhunwala, Wang, Joshi, "FedFisher: Leveraging Fisher information for one-shot federated
    learning", AISTATS 2024. K-FAC: see `_curvature`, with G_k = diag(mean P) − PᵀP/n_k. Diagonal:

        F_k = (P∘(1 − P))ᵀ(X̃∘X̃) / n_k,   W = Σ p_k F_k∘W_k / Σ p_k F_k,   W̄ where that is below 1e-6

    The authors' code takes 2,000 steps like Adam's, stopped by training rows at the server; here
    both are solved to the end. A client of one class has P → Y, and its Fisher information
    vanishes. AFL's appendix A.3 has it, with the settings of its own code.
    """

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
        merged = np.divide(top, bottom, out=self.mean(who, theta), where=bottom >= FLOOR)
        return cv.flat(self.network, merged, theta)

    def upload(self, round: int) -> int:
        return super().upload(round) if self.settings.fisher == "kfac" else 2 * self.network.size
