"""A packed file is run on a sample and compared with afltool's own scores before it gets its name.

The sample is made of numbers from a fixed seed, of every scale that the space holds, of the head's
own arrays (means, thresholds: where scores change), and of rows that afltool refuses.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch

from ..errors import InvalidDataError, NumericalError
from ..heads.base import NOBODY, Head
from ..heads.graphs import arithmetic, build_graph
from ..math.gram import LARGEST, FixedPoint, check_finite, encode
from ..values.arrays import F32, F64, Array

#: Largest difference of a score, relative to the largest score of its row: of heads whose products
#: are float32, and of all others.
COARSE, FINE = 1e-3, 1e-6
#: Of features that the head rounds to b fraction bits, and a file does not: so many times 2^−b of
#: the row's largest score, or of 1 where that is less.
ROUNDED = 16.0
ROWS = 200  # of the sample that come from the generator
COLUMNS = 64  # of a head's arrays, at the most, that are rows of the sample


@dataclass(frozen=True)
class VerificationResult:
    """What was found: rows, the tolerance, the largest relative difference of a score."""

    rows: int
    tolerance: float
    largest: float


def sample_rows(head: Head, bits: int | None) -> F32:
    """Rows (n, d) for a trial; the last two are refused by afltool."""
    dim, _ = head._bound()
    rng = np.random.default_rng(0)
    top = 6 if bits is None else 12 - bits  # rows of normal numbers stay below ±2^(15 − bits)
    scales = 2.0 ** rng.uniform(-8, top, size=(ROWS, 1))
    x = rng.normal(size=(ROWS, dim)) * scales
    x[::2] = np.maximum(x[::2], 0.0)  # as behind a ReLU
    arrays = (a[:, :COLUMNS].T for a in head.state_dict().values() if a.ndim == 2 and len(a) == dim)
    reach = np.finfo("f4").max if bits is None else LARGEST / 2.0**bits
    own = np.vstack([np.empty((0, dim)), *arrays])
    x = np.vstack([x, own[np.abs(own).max(axis=1, initial=0.0) <= reach]])
    bad = np.zeros((2, dim))
    bad[0, 0], bad[1, -1] = np.nan, np.inf if bits is None else 1.01 * reach
    return np.vstack([x, bad]).astype(np.float32)


def compare(
    head: Head, bits: int | None, x: Array, answers: dict[str, Array], what: str
) -> VerificationResult:
    """The outputs of a file for features x (n, d) against the head's scores. `NumericalError` for a
    score beyond the tolerance, another class, or a row that one of both refuses."""
    scores, predicted = answers["scores"], answers["predicted"]
    wanted = compute_own_scores(head, bits, x)
    refused = np.isnan(wanted).any(axis=1)
    if not np.array_equal(refused, predicted == NOBODY):
        theirs = (predicted == NOBODY).sum()
        raise differs(what, f"refuses {theirs} rows of {len(x)}, afltool {refused.sum()}")
    kind, rounded = arithmetic(build_graph(head, bits))
    tolerance, least = COARSE if kind == torch.float32 else FINE, float(np.finfo(float).tiny)
    if rounded is not None:
        tolerance, least = ROUNDED * 2.0**-rounded, 1.0
    good = ~refused
    scores, wanted, predicted = scores[good], wanted[good], predicted[good]
    finite = np.isfinite(wanted)
    if not np.array_equal(finite, np.isfinite(scores)):
        raise differs(what, "has finite scores where afltool has none, or the reverse")
    sizes = np.abs(np.where(finite, wanted, 0.0)).max(axis=1, keepdims=True).clip(least)
    away = np.abs(np.subtract(scores, wanted, out=np.zeros_like(wanted), where=finite))
    largest = float((away / sizes).max(initial=0.0))
    if largest > tolerance:
        raise differs(what, f"differs by up to {largest:.3g} of a row's largest score")
    behind = wanted.max(axis=1) - wanted[np.arange(len(wanted)), predicted]
    if (behind > 2 * tolerance * sizes[:, 0]).any():
        raise differs(what, f"predicts other classes for {(behind > 0).sum()} of {len(x)} rows")
    return VerificationResult(len(x), tolerance, largest)


def compute_own_scores(head: Head, bits: int | None, x: Array) -> F64:
    """The head's scores of features (n, d); NaN for rows that afltool refuses."""
    out = np.full((len(x), head._bound()[1]), np.nan)
    for i, row in enumerate(x[:, None]):
        with suppress(InvalidDataError):
            check_finite(row)
            out[i] = head.decision_function(
                row if bits is None else FixedPoint(encode(row, bits), bits)
            )[0]
    return out


def differs(what: str, how: str) -> NumericalError:
    return NumericalError(f"{what} was not written: run on a sample, it {how}; report it")
