"""The folder of a baseline: the one place that names its files."""

from __future__ import annotations

from ..files import schema


class BaselineFolder:
    """Names of the files of a baseline; `afltool.plans.layout` has those of a run."""

    SUMMARY = schema.SUMMARY
    HEAD = "head.h5"
    HELD_OUT_HEAD = "head-held-out.h5"
    ROUNDS = "rounds.csv"
    CHECKPOINT = "checkpoint.h5"
    RATES = "learning-rates.json"  # those that --lr auto has tried so far
    WRITES = (SUMMARY, HEAD, HELD_OUT_HEAD, ROUNDS, CHECKPOINT, RATES)
