"""FedAvg itself, and methods that differ from it in what the server does with the clients' heads.

Local training and centralised descent are the lines below and above all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..progress import log
from .base import Method, average
from .network import Tensor
from .settings import MOST, Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..values.arrays import F64


class FedAvg(Method):
    """FedAvg: the average of what the clients train, weighted by their rows."""

    name = "fedavg"


class Centralised(Method):
    """Centralised gradient descent: the same trainer on all rows as one client, the reference line.

    An epoch is a round. The rows of all clients are pooled, which no federation could do.
    """

    name = "centralised"
    pools = True
    sends = False


@dataclass(frozen=True, kw_only=True)
class LocalSettings(Settings):
    """Options of local training."""

    rounds: int = Field(
        default=50,
        ge=1,
        le=MOST,
        description="rounds of training, in each of which a client goes on by itself",
    )
    every: int = Field(
        default=10,
        ge=1,
        le=MOST,
        description="rounds from one measurement of the accuracies to the next",
    )


class LocalOnly(Method):
    """Local only: every client trains its own head, and nothing is averaged.

    The report has the mean, the largest and the spread of the clients' accuracies on the test rows,
    and each of them (``top1_by_client``). The written head is that of the client with the most
    rows, so test rows do not choose it.
    """

    name = "local"
    settings_class = LocalSettings
    sends = False

    def begin(self, weights: Tensor) -> None:
        self.memory["own"] = weights.repeat(len(self.clients), 1)

    def starts(self, who: Sequence[int], weights: Tensor) -> Tensor:
        return self.memory["own"][list(who)]

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        self.memory["own"][list(who)] = theta
        return self.memory["own"][int(self.clients.sizes.argmax())].clone()

    def heads(self, weights: Tensor) -> Tensor:
        return self.memory["own"]


@dataclass(frozen=True, kw_only=True)
class FedDiscoSettings(Settings):
    """Options of FedDisco."""

    a: float = Field(default=0.05, ge=0, description="a, the weight of the distance")
    b: float = Field(default=0.01, ge=0, description="b, added to every weight")
    distance: Literal["kl", "l2"] = Field(
        default="kl",
        description="of class shares from uniform; kl is divided by the sum over clients",
    )


class FedDisco(Method):
    """FedDisco: FedAvg with less weight for clients whose class shares are far from uniform.

    The weights are w_k ∝ max(0, p_k − a d_k + b), d_k the distance of the client's class shares
    from uniform; clients send their class counts once, with the first round. Ye et al., "FedDisco:
    Federated learning with discrepancy-aware collaboration", ICML 2023. Its code divides the KL
    distances by their sum over clients; the L2 distances are taken as they are.
    """

    name = "feddisco"
    settings_class = FedDiscoSettings

    def weigh(self, who: Sequence[int]) -> F64:
        places, s = list(who), self.settings
        d = distances(self.clients.counts, s.distance)[places]
        raw = super().weigh(who) - s.a * d + s.b
        weights: F64 = raw.clip(min=0.0)
        if weights.any():
            return weights
        log.warning(
            "feddisco: no weight p − %g d + %g is above 0: p is used; take a smaller --a", s.a, s.b
        )
        return super().weigh(who)

    def upload(self, round: int) -> int:
        return self.network.size + (self.clients.classes if round == 1 else 0)


def distances(counts: NDArray[np.int64], kind: str) -> F64:
    """d_k (K,) of class counts (K, C); clients have rows."""
    import numpy as np

    shares, classes = counts / counts.sum(axis=1, keepdims=True), counts.shape[1]
    if kind == "l2":
        return np.asarray(np.sqrt(((shares - 1 / classes) ** 2).sum(axis=1)))
    logs = np.log(shares * classes, out=np.zeros_like(shares), where=shares > 0)
    d = (shares * logs).sum(axis=1)
    total = d.sum()
    return np.asarray(d / total if total > 0 else d)


@dataclass(frozen=True, kw_only=True)
class FedAWASettings(Settings):
    """Options of FedAWA."""

    weight_step: float = Field(
        default=0.001, ge=0, description="step of Adam on the weights' logits"
    )
    weight_start: Literal["shares", "log-shares"] = Field(
        default="shares",
        description="start of the logits: p_k, as the authors' code, or log p_k, FedAvg's weights",
    )


class FedAWA(Method):
    """FedAWA: the weights of the average are learned, by one step of Adam a round.

        τ_k = W_k − W^t,  w = softmax(T)
        L(T) = Σ w_k (1 − cos(W_k, W^t)) + Σ w_k ‖τ_k − Σ_j w_j τ_j‖;   W^{t+1} = Σ w_k W_k

    with w from before the step. Shi et al., "FedAWA: Adaptive optimization of aggregation weights
    in federated learning using client vectors", CVPR 2025, as the authors' code has it. T starts at
    p_k, which softmax turns nearly uniform, and a fresh Adam moves each T_k by at most its step a
    round. The server needs the weights of every single client: a secure sum is not enough.
    """

    name = "fedawa"
    settings_class = FedAWASettings

    def begin(self, weights: Tensor) -> None:
        import torch

        p = torch.from_numpy(self.clients.shares.copy())
        self.memory["T"] = p.log() if self.settings.weight_start == "log-shares" else p

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        T, places = self.memory["T"], list(who)
        w, slope = T[places].softmax(0), gradient(T[places], theta.double(), start.double())
        # The first step of Adam: both moments, corrected for their start, are of this gradient.
        T[places] -= self.settings.weight_step * slope / (slope.abs() + 1e-8)
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
