"""The server's part of FedLPA and FedFisher's K-FAC, which differ in the factor G_k alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _curvature as cv
from .base import Method, average
from .network import Tensor


class ByCurvature(Method):
    """One shot: heads, A_k and G_k of every client, one linear system at the server."""

    one_shot = True

    @abstractmethod
    def factor(self, P: cv.F64, y: Any) -> cv.F64:
        """G_k (C, C) from the client's probabilities (n, C) and labels."""

    @property
    def damping(self) -> float:
        """ρ of ρI, which is added to both factors."""
        return 0.0

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        heads = cv.matrices(self.network, theta)
        G = [self._factor_of(k, W) for k, W in zip(who, heads, strict=True)]
        system = cv.Quadratic(self.clients, self.network, who, G, self.damping, self.threads)
        mean = cv.matrices(self.network, average(theta.double(), self.weigh(who))[None])[0]
        V, steps, left = cv.conjugate_gradients(
            system,
            system(lambda i: heads[i] - mean),
            self.settings.tolerance,
            self.settings.iterations,
        )
        self.facts |= {"iterations": steps, "relative_residual": left}
        return cv.flat(self.network, mean + V, theta)

    def _factor_of(self, k: int, W: cv.F64) -> cv.F64:
        X, y = cv.rows_of(self.clients, self.network, k)
        return self.factor(cv.probabilities(X, W), y)

    def upload(self, round: int) -> int:
        D, C = self.network.widths[0] + self.network.bias, self.network.widths[-1]
        return self.network.size + D * (D + 1) // 2 + C * (C + 1) // 2

    def notes(self) -> list[str]:
        return ["one round: the clients train alone, then the server solves one linear system"]


def fisher(P: cv.F64) -> cv.F64:
    """diag(mean P) − PᵀP/n (C, C), the mean curvature of the cross-entropy in the scores."""
    return np.asarray(np.diag(P.mean(axis=0)) - P.T @ P / len(P))


def squared_residuals(P: cv.F64, y: Any) -> cv.F64:
    """(P − Y)ᵀ(P − Y)/n (C, C)."""
    R = P.copy()
    R[np.arange(len(y)), y] -= 1.0
    return np.asarray(R.T @ R / len(R))
