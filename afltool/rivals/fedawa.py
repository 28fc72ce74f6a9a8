"""FedAWA: the weights of the average are learned, by one step of Adam a round.

    τ_k = W_k − W^t,  w = softmax(T)
    L(T) = Σ w_k (1 − cos(W_k, W^t)) + Σ w_k ‖τ_k − Σ_j w_j τ_j‖;   W^{t+1} = Σ w_k W_k

with w from before the step. Shi et al., "FedAWA: Adaptive optimization of aggregation weights in
federated learning using client vectors", CVPR 2025, as the authors' code has it. T starts at p_k,
which softmax turns nearly uniform, and a fresh Adam moves each T_k by at most its step a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..options import option
from .base import Method, average
from .network import Tensor
from .settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class FedAWASettings(Settings):
    """Options of FedAWA."""

    weight_step: float = option(0.001, "step of Adam on the weights' logits", at_least=0)
    weight_start: str = option(
        "shares",
        "start of the logits: p_k, as the authors' code, or log p_k, FedAvg's weights",
        choices=("shares", "log-shares"),
    )


class FedAWA(Method):
    """The server needs the weights of every single client: a secure sum is not enough."""

    name = "fedawa"
    settings_class = FedAWASettings

    def begin(self, weights: Tensor) -> None:
        import torch

        p = torch.from_numpy(self.clients.shares.copy())
        self.memory["T"] = p.log() if self.settings.weight_start == "log-shares" else p

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        T = self.memory["T"]
        logits = T[list(who)].numpy()
        w = softmax(logits)
        slope = gradient(w, theta.double(), start.double())
        # The first step of Adam: both moments, corrected for their start, are of this gradient.
        T[list(who)] -= T.new_tensor(self.settings.weight_step * slope / (abs(slope) + 1e-8))
        return average(theta, w)


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """softmax of (S,)."""
    import numpy as np

    e = np.exp(logits - logits.max())
    return np.asarray(e / e.sum())


def gradient(w: NDArray[np.float64], theta: Tensor, start: Tensor) -> NDArray[np.float64]:
    """∂L/∂T (S,) at w = softmax(T), from the S × S products of τ_k; cos is 0 at W^t = 0."""
    import numpy as np

    tau = theta - start
    G = (tau @ tau.T).numpy()
    norms = (theta.norm(dim=1) * start.norm()).numpy()
    inner = (theta @ start).numpy()
    cos = np.divide(inner, norms, out=np.zeros_like(inner), where=norms > 0)
    mean = G @ w  # ⟨τ_k, τ̄⟩
    far = np.sqrt(np.maximum(np.diag(G) - 2 * mean + w @ mean, 0.0))  # ‖τ_k − τ̄‖
    pulled = np.divide(w, far, out=np.zeros_like(far), where=far > 1e-12 * np.sqrt(G.max()))
    # −Σ_k w_k ⟨τ_i, τ_k − τ̄⟩ / ‖τ_k − τ̄‖
    through = -(G @ pulled - mean * pulled.sum())
    slope = (1.0 - cos) + far + through
    return np.asarray(w * (slope - w @ slope))
