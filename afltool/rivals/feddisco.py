"""FedDisco: FedAvg with less weight for clients whose class shares are far from uniform.

The weights are w_k ∝ max(0, p_k − a d_k + b), d_k the distance of the client's class shares from
uniform.

Ye et al., "FedDisco: Federated learning with discrepancy-aware collaboration", ICML 2023. Its code
divides the KL distances by their sum over clients; the L2 distances are taken as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..options import option
from ..progress import log
from .base import Method
from .settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class FedDiscoSettings(Settings):
    """Options of FedDisco."""

    a: float = option(0.05, "a, the weight of the distance", at_least=0)
    b: float = option(0.01, "b, added to every weight", at_least=0)
    distance: str = option(
        "kl",
        "of class shares from uniform; kl is divided by the sum over clients",
        choices=("kl", "l2"),
    )


class FedDisco(Method):
    """Clients send their class counts once, with the first round."""

    name = "feddisco"
    settings_class = FedDiscoSettings

    def weigh(self, who: Sequence[int]) -> NDArray[np.float64]:
        places, s = list(who), self.settings
        d = distances(self.clients.counts, s.distance)[places]
        raw = super().weigh(who) - s.a * d + s.b
        weights: NDArray[np.float64] = raw.clip(min=0.0)
        if weights.any():
            return weights
        log.warning(
            "feddisco: no weight p − %g d + %g is above 0: p is used; take a smaller --a", s.a, s.b
        )
        return super().weigh(who)

    def upload(self, round: int) -> int:
        return self.network.size + (self.clients.classes if round == 1 else 0)


def distances(counts: NDArray[np.int64], kind: str) -> NDArray[np.float64]:
    """d_k (K,) of class counts (K, C); clients have rows."""
    import numpy as np

    shares, classes = counts / counts.sum(axis=1, keepdims=True), counts.shape[1]
    if kind == "l2":
        found: NDArray[np.float64] = np.sqrt(((shares - 1 / classes) ** 2).sum(axis=1))
        return found
    logs = np.log(shares * classes, out=np.zeros_like(shares), where=shares > 0)
    d = (shares * logs).sum(axis=1)
    total = d.sum()
    return np.asarray(d / total if total > 0 else d)
