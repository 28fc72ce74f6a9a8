"""FedNTD: clients keep the global model's predictions about the wrong classes.

    F_k + β τ² mean KL(q^g ‖ q),   q, q^g: softmax over the C − 1 wrong classes of scores/τ

under W and W^t. Lee et al., "Preservation of the global knowledge by not-true distillation in
federated learning", NeurIPS 2022. Its gradient in the scores is β τ (q − q^g), 0 on the true class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..options import option
from .base import DescentStep, Local, Method
from .network import DenseLayers, Tensor
from .settings import Settings


@dataclass(frozen=True, kw_only=True)
class FedNTDSettings(Settings):
    """Options of FedNTD."""

    beta: float = option(1.0, "β, the weight of the distillation", at_least=0)
    tau: float = option(0.5, "temperature τ", above=0)


class FedNTD(Method):
    """With β = 0, two classes or one local step it is FedAvg."""

    name = "fedntd"
    settings_class = FedNTDSettings

    def local(self, round: int, stacked: Sequence[int], starts: Tensor) -> Local:
        return _NotTrue(self.network, starts, self.settings.beta, self.settings.tau)


class _NotTrue(Local):
    def __init__(self, network: DenseLayers, start: Tensor, beta: float, tau: float) -> None:
        self.network, self.start, self.beta, self.tau = network, start, beta, tau

    def in_scores(self, R: Tensor, step: DescentStep) -> None:
        _, taught = self.network.forward(self.start[: len(R)], step.inputs[0])
        true = step.y[:, :, None]
        q, q_g = (wrong_shares(S, true, self.tau) for S in (step.scores, taught))
        R += (q - q_g) * (self.beta * self.tau * step.share)[:, :, None]


def wrong_shares(S: Tensor, true: Tensor, tau: float) -> Tensor:
    """softmax(S/τ) over all classes but ``true`` (A, B, 1), which gets 0."""
    return (S / tau).scatter_(2, true, float("-inf")).softmax(dim=2)
