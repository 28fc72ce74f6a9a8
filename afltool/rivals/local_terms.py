"""Methods that add a term to the descent of their clients; the server averages as in FedAvg."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from .base import Method, Rows, average
from .network import Model, Tensor
from .settings import Settings


@dataclass(frozen=True, kw_only=True)
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

    def local(self, stacked: Sequence[int], starts: Tensor) -> dict[str, Tensor]:
        return {"start": starts}

    def term(self, model: Model, rows: Rows, given: Mapping[str, Tensor]) -> Tensor:
        start = self.network.model(given["start"])
        return self.settings.mu / 2 * squared_distance(model, start)


def squared_distance(model: Model, other: Model) -> Tensor:
    """‖W − V‖² of two classifiers."""
    return sum((p - q).square().sum() for p, q in zip(model, other, strict=True))


@dataclass(frozen=True, kw_only=True)
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

    def local(self, stacked: Sequence[int], starts: Tensor) -> dict[str, Tensor]:
        places, alpha = list(stacked), starts.new_full((len(stacked),), self.settings.alpha)
        if self.settings.variant == "authors":
            shares = starts.new_tensor(self.clients.shares[places].tolist())
            alpha = alpha / (len(self.clients) * shares)
            g = -alpha[:, None] * self.memory["H"][places]
        else:
            g = self.memory["g"][places]
        return {"start": starts, "g": g, "alpha": alpha}

    def term(self, model: Model, rows: Rows, given: Mapping[str, Tensor]) -> Tensor:
        g, start = (self.network.model(given[name]) for name in ("g", "start"))
        along = sum((p * q).sum() for p, q in zip(model, g, strict=True))
        pull = squared_distance(model, start)
        if self.settings.variant == "pfllib":  # of length 0 it has no direction
            pull = pull.where(pull > 0, 1.0).sqrt() * (pull > 0)
        return given["alpha"] / 2 * pull - along

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


@dataclass(frozen=True, kw_only=True)
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

    def local(self, stacked: Sequence[int], starts: Tensor) -> dict[str, Tensor]:
        return {"start": starts}

    def term(self, model: Model, rows: Rows, given: Mapping[str, Tensor]) -> Tensor:
        """β τ (q − q^g) · scores, whose gradient is the distillation's; at W^t it is 0 exactly."""
        _, taught = self.network.forward(self.network.model(given["start"]), rows.X)
        beta, tau = self.settings.beta, self.settings.tau
        q, q_g = (wrong_shares(S, rows.y, tau) for S in (rows.scores.detach(), taught))
        return (beta * tau * rows.share[:, None] * (q - q_g) * rows.scores).sum()


def wrong_shares(S: Tensor, y: Tensor, tau: float) -> Tensor:
    """softmax(S/τ) (B, C) over all classes but the labels ``y`` (B,), which get 0."""
    import torch

    true = torch.arange(S.shape[1]) == y[:, None]
    return (S / tau).masked_fill(true, float("-inf")).softmax(dim=1)


@dataclass(frozen=True, kw_only=True)
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

    def local(self, stacked: Sequence[int], starts: Tensor) -> dict[str, Tensor]:
        if self.network.linear:
            return {}
        return {"global": starts, "previous": self.memory["previous"][list(stacked)]}

    def term(self, model: Model, rows: Rows, given: Mapping[str, Tensor]) -> Tensor | float:
        from torch.nn.functional import cosine_similarity, softplus

        if self.network.linear:
            return 0.0
        near, far = (
            cosine_similarity(rows.z, self.network.forward(self.network.model(other), rows.X)[0])
            for other in (given["global"], given["previous"])
        )
        terms = softplus((far - near) / self.settings.tau)
        return self.settings.mu * (rows.share * terms).sum()

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        if not self.network.linear:
            self.memory["previous"][list(who)] = theta
        return super().merge(round, who, start, theta)
