"""Local only: every client trains its own head, and nothing is averaged.

The report has the mean, the largest and the spread of the clients' accuracies on the test rows,
and each of them (``top1_by_client``). The written head is that of the client with the most rows, so
test rows do not choose it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..options import option
from .base import Method
from .network import Tensor
from .settings import Settings


@dataclass(frozen=True, kw_only=True)
class LocalSettings(Settings):
    """Options of local training."""

    rounds: int = option(
        50,
        "rounds of training, in each of which a client goes on by itself",
        at_least=1,
        at_most=10**5,
    )
    every: int = option(
        10, "rounds from one measurement of the accuracies to the next", at_least=1, at_most=10**5
    )


class LocalOnly(Method):
    """Each client keeps its own head."""

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
