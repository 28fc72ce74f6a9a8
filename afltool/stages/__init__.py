"""The stages in order, what each reads and writes; and a door for stages from outside."""

from __future__ import annotations

from functools import cache

from ..doors import STAGES as DOOR
from ..doors import opened
from ..options import Options
from ..options.features import ExtractOptions, SpaceOptions
from ..options.partition import PartitionOptions
from ..options.solving import EvaluateOptions, SolveOptions
from ..options.statistics import AggregateOptions, LocalStatsOptions
from ..progress import log
from .stage import Parts, Place, Stage

SITE, SERVER = Place.SITE, Place.SERVER
FEATURES, PARTITION, STATISTICS, HEAD = "features", "partition", "statistics", "head"

_SHARDS = Parts("shard", "merge", "shards")
_CLIENTS = Parts("only", "aggregate", "files")
_OF_ROWS = {"features": FEATURES, "partition": PARTITION, "head": HEAD}
_OF_SUMS = {"total": STATISTICS, "head": HEAD, "validate": STATISTICS}
_MEASURED = {"head": HEAD, "features": FEATURES, "train": FEATURES, "earlier": HEAD}
_IN_ORDER = (
    Stage("extract", ExtractOptions, {}, FEATURES, SITE, parts=_SHARDS),
    Stage("merge", Options, {"shards": FEATURES}, FEATURES, SITE),
    Stage("partition", PartitionOptions, {"features": FEATURES}, PARTITION, SITE),
    Stage("head", SpaceOptions, {"name": ""}, HEAD, SERVER, cached=True),
    Stage("local-stats", LocalStatsOptions, _OF_ROWS, STATISTICS, SITE, True, ("head",), _CLIENTS),
    Stage("aggregate", AggregateOptions, {"files": STATISTICS}, STATISTICS, SERVER, cached=True),
    Stage("solve", SolveOptions, _OF_SUMS, HEAD, SERVER, cached=True),
    Stage("evaluate", EvaluateOptions, _MEASURED, "", SITE, cached=True),
)
STAGES = {stage.name: stage for stage in _IN_ORDER}


@cache
def from_outside() -> dict[str, Stage]:
    """The stages of other packages by name: entry points of the group `DOOR`, each a `Stage`.

    One that is no stage, or has the name of one that is there, is left out, and that is said.
    """
    found: dict[str, Stage] = {}
    for name, stage in opened(DOOR).items():
        if isinstance(stage, Stage) and stage.name not in STAGES | found:
            found[stage.name] = stage
        else:
            log.warning("%s is no new stage of afltool and is left out (%s)", name, DOOR)
    return found


def every() -> dict[str, Stage]:
    """All stages by name, those from outside last."""
    return STAGES | from_outside()
