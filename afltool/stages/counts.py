"""Evaluation as statistics: solved heads and rows with labels → counts, which are added up.

A round of evaluation is what sites agree on: the heads, the bins of their scores, the groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import UsageError
from ..files.columns import column_by_row
from ..files.features import open_features
from ..files.heads import HeadFile, check_bound, load_solved_head
from ..heads.evaluation import Evaluation
from ..memory import NO_CACHE, Cache
from ..options.common import advised
from ..options.evaluation import CountOptions, Counts
from ..options.statistics import LocalStatsOptions
from ..values.names import file_stem
from ._gathered import gather


@advised()
def counts(o: Counts, *, cache: Cache = NO_CACHE) -> Path:
    """Count the rows that a solved head predicts right and wrong: a file for each client.

    ``head`` is a solved head, with others ``beside`` it.
    ``by`` says the group of each row; without ``groups`` the groups are those of these rows.
    Everything else is as in `local_stats`; without ``client`` and ``partition`` the client has the
    name of the file. The counts are `files.counts.Counts` to those who read them.
    """
    head, features, out, overwrite = o.head, o.features, o.out, o.overwrite
    if o.partition is None and o.client is None:
        o = replace(o, client=file_stem(features.stem))
    groups = o.groups or (_groups_of(o.by, features) if o.by else ())
    loaded = _of_heads([head, *o.beside], o, groups)
    gathering = o.to(LocalStatsOptions)
    return gather(gathering, features, loaded, out, overwrite=overwrite, cache=cache)


def _of_heads(paths: Sequence[Path], o: CountOptions, groups: Sequence[str]) -> HeadFile:
    """A round of solved heads that are bound to one space and one list of classes."""
    loaded: list[HeadFile] = [load_solved_head(path) for path in paths]
    header = loaded[0].header
    for path, one in zip(paths, loaded, strict=True):
        bound = {name: one.header[name] for name in ("space", "classes")}
        check_bound(paths[0], header, path, bound)
    digests = [one.header["digest"] for one in loaded]
    for path, digest in zip(paths, digests, strict=True):
        if digests.count(digest) > 1:
            raise UsageError(f"the head {path} is named twice (digest {digest[:12]})")
    bins = None if o.bins is None else str(o.bins)
    heads = [one.head for one in loaded]
    return HeadFile(Evaluation.of(heads, bins, groups, o.min_group), header)


def _groups_of(by: str, features: Path) -> tuple[str, ...]:
    with open_features(features) as rows:
        return tuple(sorted(set(column_by_row("--by", by, rows.row_ids))))
