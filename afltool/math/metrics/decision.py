"""Which class a row has: the only place where scores become classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ...errors import InvalidDataError
from ...values.arrays import F64, I64
from ..gram import Rows

SCORES_AT_ONCE = 2**23  # scores of the rows that are scored together: 64 MB


def decided(S: F64) -> I64:
    """The predicted class of each row, int64 (n,): the first one of the highest scores S (n, C).

    A score may be −∞, of a class that the head never predicts; `InvalidDataError` for a row whose
    highest score is not finite.

    >>> decided(np.array([[-3.0, -1.0], [0.5, 0.5], [-np.inf, -9.0]])).tolist()
    [1, 0, 1]
    """
    predicted: I64 = S.argmax(axis=1)  # of NaN, where there is one
    highest = S[np.arange(len(S)), predicted]
    if not np.isfinite(highest).all():
        wrong = highest[~np.isfinite(highest)][0]
        raise InvalidDataError(
            f"the highest score of a row is {wrong}, so it has no class. Check the features for "
            "very large values"
        )
    return predicted


def best(S: F64, top: int) -> I64:
    """The classes with the highest scores, int64 (n, top): equal ones in class order, as in
    `decided`."""
    predicted = decided(S)[:, None]
    return predicted if top == 1 else np.argsort(-S, axis=1, kind="stable")[:, :top]


def places(S: F64, y: I64, predicted: I64) -> I64:
    """The place of each row's own class y among its scores, from 0 on, (n,), as in `best`."""
    found = np.zeros(len(y), dtype=np.int64)
    wrong = np.flatnonzero(predicted != y)
    others, own = S[wrong], S[wrong, y[wrong]][:, None]
    earlier = np.arange(S.shape[1]) < y[wrong, None]
    found[wrong] = ((others > own) | ((others == own) & earlier)).sum(axis=1)
    return found


def cut(blocks: Iterable[tuple[int, Rows]], classes: int) -> Iterator[tuple[int, Rows]]:
    """Blocks (first row, rows), cut so that their scores of many classes fit into memory."""
    most = max(1, SCORES_AT_ONCE // classes)
    for start, X in blocks:
        for at in range(0, len(X), most):
            yield start + at, X[at : at + most]
