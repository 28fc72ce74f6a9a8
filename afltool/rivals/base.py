"""What a baseline is: the terms of its clients' descent, and how the server merges the results.

A method adds a module with a subclass of `Method` and a line in the registry of this package. Its
clients' part is a `Local`, its server's part is `merge`. Everything else (rows, batches, threads,
evaluation, files) is the same for all, so a method whose terms are 0 gives the results of FedAvg,
bit for bit.

`afltool baseline METHOD -h` imports the module of a method to show its settings. So these modules
import NumPy and PyTorch inside functions only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import UsageError
from .network import DenseLayers, Tensor
from .settings import Settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .clients import Clients

FLOAT32 = 4  # bytes of a number in a message


class Local:
    """What a method adds to the cross-entropy of a stack of clients; FedAvg, here, adds nothing.

    The trainer calls these methods in this order, at every step and with the same θ.
    """

    def in_scores(self, R: Tensor, step: DescentStep) -> None:
        """Add to the gradient in the scores, R (A, B, C), in place."""

    def in_representation(self, step: DescentStep) -> Tensor | None:
        """The gradient (A, B, h) to add at the last layer's input; None adds nothing."""
        return None

    def in_weights(self, step: DescentStep) -> Tensor | None:
        """The gradient (A, P) to add at θ; None adds nothing."""
        return None


@dataclass(frozen=True)
class DescentStep:
    """One step of the first A clients of a stack; the other clients have no batches left."""

    clients: tuple[int, ...]  # the A clients, by their places in the federation
    epoch: int
    number: int  # of the step in its epoch, from 0
    theta: Tensor  # (A, P)
    inputs: list[Tensor]  # what enters each layer: rows (A, B, d), …, representation (A, B, h)
    scores: Tensor  # (A, B, C)
    y: Tensor  # (A, B) labels
    share: Tensor  # (A, B): 1 / rows of the batch, or 0 where it is only filled up


class Method:
    """FedAvg; the other methods override parts of it.

    McMahan et al., "Communication-efficient learning of deep networks from decentralized data",
    AISTATS 2017: W^{t+1} = Σ p_k W_k over the participants, p_k in proportion to their rows.
    """

    name: ClassVar[str]
    settings_class: ClassVar[type[Settings]] = Settings
    preset: ClassVar[Mapping[str, Any]] = {}  # settings in both papers, beside `settings.PRESETS`
    one_shot: ClassVar[bool] = False  # for a linear head
    pools: ClassVar[bool] = False  # the federation is one client
    sends: ClassVar[bool] = True  # messages go between the clients and the server

    def __init__(
        self, settings: Any, clients: Clients, network: DenseLayers, threads: int = 1
    ) -> None:
        self.settings, self.clients, self.network = settings, clients, network
        self.threads = threads
        self.memory: dict[str, Tensor] = {}  # all that is kept between rounds, beside the weights
        self.facts: dict[str, Any] = {}  # the method's entries in the report
        if self.one_shot and not network.linear:
            raise UsageError(f"{self.name} is for a linear head: leave --hidden and --layers out")

    def begin(self, weights: Tensor) -> None:
        """Set ``memory`` before the first round; all clients start from ``weights`` (P,)."""

    def starts(self, who: Sequence[int], weights: Tensor) -> Tensor:
        """The weights at which the participants start, (P,) or (S, P)."""
        return weights

    def local(self, round: int, stacked: Sequence[int], starts: Tensor) -> Local:
        """The terms of a stack of clients that start at ``starts`` (A, P)."""
        return Local()

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        """W^{t+1} (P,) from the participants' results ``theta`` (S, P); updates ``memory``."""
        return average(theta, self.weigh(who))

    def weigh(self, who: Sequence[int]) -> NDArray[np.float64]:
        """Weights of the average over participants, (S,), up to a common factor."""
        import numpy as np

        if self.settings.average == "uniform":
            return np.ones(len(who))
        return self.clients.shares[list(who)]

    def heads(self, weights: Tensor) -> Tensor:
        """The classifiers to evaluate, (M, P): that of the server, or each client's own."""
        return weights[None]

    def upload(self, round: int) -> int:
        """Numbers that one participant sends in a round."""
        return self.network.size * self.sends

    def download(self, round: int) -> int:
        """Numbers that one participant gets in a round."""
        return self.network.size * self.sends

    def notes(self) -> list[str]:
        """Warnings for the user before the first round."""
        return []


def average(theta: Tensor, weights: NDArray[np.float64]) -> Tensor:
    """Σ w_k θ_k / Σ w_k (P,) of θ (S, P): in float64, in the order of the clients, rounded once."""
    shares = weights / weights.sum()
    total = theta.new_zeros(theta.shape[1]).double()
    for row, share in zip(theta, shares.tolist(), strict=True):
        total.add_(row.double(), alpha=share)
    return total.to(theta.dtype)


def first_weights(network: DenseLayers, seed: int, dtype: Any) -> Tensor:
    """The common start (P,): 0 for a linear head, whose loss is convex.

    Hidden layers need a random start that all share: uniform on ±1/√fan_in, from the seed.
    """
    import torch

    from ..heads.projections import projection

    theta = torch.zeros(1, network.size, dtype=dtype)
    if network.linear:
        return theta[0]
    for number, (W, b) in enumerate(network.layers(theta)):
        drawn = projection("linear-uniform", seed, number, W.shape[2], W.shape[1])
        W[0] = torch.from_numpy(drawn.A.T.copy())
        if b is not None and drawn.a is not None:
            b[0, 0] = torch.from_numpy(drawn.a)
    return theta[0]
