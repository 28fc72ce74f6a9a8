"""Merging linear heads by the curvature of each client's loss: FedLPA and FedFisher.

At client k's weights W_k, C × D with D = d + 1 where there is a bias, with X̃ = (X, 1):

    A_k = X̃ᵀX̃ / n_k,   G_k (C, C) from the residuals;   solve Σ p_k G_k W A_k = Σ p_k G_k W_k A_k

by conjugate gradients from W̄ = Σ p_k W_k, with (Σ p_k G_k)⁻¹ R (Σ p_k A_k)⁻¹ as preconditioner.
G_k is singular along 1, so the solution with the same sum over classes as W̄ is taken. A_k is never
formed: W A_k is computed by two products with the rows, 4NDC operations per iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from .. import memory
from ..math.softmax import softmax_in_place
from ..values.arrays import F64
from .clients import Clients
from .network import DenseLayers, Tensor
from .trainer import on_threads

TOGETHER = 8  # clients whose terms are added by one thread, always the same ones


def matrices(network: DenseLayers, theta: Tensor) -> F64:
    """Heads θ (A, P) as float64 (A, C, D), the bias as the last column."""
    ((W, b),) = network.layers(network.model(theta))
    parts = [W.double().numpy()]
    if b is not None:
        parts.append(b.double().numpy()[:, :, None])
    return np.concatenate(parts, axis=2)


def flat(network: DenseLayers, W: F64, like: Tensor) -> Tensor:
    """One head (C, D) as θ (P,) of the type of ``like``."""
    import torch

    d = network.widths[0]
    whole = np.concatenate([W[:, :d].ravel(), W[:, d:].ravel()])
    return torch.from_numpy(whole).to(like.dtype)


def rows_of(clients: Clients, network: DenseLayers, k: int) -> tuple[F64, NDArray[np.int64]]:
    """X̃ (n_k, D) float64 and labels."""
    X, y = clients.of(k)
    real = X.double().numpy()
    return (np.hstack([real, np.ones((len(real), 1))]) if network.bias else real), y.numpy()


def class_probabilities(X: F64, W: F64) -> F64:
    """softmax(X Wᵀ) (n, C)."""
    return softmax_in_place(X @ W.T)[0]


def fisher(P: F64) -> F64:
    """diag(mean P) − PᵀP/n (C, C), the mean curvature of the cross-entropy in the scores."""
    return np.asarray(np.diag(P.mean(axis=0)) - P.T @ P / len(P))


def squared_residuals(P: F64, y: Any) -> F64:
    """(P − Y)ᵀ(P − Y)/n (C, C)."""
    R = P.copy()
    R[np.arange(len(y)), y] -= 1.0
    return np.asarray(R.T @ R / len(R))


def diagonal_fisher(clients: Clients, network: DenseLayers, k: int, W: F64) -> F64:
    """(P∘(1 − P))ᵀ(X̃∘X̃) / n_k (C, D), the diagonal of client k's Fisher information."""
    X, _ = rows_of(clients, network, k)
    P = class_probabilities(X, W)
    return np.asarray((P * (1.0 - P)).T @ (X * X) / len(X))


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
            X, y = rows_of(clients, network, k)
            self.rows.append(X)
            self.G.append(factor(class_probabilities(X, W), y) + damping * np.eye(C))

    def __call__(self, W: F64) -> F64:
        """The sum (C, D) for one W (C, D), or for a W of each of the participants, (S, C, D)."""

        def work(first: int) -> Any:
            total: Any = 0.0
            for i in range(first, min(first + TOGETHER, len(self.rows))):
                total = total + self._one(i, W if W.ndim == 2 else W[i])
            return total

        parts = on_threads(self.threads, work, range(0, len(self.rows), TOGETHER))
        return np.asarray(sum(parts[1:], start=parts[0]))

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
            values, vectors = linalg.eigh(M, check_finite=False)
            floor = len(M) * np.finfo(float).eps * values[-1]
            spectra.append((np.maximum(values, floor), vectors))
        return spectra


def conjugate_gradients(
    operator: Callable[[F64], F64],
    precondition: Callable[[F64], F64],
    residual: F64,
    tolerance: float,
    most: int,
) -> tuple[F64, int, float]:
    """V with operator(V) = ``residual``; the iterations and the relative residual at the end.

    Hestenes and Stiefel, 1952. ``operator`` is symmetric and positive semidefinite, ``residual`` in
    its range; ``precondition`` is symmetric and positive definite there. The end does not depend on
    it: the plain residual is at most ``tolerance`` times the first.
    """
    V, first = np.zeros_like(residual), float(np.linalg.norm(residual))
    r, p, before, left, done = residual.copy(), np.zeros_like(residual), 1.0, first, 0
    while done < most and left > tolerance * first:
        z = precondition(r)
        along = float(np.vdot(r, z))
        p = z + (along / before if done else 0.0) * p
        Ap = operator(p)
        curvature = float(np.vdot(p, Ap))
        if curvature <= 0.0:  # the rest lies in the null space, up to rounding
            break
        V += along / curvature * p
        r -= along / curvature * Ap
        before, left = along, float(np.linalg.norm(r))
        done += 1
    return V, done, (left / first if first else 0.0)
