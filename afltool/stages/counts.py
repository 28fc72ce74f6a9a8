"""Evaluation as statistics: a solved head and rows with labels → counts, which are added up.

A round of evaluation is what sites agree on: the head, the bins of its scores, the groups.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..files.features import open_features
from ..files.heads import HeadFile, load_solved_head
from ..files.tables import column_by_row
from ..heads.evaluation import Evaluation
from ..memory import NO_CACHE, Cache
from ..options.evaluation import Counts
from ..options.statistics import LocalStatsOptions
from ..values.names import file_stem
from ._gathered import gather


def counts(o: Counts, *, cache: Cache = NO_CACHE) -> Path:
    """Count the rows that a solved head predicts right and wrong: a file for each client.

    ``by`` says the group of each row; without ``groups`` the groups are those of these rows.
    Everything else is as in `local_stats`; without ``client`` and ``partition`` the client has the
    name of the file. The counts are `files.counts.Counts` to those who read them.
    """
    head, features, out, overwrite = o.head, o.features, o.out, o.overwrite
    if o.partition is None and o.client is None:
        o = replace(o, client=file_stem(features.stem))
    groups = o.groups or (_groups_of(o.by, features) if o.by else ())
    solved = load_solved_head(head)
    bins = None if o.bins is None else str(o.bins)
    task = Evaluation.of([solved.head], bins, groups, o.min_group)
    gathering = o.to(LocalStatsOptions)
    return gather(
        gathering, features, HeadFile(task, solved.header), out, overwrite=overwrite, cache=cache
    )


def _groups_of(by: str, features: Path) -> tuple[str, ...]:
    with open_features(features) as rows:
        return tuple(sorted(set(column_by_row("--by", by, rows.row_ids))))
