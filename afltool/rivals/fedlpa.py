"""FedLPA: heads merged by a block-diagonal Laplace approximation, in one shot.

Liu et al., "FedLPA: One-shot federated learning with layer-wise posterior aggregation", NeurIPS
2024. G_k = (P − Y)ᵀ(P − Y)/n_k and ρI, ρ = √(1 − 0.999) in its scripts, on both factors. Here the
system is solved to the end; the authors' code takes 10,000 gradient steps from
(Σ p_k G_k)⁻¹ Z (Σ p_k A_k)⁻¹ and reports the better of both on the test rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..options import option
from ._by_curvature import ByCurvature
from .settings import Settings

if TYPE_CHECKING:
    from ..values.arrays import F64


@dataclass(frozen=True, kw_only=True)
class CurvatureSettings(Settings):
    """Options of methods that merge heads once, by their curvature."""

    rounds: int = option(1, "one: the method has a single round", at_least=1, at_most=1)
    lr: str | float = option(0.01, "learning rate η of the clients, or auto", above=0)
    momentum: float = option(0.9, "momentum of the local descent", at_least=0, below=1)
    epochs: int = option(50, "local epochs", at_least=1, at_most=10**5)
    tolerance: float = option(
        1e-8, "relative residual at which the server's iteration ends", above=0
    )
    iterations: int = option(
        1000, "largest number of the server's iterations", at_least=1, at_most=10**5
    )


@dataclass(frozen=True, kw_only=True)
class FedLPASettings(CurvatureSettings):
    """Options of FedLPA."""

    damping: float = option(0.001**0.5, "ρ of ρI, which is added to both factors", at_least=0)


class FedLPA(ByCurvature):
    """DeepAFL's table 24 has it with 50 local epochs."""

    name = "fedlpa"
    settings_class = FedLPASettings
    preset: ClassVar = {"rounds": 1, "lr": 0.05, "momentum": 0.0, "epochs": 50}

    @property
    def damping(self) -> float:
        return float(self.settings.damping)

    def factor(self, P: F64, y: Any) -> F64:
        from ._curvature import squared_residuals

        return squared_residuals(P, y)
