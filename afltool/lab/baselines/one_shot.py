"""FedLPA and FedFisher: linear heads merged once, by the curvature of each client's loss.

At client k's weights W_k, C × D with D = d + 1 where there is a bias, with X̃ = (X, 1):

    A_k = X̃ᵀX̃ / n_k,   G_k (C, C) from the residuals;   solve Σ p_k G_k W A_k = Σ p_k G_k W_k A_k

by conjugate gradients from W̄ = Σ p_k W_k, with (Σ p_k G_k)⁻¹ R (Σ p_k A_k)⁻¹ as preconditioner.
G_k is singular along 1, so the solution with the same sum over classes as W̄ is taken. A_k is never
formed: W A_k is computed by two products with the rows, 4NDC operations per iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import scipy
from pydantic.dataclasses import dataclass

from ... import memory, parallel
from ...errors import UsageError
from ...math.softmax import softmax_in_place
from ...options.base import option
from ...values.arrays import F64, I64
from .base import Method, average
from .network import DenseLayers, Tensor
from .settings import MOST, Settings

TOLERANCE, ITERATIONS = 1e-8, 1000  # relative residual and number at which the iteration ends


def matrices(network: DenseLayers, theta: Tensor) -> F64:
    """Heads θ (A, P) as float64 (A, C, D), the bias as the last column."""
    W, *b = network.model(theta.double())
    return np.concatenate([W.numpy(), *(one.numpy()[:, :, None] for one in b)], axis=2)


class Quadratic:
    """W ↦ Σ p_k (G_k + ρI) W (A_k + ρI): ``rows`` X̃ (n_k, D), ``factors`` G_k, ``shares`` p_k of
    each client."""

    def __init__(
        self, rows: Sequence[F64], factors: Sequence[F64], shares: F64, damping: float
    ) -> None:
        self.rows, self.p, self.damping = rows, shares / shares.sum(), damping
        self.G = [one + damping * np.eye(len(one)) for one in factors]

    def __call__(self, W: F64) -> F64:
        """The sum (C, D) for one W (C, D), or for a W of each of the clients, (S, C, D)."""

        def one(k: int) -> F64:
            own, X = W if W.ndim == 2 else W[k], self.rows[k]
            through = (own @ X.T) @ X / len(X) + self.damping * own
            return np.asarray(self.p[k] * self.G[k] @ through)

        return np.asarray(sum(parallel.map_threads(one, range(len(self.rows)))))

    def preconditioner(self) -> Callable[[F64], F64]:
        """R ↦ Ḡ⁻¹ R Ā⁻¹ (C, D) with Ḡ = Σ p_k (G_k + ρI) and Ā = Σ p_k (A_k + ρI).

        The inverse of this map where all A_k or all G_k are equal. Without damping every G_k
        vanishes along 1, and R has no part there: Ḡ is made regular. Eigenvalues below rounding
        count as rounding.
        """
        G = np.einsum("k,kij->ij", self.p, np.stack(self.G))
        A = self.damping * np.eye(self.rows[0].shape[1])
        for X, p in zip(self.rows, self.p, strict=True):
            A += p / len(X) * (X.T @ X)
        if not self.damping:
            G += np.trace(G) / len(G) ** 2
        (v, U), (w, Q) = (scipy.linalg.eigh(M, check_finite=False) for M in (G, A))
        least = np.finfo(float).eps
        scale = np.outer(v.clip(len(v) * least * v[-1]), w.clip(len(w) * least * w[-1]))
        return lambda R: np.asarray(U @ ((U.T @ R @ Q) / scale) @ Q.T)

    def solve(self, R: F64) -> tuple[F64, int, float]:
        """V (C, D) with self(V) = R, the iterations and the relative residual at the end."""
        from scipy.sparse.linalg import LinearOperator, cg

        def on_flat(map_: Callable[[F64], F64]) -> Any:
            return LinearOperator((R.size,) * 2, lambda v: map_(v.reshape(R.shape)).ravel())

        steps: list[F64] = []
        A, M = on_flat(self), on_flat(self.preconditioner())
        how: Any = {"rtol": TOLERANCE, "maxiter": ITERATIONS, "callback": steps.append}
        V, _ = cg(A, R.ravel(), M=M, **how)
        left = np.linalg.norm(R - self(V.reshape(R.shape))) / (np.linalg.norm(R) or 1.0)
        return V.reshape(R.shape), len(steps), float(left)


@dataclass(frozen=True, kw_only=True)
class CurvatureSettings(Settings):
    """Options of methods that merge heads once, by their curvature."""

    GONE: ClassVar = {"tolerance": TOLERANCE, "iterations": ITERATIONS}

    rounds: int = option(1, "1; the method has a single round", ge=1, le=1)
    lr: float = option(0.01, "learning rate η of the clients", gt=0)
    momentum: float = option(0.9, "momentum of the local descent", ge=0, lt=1)
    epochs: int = option(50, "local epochs", ge=1, le=MOST)


class ByCurvature(Method):
    """One shot: heads, A_k and G_k of every client, one linear system at the server."""

    damping: float = 0.0  # ρ of ρI, which is added to both factors

    @staticmethod
    def factor(P: F64, y: I64) -> F64:
        """G_k (C, C) from the client's probabilities (n, C) and labels."""
        raise NotImplementedError

    def begin(self, weights: Tensor) -> None:
        if not self.network.linear:
            name = type(self).__name__
            raise UsageError(f"{name} is for a linear head: leave --hidden and --layers out")

    def system(self, who: Sequence[int], heads: F64) -> Quadratic:
        """The server's system of the participants at their ``heads`` (S, C, D)."""
        clients, D = self.clients, heads.shape[2]
        memory.require_memory(
            8 * D * (int(clients.sizes[list(who)].sum()) + 3 * D), "the server's system"
        )
        rows, factors = [], []
        for k, W in zip(who, heads, strict=True):
            X = clients.X[clients.rows[k]].double().numpy()
            X = np.hstack([X, np.ones((len(X), 1))]) if self.network.bias else X
            rows.append(X)
            P, _ = softmax_in_place(X @ W.T)
            factors.append(self.factor(P, clients.y[clients.rows[k]].numpy()))
        return Quadratic(rows, factors, clients.shares[list(who)], self.damping)

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        heads, d = matrices(self.network, theta), self.network.widths[0]
        mean = matrices(self.network, average(theta.double(), self.weigh(who))[None])[0]
        system = self.system(who, heads)
        V, steps, left = system.solve(system(heads - mean))
        self.facts |= {"iterations": steps, "relative_residual": left}
        W = mean + V
        return theta.new_tensor(np.concatenate([W[:, :d].ravel(), W[:, d:].ravel()]))

    def upload(self, round: int) -> int:
        D, C = self.network.widths[0] + self.network.bias, self.network.widths[-1]
        return self.network.size + D * (D + 1) // 2 + C * (C + 1) // 2


