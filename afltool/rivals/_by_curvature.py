"""The server's part of FedLPA and of FedFisher's K-FAC; the two differ only in the factor G_k."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .base import Method, average
from .network import Tensor

if TYPE_CHECKING:
    from ..values.arrays import F64


class ByCurvature(Method):
    """One shot: heads, A_k and G_k of every client, one linear system at the server."""

    one_shot = True

    @abstractmethod
    def factor(self, P: F64, y: Any) -> F64:
        """G_k (C, C) from the client's probabilities (n, C) and labels."""

    @property
    def damping(self) -> float:
        """ρ of ρI, which is added to both factors."""
        return 0.0

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        from . import _curvature as cv

        heads = cv.matrices(self.network, theta)
        system = cv.Quadratic(
            self.clients, self.network, who, heads, self.factor, self.damping, self.threads
        )
        mean = cv.matrices(self.network, average(theta.double(), self.weigh(who))[None])[0]
        V, steps, left = cv.conjugate_gradients(
            system,
            system.precondition,
            system(lambda i: heads[i] - mean),
            self.settings.tolerance,
            self.settings.iterations,
        )
        self.facts |= {"iterations": steps, "relative_residual": left}
        return cv.flat(self.network, mean + V, theta)

    def upload(self, round: int) -> int:
        D, C = self.network.widths[0] + self.network.bias, self.network.widths[-1]
        return self.network.size + D * (D + 1) // 2 + C * (C + 1) // 2

    def notes(self) -> list[str]:
        return ["one round: the clients train alone, then the server solves one linear system"]
