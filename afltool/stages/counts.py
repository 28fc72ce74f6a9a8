"""Evaluation as statistics: solved heads and rows with labels → counts, which are added up.

A round of evaluation is what sites agree on: the heads, the bins of their scores, the groups. It is
written as a head file, so `local-stats` and `aggregate` do with it what they do with any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import UsageError
from ..files.columns import column_by_row
from ..files.features import open_features
from ..files.hdf5 import recipe, up_to_date
from ..files.heads import HeadFile, check_bound, load_head, load_solved_head, save_head
from ..heads.evaluation import Evaluation
from ..memory import NO_CACHE, Cache
from ..options import given
from ..options.evaluation import CountOptions, RoundOptions
from ..options.shared import advised
from ..options.statistics import LocalStatsOptions
from ..values.names import file_stem
from ..values.statistics import Context
from .stage import STAGES


def evaluation(
    heads: Sequence[Path],
    out: Path,
    options: RoundOptions = RoundOptions(),
    *,
    overwrite: bool = False,
) -> Path:
    """Write a round of evaluation: solved heads, the bins of their scores, groups of rows."""
    found, header = _of_heads(heads, options, options.groups)
    made_by = recipe("head", {"name": found.name, **found.options.as_dict()}, {})
    if not up_to_date(out, made_by, overwrite):
        save_head(out, found, made_by, Context(header["space"], tuple(header["classes"])))
    return out


@advised()
def counts(
    head: Path,
    features: Path,
    out: Path,
    options: CountOptions = CountOptions(),
    *,
    overwrite: bool = False,
    cache: Cache = NO_CACHE,
) -> Path:
    """Count the rows that a solved head predicts right and wrong: a file for each client.

    ``head`` is a solved head, with others ``beside`` it, or a round that `evaluation` has written.
    ``by`` says the group of each row; without ``groups`` the groups are those of these rows.
    Everything else is as in `local_stats`; without ``client`` and ``partition`` the client has the
    name of the file. The counts are `files.counts.Counts` to those who read them.
    """
    o = options
    if o.partition is None and o.client is None:
        o = replace(o, client=file_stem(features.stem))
    loaded = load_head(head, cache)
    if isinstance(loaded.head, Evaluation):
        _refuse_more(head, o)
    else:
        groups = o.groups or (_groups_of(o.by, features) if o.by else ())
        loaded = _of_heads([head, *o.beside], o, groups)
    gathering = LocalStatsOptions(**given(LocalStatsOptions, vars(o)))
    work = STAGES["local-stats"].module.local_stats
    made: Path = work(features, loaded, out, gathering, overwrite=overwrite, cache=cache)
    return made


def _of_heads(paths: Sequence[Path], o: RoundOptions, groups: Sequence[str]) -> HeadFile:
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


def _refuse_more(head: Path, o: CountOptions) -> None:
    """What a round that is written has said already."""
    for name in ("beside", "bins", "groups"):
        if getattr(o, name):
            raise UsageError(f"{head} is a round of evaluation, which says --{name}: leave it out")


def _groups_of(by: str, features: Path) -> tuple[str, ...]:
    with open_features(features) as rows:
        return tuple(sorted(set(column_by_row("--by", by, rows.row_ids))))
