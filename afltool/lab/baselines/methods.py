"""Methods that differ from FedAvg in a term of the clients' loss, or in how the server averages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from pydantic.dataclasses import dataclass

from ...options.base import option
from ...progress import log
from ...values.arrays import F64, I64
from .base import Method, Rows, average
from .network import Model, Tensor
from .settings import MOST, Settings

STEP = 0.001  # of Adam on the logits of FedAWA's weights


class FedAvg(Method):
    """FedAvg: the average of what the clients train, weighted by their rows."""


class Centralized(Method):
    """Centralized gradient descent: the same trainer on all rows as one client, the reference line.

    An epoch is a round. The rows of all clients are pooled, which no federation could do.
    """

    pools = True
    sends = False


@dataclass(frozen=True, kw_only=True)
class LocalSettings(Settings):
    """Options of local training."""

    rounds: int = option(50, "rounds, in each of which a client goes on", ge=1, le=MOST)
    every: int = option(10, "rounds between measurements of the accuracy", ge=1, le=MOST)


class LocalOnly(Method):
    """Local only: every client trains its own head, and nothing is averaged.

    The report has the mean, the largest and the spread of the clients' accuracies on the test rows.
    The written head is that of the client with the most rows, so test rows do not choose it.
    """

    settings_class = LocalSettings
    sends = False

    def begin(self, weights: Tensor) -> None:
        self.own = weights.repeat(len(self.clients), 1)

    def starts(self, who: Sequence[int], weights: Tensor) -> Tensor:
        return self.own[list(who)]

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        self.own[list(who)] = theta
        return self.own[int(self.clients.sizes.argmax())].clone()

    def heads(self, weights: Tensor) -> Tensor:
        return self.own


@dataclass(frozen=True, kw_only=True)
class FedProxSettings(Settings):
    """Options of FedProx."""

    mu: float = option(0.001, "μ of the pull μ/2 ‖W − W^t‖² to where the round began", ge=0)


class FedProx(Method):
    """FedProx: clients minimize F_k(W) + μ/2 ‖W − W^t‖².

    Li et al., "Federated optimization in heterogeneous networks", MLSys 2020. With one local step,
    or μ = 0, it is FedAvg.
    """

    settings_class = FedProxSettings

    def term(self, model: Model, rows: Rows, given: Mapping[str, Tensor]) -> Tensor:
        start = self.network.model(given["start"])
        return self.settings.mu / 2 * squared_distance(model, start)


def squared_distance(model: Model, other: Model) -> Tensor:
    """‖W − V‖² of two classifiers."""
    return sum((p - q).square().sum() for p, q in zip(model, other, strict=True))


@dataclass(frozen=True, kw_only=True)
class FedDynSettings(Settings):
    """Options of FedDyn."""

    GONE: ClassVar = {"variant": "paper"}

    alpha: float = option(1.0, "α of the dynamic regularizer", gt=0)


class FedDyn(Method):
    """FedDyn: a linear term of each client makes its optimum agree with the server's.

        W_k ≈ argmin F_k(W) − ⟨g_k, W⟩ + α/2 ‖W − W^t‖²;   g_k ← g_k − α (W_k − W^t)
        h ← h − (α/K) Σ_S (W_k − W^t);   W^{t+1} = mean_S W_k − h/α

    Acar et al., "Federated learning based on dynamic regularization", ICLR 2021. Clients keep g_k,
    the server h. Averages are unweighted by definition: its fixed point has mean_k ∇F_k = 0.
    """

    settings_class = FedDynSettings

    def begin(self, weights: Tensor) -> None:
        self.g = weights.new_zeros(len(self.clients), len(weights))
        self.h = weights.new_zeros(len(weights)).double()

    def local(self, stacked: Sequence[int]) -> dict[str, Tensor]:
        return {"g": self.g[list(stacked)]}

    def term(self, model: Model, rows: Rows, given: Mapping[str, Tensor]) -> Tensor:
        g, start = (self.network.model(given[name]) for name in ("g", "start"))
        along = sum((p * q).sum() for p, q in zip(model, g, strict=True))
        return self.settings.alpha / 2 * squared_distance(model, start) - along

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        alpha, moved, ones = self.settings.alpha, theta - start, np.ones(len(who))
        self.g[list(who)] -= alpha * moved
        self.h -= alpha * (len(who) / len(self.clients)) * average(moved.double(), ones)
        return (average(theta, ones).double() - self.h / alpha).to(theta.dtype)


@dataclass(frozen=True, kw_only=True)
class FedNTDSettings(Settings):
    """Options of FedNTD."""

    beta: float = option(1.0, "β, the weight of the distillation", ge=0)
    tau: float = option(0.5, "temperature τ", gt=0)


class FedNTD(Method):
    """FedNTD: clients keep the global model's predictions about the wrong classes.

        F_k + β τ² mean KL(q^g ‖ q),   q, q^g: softmax over the C − 1 wrong classes of scores/τ

    under W and W^t. Lee et al., "Preservation of the global knowledge by not-true distillation in
    federated learning", NeurIPS 2022. Its gradient in the scores is β τ (q − q^g), 0 on the true
    class. With β = 0, two classes or one local step it is FedAvg.
    """

    settings_class = FedNTDSettings

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

    mu: float = option(1.0, "μ, the weight of the contrastive term", ge=0)
    tau: float = option(0.5, "temperature τ (0.5 in MOON's code, 1 in PFLlib)", gt=0)


class Moon(Method):
    """MOON: a client's representations move towards the global model's, away from its previous
    ones.

        F_k + μ mean −log( e^{s(z, z_g)/τ} / (e^{s(z, z_g)/τ} + e^{s(z, z_p)/τ}) ),   s the cosine

    Li, He, Song, "Model-contrastive federated learning", CVPR 2021. z is the last layer's input;
    MOON's own network has a projection there, which is left out as in PFLlib. Frozen features do
    not change, so on a linear head the term is the constant μ log 2 and MOON is FedAvg. Every
    client keeps its previous model; before its first round it keeps the common start.
    """

    settings_class = MoonSettings

    def begin(self, weights: Tensor) -> None:
        self.previous = None if self.network.linear else weights.repeat(len(self.clients), 1)
        if self.previous is None:
            log.info(
                "moon on a linear head is FedAvg: its term compares representations, and frozen "
                "features have the same one in every round; --hidden 1024 trains a layer below it"
            )

    def local(self, stacked: Sequence[int]) -> dict[str, Tensor]:
        kept = self.previous
        return {} if kept is None else {"previous": kept[list(stacked)]}

    def term(self, model: Model, rows: Rows, given: Mapping[str, Tensor]) -> Tensor | float:
        from torch.nn.functional import cosine_similarity, softplus

        if "previous" not in given:
            return 0.0
        near, far = (
            cosine_similarity(rows.z, self.network.forward(self.network.model(other), rows.X)[0])
            for other in (given["start"], given["previous"])
        )
        terms = softplus((far - near) / self.settings.tau)
        return self.settings.mu * (rows.share * terms).sum()

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        if self.previous is not None:
            self.previous[list(who)] = theta
        return super().merge(round, who, start, theta)


@dataclass(frozen=True, kw_only=True)
class FedDiscoSettings(Settings):
    """Options of FedDisco."""

    GONE: ClassVar = {"distance": "kl"}

    a: float = option(0.05, "a, the weight of the distance", ge=0)
    b: float = option(0.01, "b, added to every weight", ge=0)


class FedDisco(Method):
    """FedDisco: FedAvg with less weight for clients whose class shares are far from uniform.

    The weights are w_k ∝ max(0, p_k − a d_k + b), d_k the KL distance of the client's class shares
    from uniform, divided by its sum over clients as in the authors' code; clients send their class
    counts once, with the first round. Ye et al., "FedDisco: Federated learning with
    discrepancy-aware collaboration", ICML 2023.
    """

    settings_class = FedDiscoSettings

    def weigh(self, who: Sequence[int]) -> F64:
        s, p = self.settings, super().weigh(who)
        d = distances(self.clients.counts)[list(who)]
        weights: F64 = (p - s.a * d + s.b).clip(min=0.0)
        if weights.any():
            return weights
        log.warning(
            "feddisco: no weight p − %g d + %g is above 0: p is used; take a smaller --a", s.a, s.b
        )
        return p

    def upload(self, round: int) -> int:
        return self.network.size + (self.clients.classes if round == 1 else 0)


def distances(counts: I64) -> F64:
    """d_k (K,) of class counts (K, C); clients have rows."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    scaled = shares * counts.shape[1]
    logs = np.log(scaled, out=np.zeros_like(shares), where=shares > 0)
    d = (shares * logs).sum(axis=1)
    return np.asarray(d / d.sum() if d.sum() > 0 else d)


