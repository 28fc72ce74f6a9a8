"""Methods that add a term to the descent of their clients; the server averages as in FedAvg."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from .base import DescentStep, Local, Method, average
from .network import DenseLayers, Tensor, aligned
from .settings import Settings


@pydantic_dataclass(frozen=True, kw_only=True)
class FedProxSettings(Settings):
    """Options of FedProx."""

    mu: float = Field(
        default=0.001, ge=0, description="μ of the pull μ/2 ‖W − W^t‖² to where the round began"
    )


class FedProx(Method):
    """FedProx: clients minimise F_k(W) + μ/2 ‖W − W^t‖².

    Li et al., "Federated optimization in heterogeneous networks", MLSys 2020. With one local step,
    or μ = 0, it is FedAvg.
    """

    name = "fedprox"
    settings_class = FedProxSettings

    def local(self, round: int, stacked: Sequence[int], starts: Tensor) -> Local:
        return _Pull(starts, self.settings.mu)


@dataclass
class _Pull(Local):
    start: Tensor
    mu: float

    def in_weights(self, step: DescentStep) -> Tensor:
        return self.mu * (step.theta - self.start[: len(step.theta)])


@pydantic_dataclass(frozen=True, kw_only=True)
class FedDynSettings(Settings):
    """Options of FedDyn."""

    alpha: float = Field(default=1.0, gt=0, description="α of the dynamic regulariser")
    variant: Literal["paper", "authors", "pfllib"] = Field(
        default="paper",
        description="whose updates: authors weighs by rows, pfllib does not square the pull",
    )


class FedDyn(Method):
    """FedDyn: a linear term of each client makes its optimum agree with the server's.

        W_k ≈ argmin F_k(W) − ⟨g_k, W⟩ + α_k/2 ‖W − W^t‖²

    Acar et al., "Federated learning based on dynamic regularization", ICLR 2021. Clients keep g_k
    (authors: H_k), the server h. Averages are unweighted by definition. Three variants:

    paper     α_k = α;  g_k ← g_k − α (W_k − W^t);  h ← h − (α/K) Σ_S (W_k − W^t);
              W^{t+1} = mean_S W_k − h/α.  Its fixed point has mean_k ∇F_k = 0, unweighted.
    authors   α_k = α N/(K n_k);  H_k ← H_k + (W_k − W^t), g_k = −α_k H_k;
              W^{t+1} = mean_S W_k + mean_K H_k.  Its fixed point has Σ n_k ∇F_k = 0.
    pfllib    as paper, but the clients' penalty is α/2 ‖W − W^t‖, not squared: a pull of constant
              length, which stalls wherever ‖∇F_k − g_k‖ ≤ α/2.
    """

    name = "feddyn"
    settings_class = FedDynSettings

    def begin(self, weights: Tensor) -> None:
        clients = weights.new_zeros(len(self.clients), len(weights))
        if self.settings.variant == "authors":
            self.memory["H"] = clients
        else:
            self.memory |= {"g": clients, "h": weights.new_zeros(len(weights)).double()}

    def local(self, round: int, stacked: Sequence[int], starts: Tensor) -> Local:
        places, alpha = list(stacked), self.settings.alpha
        if self.settings.variant == "authors":
            alphas = alpha / (len(self.clients) * self.clients.shares[places])
            column = starts.new_tensor(alphas.tolist())[:, None]
            return _Dynamic(starts, -column * self.memory["H"][places], column)
        column = starts.new_full((len(places), 1), alpha)
        stalls = self.settings.variant == "pfllib"
        return _Dynamic(starts, self.memory["g"][places], column, stalls)

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        places, moved = list(who), theta - start
        mean = _mean(theta).double()
        if self.settings.variant == "authors":
            H = self.memory["H"]
            H[places] += moved
            return (mean + _mean(H).double()).to(theta.dtype)
        alpha, h = self.settings.alpha, self.memory["h"]
        self.memory["g"][places] -= alpha * moved
        h -= alpha * (len(places) / len(self.clients)) * _mean(moved.double())
        return (mean - h / alpha).to(theta.dtype)


def _mean(theta: Tensor) -> Tensor:
    """The unweighted mean (P,) of θ (S, P)."""
    import numpy as np

    return average(theta, np.ones(len(theta)))


@dataclass
class _Dynamic(Local):
    start: Tensor
    g: Tensor
    alpha: Tensor
    stalls: bool = False

    def in_weights(self, step: DescentStep) -> Tensor:
        n = len(step.theta)
        moved, alpha = step.theta - self.start[:n], self.alpha[:n]
        if self.stalls:
            length = moved.norm(dim=1, keepdim=True)
            return alpha / 2 * moved / length.clamp_min(1e-30) - self.g[:n]
        return alpha * moved - self.g[:n]


@pydantic_dataclass(frozen=True, kw_only=True)
class FedNTDSettings(Settings):
    """Options of FedNTD."""

    beta: float = Field(default=1.0, ge=0, description="β, the weight of the distillation")
    tau: float = Field(default=0.5, gt=0, description="temperature τ")


class FedNTD(Method):
    """FedNTD: clients keep the global model's predictions about the wrong classes.

        F_k + β τ² mean KL(q^g ‖ q),   q, q^g: softmax over the C − 1 wrong classes of scores/τ

    under W and W^t. Lee et al., "Preservation of the global knowledge by not-true distillation in
    federated learning", NeurIPS 2022. Its gradient in the scores is β τ (q − q^g), 0 on the true
    class. With β = 0, two classes or one local step it is FedAvg.
    """

    name = "fedntd"
    settings_class = FedNTDSettings

    def local(self, round: int, stacked: Sequence[int], starts: Tensor) -> Local:
        return _NotTrue(self.network, starts, self.settings.beta, self.settings.tau)


@dataclass
class _NotTrue(Local):
    network: DenseLayers
    start: Tensor
    beta: float
    tau: float

    def in_scores(self, R: Tensor, step: DescentStep) -> None:
        _, taught = self.network.forward(self.start[: len(R)], step.inputs[0])
        true = step.y[:, :, None]
        q, q_g = (wrong_shares(S, true, self.tau) for S in (step.scores, taught))
        R += (q - q_g) * (self.beta * self.tau * step.share)[:, :, None]


def wrong_shares(S: Tensor, true: Tensor, tau: float) -> Tensor:
    """softmax(S/τ) over all classes but ``true`` (A, B, 1), which gets 0."""
    return (S / tau).scatter_(2, true, float("-inf")).softmax(dim=2)


@pydantic_dataclass(frozen=True, kw_only=True)
class MoonSettings(Settings):
    """Options of MOON."""

    mu: float = Field(default=1.0, ge=0, description="μ, the weight of the contrastive term")
    tau: float = Field(
        default=0.5, gt=0, description="temperature τ (0.5 in MOON's code, 1 in PFLlib)"
    )


class Moon(Method):
    """MOON: a client's representations move towards the global model's, away from its previous
    ones.

        F_k + μ mean −log( e^{s(z, z_g)/τ} / (e^{s(z, z_g)/τ} + e^{s(z, z_p)/τ}) ),   s the cosine

    Li, He, Song, "Model-contrastive federated learning", CVPR 2021. z is the last layer's input;
    MOON's own network has a projection there, which is left out as in PFLlib. Frozen features do
    not change, so on a linear head the term is the constant μ log 2 and MOON is FedAvg. Every
    client keeps its previous model; before its first round it keeps the common start.
    """

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
        previous = aligned(self.memory["previous"][list(stacked)])
        return _Contrast(self.network, (starts, previous), self.settings.mu, self.settings.tau)

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        if not self.network.linear:
            self.memory["previous"][list(who)] = theta
        return super().merge(round, who, start, theta)


@dataclass
class _Contrast(Local):
    network: DenseLayers
    models: tuple[Tensor, Tensor]  # where the round began, and the client's previous ones
    mu: float
    tau: float

    def in_representation(self, step: DescentStep) -> Tensor:
        import torch

        z, X = step.inputs[-1], step.inputs[0]
        (s_g, d_g), (s_p, d_p) = (
            cosine(z, self.network.forward(model[: len(z)], X)[0][-1]) for model in self.models
        )
        # By softmax, row by row: of torch.sigmoid the last numbers of an array have other bits.
        drawn = torch.softmax(torch.stack([s_p, s_g], 2) / self.tau, dim=2)[:, :, 0]
        slope = drawn * (self.mu / self.tau) * step.share
        return slope[:, :, None] * (d_p - d_g)


def cosine(z: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """s(z, u) (A, B) of vectors (A, B, h), and its gradient in z; 0 for a vector of zeros."""
    norm_z, norm_u = z.norm(dim=2, keepdim=True), u.norm(dim=2, keepdim=True)
    tiny = 1e-12
    z_hat, u_hat = z / norm_z.clamp_min(tiny), u / norm_u.clamp_min(tiny)
    s = (z_hat * u_hat).sum(2, keepdim=True)
    return s[:, :, 0], (u_hat - s * z_hat) / norm_z.clamp_min(tiny) * (norm_z > tiny)
