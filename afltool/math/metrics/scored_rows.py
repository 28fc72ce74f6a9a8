"""Keeps scored rows that arrive in blocks, if more than counts is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...values.arrays import I64
from .figures import Scored

WRONG = ["row", "true", "predicted", "score", "score_of_true"]  # of a row that is wrong

Numbers = NDArray[np.float64]


class Kept:
    """Rows for `figures`, and the wrong ones.

    ``rows``: keep every row's class, prediction and probabilities; ``scores``: all scores, too,
    8 C bytes a row. ``wrong``: keep a record, by the names in `WRONG`, of each row that is wrong.
    """

    def __init__(self, *, rows: bool, scores: bool = False, wrong: bool = False) -> None:
        self._rows, self._scores, self._wrong = rows, scores, wrong
        self._parts: list[Scored] = []
        self.wrong: list[dict[str, Any]] = []

    def add(
        self, S: Numbers, P: Numbers | None, y: I64, ids: NDArray[np.bytes_], classes: Sequence[str]
    ) -> None:
        """Add a block: scores and, if the head has them, probabilities (n, C); labels and ids (n,).

        Records of wrong rows have probabilities if there are any, otherwise scores.
        """
        if self._rows:
            self._parts.append(Scored.of(S, y, P, self._scores))
        if not self._wrong:
            return
        predicted, told = S.argmax(axis=1), S if P is None else P
        for i in np.flatnonzero(predicted != y):
            name, scores = ids[i].decode(errors="replace"), (told[i, predicted[i]], told[i, y[i]])
            line = (name, classes[y[i]], classes[predicted[i]], *map(float, scores))
            self.wrong.append(dict(zip(WRONG, line, strict=True)))

    def scored(self) -> Scored | None:
        """All rows so far; None if none were kept."""
        return Scored.joined(self._parts) if self._parts else None

    def right(self) -> NDArray[np.bool_]:
        """Whether the prediction of each row is right, bool (n,)."""
        return np.concatenate([part.predicted == part.y for part in self._parts])