@dataclass(frozen=True, kw_only=True)
class FedLPASettings(CurvatureSettings):
    """Options of FedLPA."""

    damping: float = option(0.001**0.5, "ρ of ρI, which is added to both factors", ge=0)


class FedLPA(ByCurvature):
    """FedLPA: heads merged by a block-diagonal Laplace approximation, in one shot.

    Liu et al., "FedLPA: One-shot federated learning with layer-wise posterior aggregation", NeurIPS
    2024. G_k = (P − Y)ᵀ(P − Y)/n_k and ρI, ρ = √(1 − 0.999) in its scripts, on both factors. Here
    the system is solved to the end; the authors' code takes 10,000 gradient steps from
    (Σ p_k G_k)⁻¹ Z (Σ p_k A_k)⁻¹ and reports the better of both on the test rows. DeepAFL's table
    24 has it with 50 local epochs.
    """

    settings_class = FedLPASettings
    preset: ClassVar = {"rounds": 1, "lr": 0.05, "momentum": 0.0, "epochs": 50}

    @staticmethod
    def factor(P: F64, y: I64) -> F64:
        """(P − Y)ᵀ(P − Y)/n (C, C)."""
        R = P - np.eye(P.shape[1])[y]
        return np.asarray(R.T @ R / len(R))

    def begin(self, weights: Tensor) -> None:
        super().begin(weights)
        self.damping = float(self.settings.damping)


@dataclass(frozen=True, kw_only=True)
class FedFisherSettings(CurvatureSettings):
    """Options of FedFisher."""

    GONE: ClassVar = {**CurvatureSettings.GONE, "fisher": "kfac"}

    epochs: int = option(30, "local epochs", ge=1, le=MOST)


class FedFisher(ByCurvature):
    """FedFisher: heads merged by their Fisher information (K-FAC), in one shot.

    Jhunjhunwala, Wang, Joshi, "FedFisher: Leveraging Fisher information for one-shot federated
    learning", AISTATS 2024, with G_k = diag(mean P) − PᵀP/n_k. The authors' code takes 2,000 steps
    like Adam's, stopped by training rows at the server; here the system is solved to the end. AFL's
    appendix A.3 has it, with the settings of its own code.
    """

    settings_class = FedFisherSettings
    preset: ClassVar = {"rounds": 1, "lr": 0.01, "momentum": 0.9, "epochs": 30}

    @staticmethod
    def factor(P: F64, y: I64) -> F64:
        """diag(mean P) − PᵀP/n (C, C), the mean curvature of the cross-entropy in the scores."""
        return np.asarray(np.diag(P.mean(axis=0)) - P.T @ P / len(P))
