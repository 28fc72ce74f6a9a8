"""Small federations in memory, and baselines run on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from afltool import parallel
from afltool.lab.baselines import make_settings
from afltool.lab.baselines.clients import Clients, assigned_clients
from afltool.lab.baselines.runner import Measured, Run


def federation(
    sizes=(70, 130, 9, 64, 200), d=7, classes=4, dtype=torch.float32, seed=0, labels=None
) -> Clients:
    """Clients of these sizes with non-negative features; each prefers some classes.

    ``labels``: for each client the classes that it has.
    """
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    shares = rng.dirichlet(np.ones(classes), len(sizes))
    if labels is not None:
        shares = np.array([[c in own for c in range(classes)] for own in labels], float)
    shares /= shares.sum(axis=1, keepdims=True)
    y = np.array([rng.choice(classes, p=shares[k]) for k in owner])
    centres = 2 * np.random.default_rng(5).random((classes, d))
    X = np.abs(rng.normal(size=(len(y), d)) * 0.5 + centres[y])
    mixed = rng.permutation(len(y))
    return assigned_clients(
        torch.from_numpy(X[mixed]).to(dtype),
        torch.from_numpy(y[mixed]),
        np.arange(len(y)),
        owner[mixed],
        [f"site {k}" for k in range(len(sizes))],
        classes,
        np.arange(len(sizes)),
    )


def begun(name: str, clients: Clients, **given: Any) -> Run:
    """A run before its first round; the rows of all clients are its test rows."""
    settings = make_settings(name, given)
    test = Measured(clients.X, clients.y.numpy())
    return Run(name, settings, clients, test)


def finished(name: str, clients: Clients, *, threads=1, **given: Any) -> Run:
    """A run after its last round."""
    run = begun(name, clients, **given)
    with parallel.thread_limit(threads):
        for _ in range(run.settings.rounds):
            run.advance()
    return run


def weights(name: str, clients: Clients, **given: Any) -> torch.Tensor:
    return finished(name, clients, **given).weights


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.numpy().tobytes() == b.numpy().tobytes()


def as_matrix(theta: torch.Tensor, d: int, classes: int) -> np.ndarray:
    """A linear head with a bias as (C, d + 1), float64."""
    whole = theta.double().numpy()
    return np.hstack([whole[: d * classes].reshape(classes, d), whole[d * classes :][:, None]])


def with_ones(X: torch.Tensor) -> np.ndarray:
    return np.hstack([X.double().numpy(), np.ones((len(X), 1))])


def mean_gradient(W: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """∇ of the mean cross-entropy of rows X (n, D) in W (C, D)."""
    S = X @ W.T
    P = np.exp(S - S.max(1, keepdims=True))
    P /= P.sum(1, keepdims=True)
    P[np.arange(len(y)), y] -= 1
    return P.T @ X / len(y)
