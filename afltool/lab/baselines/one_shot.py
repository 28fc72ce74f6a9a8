"""FedLPA and FedFisher: linear heads merged once, by the curvature of each client's loss.

At client k's weights W_k, C × D with D = d + 1 where there is a bias, with X̃ = (X, 1):

    A_k = X̃ᵀX̃ / n_k,   G_k (C, C) from the residuals;   solve Σ p_k G_k W A_k = Σ p_k G_k W_k A_k

by conjugate gradients from W̄ = Σ p_k W_k, with (Σ p_k G_k)⁻¹ R (Σ p_k A_k)⁻¹ as preconditioner.
G_k is singular along 1, so the solution with the same sum over classes as W̄ is taken. A_k is never
formed: W A_k is computed by two products with the rows, 4NDC operations per iteration.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import scipy
from pydantic import Field
from pydantic.dataclasses import dataclass

from ... import memory
from ...errors import UsageError
from ...math.softmax import softmax_in_place
from ...values.arrays import F64
from .base import Method, average
from .clients import Clients
from .network import DenseLayers, Tensor
from .settings import MOST, Settings

FLOOR = 1e-6  # of the diagonal Fisher information, below which the average is kept
TOGETHER = 8  # clients whose terms are added by one thread, always the same ones


def matrices(network: DenseLayers, theta: Tensor) -> F64:
    """Heads θ (A, P) as float64 (A, C, D), the bias as the last column."""
    W, *b = network.model(theta.double())
    return np.concatenate([W.numpy(), *(one.numpy()[:, :, None] for one in b)], axis=2)


def flat(network: DenseLayers, W: F64, like: Tensor) -> Tensor:
    """One head (C, D) as θ (P,) of the type of ``like``."""
    d = network.widths[0]
    return like.new_tensor(np.concatenate([W[:, :d].ravel(), W[:, d:].ravel()]))


def rows_of(clients: Clients, network: DenseLayers, k: int, W: F64) -> tuple[F64, F64, Any]:
    """X̃ (n_k, D), the probabilities softmax(X̃ Wᵀ) (n_k, C) and the labels."""
    X, y = clients.of(k)
    real = X.double().numpy()
    if network.bias:
        real = np.hstack([real, np.ones((len(real), 1))])
    return real, softmax_in_place(real @ W.T)[0], y.numpy()


def fisher(P: F64, y: Any = None) -> F64:
    """diag(mean P) − PᵀP/n (C, C), the mean curvature of the cross-entropy in the scores."""
    return np.asarray(np.diag(P.mean(axis=0)) - P.T @ P / len(P))


def squared_residuals(P: F64, y: Any) -> F64:
    """(P − Y)ᵀ(P − Y)/n (C, C)."""
    R = P - np.eye(P.shape[1])[y]
    return np.asarray(R.T @ R / len(R))


class Quadratic:
    """W ↦ Σ p_k (G_k + ρI) W (A_k + ρI) over some clients.

    ``factor(P, y)`` makes G_k (C, C) of client k's probabilities at its own head, and its labels.
    """

    def __init__(
        self,
        clients: Clients,
        network: DenseLayers,
        who: Sequence[int],
        heads: F64,
        factor: Callable[[F64, Any], F64],
        damping: float,
        threads: int,
    ) -> None:
        self.damping, self.threads = damping, threads
        p = clients.shares[list(who)]
        self.p = p / p.sum()
        C, D = heads.shape[1:]
        memory.need(8 * D * (int(clients.sizes[list(who)].sum()) + 3 * D), "the server's system")
        self.rows: list[F64] = []  # X̃ of each client: to make them costs as much as a product
        self.G: list[F64] = []
        for k, W in zip(who, heads, strict=True):
            X, P, y = rows_of(clients, network, k, W)
            self.rows.append(X)
            self.G.append(factor(P, y) + damping * np.eye(C))

    def __call__(self, W: F64) -> F64:
        """The sum (C, D) for one W (C, D), or for a W of each of the participants, (S, C, D)."""
        from .trainer import on_threads

        def work(first: int) -> Any:
            few = range(first, min(first + TOGETHER, len(self.rows)))
            return sum(self._one(i, W if W.ndim == 2 else W[i]) for i in few)

        return np.asarray(sum(on_threads(self.threads, work, range(0, len(self.rows), TOGETHER))))

    def _one(self, i: int, W: F64) -> F64:
        X = self.rows[i]
        through = (W @ X.T) @ X / len(X) + self.damping * W
        return np.asarray(self.p[i] * self.G[i] @ through)

    def precondition(self, R: F64) -> F64:
        """Ḡ⁻¹ R Ā⁻¹ (C, D) with Ḡ = Σ p_k (G_k + ρI) and Ā = Σ p_k (A_k + ρI).

        The inverse of this map where all A_k or all G_k are equal. Without damping every G_k
        vanishes along 1, and R has no part there: Ḡ is made regular. Eigenvalues below rounding
        count as rounding.
        """
        (v, U), (w, Q) = self._spectra
        return np.asarray(U @ ((U.T @ R @ Q) / np.outer(v, w)) @ Q.T)

    @cached_property
    def _spectra(self) -> list[tuple[F64, F64]]:
        """Eigenvalues and eigenvectors of Ḡ and of Ā."""
        G = np.einsum("k,kij->ij", self.p, np.stack(self.G))
        A = self.damping * np.eye(self.rows[0].shape[1])
        for X, p in zip(self.rows, self.p, strict=True):
            A += p / len(X) * (X.T @ X)
        if not self.damping:
            G += np.trace(G) / len(G) ** 2
        spectra = []
        for M in (G, A):
            values, vectors = scipy.linalg.eigh(M, check_finite=False)
            spectra.append((values.clip(len(M) * np.finfo(float).eps * values[-1]), vectors))
        return spectra

    def solve(self, R: F64, tolerance: float, most: int) -> tuple[F64, int, float]:
        """V (C, D) with self(V) = R, the iterations and the relative residual at the end."""
        from scipy.sparse.linalg import LinearOperator, cg

        def on_flat(map_: Callable[[F64], F64]) -> Any:
            return LinearOperator((R.size,) * 2, lambda v: map_(v.reshape(R.shape)).ravel())

        steps: list[F64] = []
        V, _ = cg(
            on_flat(self), R.ravel(), rtol=tolerance, maxiter=most,
            M=on_flat(self.precondition), callback=steps.append,
        )  # fmt: skip
        left = np.linalg.norm(R - self(V.reshape(R.shape))) / (np.linalg.norm(R) or 1.0)
        return V.reshape(R.shape), len(steps), float(left)


@dataclass(frozen=True, kw_only=True)
class CurvatureSettings(Settings):
    """Options of methods that merge heads once, by their curvature."""

    rounds: int = Field(default=1, ge=1, le=1, description="one: the method has a single round")
    lr: float = Field(default=0.01, gt=0, description="learning rate η of the clients")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="momentum of the local descent")
    epochs: int = Field(default=50, ge=1, le=MOST, description="local epochs")
    _tolerance = "relative residual at which the server's iteration ends"
    tolerance: float = Field(default=1e-8, gt=0, description=_tolerance)
    _iterations = "largest number of the server's iterations"
    iterations: int = Field(default=1000, ge=1, le=MOST, description=_iterations)


class ByCurvature(Method):
    """One shot: heads, A_k and G_k of every client, one linear system at the server."""

    damping: float = 0.0  # ρ of ρI, which is added to both factors

    @staticmethod
    @abstractmethod
    def factor(P: F64, y: Any) -> F64:
        """G_k (C, C) from the client's probabilities (n, C) and labels."""

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        heads, mean = matrices(self.network, theta), self.mean(who, theta)
        system = Quadratic(
            self.clients, self.network, who, heads, self.factor, self.damping, self.threads
        )
        s, R = self.settings, system(heads - mean)
        V, steps, left = system.solve(R, s.tolerance, s.iterations)
        self.facts |= {"iterations": steps, "relative_residual": left}
        return flat(self.network, mean + V, theta)

    def mean(self, who: Sequence[int], theta: Tensor) -> F64:
        """W̄ (C, D)."""
        mean: F64 = matrices(self.network, average(theta.double(), self.weigh(who))[None])[0]
        return mean

    def upload(self, round: int) -> int:
        D, C = self.network.widths[0] + self.network.bias, self.network.widths[-1]
        return self.network.size + D * (D + 1) // 2 + C * (C + 1) // 2

    def notes(self) -> list[str]:
        if not self.network.linear:
            raise UsageError(f"{self.name} is for a linear head: leave --hidden and --layers out")
        return ["one round: the clients train alone, then the server solves one linear system"]


