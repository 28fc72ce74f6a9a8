"""Names of files in the folders of results, for those who write them and those who look."""

from __future__ import annotations

SUMMARY = "summary.json"  # of a run and of a baseline: options, figures, digests, seconds, bytes
FINAL_HEAD = "head-final.h5"  # of a run: a second name of the head after the last round
