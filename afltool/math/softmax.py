"""Softmax regression: loss, gradient and a bound on its curvature, as sums over rows.

For fixed-point rows everything that is summed is an integer, so the sums do not depend on their
order: weights are rounded to integers such that the scores Φ̂V̂ are exact in float64, probabilities
and losses to multiples of 2^−24, and the gradient Φ̂ᵀ(P̂ − Ŷ) is an exact integer product.

Φ is [X, 1]. Columns of fixed-point rows are integers in units of 2^−bits, the constant 1 is 2^bits.
The products Φ V and Φᵀ R are of a few rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy

from ..errors import NumericalError
from ..values.arrays import F64, I64, Array
from . import blas
from .blas import pack, unpack_transposed
from .gram import EXACT_FLOAT64, LARGEST, FixedPoint, Rows

BITS = 24  # of probabilities and losses: an error of 6e-8 each
LARGEST_SHIFT = 1000  # of weights: 2^1024 is no float64
FEW_CLASSES = 32  # up to which the largest score of a row is found faster in a transposed copy
EXACT_ROWS = EXACT_FLOAT64 // (LARGEST << BITS)  # whose residuals times features stay below 2^53
FEW = 64  # rows of one product: OpenBLAS has kernels for small ones, twice as fast,
SMALL = 10**6  # of at most so many multiplications


class Dense:
    """[X, 1] of rows X (n, d), with the constant feature last, in units of 2^−``bits``, or reals in
    units of one (None). No row has Σ_j |Φ̂_j| beyond ``reach``; there are D ``columns``."""

    def __init__(self, X: Rows) -> None:
        self.bits: int | None = X.bits if isinstance(X, FixedPoint) else None
        given = X.values if isinstance(X, FixedPoint) else X
        self.values: F64 = np.asarray(given, dtype=np.float64)
        self._one = 2.0 ** (self.bits or 0)
        self.columns = self.values.shape[1] + 1
        self.reach = self.columns * max(LARGEST, int(self._one))

    def forward(self, V: F64) -> F64:
        """Φ̂ V (n, C) of V (D, C)."""
        out = np.empty((len(self.values), V.shape[1]))
        for at in range(0, len(out), FEW):
            few = slice(at, at + FEW)
            np.matmul(self.values[few], V[:-1], out=out[few])
        out += self._one * V[-1]
        return out

    def backward(self, R: F64, total: F64) -> None:
        """total += Φ̂ᵀ R (D, C) of R (n, C)."""
        step = FEW if FEW * total.size <= SMALL else max(len(R), 1)  # else the sums cost too much
        for at in range(0, len(R), step):
            few = slice(at, at + step)
            total[:-1] += self.values[few].T @ R[few]
        total[-1] += self._one * (np.ones(len(R)) @ R)


def exact_weights(V: F64, reach: int) -> tuple[F64, int]:
    """V ≈ V̂ · 2^−s with V̂ integral (as float64) and the largest s that keeps Φ̂V̂ exact:
    ``reach`` ≥ Σ_j |Φ̂_j| of any row, so that a score is at most reach · |V̂| ≤ 2^53."""
    largest = float(np.abs(V).max(initial=0.0))
    if not np.isfinite(largest):
        raise NumericalError("the weights are not finite: the iteration has diverged")
    shift = np.floor(np.log2(EXACT_FLOAT64 // reach / largest)) if largest else 0
    s = int(min(shift, LARGEST_SHIFT))
    return np.asarray(np.rint(V * 2.0**s)), s


def scores(designs: Iterable[Dense], V: F64) -> F64:
    """Φ V (n, C) of parts of one Φ; exact products of rounded weights in fixed point."""
    return np.concatenate([design.forward(prepare_weights(design, V)) for design in designs])


def prepare_weights(design: Dense, V: F64) -> F64:
    """The weights by which Φ̂ gives scores; a power of 2 leaves products of integers exact."""
    if design.bits is None:
        return V
    rounded, s = exact_weights(V, design.reach)
    return np.ldexp(rounded, -(s + design.bits))


def softmax_in_place(S: F64, unit: float = 1.0) -> tuple[F64, F64]:
    """unit · softmax(S) row by row (n, C), in the memory of S, and log Σ exp(S) (n,); ``unit`` is a
    power of 2, which changes no digit."""
    columns = S.T if S.shape[1] > FEW_CLASSES else np.ascontiguousarray(S.T)
    top = columns.max(axis=0)[:, None]
    S -= top
    np.exp(S, out=S)
    Z = S.sum(axis=1, keepdims=True)
    S /= Z / unit
    return S, (np.log(Z) + top)[:, 0]


def residual_and_loss(S: F64, y: I64, unit: float = 1.0) -> tuple[F64, F64]:
    """softmax(S) − Y (n, C), Y one-hot, and each row's loss −log P_y (n,), both times ``unit``. S,
    C-ordered, is overwritten."""
    flat, at = S.reshape(-1), np.arange(len(y)) * S.shape[1] + y
    wanted = flat[at]
    P, log_sum = softmax_in_place(S, unit)
    flat[at] -= unit
    return P, unit * (log_sum - wanted)


class Gradients:
    """Sums of Φᵀ(softmax(ΦV) − Y) (D, C) and of the loss (1,) over rows, without the penalty:
    float64, or, of fixed-point rows (``exact``), int64 in units of 2^−(bits + 24) and 2^−24."""

    def __init__(self, V: F64) -> None:
        self._point = V
        self._prepared: F64 | None = None
        self._gradient, self._loss, self._rows = np.zeros(V.shape), 0.0, 0
        self._whole, self._losses = np.zeros(V.shape, np.int64), 0  # beyond what float64 adds up
        self.exact = False

    def add(self, parts: Iterable[tuple[Dense, I64]]) -> None:
        """Add rows and their labels: a few at a time, so that Φ is in the cache for both products;
        each is done with before the next one is made."""
        for design, y in parts:
            if self._prepared is None:
                self._prepared, self.exact = (
                    prepare_weights(design, self._point),
                    design.bits is not None,
                )
            if self.exact and self._rows + len(y) > EXACT_ROWS:
                assert len(y) <= EXACT_ROWS
                self._move()
            unit = 2.0**BITS if self.exact else 1.0
            scores = design.forward(self._prepared)
            R, losses = residual_and_loss(scores, y, unit)
            if self.exact:
                R, losses = np.rint(R, out=R), np.rint(losses)
            design.backward(R, self._gradient)
            self._loss += float(losses.sum())
            self._rows += len(y)

    def taken(self) -> dict[str, Array]:
        """``gradient`` and ``loss`` of the rows so far; it begins again at zero."""
        if self.exact:
            self._move()
            whole, self._whole = self._whole, np.zeros_like(self._whole)
            losses, self._losses = self._losses, 0
            return {"gradient": whole, "loss": np.array([losses])}
        sums = {"gradient": self._gradient.copy(), "loss": np.array([self._loss])}
        self._gradient[:], self._loss = 0.0, 0.0
        return sums

    def _move(self) -> None:
        self._whole += self._gradient.astype(np.int64)
        self._losses += int(self._loss)
        self._gradient[:], self._loss, self._rows = 0.0, 0.0, 0


class Bound:
    """B = ½G + diag(penalty), factored once, ``factor`` the triangle of L, B = L Lᵀ: B ⊗ I is
    above the Hessian, which is at most ½ (I − 11ᵀ/C) ⊗ ΦᵀΦ (Böhning, 1992) and the penalty's
    curvature."""

    def __init__(self, factor: F64) -> None:
        self.factor = factor

    @classmethod
    def of(cls, G: F64, penalty: F64) -> Bound:
        """From the lower triangle of G (D, D), C-ordered, which is overwritten; D³/3."""
        G *= 0.5
        G.flat[:: len(G) + 1] += penalty
        try:
            blas.cholesky_in_place(G)
        except scipy.linalg.LinAlgError:
            raise NumericalError(
                f"½ gram + penalty ({len(G)} × {len(G)}) is not positive definite to working "
                "precision",
                advice=": use a larger --penalty",
            ) from None
        return cls(pack(G))

    def solve(self, H: F64) -> F64:
        """B⁻¹ H (D, C); 2 D² C operations. V − B⁻¹ gradient never has a larger penalized loss."""
        upper = unpack_transposed(self.factor)
        W: F64 = scipy.linalg.cho_solve((upper, False), H, check_finite=False)
        return W


def make_penalty(mu: float, rows: int, columns: int) -> F64:
    """Diagonal of the penalty's curvature, (columns,): μN, and 0 for the intercept, the last."""
    diagonal = np.full(columns, mu * rows)
    diagonal[-1] = 0.0
    return diagonal