@dataclass(frozen=True, kw_only=True)
class FedAWASettings(Settings):
    """Options of FedAWA."""

    GONE: ClassVar = {"weight_start": "shares", "weight_step": STEP}


class FedAWA(Method):
    """FedAWA: the weights of the average are learned, by one step of Adam a round.

        τ_k = W_k − W^t,  w = softmax(T)
        L(T) = Σ w_k (1 − cos(W_k, W^t)) + Σ w_k ‖τ_k − Σ_j w_j τ_j‖;   W^{t+1} = Σ w_k W_k

    with w from before the step. Shi et al., "FedAWA: Adaptive optimization of aggregation weights
    in federated learning using client vectors", CVPR 2025, as the authors' code has it. T starts at
    p_k, which softmax turns nearly uniform, and a fresh Adam moves each T_k by at most its step a
    round. The server needs the weights of every single client: a secure sum is not enough.
    """

    settings_class = FedAWASettings

    def begin(self, weights: Tensor) -> None:
        import torch

        self.T = torch.from_numpy(self.clients.shares.copy())

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        T, places = self.T, list(who)
        w, slope = T[places].softmax(0), gradient(T[places], theta.double(), start.double())
        # The first step of Adam: both moments, corrected for their start, are of this gradient.
        T[places] -= STEP * slope / (slope.abs() + 1e-8)
        return average(theta, w.numpy())


def gradient(T: Tensor, theta: Tensor, start: Tensor) -> Tensor:
    """∂L/∂T (S,) of θ (S, P); cos is 0 at W^t = 0, and clients at the mean pull nowhere."""
    import torch
    from torch.func import grad

    tau = theta - start
    cos = torch.nn.functional.cosine_similarity(theta, start[None], eps=1e-300)
    rounding = 1e-12 * tau.norm(dim=1).max()

    def loss(T: Tensor) -> Tensor:
        w = T.softmax(0)
        far = (tau - w @ tau).norm(dim=1)
        return w @ (1.0 - cos) + w @ torch.where(far > rounding, far, 0.0)

    return grad(loss)(T)
