"""Stage `evaluate`: a solved head and features with labels → accuracies and a confusion matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .. import progress
from ..errors import MismatchError, UsageError
from ..files import load_head
from ..metrics import Metrics, score_metrics
from ..statistics import difference
from ..store.features import open_features


def evaluate(head: str | Path, features: str | Path) -> dict[str, Any]:
    """Top-1 and top-5 (fractions), n, per-class accuracy and the confusion matrix, as a dict.

    The features must come from the same backbone, preprocessing and number format as those that
    the head was solved from, with the same classes.
    """
    solved, header = load_head(Path(head))
    if solved.phase() is not None:
        raise UsageError(
            f"the head {head} is not solved yet: its next phase is {solved.phase()!r} (local-stats)"
        )
    with open_features(Path(features)) as rows:
        ours = {"space": header["space"], "classes": header["classes"]}
        theirs = {"space": rows.header["space"], "classes": rows.header["classes"]}
        where = difference(ours, theirs)
        if where:
            raise MismatchError(
                f"{features} does not fit the head {head}: {where}; extract it with the backbone, "
                "options and classes of the head"
            )
        counted = Metrics(np.zeros((len(rows.classes),) * 2, dtype=np.int64), 0)
        with progress.task("evaluate", len(rows), "rows") as task:
            for start, X in rows.blocks():
                y = rows.labels[start : start + len(X)]
                counted += score_metrics(solved.scores(X), y)
                task.advance(len(X))
        return {
            **counted.as_dict(rows.classes),
            "head": {"path": str(head), "digest": header["digest"], "name": solved.name},
            "features": {"path": str(features), "digest": rows.header["digest"]},
        }
