"""MOON: a client's representations move towards the global model's, away from its previous ones.

    F_k + μ mean −log( e^{s(z, z_g)/τ} / (e^{s(z, z_g)/τ} + e^{s(z, z_p)/τ}) ),   s the cosine

Li, He, Song, "Model-contrastive federated learning", CVPR 2021. z is the last layer's input; MOON's
own network has a projection there, which is left out as in PFLlib. Frozen features do not change,
so on a linear head the term is the constant μ log 2 and MOON is FedAvg.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..options import option
from .base import DescentStep, Local, Method
from .network import DenseLayers, Tensor
from .settings import Settings


@dataclass(frozen=True, kw_only=True)
class MoonSettings(Settings):
    """Options of MOON."""

    mu: float = option(1.0, "μ, the weight of the contrastive term", at_least=0)
    tau: float = option(0.5, "temperature τ (0.5 in MOON's code, 1 in PFLlib)", above=0)


class Moon(Method):
    """Every client keeps its previous model; before its first round it keeps the common start."""

    name = "moon"
    settings_class = MoonSettings

    def notes(self) -> list[str]:
        if not self.network.linear:
            return []
        return [
            "moon on a linear head is FedAvg: its term compares representations, and frozen "
            "features have the same one in every round; --hidden 1024 trains a layer below the head"
        ]

    def begin(self, weights: Tensor) -> None:
        if not self.network.linear:
            self.memory["previous"] = weights.repeat(len(self.clients), 1)

    def local(self, round: int, stacked: Sequence[int], starts: Tensor) -> Local:
        if self.network.linear:
            return Local()
        previous = self.memory["previous"][list(stacked)]
        return _Contrast(self.network, starts, previous, self.settings.mu, self.settings.tau)

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        if not self.network.linear:
            self.memory["previous"][list(who)] = theta
        return super().merge(round, who, start, theta)


class _Contrast(Local):
    def __init__(
        self, network: DenseLayers, start: Tensor, previous: Tensor, mu: float, tau: float
    ) -> None:
        self.network, self.models, self.mu, self.tau = network, (start, previous), mu, tau

    def in_representation(self, step: DescentStep) -> Tensor:
        import torch

        z, X = step.inputs[-1], step.inputs[0]
        (s_g, d_g), (s_p, d_p) = (
            cosine(z, self.network.forward(model[: len(z)], X)[0][-1]) for model in self.models
        )
        # The term is log(1 + e^{(s_p − s_g)/τ}).
        slope = torch.sigmoid((s_p - s_g) / self.tau) * (self.mu / self.tau) * step.share
        return slope[:, :, None] * (d_p - d_g)


def cosine(z: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """s(z, u) (A, B) of vectors (A, B, h), and its gradient in z; 0 for a vector of zeros."""
    norm_z, norm_u = z.norm(dim=2, keepdim=True), u.norm(dim=2, keepdim=True)
    tiny = 1e-12
    z_hat, u_hat = z / norm_z.clamp_min(tiny), u / norm_u.clamp_min(tiny)
    s = (z_hat * u_hat).sum(2, keepdim=True)
    return s[:, :, 0], (u_hat - s * z_hat) / norm_z.clamp_min(tiny) * (norm_z > tiny)