@dataclass(frozen=True, kw_only=True)
class FedLPASettings(CurvatureSettings):
    """Options of FedLPA."""

    _damping = "ρ of ρI, which is added to both factors"
    damping: float = Field(default=0.001**0.5, ge=0, description=_damping)


class FedLPA(ByCurvature):
    """FedLPA: heads merged by a block-diagonal Laplace approximation, in one shot.

    Liu et al., "FedLPA: One-shot federated learning with layer-wise posterior aggregation", NeurIPS
    2024. G_k = (P − Y)ᵀ(P − Y)/n_k and ρI, ρ = √(1 − 0.999) in its scripts, on both factors. Here
    the system is solved to the end; the authors' code takes 10,000 gradient steps from
    (Σ p_k G_k)⁻¹ Z (Σ p_k A_k)⁻¹ and reports the better of both on the test rows. DeepAFL's table
    24 has it with 50 local epochs.
    """

    name = "fedlpa"
    settings_class = FedLPASettings
    preset: ClassVar = {"rounds": 1, "lr": 0.05, "momentum": 0.0, "epochs": 50}
    factor = staticmethod(squared_residuals)

    @property
    def damping(self) -> float:  # type: ignore[override]  # of the settings
        return float(self.settings.damping)


@dataclass(frozen=True, kw_only=True)
class FedFisherSettings(CurvatureSettings):
    """Options of FedFisher."""

    epochs: int = Field(default=30, ge=1, le=MOST, description="local epochs")
    _fisher = "which approximation of the Fisher information"
    fisher: Literal["kfac", "diagonal"] = Field(default="kfac", description=_fisher)


