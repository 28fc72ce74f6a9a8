"""What a baseline is: a term of its clients' loss, and how the server merges the results.

A method adds a module with a subclass of `Method` and a line in the registry of this package. Its
clients' part is `term`, its server's part is `merge`. Everything else (rows, batches, threads,
evaluation, files) is the same for all, so a method whose terms are 0 gives the results of FedAvg,
bit for bit. `afltool baseline METHOD -h` imports the module of a method to show its settings, so
these modules import PyTorch inside functions only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from ...values.arrays import F64
from .network import DenseLayers, Model, Tensor
from .settings import Settings

if TYPE_CHECKING:
    from .clients import Clients


class Rows(NamedTuple):
    """A batch of one client: rows X (B, d), labels y (B,), ``share`` (B,), 1 / rows of the batch or
    0 where it is only filled up, z (B, h), which enters the last layer, and the scores (B, C)."""

    X: Tensor
    y: Tensor
    share: Tensor
    z: Tensor
    scores: Tensor


class Method:
    """FedAvg; the other methods override parts of it.

    McMahan et al., "Communication-efficient learning of deep networks from decentralized data",
    AISTATS 2017: W^{t+1} = Σ p_k W_k over the participants, p_k in proportion to their rows.
    """

    settings_class: ClassVar[type[Settings]] = Settings
    preset: ClassVar[Mapping[str, Any]] = {}  # settings in both papers, beside `settings.PRESETS`
    pools: ClassVar[bool] = False  # the federation is one client
    sends: ClassVar[bool] = True  # messages go between the clients and the server

    def __init__(self, settings: Any, clients: Clients, network: DenseLayers) -> None:
        self.settings, self.clients, self.network = settings, clients, network
        self.facts: dict[str, Any] = {}  # the method's entries in the report

    def begin(self, weights: Tensor) -> None:
        """Set what is kept between rounds; all clients start from ``weights`` (P,). `UsageError`
        for what the method cannot train."""

    def starts(self, who: Sequence[int], weights: Tensor) -> Tensor:
        """The weights at which the participants start, (P,) or (S, P)."""
        return weights

    def local(self, stacked: Sequence[int]) -> dict[str, Tensor]:
        """Tensors (A, …) that `term` needs of a stack of clients, in every step of a round."""
        return {}

    def drawn(
        self, round: int, clients: Sequence[int], epoch: int, number: int
    ) -> dict[str, Tensor]:
        """Those that it needs at step ``number`` (from 0) of an epoch alone."""
        return {}

    def term(self, model: Model, rows: Rows, given: Mapping[str, Tensor]) -> Tensor | float:
        """What is added to Σ share · cross-entropy of one client, whose part of the tensors it
        gets, and ``start`` (P,); `torch.func` differentiates it in ``model``."""
        return 0.0

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        """W^{t+1} (P,) from the participants' results ``theta`` (S, P)."""
        return average(theta, self.weigh(who))

    def weigh(self, who: Sequence[int]) -> F64:
        """Weights of the average over participants, (S,), up to a common factor."""
        uniform = self.settings.average == "uniform"
        return np.ones(len(who)) if uniform else self.clients.shares[list(who)]

    def heads(self, weights: Tensor) -> Tensor:
        """The classifiers to evaluate, (M, P): the server's, or each client's own."""
        return weights[None]

    def upload(self, round: int) -> int:
        """Numbers that one participant sends in a round."""
        return self.network.size * self.sends

    def download(self, round: int) -> int:
        """Numbers that one participant gets in a round."""
        return self.network.size * self.sends


def average(theta: Tensor, weights: F64) -> Tensor:
    """Σ w_k θ_k / Σ w_k (P,) of θ (S, P): in float64, in the order of the clients, rounded once."""
    total = theta.new_zeros(theta.shape[1]).double()
    for row, share in zip(theta, (weights / weights.sum()).tolist(), strict=True):
        total.add_(row.double(), alpha=share)
    return total.to(theta.dtype)
