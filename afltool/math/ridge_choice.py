"""The choice of a ridge λ, for every head: (G + P(λ)) W = H is solved for several λ.

`choose` tries given values, or those of the system's own search. The best λ has the least error on
held-out rows; without held-out rows it has the least generalized cross-validation (Golub, Heath,
Wahba, Technometrics 21, 1979). Only a λ for which the system can be solved is a candidate.

    GCV(λ) = N ‖Y − XW‖² / (N − df)²,    df = tr((G + P)⁻¹G) + the parameters outside the system

`SpectralSystem`: one eigendecomposition, from which every λ follows cheaply. `FactoredSystem`: one
Cholesky factorization a λ, for systems too large for eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from ..errors import NumericalError
from ..values.arrays import F64
from ..values.ridge_spec import Ridge, RidgePath
from . import ridge as rr
from .blas import Cholesky

Point = dict[str, Any]  # one λ: ridge, gcv (None: no estimate), training_mse, degrees_of_freedom, …

EXACT_SIDE = 2048  # up to here degrees of freedom come from the whole inverse
PROBES = 32  # beyond, from so many random signs (Hutchinson, 1990) of a fixed seed
STEP = 10**0.5
MOST = 16  # factorizations of a search


@dataclass(frozen=True)
class Fit:
    """The solution for one λ, without the rows: ``squared_error`` is ‖Y − XW‖²; W (D, C)."""

    squared_error: float
    degrees_of_freedom: float
    weights: Callable[[], F64]


@dataclass(frozen=True)
class Choice:
    """The chosen ridge, its fit, how it was chosen, and a point for each ridge that was tried."""

    ridge: float
    by: str = "given"
    fit: Fit | None = None  # None for a ridge that is taken as given, without a trial
    path: Sequence[Point] = ()

    def weights(self) -> F64:
        """W (D, C) of the chosen ridge, which was tried."""
        assert self.fit is not None
        return self.fit.weights()

    @property
    def point(self) -> Point:
        """What is known of the chosen ridge."""
        return next((one for one in self.path if one["ridge"] == self.ridge), {})

    def report(self) -> dict[str, Any]:
        """What a head's report says of the choice."""
        facts = {"ridge": self.ridge, "ridge_by": self.by}
        measured = {k: v for k, v in self.point.items() if k == "validation_mse"}
        return facts | measured | ({"ridge_path": list(self.path)} if len(self.path) > 1 else {})


def listed_ridges(ridge: Ridge) -> list[float] | None:
    """The values that a ridge asks to try; None where the search decides."""
    if isinstance(ridge, RidgePath):
        return [float(r) for r in np.geomspace(ridge.low, ridge.high, ridge.count)]
    return [ridge] if isinstance(ridge, float) else None


def choose(
    system: System, ridges: Iterable[float] | None, held: Callable[[F64], float] | None = None
) -> Choice:
    """The best of ``ridges`` (None: the system searches); of equally good ones the largest.
    ``held``: the squared error a row of weights (D, C) on held-out rows. `NumericalError` of the
    largest ridge where the system can be solved for none."""
    path: list[Point] = []
    refused: dict[float, NumericalError] = {}
    best: tuple[float, float, Fit] | None = None  # one fit alone, since weights can be large

    def better(ridge: float) -> bool:
        nonlocal best
        try:
            fit = system.fit(ridge)
        except NumericalError as error:
            refused[ridge] = error
            return False
        estimate = gcv(fit, system.rows, system.outside)
        path.append({
            "ridge": float(ridge), "gcv": estimate,
            "training_mse": max(fit.squared_error, 0.0) / system.rows,
            "degrees_of_freedom": fit.degrees_of_freedom,
        })  # fmt: skip
        value = float("inf") if estimate is None else estimate
        if held is not None:
            value = path[-1]["validation_mse"] = held(fit.weights())
        before = (float("inf"), -1.0) if best is None else best[:2]
        if best is None or value < before[0] or (value == before[0] and ridge > before[1]):
            best = value, float(ridge), fit
        return value < before[0] or len(path) == 1

    for ridge in () if ridges is None else ridges:
        better(ridge)
    if ridges is None:
        system.search(better)
    if best is None:
        raise refused[max(refused)]
    path.sort(key=lambda point: float(point["ridge"]))
    how = "generalised cross-validation" if held is None else "held-out clients"
    return Choice(best[1], how if len(path) > 1 else "given", best[2], path)


