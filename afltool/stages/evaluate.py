"""Stage `evaluate`: a solved head and features with labels → accuracies and a confusion matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .. import progress
from ..errors import MismatchError, UsageError
from ..files import load_head
from ..heads.base import Head
from ..metrics import Metrics, score_metrics
from ..statistics import difference
from ..store.features import open_features
from ._rounds import accuracies, rounds_of


def evaluate(head: str | Path, features: str | Path, *, each_round: bool = False) -> dict[str, Any]:
    """Top-1 and top-5 (fractions), n, per-class accuracy and the confusion matrix, as a dict.

    The features must come from the same backbone, preprocessing and number format as those that
    the head was solved from, with the same classes. With ``each_round`` also ``rounds``: the rounds
    of the head's report, with the accuracies of the solved head after each, where this file holds
    it; the head need not be solved yet then, and what it would say so far is evaluated.
    """
    loaded, header = load_head(Path(head))
    solved = _solved(loaded, head, each_round)
    with open_features(Path(features)) as rows:
        ours = {"space": header["space"], "classes": header["classes"]}
        theirs = {"space": rows.header["space"], "classes": rows.header["classes"]}
        where = difference(ours, theirs)
        if where:
            raise MismatchError(
                f"{features} does not fit the head {head}: {where}; extract it with the backbone, "
                "options and classes of the head"
            )
        names = solved.solved_rounds() if each_round else [""]
        counted = [Metrics(np.zeros((len(rows.classes),) * 2, dtype=np.int64), 0) for _ in names]
        with progress.task("evaluate", len(rows), "rows") as task:
            for start, X in rows.blocks():
                y = rows.labels[start : start + len(X)]
                found = solved.round_scores(X) if each_round else [solved.scores(X)]
                for k, scores in enumerate(found):
                    counted[k] += score_metrics(scores, y)
                task.advance(len(X))
        return {
            **counted[-1].as_dict(rows.classes),
            "head": {"path": str(head), "digest": header["digest"], "name": solved.name},
            "features": {"path": str(features), "digest": rows.header["digest"]},
            **({"rounds": rounds_of(loaded, accuracies(names, counted))} if each_round else {}),
        }


def _solved(head: Head, path: str | Path, each_round: bool) -> Head:
    found = head.so_far() if each_round else head
    if found is None or found.phase() is not None:
        raise UsageError(
            f"the head {path} is not solved yet: its next phase is {head.phase()!r} (local-stats)"
        )
    return found
