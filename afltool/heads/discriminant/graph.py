"""The one-shot classifiers as PyTorch modules: linear, naive Bayes, quadratic."""

from __future__ import annotations

import numpy as np
import torch
from scipy import linalg
from torch import Tensor, nn

from ...math.triangle import unpack
from ...values.arrays import F64
from ..graphs import Affine, tensor
from .head import DiscriminantHead, log_shares


class NaiveBayes(nn.Module):
    """Σ_j [−½ log 2πσ² − (x − μ)²/2σ²] + log π."""

    means: Tensor
    precisions: Tensor
    base: Tensor

    def __init__(self, means: F64, variances: F64, shares: F64) -> None:
        super().__init__()
        self.register_buffer("means", tensor(means))
        self.register_buffer("precisions", tensor(1.0 / variances))
        base = shares - 0.5 * np.log(2.0 * np.pi * variances).sum(axis=0)
        self.register_buffer("base", tensor(base))

    def forward(self, x: Tensor) -> Tensor:
        away = x[:, :, None] - self.means
        return self.base - 0.5 * (away * away * self.precisions).sum(dim=1)


class Quadratic(nn.Module):
    """−½ (‖L⁻¹(x − μ)‖² + log det Σ) + log π, with L⁻¹ (C, d, d) instead of a solve."""

    means: Tensor
    inverse: Tensor
    base: Tensor

    def __init__(self, means: F64, factors: F64, shares: F64) -> None:
        super().__init__()
        d, classes = means.shape
        inverse, base = np.zeros((classes, d, d)), np.zeros(classes)
        for c in np.flatnonzero(factors.any(axis=1)):  # a class without rows has no factor
            L = np.tril(unpack(factors[c]))
            inverse[c] = linalg.solve_triangular(L, np.eye(d), lower=True)
            base[c] = shares[c] - np.log(np.diag(L)).sum()
        self.register_buffer("means", tensor(means.T))
        self.register_buffer("inverse", tensor(inverse.transpose(0, 2, 1)))
        self.register_buffer("base", tensor(base))

    def forward(self, x: Tensor) -> Tensor:
        z = torch.matmul(x - self.means[:, None, :], self.inverse)  # (C, n, d)
        return self.base - 0.5 * (z * z).sum(dim=2).T


class Present(nn.Module):
    """Scores, −∞ for classes without rows."""

    present: Tensor

    def __init__(self, scores: nn.Module, present: np.ndarray) -> None:
        super().__init__()
        self.scores = scores
        self.register_buffer("present", tensor(present))

    def forward(self, x: Tensor) -> Tensor:
        none = torch.full((), -np.inf, dtype=torch.float64)
        return torch.where(self.present, self.scores(x), none)


def graph(head: DiscriminantHead, bits: int | None) -> nn.Module:
    """The rule's scores."""
    counts = np.asarray(head.counts, dtype=np.float64)
    shares = log_shares(counts)
    found: nn.Module
    if head.weights is not None:
        found = Affine(head.weights[:-1], head.weights[-1])
    elif head.variances is not None:
        found = NaiveBayes(np.asarray(head.means), head.variances, shares)
    else:
        found = Quadratic(np.asarray(head.means), np.asarray(head.factors), shares)
    return found if counts.all() else Present(found, counts > 0)
