"""The learning rate: its range for these features, and the choice by held-out clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import linalg

from .. import progress
from ..errors import NumericalError, UsageError
from ..math.gram import real_gram
from ..math.triangle import length, unpack
from .clients import Clients
from .runner import Run
from .settings import Settings

ADDED_AT_ONCE = 8192  # rows whose products are added to the gram together
# Multiples of the rate 2C/λ_max, at which steps begin to oscillate at W = 0. Some are above 1: the
# curvature of well classified rows vanishes, and batches are smaller than the gram of λ_max.
TRIED = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def curvature(clients: Clients, bias: bool) -> float:
    """λ_max of X̃ᵀX̃/N, X̃ = (X, 1) where there is a bias, over all training rows.

    Raises `NumericalError` for rows that no gradient can learn from: all 0, or with squares that
    float32 does not hold.
    """
    at = np.concatenate(clients.rows)
    d = clients.dim + bias
    packed = np.zeros(length(d))
    for start in range(0, len(at), ADDED_AT_ONCE):
        X = clients.X[at[start : start + ADDED_AT_ONCE]].numpy()
        with np.errstate(over="ignore", invalid="ignore"):  # looked at below
            packed += real_gram(np.hstack([X, np.ones((len(X), 1), X.dtype)]) if bias else X)
    if not np.isfinite(packed).all() or not packed.any():
        what = "are all 0" if not packed.any() else "have squares beyond the range of float32"
        raise NumericalError(f"the training features {what}: look at them, or scale them")
    top = linalg.eigh(unpack(packed), eigvals_only=True, subset_by_index=[d - 1, d - 1])
    return float(top[0]) / len(at)


def stability(rate: float, top: float, classes: int) -> float:
    """η λ_max / C: gradient descent on a linear head oscillates at W = 0 where it exceeds 2."""
    return rate * top / classes


def candidates(top: float, classes: int) -> list[float]:
    """Rates around the edge 2C/λ_max, to two digits."""
    edge = 2.0 * classes / top
    return [float(f"{share * edge:.2g}") for share in TRIED]


def choose_rate(
    settings: Settings,
    rates: list[float],
    begin: Callable[[Settings], Run],
    tried: Callable[[dict[str, Any]], None],
    known: Sequence[dict[str, Any]] = (),
) -> tuple[float, list[dict[str, Any]]]:
    """The rate with the best accuracy on held-out clients in any round measured, and the table.

    ``begin`` makes a run of given settings; ``tried`` is called after each rate; rates in ``known``
    are not tried again. Of equal accuracies the smaller rate wins. Rates that diverge are skipped.
    """
    rounds = min(settings.rounds, settings.lr_rounds or max(10, settings.rounds // 5))
    table = list(known)
    for rate in rates[len(known) :]:
        entry = {"lr": rate, **_tried(begin(replace(settings, lr=rate, rounds=rounds)), rounds)}
        table.append(entry)
        tried(entry)
    good = [one for one in table if one["held_out_top1"] is not None]
    if not good:
        raise UsageError(
            f"--lr auto: all rates from {rates[0]:g} to {rates[-1]:g} diverged within {rounds} "
            "rounds; scale the features, or give a smaller --lr"
        )
    best = max(good, key=lambda one: (one["held_out_top1"], -one["lr"]))
    return best["lr"], table


def _tried(run: Run, rounds: int) -> dict[str, Any]:
    try:
        while run.round < rounds:
            progress.stop_point()
            run.advance()
    except NumericalError:
        return {"held_out_top1": None, "rounds": run.round}
    found = [one["held_out_top1"] for one in run.state.rounds if "held_out_top1" in one]
    return {"held_out_top1": max(found), "rounds": rounds}
