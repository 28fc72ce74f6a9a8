"""FedProx: clients minimise F_k(W) + μ/2 ‖W − W^t‖².

Li et al., "Federated optimization in heterogeneous networks", MLSys 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..options import option
from .base import DescentStep, Local, Method
from .network import Tensor
from .settings import Settings


@dataclass(frozen=True, kw_only=True)
class FedProxSettings(Settings):
    """Options of FedProx."""

    mu: float = option(0.001, "μ of the pull μ/2 ‖W − W^t‖² to where the round began", at_least=0)


class FedProx(Method):
    """With one local step, or μ = 0, it is FedAvg."""

    name = "fedprox"
    settings_class = FedProxSettings

    def local(self, round: int, stacked: Sequence[int], starts: Tensor) -> Local:
        return _Pull(starts, self.settings.mu)


class _Pull(Local):
    def __init__(self, start: Tensor, mu: float) -> None:
        self.start, self.mu = start, mu

    def in_weights(self, step: DescentStep) -> Tensor:
        return self.mu * (step.theta - self.start[: len(step.theta)])
