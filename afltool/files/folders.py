"""Names of files in the folders of results, for those who write them and those who look."""

from __future__ import annotations

SUMMARY = "summary.json"  # of a run and of a baseline: options, figures, digests, seconds, bytes
FINAL_HEAD = "head-final.h5"  # of a run: a second name of the head after the last round


class BaselineFolder:
    """Names of the files of a baseline; `afltool.plans.layout` has those of a run."""

    SUMMARY = SUMMARY
    HEAD = "head.h5"
    HELD_OUT_HEAD = "head-held-out.h5"
    ROUNDS = "rounds.csv"
    CHECKPOINT = "checkpoint.h5"
    RATES = "learning-rates.json"  # those that --lr auto has tried so far
    WRITES = (SUMMARY, HEAD, HELD_OUT_HEAD, ROUNDS, CHECKPOINT, RATES)