class FedFisher(ByCurvature):
    """FedFisher: heads merged by their Fisher information, in one shot; K-FAC or diagonal.

    Jhunjhunwala, Wang, Joshi, "FedFisher: Leveraging Fisher information for one-shot federated
    learning", AISTATS 2024. K-FAC: with G_k = diag(mean P) − PᵀP/n_k. Diagonal:

        F_k = (P∘(1 − P))ᵀ(X̃∘X̃) / n_k,   W = Σ p_k F_k∘W_k / Σ p_k F_k,   W̄ where that is below 1e-6

    The authors' code takes 2,000 steps like Adam's, stopped by training rows at the server; here
    both are solved to the end. A client of one class has P → Y, and its Fisher information
    vanishes. AFL's appendix A.3 has it, with the settings of its own code.
    """

    name = "fedfisher"
    settings_class = FedFisherSettings
    preset: ClassVar = {"rounds": 1, "lr": 0.01, "momentum": 0.9, "epochs": 30}
    factor = staticmethod(fisher)

    def merge(self, round: int, who: Sequence[int], start: Tensor, theta: Tensor) -> Tensor:
        if self.settings.fisher == "kfac":
            return super().merge(round, who, start, theta)
        shares = self.clients.shares[list(who)]
        heads = matrices(self.network, theta)
        top, bottom = np.zeros_like(heads[0]), np.zeros_like(heads[0])
        for k, W, p in zip(who, heads, shares / shares.sum(), strict=True):
            X, P, _ = rows_of(self.clients, self.network, k, W)
            F = p * ((P * (1.0 - P)).T @ (X * X) / len(X))
            top += F * W
            bottom += F
        merged = np.divide(top, bottom, out=self.mean(who, theta), where=bottom >= FLOOR)
        return flat(self.network, merged, theta)

    def upload(self, round: int) -> int:
        return super().upload(round) if self.settings.fisher == "kfac" else 2 * self.network.size