def gcv(fit: Fit, rows: int, outside: float = 0.0) -> float | None:
    """N ‖Y − XW‖² / (N − df)²; None where df reaches N: there is no estimate."""
    left = rows - fit.degrees_of_freedom - outside
    return rows * max(fit.squared_error, 0.0) / left**2 if left > 1e-9 * rows else None


@dataclass(frozen=True)
class SpectralSystem:
    """P = λI by an eigendecomposition; ``target`` is ‖Y‖². The search tries `auto_grid` whole."""

    spectral: rr.Spectral
    target: float
    rows: int
    outside: float = 0.0

    def fit(self, ridge: float) -> Fit:
        """O(d); λ = 0 stands for the minimum norm. Raises `NumericalError` for a λ > 0 that
        `cholesky_solve` would refuse: it is asked where the eigenvalues leave that open."""
        s = self.spectral
        if ridge > 0 and not rr.conditioning(s.s + ridge).full:
            rr.cholesky_solve(s.G, s.A[:, :0], ridge)
        error = s.squared_error(ridge, self.target)
        return Fit(error, rr.degrees_of_freedom(s.s, ridge), lambda: s.weights(ridge))

    def search(self, better: Callable[[float], bool]) -> None:
        for ridge in rr.auto_grid(self.spectral):
            better(float(ridge))


@dataclass(frozen=True)
class FactoredSystem:
    """Any diagonal P by Cholesky factors. ``matrix()``: a new C-ordered (D, D) whose lower triangle
    counts; ``H`` (D, C); ``target`` = ‖Y‖²; ``penalty(λ)`` the diagonal P (D,). The search walks
    from ``start`` in factors of √10: up while that is better, else down; `MOST` at most."""

    matrix: Callable[[], F64]
    H: F64
    target: float
    rows: int
    penalty: Callable[[float], F64]
    start: float
    outside: float = 0.0

    def fit(self, ridge: float) -> Fit:
        """D³/3. Raises `NumericalError` when G + P is not positive definite to working precision.

        With (G + P) W = H the error needs no G: ‖Y − XW‖² = ‖Y‖² − tr(WᵀH) − tr(WᵀPW).
        """
        penalty, A = self.penalty(ridge), self.matrix()
        A.flat[:: len(A) + 1] += penalty
        try:
            factor = Cholesky(A)
        except scipy.linalg.LinAlgError as error:
            raise rr.not_definite(ridge, len(A), error) from None
        W = factor.solve(self.H)
        left = self.target - float((W * self.H).sum() + (penalty[:, None] * W**2).sum())
        return Fit(max(left, 0.0), len(W) - _trace(factor, penalty), lambda: W)

    def search(self, better: Callable[[float], bool]) -> None:
        better(self.start)
        tried = 1
        for factor in (STEP, 1.0 / STEP):
            ridge, steps = self.start, 0
            while tried < MOST:
                ridge, tried, steps = ridge * factor, tried + 1, steps + 1
                if not better(ridge):
                    break
            if steps > 1:  # the first step up was better: the way down is known
                break


System = SpectralSystem | FactoredSystem


def _trace(factor: Cholesky, penalty: F64) -> float:
    """tr((A + P)⁻¹P): exactly for small systems, else estimated with fixed random signs."""
    side = len(penalty)
    if side <= EXACT_SIDE:
        return float((np.diag(factor.solve(np.eye(side))) * penalty).sum())
    signs = np.random.RandomState(0).randint(0, 2, (side, PROBES)) * 2 - 1
    probes: F64 = np.sqrt(penalty)[:, None] * signs
    return float((factor.half(probes) ** 2).sum() / PROBES)
