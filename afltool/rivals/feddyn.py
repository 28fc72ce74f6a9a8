"""FedDyn: a linear term of each client makes its optimum agree with the server's.

    W_k ≈ argmin F_k(W) − ⟨g_k, W⟩ + α_k/2 ‖W − W^t‖²

Acar et al., "Federated learning based on dynamic regularization", ICLR 2021. Three variants:

paper     α_k = α;  g_k ← g_k − α (W_k − W^t);  h ← h − (α/K) Σ_S (W_k − W^t);
          W^{t+1} = mean_S W_k − h/α.  Its fixed point has mean_k ∇F_k = 0, unweighted.
authors   α_k = α N/(K n_k);  H_k ← H_k + (W_k − W^t), g_k = −α_k H_k;
          W^{t+1} = mean_S W_k + mean_K H_k.  Its fixed point has Σ n_k ∇F_k = 0.
pfllib    as paper, but the clients' penalty is α/2 ‖W − W^t‖, not squared: a pull of constant
          length, which stalls wherever ‖∇F_k − g_k‖ ≤ α/2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..options import option
from .base import DescentStep, Local, Method, average
from .network import Tensor
from .settings import Settings


@dataclass(frozen=True, kw_only=True)
class FedDynSettings(Settings):
    """Options of FedDyn."""

    alpha: float = option(1.0, "α of the dynamic regulariser", above=0)
    variant: str = option(
        "paper",
        "whose updates: authors weighs by rows, pfllib does not square the pull",
        choices=("paper", "authors", "pfllib"),
    )


class FedDyn(Method):
    """Clients keep g_k (authors: H_k), the server h. Averages are unweighted by definition."""

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
        kind = _Stalling if self.settings.variant == "pfllib" else _Dynamic
        return kind(starts, self.memory["g"][places], column)

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        places, moved = list(who), theta - start
        mean = _mean(theta).double()
        if self.settings.variant == "authors":
            H = self.memory["H"]
            H[places] += moved
            return (mean + _mean(H).double()).to(theta.dtype)
        alpha, h = self.settings.alpha, self.memory["h"]
        self.memory["g"][places] -= alpha * moved
        share = len(places) / len(self.clients)
        h -= alpha * share * _mean(moved.double())
        return (mean - h / alpha).to(theta.dtype)


def _mean(theta: Tensor) -> Tensor:
    """The unweighted mean (P,) of θ (S, P)."""
    import numpy as np

    return average(theta, np.ones(len(theta)))


class _Dynamic(Local):
    def __init__(self, start: Tensor, g: Tensor, alpha: Tensor) -> None:
        self.start, self.g, self.alpha = start, g, alpha

    def in_weights(self, step: DescentStep) -> Tensor:
        n = len(step.theta)
        return self.pull(step.theta - self.start[:n], self.alpha[:n]) - self.g[:n]

    def pull(self, moved: Tensor, alpha: Tensor) -> Tensor:
        """Gradient of the penalty at W − W^t (A, P)."""
        return alpha * moved


class _Stalling(_Dynamic):
    def pull(self, moved: Tensor, alpha: Tensor) -> Tensor:
        length = moved.norm(dim=1, keepdim=True)
        return alpha / 2 * moved / length.clamp_min(1e-30)
